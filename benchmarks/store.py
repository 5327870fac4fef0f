"""Stores beside a bare driver loop that makes the same changes of rows, in one run.

    .venv/bin/python benchmarks/store.py [sqlite] [postgres] [mariadb] [mysql]

Both sides take turns on the same tables of the same database; medians are printed with their
ratio. The store has everything on: fencing, limits, attempts, job rows and history.
"""

import contextlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # private servers

from tickwork._domain.identity import RunId, ScheduleId, WorkerId  # noqa: E402
from tickwork._domain.job import JobSpec, ScheduleSpec  # noqa: E402
from tickwork._domain.runs.outcome import SUCCEEDED  # noqa: E402
from tickwork._domain.runs.retry import NO_RETRY  # noqa: E402
from tickwork._domain.runs.run import NewRun  # noqa: E402
from tickwork._domain.runs.transitions import settle  # noqa: E402
from tickwork._domain.schedules.interval import Interval  # noqa: E402
from tickwork._domain.schedules.rules import from_text  # noqa: E402
from tickwork._domain.tick import keys_wanted, plan_tick  # noqa: E402
from tickwork._kernel.clock import SystemClock  # noqa: E402
from tickwork._kernel.ids import new_id, new_ids  # noqa: E402
from tickwork._stores import Store, open_store  # noqa: E402
from tickwork._stores._sql.rows import PLAIN_MAPPERS, micros  # noqa: E402
from tickwork._stores.contract import ClaimRequest  # noqa: E402

CLOCK = SystemClock()
LEASE = timedelta(seconds=60)
ROUNDS = 5
WORKER = "019b76da-a800-7000-8000-00000000ba4e"
ARGS = '{"to":"ann@example.org","n":42}'


def runs(count: int, *, pairs: int = 1, **fields: Any) -> list[NewRun]:
    now = CLOCK.now()
    return [
        NewRun(
            id=RunId(run_id),
            job=f"job-{place % pairs}",
            queue=f"queue-{place % pairs % 10}",
            created_at=now,
            due_at=now,
            args=ARGS,
            **fields,
        )
        for place, run_id in enumerate(new_ids(now, count))
    ]


class Bare(Protocol):
    """The same changes of rows, without a store."""

    def insert_one(self, row: tuple[Any, ...]) -> None: ...
    def insert_many(self, rows: list[tuple[Any, ...]]) -> None: ...
    def claim(self, limit: int) -> list[Any]: ...
    def finish(self, claimed: list[Any]) -> None: ...
    def clear(self) -> None: ...


HISTORY = """id, tenant, job, queue, priority, status, due_at, expires_at, args, tags, attempt,
attempts_max, crashes, postponements, token, worker, limit_keys, schedule, nominal_at, target,
external_id, retry_of, trace, progress, checkpoint, cancel_requested_at, created_at, started_at,
ended_at, outcome, result, reason"""
INSERT = """INSERT INTO tickwork_run (id, tenant, job, queue, priority, status, phase, due_at,
expires_at, args, tags, attempts_max, overlap_key, limit_keys, schedule, nominal_at, target,
retry_of, trace, created_at)"""
MOVED = """id, tenant, job, queue, priority, 'completed', due_at, expires_at, args, tags, attempt,
attempts_max, crashes, postponements, token, worker, limit_keys, schedule, nominal_at, target,
external_id, retry_of, trace, progress, checkpoint, cancel_requested_at, created_at, started_at"""
CLAIM = "id, job, queue, args, attempt, token, due_at"
TABLES = ("run", "history", "attempt", "slot", "unique", "job", "schedule", "limit")


