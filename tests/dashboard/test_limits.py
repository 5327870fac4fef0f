"""Limits of the dashboard: the time of a read, and the number of streams, on a real server."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tickwork._stores._sql.statement import Statement
from tickwork.dashboard import AccessToken, Role, asgi
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.authentication import Authenticator, identify_loopback
from tickwork.dashboard.context import DashboardContext
from tickwork.dashboard.request_limit import RequestLimit
from tickwork.dashboard.stream import ChangeDetector

from .conftest import API

SLOW = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000000) "
    "SELECT count(*) FROM n"
)
ALICE, BOB = "alice-has-a-long-secret", "bob-has-a-long-secret"


class TestSlowReads:
    @pytest.fixture
    def client(self, app, client_of, monkeypatch):
        def read_slowly(inspector: Any) -> Any:
            def operation(_: Any) -> Any:
                return (yield Statement("slow", (SLOW,), {}))

            return inspector._store._read(operation)

        monkeypatch.setattr("tickwork._inspect.inspector.Inspector.workers", read_slowly)
        return client_of(Role.READER, read_timeout=timedelta(milliseconds=100))

    def test_the_api_answers_with_a_problem(self, client):
        answer = client.get(f"{API}/workers")

        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "10"
        problem = answer.json()
        assert problem["code"] == "read-timeout"
        assert "longer than 0.1 s" in problem["detail"]
        assert "filters" in problem["fix"]
        assert "jobs.db" not in answer.text  # the address of the database

    def test_a_page_explains_it(self, client):
        answer = client.get("/workers", headers={"Accept": "text/html"})

        assert answer.status_code == 503
        assert "longer than 0.1 s" in answer.text
        assert "Narrow the filters" in answer.text

    def test_other_pages_go_on(self, client):
        assert client.get(f"{API}/workers").status_code == 503
        assert client.get(f"{API}/queues").status_code == 200


# ---------------------------------------------------------------- streams


@pytest.fixture
def context(app):
    return DashboardContext(
        app,
        make_authenticator=partial(Authenticator, (), None),
        actions=Actions(app, is_read_only=False),
        read_timeout=timedelta(seconds=1),
        request_limit=RequestLimit(0),
    )


@pytest.mark.parametrize(("seconds", "delay"), [(0.001, 1.0), (0.06, 3.0), (2.0, 5.0)])
def test_a_live_page_waits_longer_if_its_reads_are_slow(context, seconds, delay):
    context.read_seconds = seconds

    assert ChangeDetector(context).delay == pytest.approx(delay)


async def _read_twice(context: DashboardContext) -> list[float]:
    await context.read(lambda: time.sleep(0.05))
    slow = context.read_seconds
    await context.read(lambda: None)
    return [slow, context.read_seconds]


def test_the_slowest_of_the_last_reads_counts(context):
    slow, later = asyncio.run(_read_twice(context))

    assert slow >= 0.05
    assert later == pytest.approx(0.9 * slow)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class Stream:
    """One connection to ``/events``, and the head of its answer."""

    def __init__(self, writer: asyncio.StreamWriter, status: int, head: str, body: str) -> None:
        self.writer = writer
        self.status = status
        self.head = head
        self.body = body

    @classmethod
    async def open(cls, port: int, secret: str = "") -> "Stream":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        token = f"Authorization: Bearer {secret}\r\n" if secret else ""
        writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{token}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split()[1])
        length = [line for line in head.lower().splitlines() if line.startswith("content-length")]
        body = await reader.readexactly(int(length[0].split()[1])) if length else b""
        if status != 200:
            await close(writer)
        return cls(writer, status, head.lower(), body.decode())


@contextmanager
def serving(site: Any) -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(site, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(30)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestStreams:
    def test_thousands_are_refused_politely_and_ended_ones_are_released(self, app):
        site = asgi(app, identify=identify_loopback, streams_max=30, streams_per_client=1_000)

        async def open_many(port: int, count: int) -> list[Stream]:
            gate = asyncio.Semaphore(100)

            async def open_one() -> Stream:
                async with gate:
                    return await Stream.open(port)

            return await asyncio.gather(*(open_one() for _ in range(count)))

        async def work(port: int) -> None:
            streams = await open_many(port, 2_000)
            assert Counter(stream.status for stream in streams) == {200: 30, 503: 1_970}
            refused = next(stream for stream in streams if stream.status == 503)
            assert "retry-after: 60" in refused.head
            assert "application/problem+json" in refused.head
            assert "30 pages are live already" in refused.body
            assert site.state.streams.open == 30
            for stream in streams:
                await close(stream.writer)
            await asyncio.to_thread(wait_for, lambda: site.state.streams.open == 0)
            again = await open_many(port, 31)
            assert Counter(stream.status for stream in again) == {200: 30, 503: 1}
            for stream in again:
                await close(stream.writer)

        with serving(site) as port:
            asyncio.run(work(port))
            wait_for(lambda: site.state.streams.open == 0)

    def test_one_client_does_not_take_the_streams_of_others(self, app):
        tokens = [
            AccessToken(name=name, secret=secret, role=Role.READER)
            for name, secret in (("alice", ALICE), ("bob", BOB))
        ]
        site = asgi(app, tokens=tokens, streams_max=5, streams_per_client=2)

        async def work(port: int) -> None:
            alices = [await Stream.open(port, ALICE) for _ in range(4)]
            bobs = [await Stream.open(port, BOB) for _ in range(2)]
            assert [stream.status for stream in alices] == [200, 200, 429, 429]
            assert "retry-after: 60" in alices[2].head
            assert "2 live pages already" in alices[2].body
            assert [stream.status for stream in bobs] == [200, 200]
            await close(alices[0].writer)
            await asyncio.to_thread(wait_for, lambda: site.state.streams.open == 3)
            alices.append(await Stream.open(port, ALICE))
            assert alices[-1].status == 200
            for stream in (*alices, *bobs):
                await close(stream.writer)

        with serving(site) as port:
            asyncio.run(work(port))


@pytest.mark.timeout(600)
def test_large_arguments_do_not_fill_the_memory_of_the_server(tmp_path):
    script = Path(__file__).with_name("large_payloads.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "jobs.db"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert max(answers["grown"].values()) < 50 * 2**20, answers["grown"]
    assert min(answers["lengths"].values()) > 2_000 * 60_000, "an export is complete"


def test_a_page_of_large_runs_ends_early_and_goes_on(admin, app):
    sent = {app.dispatch("send_email", to="x" * 50_000).id for _ in range(60)}

    for query in ({}, {"text": "xx"}):
        found: list[str] = []
        sizes: list[int] = []
        cursor = None
        while not sizes or cursor:
            params = {"limit": 500, **query, **({"cursor": cursor} if cursor else {})}
            answer = admin.get("/api/v1/runs", params=params).json()
            found += [run["id"] for run in answer["runs"]]
            sizes.append(len(answer["runs"]))
            cursor = answer["cursor"]

        assert len(found) == len(set(found))
        assert set(found) == sent
        assert max(sizes) < 60
