"""The dashboard beside a worker: what it serves, and that its faults do not reach the worker."""

import socket
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from dashboard.browser import wait_until
from scenarios.project import Project
from tickwork import Tickwork
from tickwork.dashboard import AccessToken, Role, server
from tickwork.dashboard.server import DashboardServer, read_tokens
from tickwork.errors import InvalidOption

SECRET = "0123456789abcdef"
JOBS = """
@app.job
def send() -> None:
    mark("send")
"""


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}") as project:
        project.write("shop", JOBS)
        project.app.install()
        yield project


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def test_a_worker_serves_the_dashboard_and_probes(project):
    dashboard, probes = (f"127.0.0.1:{free_port()}" for _ in range(2))
    worker = project.run("work", "--ui", dashboard, "--http", probes)
    project.dispatch("send")
    project.marked("send")

    project.until(lambda: get(f"http://{dashboard}/")[0] == 200, seconds=120)
    assert '"send"' in get(f"http://{dashboard}/api/v1/jobs")[1]
    assert get(f"http://{dashboard}/", Host="shop.example.org")[0] == 403
    assert get(f"http://{probes}/readyz")[0] == 200
    worker.terminate()
    assert worker.wait() == 0, worker.log
    assert "answers only requests from its own machine" in worker.log


def test_a_port_in_use_stops_no_worker(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = project.run("work", "--ui", f"127.0.0.1:{taken.getsockname()[1]}")
        project.dispatch("send")
        project.marked("send")
    worker.terminate()
    assert worker.wait() == 0, worker.log
    assert "The dashboard is not served yet" in worker.log


def test_a_server_that_fails_starts_again(app, monkeypatch):
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.01)
    tries = []
    serve = DashboardServer.run

    def fail_first(self):
        tries.append(self)
        if len(tries) == 1:
            raise SystemExit(1)
        serve(self)

    monkeypatch.setattr(DashboardServer, "run", fail_first)
    port = free_port()
    with DashboardServer(app, "127.0.0.1", port, tokens=[], option="--ui"):
        wait_until(lambda: get(f"http://127.0.0.1:{port}/workers")[0] == 200)
    assert get(f"http://127.0.0.1:{port}/workers")[0] == 0
    assert len(tries) == 2


def test_a_forked_process_does_not_listen(app):
    beside = DashboardServer(app, "127.0.0.1", 0, tokens=[], option="--ui")
    url = beside.listen()
    beside.after_fork()

    assert get(url)[0] == 0


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.0.2.1", "shop.example.org"])
def test_it_is_closed_to_other_machines_without_a_token(app, host):
    with pytest.raises(InvalidOption, match="while no token is configured"):
        DashboardServer(app, host, 0, tokens=[], option="--ui")
    token = AccessToken(name="ann", secret=SECRET, role=Role.ADMIN)
    assert DashboardServer(app, host, 0, tokens=[token], option="--ui").has_tokens


def test_tokens_of_the_environment(monkeypatch, tmp_path):
    assert read_tokens() == []
    monkeypatch.setenv("TICKWORK_UI_TOKEN", SECRET)
    (tmp_path / "tokens").write_text("bob reader another-long-secret\n", encoding="utf-8")
    monkeypatch.setenv("TICKWORK_UI_TOKEN_FILE", str(tmp_path / "tokens"))
    assert [(each.name, each.role) for each in read_tokens()] == [
        ("admin", Role.ADMIN),
        ("bob", Role.READER),
    ]
    monkeypatch.setenv("TICKWORK_UI_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidOption, match="must be a text file that can be read"):
        read_tokens()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--ui", "--processes", "2"], "--ui serves one process"),
        (["--ui", "--reload"], "--ui serves one process"),
        (["--ui", ":8080", "--http", ":8080"], "need two addresses"),
        (["--ui", "0.0.0.0:8737"], "while no token is configured"),
        (["--ui", "8737"], "must be an address such as"),
    ],
)
def test_what_the_command_refuses(given, reason):
    found = CliRunner().invoke(Tickwork("memory://").cli(), ["work", *given])

    assert found.exit_code != 0
    assert reason in " ".join(found.output.split())
