"""The HTTP server of a worker: probes and scrapes, and what it refuses."""

import http.client
import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta

import click
import pytest
from click.testing import CliRunner

from tickwork import Tickwork
from tickwork._domain.health import UnwrittenOutcomes
from tickwork._worker.attempts.writer import Writer
from tickwork._worker.services.attempt_watch import AttemptWatch
from tickwork.cli.parameters import ADDRESS
from tickwork.errors import InvalidOption, StoreUnavailable
from tickwork.integrations import health
from tickwork.integrations.health import HealthServer


@pytest.fixture
def app(tmp_path):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True) as app:
        yield app


@pytest.fixture
def server(app):
    with HealthServer(app, "127.0.0.1", 0) as server:
        yield server


def ask(server, path, method="GET"):
    host, port = server.address
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_probes_follow_the_worker(app, server):
    assert ask(server, "/healthz")[:2] == (200, "absent\n")
    assert ask(server, "/readyz")[:2] == (503, "absent\n")
    with app.running():
        assert ask(server, "/healthz")[:2] == (200, "running\n")
        assert ask(server, "/readyz")[:2] == (200, "ready\n")
        app.stop()
        assert ask(server, "/healthz")[0] == 200
        assert ask(server, "/readyz")[:2] == (503, "stopping\n")


def test_outcomes_that_wait_make_a_worker_unready_and_no_process_is_replaced(
    app, server, monkeypatch
):
    unwritten = UnwrittenOutcomes(
        number=3,
        reason="db.example.org has a full disk",
        waited=timedelta(seconds=5),
        is_store_ill=True,
    )
    found = [unwritten]
    monkeypatch.setattr(Writer, "find_unwritten", lambda _: found[0])
    text = "3 outcomes not written for 5s"  # the reason may name a host
    with app.running():
        assert ask(server, "/readyz")[:2] == (503, f"{text}\n")
        assert ask(server, "/healthz")[:2] == (200, f"running\n{text}\n")

        # The database stores other outcomes.
        found[0] = replace(unwritten, is_store_ill=False)
        assert ask(server, "/readyz")[:2] == (200, f"ready\n{text}\n")


def test_a_worker_that_hangs_needs_a_new_process(app, server, monkeypatch):
    with app.running():
        monkeypatch.setattr(AttemptWatch, "patience", -1.0)
        assert ask(server, "/healthz")[:2] == (503, "stuck\n")
        assert ask(server, "/readyz")[0] == 503


def test_a_database_that_is_away_is_no_reason_for_a_restart(app, server, monkeypatch):
    def fail():
        raise StoreUnavailable("postgresql://shop@db.example.org/shop", reason="gone")

    with app.running():
        monkeypatch.setattr(app, "schema_version", fail)
        assert ask(server, "/healthz")[0] == 200
        # The text of the error names the host, and a probe has no token.
        assert ask(server, "/readyz")[:2] == (503, "The database does not answer.\n")


def test_metrics(app, server):
    @app.job(queue="mail")
    def send() -> None: ...

    send.dispatch()
    status, text, headers = ask(server, "/metrics")

    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert 'tickwork_queue_runs{phase="ready",queue="mail"} 1.0' in text
    assert 'tickwork_runs_dispatched_total{job_name="send",queue="mail"} 1.0' in text


def test_other_methods_and_paths_are_refused(server):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, _, headers = ask(server, "/healthz", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert ask(server, "/../etc/passwd")[0] == 404
    assert ask(server, "/healthz", "BREW")[0] == 501
    status, body, headers = ask(server, "/healthz", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "7")


def test_idle_connections_are_bounded(server, monkeypatch):
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.2)
    monkeypatch.setattr(health._Handler, "timeout", 60.0)  # a client that sends a byte at a time
    idle = [socket.create_connection(server.address) for _ in range(health.CONNECTIONS_MAX)]
    deadline = time.monotonic() + 20
    try:
        for each in idle:
            each.sendall(b"GET /healthz")  # and never a line end
        while True:  # ends: the server closes connections that take too long
            try:
                assert ask(server, "/healthz")[0] == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < deadline
        for each in idle:
            each.settimeout(10)
            while each.recv(1000):
                pass
    finally:
        for each in idle:
            each.close()


def test_a_database_that_hangs_blocks_no_probe(app, server, monkeypatch):
    answers, release = [], threading.Event()

    def hang():
        release.wait(20)
        return 1

    with app.running():
        monkeypatch.setattr(app, "schema_version", hang)
        first = threading.Thread(target=lambda: answers.append(ask(server, "/readyz")[0]))
        first.start()
        while not server._reading["/readyz"].locked():
            time.sleep(0.01)
        assert ask(server, "/readyz")[0] == 503
        assert ask(server, "/healthz")[0] == 200
        release.set()
        first.join()
    assert answers == [200]


def test_without_the_extra_there_are_no_metrics(app, server, monkeypatch):
    def fail():
        from tickwork.errors import ExtraMissing

        raise ExtraMissing("prometheus-client", extra="prometheus")

    monkeypatch.setattr(server, "_load_metrics", fail)
    status, text, _ = ask(server, "/metrics")

    assert status == 501
    assert "[prometheus]" in text


def test_an_address_in_use(app, server):
    with pytest.raises(InvalidOption, match="must be a free address"):
        HealthServer(app, *server.address).start()


@pytest.mark.parametrize("address", ["8080", "host:http", ":99999", "::1:80"])
def test_an_address_that_is_none(address):
    with pytest.raises(click.BadParameter, match="such as :8080"):
        ADDRESS.convert(address, None, None)


def test_addresses():
    given = [":8080", "127.0.0.1:80", "[::1]:8080"]

    found = [ADDRESS.convert(address, None, None) for address in given]
    assert found == [("", 8080), ("127.0.0.1", 80), ("::1", 8080)]


def test_each_process_needs_a_port(app):
    done = CliRunner().invoke(app.cli(), ["work", "--http", ":65535", "--processes", "2"])

    assert done.exit_code == 2
    assert "one port for each process" in done.output
