"""Two workers whose wall clocks are an hour apart do nothing twice, and delay nothing.

They tell the time by the database. Nothing else could happen: nothing in tickwork but
`_kernel/clock.py` asks the system what time it is, and SQL never does.
"""

import ast
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

import tickwork
from contract.builders import (
    ANN,
    BOB,
    HOUR,
    MINUTE,
    NOON,
    a_job,
    a_lock,
    a_run,
    add,
    added,
    all_runs,
    settled,
)
from scenarios.conftest import KINDS
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition, reap
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._kernel.clock import SystemClock
from tickwork._stores import Store, open_store
from tickwork._stores.contract import ClaimRequest, Expired
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock

SOURCE: Final = Path(tickwork.__file__).parent


# ---------------------------------------------------------------- two workers


class Worker:
    """A worker on a machine whose clock is wrong. It uses the time of the store."""

    def __init__(self, store: Store, name: WorkerId, *, off_by: timedelta) -> None:
        self.store = store
        self.name = name
        self.off_by = off_by
        self.tags = 0

    @contextmanager
    def at_home(self) -> Iterator[datetime]:
        """Patch the system's time as on that machine; yield the database's time."""
        with pytest.MonkeyPatch.context() as patch:
            real_now, real_time = SystemClock.now, time.time  # noqa: TID251  # to make it wrong
            off_by = self.off_by
            patch.setattr(SystemClock, "now", lambda clock: real_now(clock) + off_by)
            patch.setattr(time, "time", lambda: real_time() + off_by.total_seconds())
            yield self.store.database_time()

    def claim(self, limit: int = 10, *, lease: timedelta = MINUTE) -> list[Claim]:
        self.tags += 1
        with self.at_home() as now:
            self.store.stage(now=now, limit=100)
            return self.store.claim(
                ClaimRequest(limit), worker=self.name, tag=f"tag {self.tags}", now=now, lease=lease
            )

    def record(self, *claims: Claim) -> list[RunId]:
        with self.at_home() as now:
            return self.store.record([settled(claim, now=now) for claim in claims])

    def reap(self) -> list[Transition]:
        with self.at_home() as now:
            return self.reap_at(now)

    def reap_at(self, now: datetime) -> list[Transition]:
        def decide(expired: Expired) -> Transition:
            return reap(expired.claim, has_started=expired.has_started, now=now)

        return self.store.reap(now=now, limit=100, decide=decide)

    def tick(self) -> TickPlan:
        with self.at_home() as now:
            jobs = {"send_email": a_job()}
            rule = Interval(length=MINUTE, anchor=NOON)
            return self.store.fire(
                now=now,
                limit=100,
                jobs=jobs,
                keys_of=lambda rows: keys_wanted(rows, now=now, jobs=jobs),
                plan=lambda rows, taken: plan_tick(
                    rows, now=now, jobs=jobs, rule_of=lambda _: rule, taken=taken
                ),
            )

    def wall(self) -> datetime:
        with self.at_home():
            return SystemClock().now()


@pytest.fixture(params=KINDS)
def stores(request, tmp_path) -> Iterator[tuple[Store, Store]]:
    """The same database, as two processes see it."""
    if request.param == "sqlite":
        # A file is on one machine, whose clock is the database's. All other clocks of a process
        # are wrong by an hour.
        machine = ManualClock(SystemClock().now())
        path = tmp_path / "jobs.db"
        made = [SqliteStore(path, synchronous="NORMAL", clock=machine) for _ in range(2)]
        opened: tuple[Store, Store] = (made[0], made[1])
    else:
        url = request.getfixturevalue(f"{request.param}_url")
        opened = (open_store(url), open_store(url))
    opened[0].install()
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def slow(stores) -> Worker:
    return Worker(stores[0], ANN, off_by=-HOUR / 2)


@pytest.fixture
def fast(stores) -> Worker:
    return Worker(stores[1], BOB, off_by=HOUR / 2)


