"""Fills a database as if it had been used for a long time, and measures operations on it.

``fill(kind, url, sizes)`` adds rows of every kind. The database itself makes them: a million in
seconds. Each method of ``Operations(store, now)`` prepares one operation, and returns the function
whose cost counts.

Half of the blocked runs wait for a limit that is full, half for a rate. Of the schedules some are
due later, some are paused, and some have been due for long, of unknown jobs.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final, NamedTuple

import psycopg

from servers import mariadb
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import JobSpec, ScheduleOrigin, ScheduleSpec
from tickwork._domain.runs.outcome import SUCCEEDED
from tickwork._domain.runs.retry import NO_RETRY
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import reap, settle
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import keys_wanted, plan_tick
from tickwork._stores._sql.rows import micros
from tickwork._stores.contract import ClaimRequest, HeldClaim, NewSchedule, RunFilter, Store

QUEUES: Final = 200
KEYS: Final = 20
"""Values of each limit, for which others wait."""

HOUR: Final = timedelta(hours=1)
SECOND: Final = timedelta(seconds=1)
WORKER: Final = WorkerId("019cb0d2-0000-7000-8000-00000000a001")
JOB: Final = "mine"
BATCH: Final = 50

LIMIT, RATE = "account:busy", "account/hour:busy"
OURS, OUR_RATE = "job:mine", "account/second:mine"


class Sizes(NamedTuple):
    """How many rows there are of each kind."""

    finished: int
    future: int
    unknown: int  # ready, of jobs that no worker knows, and sorted before all others
    blocked: int
    schedules: int

    @classmethod
    def all_of(cls, size: int, *, unknown: int = 0) -> "Sizes":
        return cls(size, size, unknown, max(size // 10, 6 * KEYS), size)


# ---------------------------------------------------------------- filling

RUN: Final = """INSERT INTO tickwork_run (id, tenant, job, queue, priority, status, phase, due_at,
expires_at, args, attempts_max, token, lease_until, worker, limit_keys, blocked_on, created_at)
SELECT """
FILL: Final = [
    (
        "finished",
        """INSERT INTO tickwork_history (id, tenant, job, queue, priority, status, due_at, args,
        attempt, attempts_max, crashes, postponements, token, created_at, ended_at, outcome, reason)
        SELECT {id:f001}, '', 'old' || (n % {queues}), 'queue' || (n % {queues}), 1, 'completed',
        {now} - 1000 * n, '{{}}', 1, 1, 0, 0, 1, {now} - 1000 * n, {now} - 1000 * n, 'succeeded', ''
        FROM {numbers}""",
    ),
    (
        "future",
        RUN
        + """{id:f002}, '', 'later' || (n % {queues}), 'queue' || (n % {queues}), 1, 'pending',
        'waiting', {now} + {hour} + 1000 * n, NULL, '{{}}', 1, 0, NULL, NULL, NULL, NULL, {now}
        FROM {numbers}""",
    ),
    (
        "unknown",
        RUN
        + """{id:f007}, '', 'unknown' || (n % {queues}), 'queue' || (n % {queues}), 1, 'pending',
        'ready', {now} - 1000 * n, NULL, '{{}}', 1, 0, NULL, NULL, NULL, NULL, {now}
        FROM {numbers}""",
    ),
    (
        "blocked",
        RUN
        + """{id:f004}, '', 'busy', 'queue' || (n % {queues}), 1, 'pending', 'blocked',
        {now} - 1000 * n, CASE WHEN n % 7 = 0 THEN {now} + {hour} END, '{{}}', 1, 0, NULL, NULL,
        '["' || {key} || '"]', {key}, {now} FROM {numbers}""",
    ),
    (
        "blocked",
        RUN
        + """{id:f005}, '', 'busy', 'queue' || (n % {queues}), 1, 'running', 'running', {now}, NULL,
        '{{}}', 1, 1, {now} + {hour}, '{worker}', NULL, NULL, {now}
        FROM {numbers} WHERE n <= 2 * {keys}""",
    ),
    (
        "blocked",
        """INSERT INTO tickwork_slot (run, {key_column}) SELECT {id:f005}, '{limit}=' || (n - 1)
        FROM {numbers} WHERE n <= 2 * {keys}""",
    ),
    (
        "blocked",
        """INSERT INTO tickwork_rate ({key_column}, number, idle_at, next_start_at, opened)
        SELECT '{rate}=' || (n - 1), 1, {now} + {hour}, {now} + {hour} + n, 0
        FROM {numbers} WHERE n <= 2 * {keys}""",
    ),
    (
        "blocked",
        """INSERT INTO tickwork_start ({key_column}, number, at)
        SELECT '{rate}=' || (n - 1), 1, {now} FROM {numbers} WHERE n <= 2 * {keys}""",
    ),
    (
        "schedules",
        """INSERT INTO tickwork_schedule (id, tenant, name, job, rule, zone, args, overlap, misfire,
        grace, jitter, origin, created_at, next_due_at, paused_at, seen_at)
        SELECT {id:f006}, '', 'schedule ' || n,
        CASE WHEN n % {queues} % 3 = 2 THEN 'unknown' ELSE 'later' END || (n % {queues}), '',
        'UTC', '{{}}', 'skip', 'one', 0, 0,
        CASE WHEN n % {queues} % 3 = 2 THEN 'api' ELSE 'code' END, {now},
        CASE WHEN n % {queues} % 3 = 0 THEN {now} + {hour} + n ELSE {now} - n END,
        CASE WHEN n % {queues} % 3 = 1 THEN {now} END, {now} FROM {numbers}""",
    ),
]


class _Id:
    """``{id:f001}``: an id of its own for each number."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __format__(self, tag: str) -> str:
        return self._text.replace("TAG", tag)


