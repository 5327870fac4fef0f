"""How long the pages and reads of the dashboard take with a million runs.

    .venv/bin/python benchmarks/dashboard.py [sqlite] [postgres] [--runs 1000000] [--rounds 20]

The database is filled by SQL: nine of ten runs are finished, over 30 days; 50 jobs, 8 queues, 20
tenants, tags, errors, schedules. Some filters match often, some one run in 100,000, some nothing.
A server (``tickwork ui``) in a process of its own answers one request at a time. The target is a
95th percentile below 200 ms.
"""

import argparse
import contextlib
import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers
sys.path.insert(0, str(ROOT / "benchmarks"))

from cli import Postgres, Sqlite, opened  # type: ignore[attr-defined]  # noqa: E402  # not tests/cli
from tickwork import Tickwork  # noqa: E402
from tickwork._kernel.clock import SystemClock  # noqa: E402
from tickwork.schedules import Interval  # noqa: E402

TARGET = 0.2
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/login\?token=(\S+)")
SPAN = timedelta(days=30)
SCHEDULES = 300
MODULE = """
from tickwork import Tickwork
app = Tickwork({url!r})
for number in range(50):
    app.schedule(f"job-{{number}}", lambda customer=0, path="": None)
"""
_ARGS = """'{{"customer": ' || (n % 5000) || ', "path": "/invoices/' || n || '.pdf"}}'"""
_TAGS = """CASE WHEN n % 100000 = 0 THEN '["rare"]' WHEN n % 10 = 0 THEN '["common", "b"]' END"""
_TENANT = "CASE WHEN n % 100000 = 0 THEN 'rare' ELSE 'tenant-' || (n % 20) END"
# Half of the runs belong to one job. One queue is nearly empty.
_JOB = "CASE WHEN n % 2 = 0 THEN 'job-0' ELSE 'job-' || (n % 50) END"
_QUEUE = "CASE WHEN n % 100000 = 7 THEN 'rare' ELSE 'queue-' || (n % 7) END"
_SCHEDULE = f"CASE WHEN n % 3 = 0 THEN 'schedule-' || (n % {SCHEDULES}) END"
HISTORY = f"""
INSERT INTO tickwork_history (
    id, tenant, job, queue, priority, status, due_at, args, tags, attempt, attempts_max, crashes,
    postponements, token, worker, schedule, nominal_at, instants, created_at, started_at, ended_at,
    outcome, result, reason
)
SELECT {{id}}, {_TENANT}, {_JOB}, {_QUEUE}, 100,
       CASE WHEN n % 50 = 0 THEN 'failed_permanent' WHEN n % 5000 = 1 THEN 'canceled'
            WHEN n % 90 = 1 THEN 'skipped' ELSE 'completed' END,
       {{base}} + n * {{step}}000, {_ARGS}, {_TAGS}, 1, 3, 0, 0, 1, {{worker}},
       {_SCHEDULE}, CASE WHEN n % 3 = 0 THEN {{base}} + n * {{step}}000 END, 1,
       {{base}} + n * {{step}}000, {{base}} + n * {{step}}000 + 20000 + n % 7000,
       {{base}} + n * {{step}}000 + 50000 + n % 90000,
       CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END, '{{{{"pages": 12}}}}',
       CASE WHEN n % 50 = 0 THEN 'ValueError: no customer ' || (n % 5000) ELSE '' END
FROM {{numbers}}
"""  # constants of this file
LIVE = f"""
INSERT INTO tickwork_run (
    id, tenant, job, queue, priority, status, phase, due_at, args, tags, attempt, attempts_max,
    crashes, postponements, token, worker, lease_until, blocked_on, schedule, created_at,
    started_at, reason
)
SELECT {{id}}, {_TENANT}, {_JOB}, {_QUEUE}, 100 + n % 3,
       CASE WHEN n % 5000 = 3 THEN 'running' WHEN n % 40 = 2 THEN 'failed' ELSE 'pending' END,
       CASE WHEN n % 5000 = 3 THEN 'running' WHEN n % 10 = 5 THEN 'blocked'
            WHEN n % 2 = 0 THEN 'ready' ELSE 'waiting' END,
       {{base}} + n * {{step}}000 + CASE WHEN n % 2 = 0 THEN 0 ELSE 9000000000 END,
       {_ARGS}, {_TAGS}, 0, 3, 0, 0, 1,
       CASE WHEN n % 5000 = 3 THEN {{worker}} END,
       CASE WHEN n % 5000 = 3 THEN {{base}} + 9000000000000 END,
       CASE WHEN n % 10 = 5 AND n % 5000 <> 3 THEN 'shared' END,
       {_SCHEDULE}, {{base}} + n * {{step}}000, NULL, ''
FROM {{numbers}}
"""  # as above
WORKER = "'019b76da-a800-7000-8000-000000000001'"
ATTEMPTS = """
INSERT INTO tickwork_attempt (run, token, attempt, outcome, started_at, ended_at, error, traceback)
SELECT id, 1, 1, 'failed', started_at, ended_at, reason, 'Traceback: ' || reason
FROM tickwork_history WHERE status = 'failed_permanent'
"""

