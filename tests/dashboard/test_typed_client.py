"""A client that is generated from the OpenAPI document has types, and works."""

import importlib.util
import json
from urllib.parse import quote

import pytest
from mypy import api as mypy

from dashboard.conftest import API
from dashboard.typed_client import write_client
from tickwork import Tickwork

USE = """
from typing import assert_type
from generated_client import Client, JobView, RunDetails

def use(client: Client) -> None:
    run = client.dispatch_run(job="send_email", args={"to": "ann"}, delay="5m")
    assert_type(run["run"]["id"], str)
    details = client.get_run(run["run"]["id"])
    assert_type(details, RunDetails)
    assert_type(details["run"]["attempt"], int)
    assert_type(client.list_jobs(), list[JobView])
    assert_type(client.list_audit()["entries"][0]["detail"], dict[str, object])  # wrong: Any
    client.pause_queue("emails", note=1)  # wrong
    client.get_queue()  # wrong
    client.list_runs(sort="sideways")  # wrong
    client.get_queue("emails")["backlog"] == "empty"
    client.get_queue("emails")["nothing"]  # wrong
"""


@pytest.fixture(scope="module")
def document():
    from tickwork.dashboard.openapi import build_document

    return json.loads(json.dumps(build_document(server="")))  # as a program gets it


@pytest.fixture
def module(tmp_path, document):
    path = tmp_path / "generated_client.py"
    path.write_text(write_client(document))
    spec = importlib.util.spec_from_file_location("generated_client", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def client(module, admin):
    def send(method, path, query, body):
        answer = admin.request(method, f"{API}{quote(path)}", params=query, json=body)
        return answer.status_code, answer.json() if answer.content else None

    return module.Client(send)


def test_it_has_strict_types(tmp_path, module, monkeypatch):
    (tmp_path / "use.py").write_text(USE)
    monkeypatch.chdir(tmp_path)

    text, problems, status = mypy.run(["--strict", "--no-incremental", "use.py"])

    wrong = {number for number, line in enumerate(USE.splitlines(), 1) if "# wrong" in line}
    found = {int(line.split(":")[1]) for line in text.splitlines() if ": error:" in line}
    assert (found, problems, status) == (wrong, "", 1), text


def test_it_does_a_day_of_work(client, module, app: Tickwork):
    made = client.dispatch_run(job="send_email", args={"to": "ann@example.org"}, tags=["a"])
    assert made["is_new"]
    assert client.get_run(made["run"]["id"])["run"]["tags"] == ["a"]
    app.run()
    again = client.retry_run(made["run"]["id"])
    assert client.get_run(made["run"]["id"])["retries"] == [again["run"]["id"]]

    paused = client.pause_queue("emails", note="provider is down")
    assert paused["note"] == "provider is down"
    assert client.get_queue("emails")["backlog"] == "paused"
    assert client.list_audit()["entries"][0]["detail"] == {"note": "provider is down"}
    client.resume_queue("emails")

    schedule = client.create_schedule(
        name="digest", job="send_email", rule="@daily", args={"to": "ann"}
    )
    assert client.get_schedule("digest") == schedule
    assert client.change_schedule("digest", rule="@hourly")["revision"] == 2
    assert client.remove_schedule("digest")["name"] == "digest"
    with pytest.raises(module.ApiError) as caught:
        client.get_schedule("digest")
    assert caught.value.problem["status"] == 404


def test_every_operation_has_a_method(document, module):
    operations = {
        each["operationId"] for item in document["paths"].values() for each in item.values()
    }

    assert operations <= vars(module.Client).keys()