DIALECTS: Final = {
    "sqlite": (
        "printf('019a0000-TAG-7000-8000-%012x', n)",
        """(WITH RECURSIVE numbers (n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {}
        ) SELECT n FROM numbers)""",
    ),
    "postgres": (
        "('019a0000-TAG-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "generate_series(1, {}) AS numbers (n)",
    ),
    "mariadb": (
        "concat('019a0000-TAG-7000-8000-', lpad(lower(hex(n)), 12, '0'))",
        """/*M! (SELECT seq AS n FROM seq_1_to_{0}) */ /*!80017 (WITH RECURSIVE numbers (n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {0}
        ) SELECT n FROM numbers) */ AS numbers""",
    ),
}
DIALECTS["mysql"] = DIALECTS["mariadb"]


FILL_SECONDS_MAX: Final = 900
"""How long one statement may take that fills a table with a million rows."""


def fill(kind: str, url: str, sizes: Sizes, *, now: datetime) -> None:
    """Fill an installed, empty database."""
    run_id, numbers = DIALECTS[kind]
    texts = [
        text.format(
            id=_Id(run_id),
            numbers=numbers.format(size),
            queues=QUEUES,
            keys=KEYS,
            now=micros(now),
            hour=HOUR // timedelta(microseconds=1),
            key=f"CASE WHEN n % 2 = 0 THEN '{LIMIT}=' ELSE '{RATE}=' END || (n % {2 * KEYS})",
            key_column="`key`" if kind in {"mariadb", "mysql"} else "key",
            limit=LIMIT,
            rate=RATE,
            worker=WORKER,
        )
        for name, text in FILL
        if (size := getattr(sizes, name))
    ]
    if kind == "postgres":
        with psycopg.connect(url, autocommit=True) as server:
            for text in texts:
                server.execute(text.encode())
            server.execute("VACUUM ANALYZE")
        return
    if kind in {"mariadb", "mysql"}:
        with closing(mariadb.connect(url, read_timeout=FILL_SECONDS_MAX)) as server:
            server.execute("SET SESSION sql_mode = concat(@@sql_mode, ',PIPES_AS_CONCAT')")
            server.execute(
                "/*M! DO 0 */ /*!80017 SET SESSION cte_max_recursion_depth = 100000000 */"
            )
            for text in texts:
                server.execute(text)
            server.commit()
            # As it does by itself, some seconds later: before, it may walk instead of skipping.
            for name in mariadb.tables_of(server):
                server.execute(f"ANALYZE TABLE {name}")
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])) as file:
        for text in texts:
            file.execute(text)
        file.commit()


