"""Runs every file of examples/. systemd and Docker are used where they are installed."""

import configparser
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scenarios.project import Process
from tickwork import RunStatus, Tickwork
from tickwork.schedules import Cron

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TICKWORK = Path(sys.executable).parent / "tickwork"


class Started:
    """Starts programs in a folder, with the examples on the import path."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/jobs.db"
        self.processes: list[Process] = []
        self.app = Tickwork(self.url, install=True)

    def __call__(self, *command: Any) -> Process:
        process = Process(
            [str(part) for part in command],
            folder=self.folder,
            log=self.folder / f"process-{len(self.processes)}.log",
            env=self.env,
        )
        self.processes.append(process)
        return process

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(EXAMPLES),
            "TICKWORK_URL": self.url,
        }

    def until(self, check: Callable[[], Any], *, seconds: float = 30) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := check():
                return found
            time.sleep(0.05)
        logs = "\n".join(process.log for process in self.processes)
        raise AssertionError(f"The condition was not met within {seconds} s.\n{logs}")

    def runs(self, job: str) -> list[Any]:
        return [run for run in self.app.runs.recent(limit=1000) if run.job == job]

    def close(self) -> None:
        for process in self.processes:
            process.end()
        self.app.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    started = Started(tmp_path)
    yield started
    started.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def request(url: str, method: str = "GET") -> str | None:
    """The response of a server; None while it does not answer."""
    try:
        wanted = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(wanted, timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {error.read().decode()}"
    except OSError:
        return None


def test_five_lines(start):
    source = (EXAMPLES / "five_lines.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) == 5

    script = start(sys.executable, EXAMPLES / "five_lines.py")

    start.until(lambda: script.log.count("Hello!") >= 2)
    script.terminate()
    assert script.wait() == 0, script.log


def test_fastapi_responds_at_once_and_the_run_is_executed(start):
    port = free_port()
    here = f"http://127.0.0.1:{port}"
    server = start(
        sys.executable, "-m", "uvicorn", "web:web", "--app-dir", EXAMPLES, "--port", port
    )

    placed = start.until(lambda: request(f"{here}/orders/7", "POST"))

    assert placed.startswith('{"run":'), placed
    run = placed.split('"')[3]
    start.until(lambda: "completed" in (request(f"{here}/runs/{run}") or ""))
    assert '"result":"receipt of order 7"' in (request(f"{here}/runs/{run}") or "")
    assert (request(f"{here}/runs/unknown") or "").startswith("404")
    server.terminate()
    # Uvicorn re-raises the signal after its shutdown.
    assert server.wait() in {0, -signal.SIGTERM}, server.log
    assert start.app.status()["workers"] == []


def test_gunicorn_with_a_scheduler_in_every_worker_fires_each_instant_once(start):
    port = free_port()
    conf = EXAMPLES / "gunicorn.conf.py"
    bind = f"127.0.0.1:{port}"
    server = start(sys.executable, "-m", "gunicorn", "-c", conf, "-b", bind, "wsgi:application")
    start.until(lambda: len(start.app.status()["workers"]) == 3)
    before = len(start.runs("count_orders"))

    start.until(lambda: len(start.runs("count_orders")) >= before + 4)
    run = start.until(lambda: request(f"http://{bind}/orders/7"))

    assert start.app.get_run(run.strip()).result(20) == "receipt of order 7"
    server.terminate()
    assert server.wait() == 0, server.log
    fired = start.runs("count_orders")
    # On a busy machine firings may be skipped. Skips in a row share one run, which counts them.
    last = max(run.last_nominal_at or run.nominal_at for run in fired)
    first = min(run.nominal_at for run in fired)
    assert len({run.nominal_at for run in fired}) == len(fired)
    assert sum(run.instants for run in fired) == (last - first).total_seconds() + 1


class TestTheSystemdUnit:
    """The unit is valid, and its command and timeouts fit together."""

    @pytest.fixture
    def unit(self) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read(EXAMPLES / "tickwork.service", encoding="utf-8")
        return parser

    def test_systemd_accepts_it(self, tmp_path):
        if shutil.which("systemd-analyze") is None:
            pytest.skip("systemd is not installed")
        text = (EXAMPLES / "tickwork.service").read_text(encoding="utf-8")
        text = text.replace("/srv/shop/.venv/bin/tickwork", str(TICKWORK))
        text = text.replace("/srv/shop", str(tmp_path)).replace("User=shop", "User=root")
        copy = tmp_path / "tickwork.service"
        copy.write_text(text, encoding="utf-8")

        done = subprocess.run(
            ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
        )

        assert "tickwork.service" not in done.stderr, done.stderr

    def test_its_command_exists(self, unit):
        parts = shlex.split(unit["Service"]["ExecStart"])

        done = subprocess.run(
            [TICKWORK, *parts[1:], "--help"], capture_output=True, text=True, check=False
        )

        assert done.returncode == 0, done.stderr

    def test_it_waits_longer_than_the_drain(self, unit):
        drain = int(
            unit["Service"]["ExecStart"].partition("--drain ")[2].split()[0].removesuffix("s")
        )

        assert int(unit["Service"]["TimeoutStopSec"]) > drain + 20

    def test_only_the_supervisor_gets_the_signal(self, unit):
        # A worker that gets a second signal, from systemd and its supervisor, ends at once.
        assert unit["Service"]["KillMode"] == "mixed"


def test_the_crontab_line_runs_what_is_due(start):
    lines = (EXAMPLES / "crontab").read_text(encoding="utf-8").splitlines()
    *fields, command = lines[-1].split(maxsplit=5)
    assert Cron.parse(" ".join(fields)).describe() == "every minute (UTC)"
    assert "--for 60" in command
    command = command.replace("/srv/shop", str(start.folder)).replace("--for 60", "--for 3")
    command = command.replace(".venv/bin/tickwork", str(TICKWORK))
    process = start("/bin/sh", "-c", command)

    assert process.wait(60) == 0, process.log

    fired = start.runs("count_orders")
    assert len(fired) >= 2
    assert {run.status for run in fired} == {RunStatus.COMPLETED}


class TestCompose:
    """The Compose file: a database, its tables, and workers."""

    @pytest.fixture
    def services(self) -> dict[str, Any]:
        text = (EXAMPLES / "compose.yaml").read_text(encoding="utf-8")
        found: dict[str, Any] = yaml.safe_load(text)["services"]
        return found

    def test_docker_accepts_it(self):
        if _has_no_compose():
            pytest.skip("docker compose is not installed")
        done = subprocess.run(
            ["docker", "compose", "-f", EXAMPLES / "compose.yaml", "config", "--quiet"],
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr

    def test_services_wait_for_their_dependencies(self, services):
        needs = {
            name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
            for name, service in services.items()
        }

        assert needs == {
            "db": {},
            "install": {"db": "service_healthy"},
            "worker": {"install": "service_completed_successfully"},
        }
        assert services["db"]["healthcheck"]["test"]

    def test_the_grace_period_is_longer_than_the_drain(self, services):
        worker = services["worker"]
        drain = int(worker["command"][worker["command"].index("--drain") + 1].removesuffix("s"))

        assert int(worker["stop_grace_period"].removesuffix("s")) > drain

    @pytest.mark.servers("postgres")
    def test_its_commands_work_on_a_real_server(self, services, tmp_path, postgres_url):
        urls = {services[name]["environment"]["TICKWORK_URL"] for name in ("install", "worker")}
        assert urls == {"postgresql://shop:shop@db/shop"}
        start = Started(tmp_path, postgres_url)
        dockerfile = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
        assert "ENV TICKWORK_APP=shop.jobs:app" in dockerfile
        env = {**start.env, "TICKWORK_APP": "shop.jobs:app"}
        try:
            _, *arguments = services["install"]["command"]
            done = subprocess.run(
                [TICKWORK, *arguments], env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            _, *arguments = services["worker"]["command"]
            worker = start(TICKWORK, "-a", "shop.jobs:app", *arguments)
            start.until(lambda: len(start.runs("count_orders")) >= 2)
            worker.terminate()
            assert worker.wait() == 0, worker.log
        finally:
            start.close()


def _has_no_compose() -> bool:
    if shutil.which("docker") is None:
        return True
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return done.returncode != 0
