"""The dashboard beside a worker: what it serves, and that its faults do not reach the worker."""

import contextlib
import re
import socket
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from dashboard.browser import wait_until
from scenarios.project import Project
from tickwork import Tickwork
from tickwork.dashboard import AccessToken, Role, connections, server
from tickwork.dashboard.configured_tokens import ConfiguredTokens, read_proxies
from tickwork.dashboard.server import DashboardServer
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

    project.until(lambda: get(f"http://{dashboard}/login")[0] == 200, seconds=120)
    assert get(f"http://{dashboard}/api/v1/jobs")[0] == 401
    link = re.search(
        rf"No token is configured.*: http://{dashboard}/login\?token=(\S+)", worker.log
    )
    assert link is not None, worker.log
    authorization = f"Bearer {link[1]}"
    assert '"send"' in get(f"http://{dashboard}/api/v1/jobs", Authorization=authorization)[1]
    assert get(f"http://{probes}/readyz")[0] == 200
    worker.terminate()
    assert worker.wait() == 0, worker.log


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
        wait_until(lambda: get(f"http://127.0.0.1:{port}/login")[0] == 200)
    assert get(f"http://127.0.0.1:{port}/login")[0] == 0
    assert len(tries) == 2


class TestConnections:
    """Connections without a token take no descriptors from the worker, and no place for long."""

    @pytest.fixture
    def address(self, app, monkeypatch):
        monkeypatch.setattr(connections, "CONNECTIONS_MAX", 5)
        monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
        port = free_port()
        token = AccessToken(name="ann", secret=SECRET, role=Role.ADMIN)
        with DashboardServer(app, "127.0.0.1", port, tokens=[token], option="--ui"):
            wait_until(lambda: get(f"http://127.0.0.1:{port}/login")[0] == 200)
            yield "127.0.0.1", port

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"GET /login HTTP/1.1\r\nHost: a\r\n",  # and never the empty line
            b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\ntoken",
            b"GET /login HTTP/1.1\r\nHost: a\r\n\r\nGET /login HTTP/1.1\r\n",
        ],
        ids=["nothing", "head", "body", "second request"],
    )
    def test_a_request_that_does_not_arrive_is_given_up(self, address, text):
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                idle = stack.enter_context(socket.create_connection(address))
                idle.sendall(text)
            wait_until(lambda: get(f"http://{address[0]}:{address[1]}/login")[0] == 200)
            idle.settimeout(10)
            assert is_closed(idle)

    def test_further_ones_are_closed_at_once(self, address, monkeypatch):
        monkeypatch.setattr(connections, "REQUEST_SECONDS", 60.0)
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(address)) for _ in range(6)]
            for each in opened:
                each.settimeout(2)

            assert is_closed(opened[-1])
            assert not is_closed(opened[0])

    def test_live_changes_go_on(self, address):
        with socket.create_connection(address) as live:
            live.settimeout(10)
            live.sendall(
                b"GET /events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n"
                % SECRET.encode()
            )
            assert live.recv(1000).startswith(b"HTTP/1.1 200")
            live.settimeout(2)  # four times as long as a request may take
            assert not is_closed(live)


def is_closed(connection):
    """Read until the server closes the connection, or sends nothing for the timeout."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


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
    assert not DashboardServer(app, host, 0, tokens=[token], option="--ui").has_link


def names_of(tokens):
    return [(each.name, each.role) for each in tokens()]


class TestConfiguredTokens:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "tokens"
        path.write_text("bob reader another-long-secret\n", encoding="utf-8")
        return path

    def test_they_come_from_the_environment_and_a_file(self, monkeypatch, file):
        assert not ConfiguredTokens()
        monkeypatch.setenv("TICKWORK_UI_TOKEN", SECRET)
        monkeypatch.setenv("TICKWORK_UI_TOKEN_FILE", str(file))

        assert names_of(ConfiguredTokens()) == [("admin", Role.ADMIN), ("bob", Role.READER)]

    def test_a_missing_file_and_a_file_without_tokens_are_refused(self, file):
        with pytest.raises(InvalidOption, match="must be a text file that can be read"):
            ConfiguredTokens(file.with_name("none"))
        file.write_text("# none yet\n", encoding="utf-8")
        with pytest.raises(InvalidOption, match="must have at least one token"):
            ConfiguredTokens(file)

    def test_a_changed_file_counts_at_once(self, file):
        tokens = ConfiguredTokens(file)
        for text, names in (
            ("bob admin another-long-secret\n", [("bob", Role.ADMIN)]),
            ("ann admin another-long-secret\n", [("ann", Role.ADMIN)]),
            ("", []),
        ):
            other = file.with_name("new")
            other.write_text(text, encoding="utf-8")
            other.replace(file)

            assert names_of(tokens) == names
        assert tokens  # no request is answered now: it does not become a server without tokens

    @pytest.mark.parametrize("text", ["bob boss another-long-secret", "bob reader short", None])
    def test_a_file_that_cannot_be_read_changes_nothing(self, file, caplog, text):
        tokens = ConfiguredTokens(file)
        if text is None:
            file.unlink()
        else:
            file.write_text(text, encoding="utf-8")

        assert names_of(tokens) == names_of(tokens) == [("bob", Role.READER)]
        assert caplog.text.count("The tokens stay as they were") == 1
        assert "short" not in caplog.text

    def test_two_equal_secrets_in_a_file_are_refused(self, file):
        file.write_text(f"ann admin {SECRET}\nbob reader {SECRET}\n", encoding="utf-8")

        with pytest.raises(InvalidOption, match="must have different secrets"):
            ConfiguredTokens(file)


def test_trusted_proxies_are_addresses_or_networks(monkeypatch):
    assert read_proxies() == ()
    assert read_proxies(["10.0.0.7", "fd00::/8"]) == ("10.0.0.7", "fd00::/8")
    monkeypatch.setenv("TICKWORK_UI_TRUSTED_PROXY", "127.0.0.1, 10.0.0.0/24")
    assert read_proxies() == ("127.0.0.1", "10.0.0.0/24")
    for wrong in ("*", "proxy.example.org", "10.0.0.7/24", ""):
        with pytest.raises(InvalidOption, match="must be an address or a network"):
            read_proxies([wrong])


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