class TestWallClocks:
    """Wall clocks an hour apart make no difference."""

    def test_the_clocks_are_an_hour_apart(self, slow, fast):
        apart = fast.wall() - slow.wall()

        assert abs(apart - HOUR) < MINUTE

    def test_both_get_the_same_database_time(self, slow, fast):
        with slow.at_home() as one:
            pass
        with fast.at_home() as other:
            pass

        assert abs(one - other) < MINUTE

    def test_leases_are_equally_long(self, slow, fast):
        now = slow.store.database_time()
        add(slow.store, *(a_run(created_at=now) for _ in range(2)))

        [first], [second] = slow.claim(1), fast.claim(1)

        assert abs(first.lease_until - second.lease_until) < MINUTE / 2

    def test_the_fast_one_takes_nothing_that_is_leased(self, slow, fast):
        add(slow.store, a_run(created_at=slow.store.database_time()))
        [claim] = slow.claim()

        assert fast.reap() == []
        assert fast.claim() == []
        assert slow.record(claim) == []

    def test_the_slow_one_takes_back_what_the_fast_one_left(self, slow, fast):
        add(slow.store, a_run(created_at=slow.store.database_time()))
        [claim] = fast.claim(lease=timedelta(0))

        assert [step.claim.run_id for step in slow.reap()] == [claim.run_id]
        assert fast.record(claim) == [claim.run_id]

    def test_a_run_that_is_due_later_is_due_for_neither_worker(self, slow, fast):
        now = slow.store.database_time()
        add(slow.store, a_run(created_at=now, due_at=now + 10 * MINUTE))

        assert fast.claim() == []
        assert slow.claim() == []

    def test_a_due_run_is_due_for_the_worker_with_the_slow_clock_too(self, slow, fast):
        now = slow.store.database_time()
        add(slow.store, a_run(created_at=now - MINUTE, due_at=now - MINUTE / 2))

        assert len(slow.claim()) == 1

    def test_an_instant_is_fired_once(self, slow, fast):
        now = slow.store.database_time()
        due_at = NOON + (now - NOON) // MINUTE * MINUTE
        added(slow.store, now=now, next_due_at=due_at)

        runs = [*fast.tick().runs, *slow.tick().runs, *fast.tick().runs]

        # A minute may begin in the meantime.
        assert len({run.nominal_at for run in runs}) == len(runs) <= 2
        assert all(run.nominal_at <= slow.store.database_time() for run in runs)

    def test_a_lock_is_held_until_it_expires(self, slow, fast):
        with slow.at_home() as now:
            lock = a_lock("ann", acquired_at=now, until=now + 10 * MINUTE)
            assert slow.store.acquire_lock(lock, now=now) is None

        with fast.at_home() as now:
            wish = a_lock("bob", acquired_at=now, until=now + 10 * MINUTE)
            assert fast.store.acquire_lock(wish, now=now) == lock

    def test_together_they_do_each_run_once(self, slow, fast):
        now = slow.store.database_time()
        add(slow.store, *(a_run(created_at=now) for _ in range(200)))
        done: list[RunId] = []

        for number in range(100):
            worker, other = (slow, fast) if number % 3 else (fast, slow)
            claims = worker.claim(5)
            assert other.reap() == []
            assert worker.record(*claims) == []
            done += [claim.run_id for claim in claims]

        assert len(done) == len(set(done)) == 200
        assert {run.status for run in all_runs(slow.store)} == {RunStatus.COMPLETED}

    def test_by_wall_clocks_a_lease_would_be_broken(self, slow, fast):
        """The control: the database's time makes the difference."""
        add(slow.store, a_run(created_at=slow.store.database_time()))
        [claim] = slow.claim()

        fast.reap_at(fast.store.database_time() + fast.off_by)

        assert slow.record(claim) == [claim.run_id]


# ---------------------------------------------------------------- only the clock reads the time

TIME_READS: Final = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "time": {
        "time",
        "time_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "gmtime",
        "localtime",
        "ctime",
        "asctime",
        "strftime",
    },
}
"""Functions that return the time of day. Durations (``monotonic``) are allowed."""