RUN_QUERIES = (
    "",
    "job=job-0",
    "job=job-7",
    "job=nothing",
    "queue=queue-3",
    "queue=rare",
    "status=failed_permanent",
    "status=canceled",
    "status=running",
    "status=failed",
    "status=pending",
    "status=completed",
    "job=job-0&status=canceled",
    "job=job-0&tag=rare",
    "schedule=schedule-9",
    "schedule=nothing",
    "tag=common",
    "tag=rare",
    "tag=nothing",
    "tenant=tenant-7",
    "tenant=rare",
    "tenant=nothing",
    "since={hour}",
    "since={week}&before={day}",
    "before={week}",
    "before={month}",
    "since={week}&tag=nothing",
    "text=customer+77",
    "text=nothing",
    "text=nothing&job=job-0",
    "cursor={middle}",
    "cursor={middle}&tag=nothing",
)
PAGES = (
    "/",
    *(f"/runs?{query}" for query in RUN_QUERIES),
    "/runs/errors?since=24h",
    "/runs/errors?since=30d",
    "/runs?sort=runtime&since=24h",
    "/runs?error=timeout",
    "/runs?longer=30s",
    "/runs/bulk?status=failed_permanent",
    "/runs/bulk?tag=nothing",
    "/runs/bulk?tenant=tenant-7",
    "/runs/{done}",
    "/runs/{failed}",
    "/runs/{waiting}",
    "/dispatch",
    "/dispatch?job=job-7",
    "/dispatch?run={done}",
    "/schedules",
    "/schedules/schedule-9",
    "/schedules/preview?rule=*/5+*+*+*+*",
    "/time",
    "/time?view=week",
    "/time?view=day",
    "/queues",
    "/workers",
    "/alerts",
    "/audit",
    "/audit/changes",
    "/audit?subject=queue/q-7",
)
READS = (
    "/overview",
    "/checks",
    *(f"/runs?{query}" for query in RUN_QUERIES),
    "/runs?limit=500",
    "/runs/{done}",
    "/runs/{waiting}",
    "/jobs",
    "/jobs/job-7",
    "/schedules",
    "/schedules/schedule-9",
    "/schedules/schedule-9/firings",
    "/firings",
    "/preview?rule=*/5+*+*+*+*",
    "/queues",
    "/pauses",
    "/limits",
    "/workers",
    "/explanations?what=job-7",
    "/explanations?what=schedule-9",
    "/explanations?what={waiting}",
    "/audit",
)

# ---------------------------------------------------------------- filling


