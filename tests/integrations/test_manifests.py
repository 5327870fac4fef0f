"""The manifests for Kubernetes and KEDA, and the board for Grafana, fit what a worker serves."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tickwork import Tickwork
from tickwork._kernel.durations import parse_duration
from tickwork.cli.work import work_command
from tickwork.integrations.health import HealthServer
from tickwork.integrations.prometheus import instrument

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def manifests(name: str) -> dict[str, Any]:
    text = (EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture
def metric_names() -> set[str]:
    registry = CollectorRegistry()
    with Tickwork("memory://") as app:
        instrument(app, registry=registry)
        text = generate_latest(registry).decode()
    families = [
        family
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created")
    ]
    found = {family.name for family in families}
    for family in families:
        if family.type == "counter":
            found.add(f"{family.name}_total")
        if family.type == "histogram":
            found |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    return found


def test_the_deployment():
    found = manifests("worker.yaml")
    pod = found["Deployment"]["spec"]["template"]
    [worker] = pod["spec"]["containers"]
    program, command, *options = worker["command"]

    assert (program, command) == ("tickwork", "work")
    parsed = work_command.make_context("work", list(options), resilient_parsing=True).params
    host, port = parsed["http"]
    assert (host, port) == ("", worker["ports"][0]["containerPort"])
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    drain = parse_duration(options[options.index("--drain") + 1]).total_seconds()
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain + 10
    with Tickwork("memory://") as app:
        server = HealthServer(app)
        for probe, path in (
            ("startup", "/healthz"),
            ("liveness", "/healthz"),
            ("readiness", "/readyz"),
        ):
            assert worker[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
            assert server.answer(path).status != 404
    assert found["Job"]["spec"]["template"]["spec"]["containers"][0]["command"][1] == "install"


def test_the_install_job_runs_at_each_deploy():
    found = manifests("worker.yaml")
    [install] = found["Job"]["spec"]["template"]["spec"]["containers"]
    [worker] = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    version = worker["image"].partition(":")[2]

    assert version not in {"", "latest"}
    assert install["image"] == worker["image"]
    assert found["Job"]["metadata"]["name"] == f"shop-install-{version.replace('.', '-')}"


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_pods_do_not_run_as_root(kind):
    pod = manifests("worker.yaml")[kind]["spec"]["template"]["spec"]
    dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}\n" in dockerfile
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_image_can_answer_metrics():
    dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")

    assert "[postgres,prometheus]" in dockerfile


def test_a_deploy_does_not_reset_the_number_of_the_autoscaler():
    deployment = manifests("worker.yaml")["Deployment"]
    scaled = manifests("keda.yaml")["ScaledObject"]["spec"]

    assert scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    assert scaled["minReplicaCount"] >= 1


@pytest.mark.servers("postgres")
def test_the_query_of_keda_reads_unfinished_runs_only(postgres_url):
    [trigger] = manifests("keda.yaml")["ScaledObject"]["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert trigger["type"] == "postgresql"
    with Tickwork(postgres_url, install=True) as app:
        send = app.schedule("send", lambda: None).queue("emails")
        send.dispatch()
        app.run()
        send.dispatch()
        app.schedule("other", lambda: None).queue("slow").dispatch()
        with psycopg.connect(postgres_url) as connection:
            [(count,)] = connection.execute(query).fetchall()
            plan = str(connection.execute(f"EXPLAIN {query}").fetchall())

    assert count == 1
    assert "tickwork_run " in plan
    assert "tickwork_history" not in plan


def test_the_guide_has_the_same_query():
    page = (ROOT / "docs" / "guide" / "kubernetes.md").read_text(encoding="utf-8")
    query = manifests("keda.yaml")["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]

    assert " ".join(query.split()) in " ".join(page.split())


def test_the_board_uses_metrics_that_exist(metric_names):
    board = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"tickwork_\w+", query)}

    assert used - metric_names == set()
    # Every metric is on the board, except what another panel shows: those of what ended are for
    # alerts where only one process is scraped.
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    every = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metric_names}
    missing = {name for name in every if not {name, f"{name}_total"} & shown}
    assert missing == {
        "tickwork_queue_ended_last_hour",
        "tickwork_queue_finished_per_minute",
        "tickwork_queue_paused",
        "tickwork_queue_wait_seconds",
    }


def test_the_guide_lists_the_metrics(metric_names):
    page = (ROOT / "docs" / "guide" / "telemetry.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(tickwork_\w+)`", page, re.MULTILINE))

    assert listed - metric_names == set()
    assert len(listed) == 17
