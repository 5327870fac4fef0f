"""A process that dies anywhere in a transaction leaves all of it, or nothing.

The process is killed with SIGKILL before each statement of an operation in turn, after the
last one but before COMMIT, and after COMMIT but before its answer is used. Afterwards all
tables are as before or, in the last case only, as after the operation. A repeat gives the same
tables as one undisturbed call.
"""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple, cast

import psycopg
import pytest

from contract.builders import (
    ANN,
    BOB,
    DAY,
    HOUR,
    MINUTE,
    NOON,
    StoreDriver,
    a_job,
    a_run,
    add,
    added,
    settled,
    the_run,
    tick,
)
from scenarios.conftest import KINDS
from servers import mariadb
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Misfire, Overlap
from tickwork._domain.limits.limits import UniqueKey, one_at_a_time
from tickwork._domain.runs.outcome import (
    Failed,
    Interrupted,
    Outcome,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._stores import Store, open_store
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores._sql.store import SqlStore
from tickwork._stores.contract import ChangeResult, ClaimRequest
from tickwork.testing import ManualClock
from tickwork_conformance import builders

KEY: Final = "job:send_email"
QUEUE_KEY: Final = "queue:default"
SCHEDULE_KEY: Final = one_at_a_time(ScheduleId("019cb0d2-0000-7000-8000-00000000cccc"))
AFTER_COMMIT: Final = -1

Dump = dict[str, list[tuple[Any, ...]]]


# ---------------------------------------------------------------- operations, and repeats


class Act(NamedTuple):
    """One operation of the contract, and how a caller repeats it after a lost answer."""

    do: Callable[[Store], Any]
    again: Callable[[Store], Any]


def adding_runs(store: Store, clock: ManualClock) -> Act:
    add(store, a_run(unique=UniqueKey("taken", None)))
    add(store, a_run(unique=UniqueKey("window passed", NOON - MINUTE)))
    runs = [
        a_run(),
        a_run(unique=UniqueKey("free", None)),
        a_run(unique=UniqueKey("free", None)),
        a_run(unique=UniqueKey("taken", NOON + HOUR)),
        a_run(unique=UniqueKey("window passed", NOON + HOUR), overlap_key="held:1"),
        a_run(due_at=NOON + HOUR, limit_keys=(KEY,), queue="other"),
    ]

    def again(store: Store) -> None:
        answers = store.add_runs(runs, may_be_stored=True)
        # A duplicate returns the same run as before.
        assert [answer.run_id for answer in answers] == [
            runs[0].id,
            runs[1].id,
            runs[1].id,
            first_taken,
            runs[4].id,
            runs[5].id,
        ]

    first_taken = store.add_runs([a_run(unique=UniqueKey("taken", None))])[0].run_id
    return Act(lambda store: store.add_runs(runs), again)


def a_claim(store: Store, clock: ManualClock) -> Act:
    """Some runs are granted, some blocked, and one frees a slot for another."""
    store.set_limits({KEY: 2, QUEUE_KEY: 3})
    add(store, *(a_run(limit_keys=(KEY,)) for _ in range(4)))
    first, *_ = StoreDriver(store, clock).claim(2)
    StoreDriver(store, clock).claim()  # it takes all slots
    StoreDriver(store, clock).record(first)
    add(store, *(a_run(limit_keys=(QUEUE_KEY, KEY), priority=90) for _ in range(2)))
    add(store, *(a_run(limit_keys=(QUEUE_KEY,), priority=110) for _ in range(3)))
    add(store, a_run(job="resize"), a_run(overlap_key="waiting:1"))

    def do(store: Store) -> Any:
        return store.claim(
            ClaimRequest(20),
            worker=BOB,
            tag="the tag",
            now=clock.now(),
            lease=MINUTE,
            lease_by_job={"resize": HOUR},
        )

    def again(store: Store) -> None:
        claims = store.find_claims(worker=BOB, tag="the tag") or do(store)
        assert claims, "what was claimed is found, or claimed anew"
        assert claims == store.find_claims(worker=BOB, tag="the tag")

    return Act(do, again)


def a_record(store: Store, clock: ManualClock) -> Act:
    """Transitions of all kinds in one batch; those with slots unblock other runs."""
    store.set_limits({KEY: 3})
    stale_run = a_run(priority=1)
    add(store, stale_run)
    [stale] = StoreDriver(store, clock).claim(1)
    StoreDriver(store, clock).record(stale, Interrupted())
    StoreDriver(store, clock, BOB).claim(1)
    add(store, *(a_run(attempts_max=3, priority=2) for _ in range(3)))
    add(store, *(a_run(limit_keys=(KEY,), attempts_max=3, priority=3) for _ in range(6)))
    add(store, a_run(unique=UniqueKey("one", None)), a_run(unique=UniqueKey("two", NOON + HOUR)))
    add(store, *(a_run(limit_keys=(KEY, SCHEDULE_KEY), attempts_max=2, priority=9) for _ in "ab"))
    added(store)
    tick(store, clock)
    claims = StoreDriver(store, clock, ANN).claim(20)
    outcomes: list[Outcome] = [
        Succeeded('"done"'),
        Failed("no"),
        Snoozed(HOUR),
        Succeeded(),
        Failed("no", retry=False),
        Failed("not yet"),
        Succeeded(),
        Succeeded(),
        Skipped("closed"),
    ]
    assert len(claims) == len(outcomes), claims
    steps = [settled(stale)]
    steps += [settled(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]

    def again(store: Store) -> None:
        assert store.record(steps, may_be_stored=True) == [stale.run_id]

    return Act(lambda store: store.record(steps), again)


def a_record_with_follow_ups(store: Store, clock: ManualClock) -> Act:
    """Some runs of a batch add others: at once, later, and with keys that are taken or free."""
    add(store, *(a_run(attempts_max=2) for _ in range(3)))
    claims = StoreDriver(store, clock, ANN).claim(3)
    add(store, a_run(unique=UniqueKey("taken", None)))
    follow_ups = (
        a_run(),
        a_run(due_at=NOON + HOUR, queue="other"),
        a_run(unique=UniqueKey("taken", None)),
        a_run(unique=UniqueKey("free", NOON + HOUR)),
    )
    steps = [
        settled(claims[0]),
        settled(claims[1], Succeeded('"done"'))._replace(follow_ups=follow_ups),
        settled(claims[2], Failed("no")),
    ]

    def again(store: Store) -> None:
        assert store.record(steps, may_be_stored=True) == []

    return Act(lambda store: store.record(steps), again)


def a_firing(store: Store, clock: ManualClock) -> Act:
    """A run, skips, a gap, a queue of one, and a running one that is canceled."""
    added(store, "plain", overlap=Overlap.ALLOW)
    added(store, "held", overlap=Overlap.SKIP)
    added(store, "queued", overlap=Overlap.QUEUE_ONE)
    added(store, "canceling", overlap=Overlap.CANCEL_RUNNING)
    added(store, "missing", misfire=Misfire.SKIP)
    added(store, "catching up", misfire=Misfire.ALL, overlap=Overlap.QUEUE_ALL)
    added(store, "unique", job="only_one")
    jobs = (a_job(), a_job("only_one"))
    tick(store, clock, *jobs)
    StoreDriver(store, clock).claim(4)
    clock.advance(minutes=7)

    def do(store: Store) -> Any:
        return tick(store, clock, *jobs)

    def again(store: Store) -> None:
        do(store)
        assert do(store).runs == []

    return Act(do, again)


def a_cancel(store: Store, clock: ManualClock) -> Act:
    """The run waits for its retry, and keeps a slot for which another waits."""
    driver = StoreDriver(store, clock)
    first = a_run(limit_keys=(SCHEDULE_KEY,), attempts_max=2, unique=UniqueKey("one", None))
    add(store, first, a_run(limit_keys=(SCHEDULE_KEY,)))
    driver.record(driver.claim_one(), Failed("no"))
    driver.claim()

    def do(store: Store) -> Any:
        return store.cancel(first.id, now=NOON, reason="not needed")

    def again(store: Store) -> None:
        do(store)
        assert do(store) is ChangeResult.FINISHED

    return Act(do, again)


def a_reaping(store: Store, clock: ManualClock) -> Act:
    """Expired leases of runs that had started, had not started, and hold slots."""
    driver = StoreDriver(store, clock)
    store.set_limits({KEY: 2})
    add(store, a_run(), a_run(attempts_max=3), *(a_run(limit_keys=(KEY,)) for _ in range(4)))
    one, _, limited, canceled = driver.claim()
    driver.start(one, limited)
    store.cancel(canceled.run_id, now=NOON)
    clock.advance(hours=1)

    def again(store: Store) -> None:
        StoreDriver(store, clock).reap()
        assert StoreDriver(store, clock).reap() == []

    return Act(lambda store: StoreDriver(store, clock).reap(), again)


def a_completion(store: Store, clock: ManualClock) -> Act:
    """A handler completes its run; a sweep unblocks the run that waits for its slot."""
    store.set_limits({KEY: 1})
    add(store, *(a_run(limit_keys=(KEY,), unique=UniqueKey(name, None)) for name in "ab"))
    [claim] = StoreDriver(store, clock).claim()

    def do(store: Store) -> Any:
        return store.complete(claim, now=NOON)

    def again(store: Store) -> None:
        # The store reports a repeat, so that the caller does not write its own rows twice.
        is_done = the_run(store, claim).is_finished
        assert do(store) is not is_done

    return Act(do, again)


def a_sweep_after_completion(store: Store, clock: ManualClock) -> Act:
    """The sweep after a handler completed its run."""
    added(store)
    tick(store, clock)
    StoreDriver(store, clock).record(StoreDriver(store, clock).claim_one(), Skipped("closed"))
    clock.advance(minutes=1)
    tick(store, clock)
    store.set_limits({KEY: 1})
    add(store, *(a_run(limit_keys=(KEY,)) for _ in range(2)))
    claims = StoreDriver(store, clock).claim()
    for claim in claims:
        store.complete(claim, now=clock.now())

    def do(store: Store) -> Any:
        return store.after_complete(claims)

    def again(store: Store) -> None:
        assert do(store) == [claim.run_id for claim in claims]

    return Act(do, again)


def a_claim_by_name(store: Store, clock: ManualClock) -> Act:
    store.set_limits({KEY: 2})
    add(store, *(runs := [a_run(limit_keys=(KEY, QUEUE_KEY), due_at=NOON + HOUR) for _ in "ab"]))

    def do(store: Store) -> Any:
        return store.claim_run(runs[1].id, worker=BOB, tag="tag", now=NOON, lease=MINUTE)

    def again(store: Store) -> None:
        do(store)
        assert len(store.find_claims(worker=BOB, tag="tag")) == 1

    return Act(do, again)


def a_sweep(store: Store, clock: ManualClock) -> Act:
    a_completion(store, clock).do(store)

    def do(store: Store) -> Any:
        return store.sweep(now=NOON, limit=10)

    return Act(do, do)


def a_changed_limit(store: Store, clock: ManualClock) -> Act:
    store.set_limits({KEY: 1})
    add(store, *(a_run(limit_keys=(KEY,)) for _ in range(3)))
    StoreDriver(store, clock).claim()

    def do(store: Store) -> Any:
        store.change_limit(KEY, 3, now=NOON)

    return Act(do, do)


def a_canceled_schedule(store: Store, clock: ManualClock) -> Act:
    added(store, overlap=Overlap.ALLOW)
    clock.advance(minutes=3)
    tick(store, clock)
    StoreDriver(store, clock).claim(1)

    def do(store: Store) -> Any:
        return store.cancel_schedule("", "digest", now=clock.now())

    return Act(do, do)


def a_pruning(store: Store, clock: ManualClock) -> Act:
    add(store, *(a_run(attempts_max=2, unique=UniqueKey(name, NOON + HOUR)) for name in "abc"))
    for claim in StoreDriver(store, clock).claim(2):
        StoreDriver(store, clock).record(claim, Failed("no", retry=False))
    added(store)

    def do(store: Store) -> Any:
        return store.prune(before=NOON + DAY, limit=10)

    return Act(do, do)


GIVEN: Final[dict[str, tuple[Callable[[Store, ManualClock], Act], int]]] = {
    "add_runs": (adding_runs, 4),
    "claim": (a_claim, 8),
    "record": (a_record, 14),
    "fire": (a_firing, 8),
    "cancel": (a_cancel, 7),
    "record_follow_ups": (a_record_with_follow_ups, 9),
    "reap": (a_reaping, 8),
    "complete": (a_completion, 3),
    "after_complete": (a_sweep_after_completion, 6),
    "claim_run": (a_claim_by_name, 6),
    "sweep": (a_sweep, 4),
    "change_limit": (a_changed_limit, 5),
    "cancel_schedule": (a_canceled_schedule, 3),
    "prune": (a_pruning, 4),
}
"""The setup of each operation, and how many statements it takes at least.

The number is there to see that we are where we think we are: between statements.
"""


# ---------------------------------------------------------------- the kill


@dataclass
class Deadly:
    """Runs a store's operations, and kills this process before one statement of the first.

    An operation may be followed by others, each in a transaction of its own.
    """

    store: SqlStore
    place: int | None  # None: never
    statements: list[str] = field(default_factory=list)
    is_over: bool = False

    def __post_init__(self) -> None:
        self._write = self.store._write
        self.store._write = self.write  # type: ignore[method-assign]

    def write(self, operation: Callable[..., Operation[Any]], *args: Any, **kwargs: Any) -> Any:
        if self.is_over:
            return self._write(operation, *args, **kwargs)
        answer = self._write(lambda query: self._counted(operation(query, *args, **kwargs)))
        self.is_over = True
        if self.place == AFTER_COMMIT:
            _die()
        return answer

    def _counted(self, operation: Operation[Any]) -> Operation[Any]:
        self.statements = []
        try:
            statement: Statement = next(operation)
            while True:
                if self.place == len(self.statements):
                    _die()
                self.statements.append(statement.name)
                statement = operation.send((yield statement))
        except StopIteration as end:
            if self.place == len(self.statements):
                _die()  # before the COMMIT
            return end.value


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_doing(url: str, act: Act, *, place: int) -> None:
    """Do it in a process that is killed before the statement at ``place``."""
    pid = os.fork()
    if pid == 0:
        try:
            store = open_store(url)
            Deadly(cast("SqlStore", store), place)
            act.do(store)
        finally:
            os._exit(1)  # the kill did not happen
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it ended by itself, at {place}"
    assert os.WTERMSIG(status) == signal.SIGKILL, status


# ---------------------------------------------------------------- reading the tables


def dump(url: str) -> Dump:
    """Every row of every table, as it is on disk.

    A transaction that is rolled back leaves a gap in the numbers that a server gives to counts and
    to slots: they are left out.
    """
    rows_of = read_tables(url)
    rows_of["tickwork_rollup"] = [row[1:] for row in rows_of["tickwork_rollup"]]
    rows_of["tickwork_slot"] = [row[:2] for row in rows_of["tickwork_slot"]]
    return rows_of


def read_tables(url: str) -> Dump:
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:///").partition("?")[0]
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
                for (name,) in found.fetchall()
            }
    if url.startswith("mysql:"):
        with mariadb.connect(url) as connection:
            return {
                name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
                for name in mariadb.tables_of(connection)
            }
    with psycopg.connect(url) as server:
        tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {
            name: sorted(server.execute(f"SELECT * FROM {name}".encode()).fetchall(), key=repr)
            for (name,) in tables.fetchall()
        }


class Databases:
    """Creates databases of one kind."""

    def __init__(self, request: pytest.FixtureRequest, kind: str) -> None:
        self._kind = kind
        self._numbers = count()
        self._folder = request.getfixturevalue("tmp_path")
        self._server: Any = None
        if kind != "sqlite":
            self._server = request.getfixturevalue(f"{kind}_databases")
        self._names: list[str] = []

    def fresh(self) -> str:
        if self._server is None:
            # This test is not about power cuts, and fsync would take most of the time.
            return f"sqlite:///{self._folder}/{next(self._numbers)}.db?synchronous=NORMAL"
        self._names.append(self._server.create_database())
        url: str = self._server.url(self._names[-1])
        return url

    def close(self) -> None:
        for name in self._names:
            self._server.drop_database(name)


@pytest.fixture(params=KINDS)
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    made = Databases(request, request.param)
    yield made
    made.close()


@dataclass
class Scene:
    """A database that is prepared for an operation."""

    url: str
    act: Act
    before: Dump

    @classmethod
    def of(cls, operation: str, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> "Scene":
        # The same ids each time, so that two databases can be compared row by row.
        monkeypatch.setattr(builders, "_numbers", count(1))
        url = databases.fresh()
        store = open_store(url)
        store.install()
        act = GIVEN[operation][0](store, ManualClock(NOON))
        # A connection must not cross a fork, nor be open while the file is read.
        store.close()
        return cls(url, act, dump(url))

    def do(self, act: Callable[[Store], Any]) -> tuple[list[str], Dump]:
        """Do it without a kill; return its statements and the tables afterwards."""
        store = open_store(self.url)
        watch = Deadly(cast("SqlStore", store), None)
        act(store)
        store.close()
        return watch.statements, dump(self.url)


@pytest.mark.parametrize("operation", GIVEN)
class TestDyingBetweenStatements:
    """A transaction happens as a whole or not at all, wherever its process dies."""

    def test_all_or_nothing_is_written(self, operation, databases, monkeypatch):
        unharmed = Scene.of(operation, databases, monkeypatch)
        statements, after = unharmed.do(unharmed.act.do)
        assert len(statements) >= GIVEN[operation][1], statements
        assert after != unharmed.before

        scene = Scene.of(operation, databases, monkeypatch)
        assert scene.before == unharmed.before
        for place in range(len(statements) + 1):
            die_doing(scene.url, scene.act, place=place)
            assert dump(scene.url) == scene.before, (
                f"killed before {[*statements, 'COMMIT'][place]}"
            )
        assert scene.do(scene.act.again)[1] == after

        scene = Scene.of(operation, databases, monkeypatch)
        die_doing(scene.url, scene.act, place=AFTER_COMMIT)
        assert dump(scene.url) == after
        assert scene.do(scene.act.again)[1] == after