def fill(database: Sqlite | Postgres, runs: int) -> dict[str, str]:
    """Fill the database; return the values that paths name."""
    now = SystemClock().now()
    live = runs // 10
    step = max(int(SPAN.total_seconds() * 1000) // runs, 1)
    begin = int((now.timestamp() - runs * step / 1000) * 1000) * 1000
    is_postgres = isinstance(database, Postgres)
    worker = f"{WORKER}::uuid" if is_postgres else WORKER
    with Tickwork(database.url) as app:
        app.install()
        done = runs - live
        for statement, count, base in (
            (HISTORY, done, begin),
            (LIVE, live, begin + done * step * 1000),
        ):
            # Filled in two steps: `fill` formats the rest.
            text = statement.replace("{step}", str(step)).replace("{worker}", worker)
            database.fill(text, count, base=base, tail=0, step=step)
        execute(database, ATTEMPTS)
        job = app.remote("job-7").job
        for number in range(SCHEDULES):
            rule = Interval(length=timedelta(seconds=300 + number), anchor=now)
            app.schedules.register("", f"schedule-{number}", now, rule.length, job)
        for number in range(2_000):
            app.audit.record("queue.pause", f"queue/q-{number % 20}", actor="ann", source="ui")
        ids = {}
        for name, at in (("done", now - SPAN / 2), ("middle", now - SPAN / 3)):
            from tickwork._kernel.ids import new_id  # noqa: PLC0415

            ids[name] = app.runs.page(cursor=new_id(at), limit=1).runs[0].id
        from tickwork import RunFilter, RunStatus  # noqa: PLC0415

        failed = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))
        ids["failed"] = app.runs.recent(failed, limit=1)[0].id
        ids["waiting"] = app.runs.recent(limit=1)[0].id
    ago = {"hour": 1, "day": 24, "week": 168, "month": 24 * 29}
    times = {name: quote((now - timedelta(hours=hours)).isoformat()) for name, hours in ago.items()}
    return ids | times


def execute(database: Sqlite | Postgres, text: str) -> None:
    if isinstance(database, Postgres):
        import psycopg  # noqa: PLC0415  # a driver for those who have it

        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(text.encode())
            connection.execute("VACUUM ANALYZE")
        return
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(database.url.removeprefix("sqlite:///")) as file:
        file.execute(text)


# ---------------------------------------------------------------- the server


class Answered(NamedTuple):
    """The times of one path, in seconds."""

    path: str
    seconds: list[float]

    @property
    def p95(self) -> float:
        return sorted(self.seconds)[min(int(len(self.seconds) * 0.95), len(self.seconds) - 1)]


class ServerProcess(NamedTuple):
    """Where it listens, and its process."""

    port: int
    pid: int
    token: str

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far. It is less noisy than the clock on the wall."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(url: str) -> Iterator[ServerProcess]:
    """Serve the dashboard in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(MODULE.format(url=url), encoding="utf-8")
        command = [sys.executable, "-m", "tickwork", "-a", "shop:app", "ui", "--port", "0"]
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if (found := LINK.search(line)) is not None:
                        yield ServerProcess(int(found[1]), process.pid, found[2])
                        break
            finally:
                process.terminate()


class Client:
    """One connection to the server, with a session as a browser has it."""

    def __init__(self, server: ServerProcess, *, timeout: float) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        answer = self.send(f"/login?token={server.token}", "text/html")
        answer.read()
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    _cookie = ""

    def send(self, path: str, accept: str) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "Cookie": self._cookie}
        self._connection.request("GET", path, headers=headers)
        return self._connection.getresponse()

    def ask(self, path: str, accept: str) -> tuple[float, int]:
        begun = time.perf_counter()
        answer = self.send(path, accept)
        answer.read()
        return time.perf_counter() - begun, answer.status

    def close(self) -> None:
        self._connection.close()


def measure(server: ServerProcess, paths: list[tuple[str, str]], *, rounds: int) -> list[Answered]:
    client = Client(server, timeout=120)
    found = []
    for path, accept in paths:
        client.ask(path, accept)  # warm up
        used = server.cpu_seconds()
        taken, statuses = zip(*(client.ask(path, accept) for _ in range(rounds)), strict=True)
        answered = Answered(path, list(taken))
        cpu = (server.cpu_seconds() - used) / rounds
        found.append(answered)
        note = "" if answered.p95 < TARGET else "  MISSED"
        wrong = set(statuses) - {200}
        print(
            f"  {path[:62]:<62} p50 {statistics.median(taken) * 1000:8.1f}  "
            f"p95 {answered.p95 * 1000:8.1f}  max {max(taken) * 1000:8.1f}  "
            f"cpu {cpu * 1000:6.1f} ms{note}"
            f"{f'  STATUS {wrong}' if wrong else ''}",
            flush=True,
        )
    return found


# ---------------------------------------------------------------- the cost for a worker

DRAINER = """
import sys, time
from tickwork import Tickwork
from tickwork._worker.options import WorkerOptions

