"""Nothing is left in the tables of a run that has ended, nor of one that was pruned."""

from collections.abc import Callable, Iterator

import pytest

from contract.builders import (
    DAY,
    HOUR,
    NOON,
    StoreDriver,
    a_run,
    add,
    added,
    all_runs,
    settled,
    tick,
)
from contract.stores.conftest import ON_DISK, STORES
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Canceled, Failed, Skipped, Succeeded
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores._sql.store import SqlStore
from tickwork._stores.contract import LogLine, Store
from tickwork.testing import ManualClock

KEY = "job:send_email"


@pytest.fixture(params=ON_DISK)
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with STORES[request.param](request, clock) as opened:
        yield opened


def rows_in(store: Store, *tables: str) -> list[int]:
    def counting(_: Queries) -> Operation[list[int]]:
        counts = []
        for table in tables:
            text = f"SELECT count(*) FROM tickwork_{table}"
            counts.append((yield Statement(table, (text,), {}))[0][0])
        return counts

    assert isinstance(store, SqlStore)
    return store._read(counting)


def reaped(store: Store, claim: Claim) -> None:
    clock = ManualClock(NOON + DAY)
    for _ in range(3):  # as often as a run may crash
        driver = StoreDriver(store, clock)
        driver.reap()
        clock.advance(days=1)
        driver.start(*driver.claim(1))
        clock.advance(days=1)
    driver.reap()


ENDS: dict[str, Callable[[Store, Claim], object]] = {
    "succeeded": lambda store, claim: store.record([settled(claim, Succeeded())]),
    "failed": lambda store, claim: store.record([settled(claim, Failed("no", retry=False))]),
    "skipped": lambda store, claim: store.record([settled(claim, Skipped("closed"))]),
    "canceled": lambda store, claim: store.record([settled(claim, Canceled("as requested"))]),
    "completed": lambda store, claim: store.complete(claim, now=NOON),
    "reaped": reaped,
}


class TestEnds:
    """Whatever way a run ends, it holds no key and no slot any more."""

    def add_one(self, store: Store) -> NewRun:
        store.set_limits({KEY: 1})
        add(store, run := a_run(limit_keys=(KEY,), unique=UniqueKey("key", None), attempts_max=2))
        return run

    @pytest.mark.parametrize("end", ENDS)
    def test_of_a_claim(self, store, worker, end):
        self.add_one(store)
        claim = worker.claim_one()
        assert rows_in(store, "unique", "slot") == [1, 1]

        ENDS[end](store, claim)

        assert rows_in(store, "run", "unique", "slot") == [0, 0, 0]

    def test_of_one_that_waits(self, store, clock):
        run = self.add_one(store)

        store.cancel(run.id, now=clock.now())

        assert rows_in(store, "run", "unique", "slot") == [0, 0, 0]

    def test_of_a_schedule_that_is_canceled(self, store, clock, worker):
        added(store)
        tick(store, clock)
        worker.record(worker.claim_one(), Failed("no", delay=HOUR, retry=True))

        store.cancel_schedule("", "digest", now=clock.now())

        assert rows_in(store, "run", "unique", "slot") == [0, 0, 0]


class TestPruning:
    """What is pruned goes with all that belongs to it."""

    def test_with_attempts_and_lines(self, store, worker):
        add(store, run := a_run())
        store.append_logs({run.id: [LogLine(NOON, "INFO", "x", "y")]}, lines_max=9)
        worker.record(worker.claim_one(), Failed("no"))
        assert rows_in(store, "history", "attempt", "log") == [1, 1, 1]

        store.prune(before=NOON + DAY, limit=10)

        assert rows_in(store, "history", "attempt", "log") == [0, 0, 0]

    def test_a_window_that_is_longer_than_its_run_is_kept(self, store, worker):
        add(store, a_run(unique=UniqueKey("key", NOON + 30 * DAY)))
        worker.run()

        store.prune(before=NOON + DAY, limit=10)
        assert all_runs(store) == []
        assert rows_in(store, "unique") == [1]  # it is protected still

        store.prune(before=NOON + 31 * DAY, limit=10)
        assert rows_in(store, "unique") == [0]