TIME_READS_IN_SQL: Final = re.compile(
    r"\b(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|sysdate"
    r"|unix_timestamp|utc_timestamp)\s*\("
    r"|\b(current_timestamp|current_time|current_date|localtime|localtimestamp)\b"
    r"|'now'|\bunixepoch\s*\(\s*\)",
    re.IGNORECASE,
)
CLOCK_MODULE: Final = "_kernel/clock.py"
ALLOWED_QUERIES: Final = {
    "server_time",
    "oldest_transaction",  # compares the server's clock with its own statistics
}
"""The queries whose result is the time: ``database_time`` uses them."""


def time_reads_in(source: str) -> list[str]:
    """The lines where Python code reads the time of the system."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if node.attr in TIME_READS.get(name, ()):
                found.append(f"line {node.lineno}: {name}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            names = {alias.name for alias in node.names} & TIME_READS["time"]
            found += [f"line {node.lineno}: from time import {name}" for name in sorted(names)]
        elif (
            isinstance(node, ast.alias)
            and node.asname
            and {node.name, node.asname} & set(TIME_READS)
        ):
            found.append(f"line {node.lineno}: {node.name} under another name")
    return found


def time_reads_in_sql(text: str) -> list[str]:
    """The queries that read the time of the database."""
    found = []
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE):
        name, _, body = block.partition("\n")
        bare = re.sub(r"--.*$", "", body, flags=re.MULTILINE)
        found += [f"{name}: {match[0]}" for match in TIME_READS_IN_SQL.finditer(bare)]
    return found


class TestOneSourceOfTime:
    """Only the clock reads the time; all other code gets it as an argument."""

    def test_only_the_clock_reads_the_system_time(self):
        reads = {
            path.relative_to(SOURCE).as_posix(): found
            for path in SOURCE.rglob("*.py")
            if (found := time_reads_in(path.read_text(encoding="utf-8")))
        }

        assert list(reads) == [CLOCK_MODULE], reads

    def test_queries_do_not_read_the_time(self):
        reads = {
            path.relative_to(SOURCE).as_posix(): found
            for path in SOURCE.rglob("*.sql")
            if (found := time_reads_in_sql(path.read_text(encoding="utf-8")))
        }
        names = {read.partition(":")[0] for found in reads.values() for read in found}

        assert names <= ALLOWED_QUERIES, reads

    @pytest.mark.parametrize(
        "source",
        [
            "import time\ntime.time()",
            "from time import time_ns",
            "import datetime\ndatetime.datetime.now()",
            "from datetime import datetime\nstamp = datetime.utcnow",
            "from datetime import date\ndate.today()",
            "import time as t",
            "from datetime import datetime as d",
        ],
    )
    def test_a_time_read_is_found(self, source):
        assert time_reads_in(source)

    @pytest.mark.parametrize(
        "source",
        [
            "clock.now()",
            "self._clock.now()",
            "import time\ntime.monotonic()\ntime.sleep(1)",
            "from datetime import UTC, datetime\ndatetime(2026, 1, 1, tzinfo=UTC)",
        ],
    )
    def test_an_argument_is_not_a_time_read(self, source):
        assert time_reads_in(source) == []

    @pytest.mark.parametrize(
        ("text", "is_found"),
        [
            ("-- name: a\nSELECT now();", True),
            ("-- name: a\nUPDATE x SET at = CURRENT_TIMESTAMP;", True),
            ("-- name: a\nSELECT strftime('%s', 'now');", True),
            ("-- name: a\nSELECT datetime(due_at / 1000000, 'unixepoch');", False),
            ("-- name: a\n-- as it was now()\nSELECT :now;", False),
        ],
    )
    def test_a_time_read_in_sql_is_found(self, text, is_found):
        assert bool(time_reads_in_sql(text)) is is_found


def test_the_database_time_is_about_the_machine_time(stores):
    """Otherwise the fixtures would measure something else."""
    assert abs(stores[0].database_time() - SystemClock().now().astimezone(UTC)) < MINUTE