app = Tickwork(sys.argv[1])
app.job(name="drained")(lambda n: None)
for line in sys.stdin:
    count = int(line)
    for first in range(0, count, 1000):
        app.draft.dispatch_many("drained", [{"n": n} for n in range(1000)])
    before, begun, used = app.stats.attempts, time.perf_counter(), time.process_time()
    with app.running(WorkerOptions(queues=("default",))):
        while app.stats.attempts - before < count:
            time.sleep(0.005)
        print(time.perf_counter() - begun, time.process_time() - used, flush=True)
"""


class Viewer:
    """A browser with an open overview: an event stream, and the page again after each change."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._is_open = True
        self.loads = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._thread.join(30)

    def _watch(self) -> None:
        page, stream = (Client(self._server, timeout=60) for _ in range(2))
        events = stream.send("/events", "text/event-stream")
        page.ask("/", "text/html")
        while self._is_open:
            if events.readline().startswith(b"event: change"):
                page.ask("/", "text/html")
                self.loads += 1
        stream.close()


def measure_cost(url: str, server: ServerProcess, *, count: int, rounds: int) -> None:
    """Drain with and without an open overview, in turns; the worker is one process."""
    with subprocess.Popen(
        [sys.executable, "-c", DRAINER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None

        def drain() -> tuple[float, float]:
            print(count, file=worker.stdin, flush=True)
            seconds, cpu = map(float, worker.stdout.readline().split())  # type: ignore[union-attr]
            return count / seconds, 1e6 * cpu / count

        drain()  # warm up
        alone, watched, loads = [], [], 0
        for number in range(rounds):
            for is_watched in (number % 2 == 0, number % 2 == 1):
                if is_watched:
                    with Viewer(server) as viewer:
                        watched.append(drain())
                    loads += viewer.loads
                else:
                    alone.append(drain())
        worker.stdin.close()
    for name, place in (("runs/s", 0), ("µs of the worker's processor for a run", 1)):
        columns = [[each[place] for each in found] for found in (alone, watched)]
        a, b = map(statistics.median, columns)
        spread = [f"{min(column):,.1f} to {max(column):,.1f}" for column in columns]
        print(f"  {name}: alone {a:,.1f} ({spread[0]}), open {b:,.1f} ({spread[1]})  {b / a:.3f}")
    print(f"  the overview was loaded {loads} times in {rounds} drains of {count:,} runs")


def bench(kind: str, options: argparse.Namespace) -> None:
    with opened(kind) as database:
        begun = time.perf_counter()
        values = fill(database, options.runs)
        print(f"{kind}: {options.runs:,} runs, filled in {time.perf_counter() - begun:.0f} s")
        paths = [(path.format(**values), "text/html") for path in PAGES]
        paths += [(f"/api/v1{path.format(**values)}", "application/json") for path in READS]
        chosen = [pair for pair in paths if options.only in pair[0]]
        with serving(database.url) as server:
            found = measure(server, chosen, rounds=options.rounds)
            if options.drains:
                measure_cost(database.url, server, count=options.count, rounds=options.drains)
        slow = [each.path for each in found if each.p95 >= TARGET]
        print(f"{kind}: {len(found)} paths, {len(slow)} with p95 >= 200 ms\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="only paths that contain this text")
    parser.add_argument("--drains", type=int, default=12, help="pairs of drains; 0: none")
    parser.add_argument("--count", type=int, default=10_000, help="runs of a drain")
    options = parser.parse_args()
    for kind in options.kinds:
        bench(kind, options)


if __name__ == "__main__":
    main()
