"""How long commands take on a large database, with the start of Python.

    .venv/bin/python benchmarks/cli.py [sqlite] [postgres] [--runs 1000000] [--live 100000]
                                       [--schedules 1000] [--rounds 5]

The database is filled by SQL: finished runs of a hundred jobs (one in a thousand failed),
unfinished ones that wait, and schedules. Each command is a process of its own, as a person
starts it; the best and the median of the rounds are printed beside a bare interpreter and
``tickwork --version``. FoundJob: less than a second.
"""

import argparse
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers

from tickwork import Tickwork  # noqa: E402
from tickwork._kernel.clock import SystemClock  # noqa: E402
from tickwork.schedules import Interval  # noqa: E402

MODULE = """
from tickwork import Tickwork
app = Tickwork({url!r})
for number in range(100):
    app.schedule(f"job-{{number}}", lambda: None)
"""
COMMANDS = [
    ["status"],
    ["runs"],
    ["runs", "--job", "job-7"],
    ["runs", "--status", "failed_permanent"],
    ["runs", "--status", "running"],
    ["runs", "--since", "1h"],
    ["next"],
    ["inspect", "{id}"],
    ["explain", "job-7"],
    ["explain", "{live}"],
    ["doctor"],
]
HEADS = {
    "history": "id, tenant, job, queue, priority, status, due_at, args, attempt, attempts_max, "
    "crashes, postponements, token, instants, created_at, started_at, ended_at, outcome, reason",
    "run": "id, tenant, job, queue, priority, status, phase, due_at, args, attempt, attempts_max, "
    "crashes, postponements, token, created_at, reason",
}
# A run each millisecond: back from now, or, for those that wait, from an hour ahead on.
HISTORY = """
INSERT INTO tickwork_history ({head})
SELECT {id}, '', 'job-' || (n % 100), 'default', 100,
       CASE WHEN n % 1000 = 0 THEN 'failed_permanent' ELSE 'completed' END,
       {base} + n * 1000, '{{"n": 1}}', 1, 1, 0, 0, 1, 1, {base} + n * 1000,
       {base} + n * 1000 + 100, {base} + n * 1000 + 300,
       CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'succeeded' END,
       CASE WHEN n % 1000 = 0 THEN 'ValueError: no' ELSE '' END
FROM {numbers}
"""
LIVE = """
INSERT INTO tickwork_run ({head})
SELECT {id}, '', 'job-' || (n % 100), 'default', 100, 'pending', 'waiting',
       {base} + 3600000000 + n * 1000, '{{"n": 1}}', 0, 1, 0, 0, 0, {base}, ''
FROM {numbers}
"""


# ---------------------------------------------------------------- filling


class Sqlite:
    """Fills a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    def fill(self, statement: str, count: int, *, base: int, tail: int, step: int = 1) -> None:
        """Insert a row for each number; their ids are ``step`` milliseconds apart."""
        milliseconds = f"({base} / 1000 + n * {step})"
        text = statement.format(
            head=HEADS["history" if "history" in statement else "run"],
            id=f"printf('%08x-%04x-7000-8000-%012x', {milliseconds} >> 16, "
            f"{milliseconds} & 65535, n + {tail})",
            base=base,
            numbers="(WITH RECURSIVE numbers (n) AS "  # our own numbers
            f"(SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count - 1}) "
            "SELECT n FROM numbers)",
        )
        with sqlite3.connect(self._path) as connection:
            connection.execute(text)
            connection.execute("ANALYZE")


class Postgres:
    """Fills a database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fill(self, statement: str, count: int, *, base: int, tail: int, step: int = 1) -> None:
        import psycopg  # noqa: PLC0415  # a driver for those who have it

        milliseconds = f"({base} / 1000 + n * {step})::bigint"
        text = statement.format(
            head=HEADS["history" if "history" in statement else "run"],
            id=f"(lpad(to_hex({milliseconds} >> 16), 8, '0') || '-' || "
            f"lpad(to_hex({milliseconds} & 65535), 4, '0') || '-7000-8000-' || "
            f"lpad(to_hex(n + {tail}), 12, '0'))::uuid",
            base=base,
            numbers=f"generate_series(0::bigint, {count - 1}) AS numbers (n)",
        )
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.encode())
            connection.execute("VACUUM ANALYZE")


@contextmanager
def opened(kind: str) -> Iterator[Sqlite | Postgres]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield Sqlite(Path(folder) / "jobs.db")
        return
    from servers.postgres import PostgresServer  # noqa: PLC0415  # as above

    with PostgresServer(fsync=False) as server:
        yield Postgres(server.url(server.create_database()))


def filled(database: Sqlite | Postgres, *, runs: int, live: int, schedules: int) -> dict[str, str]:
    """Fill it; return an id of a finished run, and one of an unfinished one."""
    now = SystemClock().now()
    base = int(now.timestamp() * 1_000_000)
    with Tickwork(database.url) as app:
        app.install()
        database.fill(HISTORY, runs, base=base - runs * 1000, tail=0)
        database.fill(LIVE, live, base=base, tail=1 << 40)
        job = app.remote("job-7").job
        for number in range(schedules):
            rule = Interval(length=timedelta(seconds=60 + number), anchor=now)
            app.schedules.register("", f"schedule-{number}", now, rule.length, job)
        done, waiting = app.runs.recent(limit=live + 1), app.runs.recent(limit=1)
        return {"id": done[-1].id, "live": waiting[0].id}


# ---------------------------------------------------------------- measuring


class Taken(NamedTuple):
    """By the clock on the wall, and by the processor: the second is less noisy."""

    seconds: list[float]
    cpu: list[float]


def seconds(command: Sequence[str], *, folder: str, rounds: int) -> Taken:
    taken = Taken([], [])
    for _ in range(rounds):
        begun, used = time.perf_counter(), _cpu_of_children()
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        taken.seconds.append(time.perf_counter() - begun)
        taken.cpu.append(_cpu_of_children() - used)
        assert done.returncode in {0, 1}, done.stderr.decode()
    return taken


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show(name: str, taken: Taken) -> None:
    best, median = min(taken.seconds), statistics.median(taken.seconds)
    cpu = min(taken.cpu)
    print(
        f"  {name:<42} best {best:6.3f} s   median {median:6.3f} s   cpu {cpu:6.3f} s", flush=True
    )


def measure(kind: str, options: argparse.Namespace) -> None:
    program = [sys.executable, "-m", "tickwork"]
    with opened(kind) as database, tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(MODULE.format(url=database.url), encoding="utf-8")
        begun = time.perf_counter()
        ids = filled(database, runs=options.runs, live=options.live, schedules=options.schedules)
        print(
            f"{kind}: {options.runs:,} finished and {options.live:,} unfinished runs, "
            f"{options.schedules:,} schedules (filled in {time.perf_counter() - begun:.0f} s)"
        )
        timed: Callable[[Sequence[str]], Taken] = lambda words: seconds(  # noqa: E731
            words, folder=folder, rounds=options.rounds
        )
        show("python -c pass", timed([sys.executable, "-c", "pass"]))
        show("tickwork --version", timed([*program, "--version"]))
        for words in COMMANDS:
            given = [word.format(**ids) for word in words]
            show(f"tickwork {' '.join(words)}", timed([*program, "-a", "shop:app", *given]))


def main(arguments: Sequence[Any] | None = None) -> None:
    os.environ.pop("TICKWORK_APP", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=100_000)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    for kind in options.kinds:
        measure(kind, options)


if __name__ == "__main__":
    main()