# ---------------------------------------------------------------- operations

_numbers = count(1)


def an_id(now: datetime) -> str:
    return f"{micros(now) // 1000:012x}"[:8] + f"-ffff-7000-8000-{next(_numbers):012x}"


def runs(number: int, *, now: datetime, **given: Any) -> list[NewRun]:
    facts: dict[str, Any] = {"job": JOB, "queue": "queue7", "due_at": now, "priority": 100}
    return [NewRun(id=RunId(an_id(now)), created_at=now, **facts | given) for _ in range(number)]


Act = Callable[[], object]


class Operations:
    """Each method prepares an operation, and returns the function that is measured."""

    def __init__(self, store: Store, now: datetime) -> None:
        self.store = store
        self.now = now
        store.set_limits({LIMIT: 1, RATE: 1, OURS: 20, OUR_RATE: 1})

    def claim_runs(self, limit: int = BATCH, *, now: datetime | None = None) -> list[Claim]:
        return self.store.claim(
            ClaimRequest(limit, jobs=(JOB,)),
            worker=WORKER,
            tag="t",
            now=now or self.now,
            lease=SECOND,
        )

    def record_successes(self, claims: Sequence[Claim]) -> None:
        steps = [
            settle(claim, SUCCEEDED, now=self.now, retry=NO_RETRY, random=0.0) for claim in claims
        ]
        assert self.store.record(steps) == []

    def finish_all(self) -> None:
        """Finish all runs of this operation, so that the next one starts without them."""
        later = self.now + HOUR - SECOND
        for _ in range(100):
            moved = self.reap_runs(now=later)
            moved += self.store.stage(now=later, limit=1000)
            moved += self.store.unblock_rated(now=later, limit=1000)
            claims = self.claim_runs(1000, now=later)
            self.record_successes(claims)
            later += timedelta(milliseconds=5)
            if not moved and not claims:
                return
        raise AssertionError("Runs are left after 100 rounds.")

    def reap_runs(self, *, now: datetime) -> int:
        taken = self.store.reap(
            now=now,
            limit=500,
            decide=lambda expired: reap(
                expired.claim, has_started=False, now=now, is_cancel_requested=False
            ),
        )
        return len(taken)

    # ------------------------------------------------------------ runs

    def add_runs(self) -> Act:
        made = runs(BATCH, now=self.now)
        return lambda: self.store.add_runs(made)

    def claim(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now))
        return lambda: _check_count(self.claim_runs(), BATCH)

    def claim_limited(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now, limit_keys=(OURS,)))
        return lambda: _check_count(self.claim_runs(), 20)

    def claim_rated(self) -> Act:
        for number in range(BATCH):
            if number % 5 == 0:
                key = f"{OUR_RATE}={next(_numbers)}"
            self.store.add_runs(runs(1, now=self.now, limit_keys=(key,)))
        return lambda: _check_count(self.claim_runs(), 10)

    def record(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now))
        claims = self.claim_runs()
        return lambda: self.record_successes(claims)

    def unblock(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now, limit_keys=(OURS,)))
        claims = self.claim_runs()
        return lambda: self.record_successes(claims)

    def unblock_rated(self) -> Act:
        self.claim_rated()()
        later = self.now + 2 * SECOND
        return lambda: _check_count(self.store.unblock_rated(now=later, limit=100), 10)

    def stage_due_runs(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now, due_at=self.now + SECOND))
        return lambda: _check_count(self.store.stage(now=self.now + SECOND, limit=1000), BATCH)

    def reap(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now))
        self.claim_runs()
        return lambda: _check_count(self.reap_runs(now=self.now + 2 * SECOND), BATCH)

    def heartbeat(self) -> Act:
        self.store.add_runs(runs(BATCH, now=self.now))
        held = [HeldClaim(claim.run_id, claim.token, self.now) for claim in self.claim_runs()]
        return lambda: self.store.extend_leases(held, until=self.now + 2 * SECOND)

    def cancel(self) -> Act:
        [run] = runs(1, now=self.now)
        self.store.add_runs([run])
        return lambda: self.store.cancel(run.id, now=self.now)

    def sweep(self) -> Act:
        return lambda: self.store.sweep(now=self.now, limit=100)

    def pending_work(self) -> Act:
        return self.store.pending_work

    def next_due(self) -> Act:
        return lambda: self.store.next_due(now=self.now)

    def ready_pairs(self) -> Act:
        return self.store.ready_pairs

    # ------------------------------------------------------------ schedules

    def fire(self) -> Act:
        job, rule = JobSpec(name=JOB), Interval(length=HOUR * 24, anchor=self.now)
        new = [
            NewSchedule(
                ScheduleId(an_id(self.now)),
                ScheduleSpec(
                    name=f"ours {next(_numbers)}", job=JOB, rule="daily", origin=ScheduleOrigin.API
                ),
                self.now,
            )
            for _ in range(BATCH)
        ]
        self.store.add_schedules(new, now=self.now)

        def act() -> None:
            plan = self.store.fire(
                now=self.now,
                limit=BATCH,
                jobs=[JOB],
                keys_of=lambda rows: keys_wanted(rows, now=self.now, jobs={JOB: job}),
                plan=lambda rows, taken: plan_tick(
                    rows, now=self.now, jobs={JOB: job}, rule_of=lambda _: rule, taken=taken
                ),
                seen_after=self.now - HOUR,
            )
            _check_count(plan.runs, BATCH)

        return act

    def next_firing(self) -> Act:
        return lambda: self.store.next_firing_at(jobs=[JOB], seen_after=self.now - HOUR)

    def scheduled_jobs(self) -> Act:
        return self.store.scheduled_jobs

    # ------------------------------------------------------------ reading and pruning

    def count_runs(self) -> Act:
        return lambda: self.store.count_runs(cap=4)

    def list_runs(self) -> Act:
        return lambda: self.store.list_runs(RunFilter(), limit=BATCH)

    def list_failures(self) -> Act:
        where = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))
        return lambda: self.store.list_runs(where, limit=BATCH)

    def next_page(self) -> Act:
        page = self.store.list_runs(RunFilter(), limit=BATCH)
        return lambda: self.store.list_runs(RunFilter(), cursor=page.cursor, limit=BATCH)

    def run_record(self) -> Act:
        [run] = runs(1, now=self.now)
        self.store.add_runs([run])
        return lambda: self.store.run_record(run.id)

    def list_schedules(self) -> Act:
        return lambda: self.store.list_schedules(limit=BATCH)

    def list_ended(self) -> Act:
        before = self.now - HOUR * 24 * 365
        return lambda: self.store.list_ended(after=None, before=before, limit=BATCH)

    def prune(self) -> Act:
        return lambda: self.store.prune(
            before=self.now - HOUR * 24 * 365, limit=BATCH, with_definitions=False
        )

    @classmethod
    def names(cls) -> list[str]:
        helpers = {"claim_runs", "record_successes", "finish_all", "reap_runs", "names"}
        return [name for name in vars(cls) if not name.startswith("_") and name not in helpers]


def _check_count(found: Sequence[object] | int, number: int) -> None:
    """Check that the measured function did its work."""
    size = found if isinstance(found, int) else len(found)
    assert size == number, (size, number)