class BareSqlite:
    """A loop over ``sqlite3``, as durable as ours."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA cache_size = -16000")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        yield
        self._db.execute("COMMIT")

    def insert_one(self, row: tuple[Any, ...]) -> None:
        self.insert_many([row])

    def insert_many(self, rows: list[tuple[Any, ...]]) -> None:
        places = "?, ?, ?, ?, ?, 'pending', " + ", ".join("?" * 14)
        with self._transaction():
            self._db.executemany(f"{INSERT} VALUES ({places})", rows)

    def claim(self, limit: int) -> list[Any]:
        with self._transaction():
            rows = self._db.execute(
                f"SELECT {CLAIM} FROM tickwork_run WHERE phase = 'ready' "
                "ORDER BY priority, due_at, id LIMIT ?",
                (limit,),
            ).fetchall()
            until = micros(CLOCK.now() + LEASE)
            self._db.execute(
                "UPDATE tickwork_run SET status = 'running', phase = 'running', "
                "token = token + 1, attempt = attempt + 1, lease_until = ?, worker = ? "
                "WHERE id IN (SELECT value FROM json_each(?))",
                (until, WORKER, json.dumps([row[0] for row in rows])),
            )
        return rows

    def finish(self, claimed: list[Any]) -> None:
        ended = micros(CLOCK.now())
        keys = [(row[0], row[5] + 1) for row in claimed]
        with self._transaction():
            self._db.executemany(
                f"INSERT INTO tickwork_history ({HISTORY}) SELECT {MOVED}, {ended}, "
                "'succeeded', NULL, '' FROM tickwork_run "
                "WHERE id = ? AND token = ? AND status = 'running'",
                keys,
            )
            self._db.executemany("DELETE FROM tickwork_run WHERE id = ? AND token = ?", keys)

    def clear(self) -> None:
        for table in TABLES:
            self._db.execute(f"DELETE FROM tickwork_{table}")


class BarePostgres:
    """A loop over psycopg, with the fastest statements that were found."""

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415
        from psycopg.types.string import TextLoader  # noqa: PLC0415

        self._db = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self._db.adapters.register_loader("uuid", TextLoader)
        self._cursor = self._db.cursor()

    def insert_one(self, row: tuple[Any, ...]) -> None:
        places = "%s, %s, %s, %s, %s, 'pending', " + ", ".join(["%s"] * 14)
        self._cursor.execute(f"{INSERT} VALUES ({places})".encode(), row)

    def insert_many(self, rows: list[tuple[Any, ...]]) -> None:
        columns = INSERT.removeprefix("INSERT INTO ")
        text = "\n".join(
            "\t".join(
                "\\N" if value is None else str(value) for value in (*row[:5], "pending", *row[5:])
            )
            for row in rows
        )
        with self._cursor.copy(f"COPY {columns} FROM STDIN".encode()) as copy:
            copy.write(text + "\n")

    def claim(self, limit: int) -> list[Any]:
        until = micros(CLOCK.now() + LEASE)
        return self._cursor.execute(
            b"""WITH picked AS (
                SELECT id FROM tickwork_run WHERE phase = 'ready'
                ORDER BY priority, due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
            )
            UPDATE tickwork_run AS run
            SET status = 'running', phase = 'running', token = token + 1, attempt = attempt + 1,
                lease_until = %s, worker = %s
            FROM picked WHERE run.id = picked.id
            RETURNING run.id, run.job, run.queue, run.args, run.attempt, run.token, run.due_at
            """,
            (limit, until, WORKER),
        ).fetchall()

    def finish(self, claimed: list[Any]) -> None:
        ids = "{" + ",".join(row[0] for row in claimed) + "}"
        tokens = "{" + ",".join(str(row[5]) for row in claimed) + "}"
        self._cursor.execute(
            f"""WITH s AS (SELECT * FROM unnest(%s::uuid[], %s::int[]) AS s (sid, stoken)),
            gone AS (
                DELETE FROM tickwork_run WHERE id = ANY(ARRAY(
                    SELECT x.id FROM s CROSS JOIN LATERAL (
                        SELECT t.id FROM tickwork_run t
                        WHERE t.id = s.sid AND t.token = s.stoken AND t.status = 'running'
                        FOR UPDATE
                    ) x
                )) RETURNING *
            )
            INSERT INTO tickwork_history ({HISTORY})
            SELECT {MOVED}, %s, 'succeeded', NULL, '' FROM gone""".encode(),
            (ids, tokens, micros(CLOCK.now())),
        )

    def clear(self) -> None:
        self._cursor.execute(b"TRUNCATE " + ", ".join(f"tickwork_{t}" for t in TABLES).encode())


class BareMariadb:
    """A loop over PyMySQL: values as literals, rows moved by INSERT … SELECT and DELETE."""

    def __init__(self, url: str) -> None:
        from servers import mariadb  # noqa: PLC0415

        self._db = mariadb.connect(url)
        self._db.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._cursor = self._db.cursor()

    def insert_one(self, row: tuple[Any, ...]) -> None:
        self.insert_many([row])

    def insert_many(self, rows: list[tuple[Any, ...]]) -> None:
        place = "(" + "%s, " * 5 + "'pending', " + ", ".join(["%s"] * 14) + ")"
        values = ",".join(place % tuple(map(self._db.escape, row)) for row in rows)
        self._cursor.execute(f"{INSERT} VALUES {values}")

    def claim(self, limit: int) -> list[Any]:
        self._db.begin()
        self._cursor.execute(
            f"SELECT {CLAIM} FROM tickwork_run FORCE INDEX (ready) "
            "WHERE phase = 'ready' ORDER BY priority, due_at, id "
            f"LIMIT {limit} FOR UPDATE SKIP LOCKED"
        )
        rows = list(self._cursor.fetchall())
        if rows:
            until = micros(CLOCK.now() + LEASE)
            self._cursor.execute(
                "UPDATE tickwork_run FORCE INDEX (PRIMARY) "
                "SET status = 'running', phase = 'running', token = token + 1, "
                f"attempt = attempt + 1, lease_until = {until}, worker = '{WORKER}' "
                f"WHERE id IN ({self._listed(rows)})"
            )
        self._db.commit()
        return rows

    def finish(self, claimed: list[Any]) -> None:
        ids, ended = self._listed(claimed), micros(CLOCK.now())
        [token] = {row[5] + 1 for row in claimed}
        self._db.begin()
        self._cursor.execute(
            f"INSERT INTO tickwork_history ({HISTORY}) SELECT {MOVED}, {ended}, "
            "'succeeded', NULL, '' FROM tickwork_run FORCE INDEX (PRIMARY) "
            f"WHERE id IN ({ids}) AND token = {token} AND status = 'running'"
        )
        moved = self._cursor.rowcount
        gone = self._cursor.execute(
            f"DELETE FROM tickwork_run WHERE id IN ({ids}) AND token = {token}"
        )
        assert moved == gone == len(claimed)
        self._db.commit()

    def _listed(self, rows: list[Any]) -> str:
        return ",".join(f"'{row[0]}'" for row in rows)

    def clear(self) -> None:
        for table in TABLES:
            self._cursor.execute(f"DELETE FROM tickwork_{table}")


# ---------------------------------------------------------------- measuring


def timed(work: Callable[[], int]) -> float:
    """Rows per second."""
    begun = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - begun)


def compare(name: str, ours: Callable[[], float], bare: Callable[[], float], target: float) -> None:
    mine, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(bare())
        mine.append(ours())
    ratio = statistics.median(mine) / statistics.median(theirs)
    met = "met" if ratio >= target else "MISSED"
    print(
        f"{name:34} {statistics.median(mine):>10,.0f}/s  bare {statistics.median(theirs):>10,.0f}/s"
        f"  ratio {ratio:4.2f}  target {target:4.2f}  {met}"
    )


def alone(name: str, work: Callable[[], float], unit: str, target: str) -> None:
    found = [work() for _ in range(3)]
    print(f"{name:34} {statistics.median(found):>10,.3g} {unit}  target {target}")


def drain(store: Store, batch: int, *, is_limited: bool = False) -> float:
    """Runs per second through claim and record, without the time to settle between them."""
    worker, count, spent = WorkerId(new_id(CLOCK.now())), 0, 0.0
    while True:
        begun = time.perf_counter()
        claims = store.claim(
            ClaimRequest(batch), worker=worker, tag="t", now=CLOCK.now(), lease=LEASE
        )
        spent += time.perf_counter() - begun
        if not claims:
            assert not is_limited or sum(store.count_runs().by_phase.values()) == 0
            return count / spent
        now = CLOCK.now()
        steps = [settle(claim, SUCCEEDED, now=now, retry=NO_RETRY, random=0.0) for claim in claims]
        begun = time.perf_counter()
        lost = store.record(steps)
        spent += time.perf_counter() - begun
        assert not lost
        count += len(claims)


def drain_bare(bare: Bare, batch: int) -> int:
    count = 0
    while True:
        claimed = bare.claim(batch)
        if not claimed:
            return count
        bare.finish(claimed)
        count += len(claimed)


def bench(kind: str, store: Store, bare: Bare) -> None:
    print(f"\n{kind}")

    def filled(count: int, **fields: Any) -> None:
        bare.clear()
        made = runs(count, **fields)
        for first in range(0, count, 1000):
            store.add_runs(made[first : first + 1000])

    def one_by_one(add: Callable[[NewRun], Any], count: int) -> float:
        bare.clear()
        made = runs(count)

        def add_all() -> int:
            for run in made:
                add(run)
            return count

        return timed(add_all)

    def in_bulk(add: Callable[[list[NewRun]], Any], count: int) -> float:
        bare.clear()
        made = runs(count)

        def add_all() -> int:
            for at in range(0, count, 1000):
                add(made[at : at + 1000])
            return count

        return timed(add_all)

    compare(
        "add_runs, one by one",
        lambda: one_by_one(lambda run: store.add_runs([run]), 1_000),
        lambda: one_by_one(lambda run: bare.insert_one(PLAIN_MAPPERS.new_run_row(run)), 1_000),
        0.8,
    )
    compare(
        "add_runs, 1,000 a call",
        lambda: in_bulk(store.add_runs, 20_000),
        lambda: in_bulk(
            lambda made: bare.insert_many(list(map(PLAIN_MAPPERS.new_run_row, made))), 20_000
        ),
        0.5,
    )

    def both(batch: int, count: int, target: float) -> None:
        def ours() -> float:
            filled(count)
            return drain(store, batch)

        def by_hand() -> float:
            filled(count)
            return timed(lambda: drain_bare(bare, batch))

        compare(f"claim + record, batch {batch}", ours, by_hand, target)

    both(1, 500, 0.5)
    both(32, 5_000, 0.5)
    both(100, 10_000, 0.7)
    both(500, 20_000, 0.8)

    def of_pairs(pairs: int) -> float:
        filled(20_000, pairs=pairs)
        return drain(store, 500)

    compare("30 pairs beside one", lambda: of_pairs(30), lambda: of_pairs(1), 0.5)
    compare("200 pairs beside one", lambda: of_pairs(200), lambda: of_pairs(1), 0.5)

    def hot_limit() -> float:
        filled(5_000, limit_keys=("job:job-0",))
        store.set_limits({"job:job-0": 50})
        return drain(store, 50, is_limited=True)

    limits = {"sqlite": "10,000/s", "postgres": "3,000/s", "mariadb": "2,500/s", "mysql": "2,500/s"}
    alone("one hot limit of 50, batch 50", hot_limit, "runs/s", f">= {limits[kind]}")
    alone("10,000 due schedules, one pass", lambda: fire(store, bare), "s", "<= 0.5 s")


def fire(store: Store, bare: Bare) -> float:
    bare.clear()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rule = Interval(length=timedelta(hours=1), anchor=start).to_text()
    for place in range(10_000):
        spec = ScheduleSpec(name=f"s{place}", job="report", rule=rule)
        store.add_schedule(ScheduleId(new_id(start)), spec, now=start, next_due_at=start)
    jobs, now = {"report": JobSpec(name="report")}, start + timedelta(seconds=1)
    rules = {rule: from_text(rule)}
    begun = time.perf_counter()
    fired = 0
    while True:
        plan = store.fire(
            now=now,
            limit=2_000,
            jobs=list(jobs),
            keys_of=lambda due: keys_wanted(due, now=now, jobs=jobs),
            plan=lambda due, taken: plan_tick(
                due, now=now, jobs=jobs, rule_of=lambda row: rules[row.spec.rule], taken=taken
            ),
        )
        if not plan.moves:
            break
        fired += len(plan.runs)
    assert fired == 10_000, fired
    return time.perf_counter() - begun


@contextlib.contextmanager
def opened(kind: str) -> Iterator[tuple[Store, Bare]]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.db"
            store = open_store(f"sqlite:///{path}")
            store.install()
            yield store, BareSqlite(path)
            store.close()
        return
    with a_server(kind) as server:
        url = server.url(server.create_database())
        store = open_store(url)
        store.install()
        yield store, (BarePostgres if kind == "postgres" else BareMariadb)(url)
        store.close()


def a_server(kind: str) -> Any:
    """A private server with fsync and the buffer sizes of a default installation."""
    if kind == "postgres":
        from servers.postgres import PostgresServer  # noqa: PLC0415

        return PostgresServer(fsync=True)
    if kind == "mysql":
        from servers.mysql import MySQLServer  # noqa: PLC0415

        # Without a binary log, as MariaDB.
        sizes = {"innodb-buffer-pool-size": "128M", "innodb-redo-log-capacity": "100M"}
        return MySQLServer(fsync=True, settings=sizes)
    from servers.mariadb import MariaDBServer  # noqa: PLC0415

    sizes = {"innodb-buffer-pool-size": "128M", "innodb-log-file-size": "96M"}
    return MariaDBServer(fsync=True, settings=sizes)


def main() -> None:
    for kind in sys.argv[1:] or ["sqlite", "postgres", "mariadb"]:
        with opened(kind) as (store, bare):
            bench(kind, store, bare)


if __name__ == "__main__":
    main()
