"""Store operations in a caller's own transaction, in every mode that its connection can be in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from contract.builders import (
    HOUR,
    NOON,
    StoreDriver,
    a_run,
    add,
    added,
    all_runs,
    ids,
    settled,
    the_run,
    tick,
)
from contract.callers import AT_ONCE, OPEN, Caller, Mode
from contract.stores.conftest import SERVERS, STORES
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import PLAIN_MAPPERS
from tickwork._stores.contract import AddedRun, RunFilter, Store
from tickwork.testing import ManualClock

LIMIT = "job:send_email"
ONE = UniqueKey("one", None)


def in_modes(modes: list[Mode]) -> Any:
    return pytest.mark.parametrize(
        "mode",
        [
            pytest.param(
                mode,
                id=str(mode),
                marks=[pytest.mark.servers(mode.kind)] if mode.kind in SERVERS else [],
            )
            for mode in modes
        ],
    )


@pytest.fixture
def store(request: pytest.FixtureRequest, mode: Mode, clock: ManualClock) -> Iterator[Store]:
    with STORES[mode.kind](request, clock) as store:
        yield store


@pytest.fixture
def call(store: Store, mode: Mode) -> Iterator[Callable[[], Caller]]:
    """Opens the caller's connection: from then on, others may have to wait for it."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(mode.open(store))


@pytest.fixture
def claim(store: Store, worker: StoreDriver) -> Claim:
    """A claim that holds a slot and a unique key."""
    store.set_limits({LIMIT: 1})
    add(store, a_run(limit_keys=(LIMIT,), unique=ONE))
    return worker.claim_one(lease=HOUR)


@in_modes(OPEN)
class TestRollingBack:
    """Rolled back means never seen."""

    def test_a_run(self, store, worker, call):
        caller = call()
        caller.order()
        caller.borrowed.add_runs([run := a_run()])
        caller.roll_back()

        assert store.get_run(run.id) is None
        assert all_runs(store) == []
        assert worker.claim() == []
        assert caller.orders() == 0

    def test_many_runs(self, store, call):
        caller = call()
        caller.borrowed.add_runs([a_run() for _ in range(50)])
        caller.roll_back()

        assert all_runs(store) == []

    def test_a_unique_key(self, store, call):
        caller = call()
        caller.borrowed.add_runs([a_run(unique=ONE)])
        caller.roll_back()

        [answer] = store.add_runs([a_run(unique=ONE)])
        assert answer.is_new

    def test_the_end_of_a_run(self, store, worker, call, claim):
        caller = call()
        caller.order()
        assert caller.borrowed.complete(claim, now=NOON)
        caller.roll_back()

        assert the_run(store, claim).status is RunStatus.RUNNING
        assert store.count_taken([LIMIT]) == {LIMIT: 1}
        assert not store.add_runs([a_run(unique=ONE)])[0].is_new
        assert caller.orders() == 0
        assert worker.record(claim) == []

    def test_an_attempt(self, store, worker, call, claim):
        caller = call()
        caller.borrowed.record([settled(claim, Failed("no"))])
        caller.roll_back()

        found = store.run_record(claim.run_id)
        assert found is not None
        assert found.attempts == []
        assert store.list_jobs() == []
        assert worker.record(claim) == []

    def test_a_tick(self, store, clock, call):
        added(store)
        caller = call()
        assert len(tick(caller.borrowed, clock).runs) == 1
        caller.roll_back()

        assert all_runs(store) == []
        assert len(tick(store, clock).runs) == 1


@in_modes(OPEN)
class TestCommitting:
    """Committed means there, together with what the caller wrote; and not a moment earlier."""

    def test_a_run(self, store, worker, call):
        caller = call()
        caller.order()
        before = caller.orders()
        caller.borrowed.add_runs([run := a_run(args='["ü€😀"]')])
        assert caller.is_open
        assert store.get_run(run.id) is None
        caller.commit()

        assert caller.orders() > before
        assert [claim.args for claim in worker.claim()] == ['["ü€😀"]']

    def test_several_verbs(self, store, worker, call):
        caller = call()
        caller.borrowed.add_runs([first := a_run()])
        caller.order()
        caller.borrowed.add_runs([second := a_run()])
        caller.order()
        caller.commit()

        assert ids(worker.claim()) == [first.id, second.id]

    def test_the_end_of_a_run(self, store, call, claim):
        caller = call()
        caller.order()
        assert caller.borrowed.complete(claim, now=NOON, result='"done"')
        assert the_run(store, claim).status is RunStatus.RUNNING
        caller.commit()

        found = the_run(store, claim)
        assert (found.status, found.result) == (RunStatus.COMPLETED, '"done"')
        assert store.count_taken([LIMIT]) == {LIMIT: 0}
        assert store.add_runs([a_run(unique=ONE)])[0].is_new
        assert caller.orders() >= 1

    def test_the_caller_sees_it_before_all_others(self, store, call):
        caller = call()
        caller.borrowed.add_runs([run := a_run()])

        assert caller.borrowed.get_run(run.id) is not None
        assert caller.borrowed.count_runs() != store.count_runs()


@in_modes(OPEN)
class TestLostClaims:
    """A caller that lost its claim writes nothing, and gets False."""

    @pytest.fixture
    def stale(self, store, clock, worker, other_worker):
        add(store, a_run())
        stale = worker.claim_one()
        clock.advance(minutes=5)
        worker.reap()
        other_worker.claim_one(lease=HOUR)
        return stale

    def test_nothing_is_written(self, store, call, stale):
        before = the_run(store, stale)
        caller = call()
        caller.order()

        assert not caller.borrowed.complete(stale, now=NOON)
        assert caller.is_open
        caller.commit()

        assert the_run(store, stale) == before
        assert caller.orders() >= 1

    def test_a_finished_run_is_not_finished_again(self, store, worker, call, claim):
        worker.record(claim)
        before = the_run(store, claim)
        caller = call()

        assert not caller.borrowed.complete(claim, now=NOON + HOUR)
        caller.commit()
        assert the_run(store, claim) == before


@in_modes(OPEN)
class TestConflicts:
    """A unique key that is held is answered with the run that holds it."""

    def test_one_that_was_there_before(self, store, call):
        add(store, held := a_run(unique=ONE))
        caller = call()

        answers = caller.borrowed.add_runs([a_run(unique=ONE), other := a_run()])
        caller.commit()

        assert answers == [AddedRun(held.id, is_new=False), AddedRun(other.id, is_new=True)]
        assert ids(all_runs(store)) == [held.id, other.id]

    def test_one_of_the_same_transaction(self, store, call):
        caller = call()
        caller.borrowed.add_runs([held := a_run(unique=ONE)])

        answers = caller.borrowed.add_runs([a_run(unique=ONE)])
        caller.commit()

        assert answers == [AddedRun(held.id, is_new=False)]
        assert ids(all_runs(store)) == [held.id]


SNAPSHOTS = {"postgres, repeatable read", "postgres, serializable"}


@in_modes([mode for mode in OPEN if str(mode) not in SNAPSHOTS])
class TestRepeats:
    """What is stored is not added again. Where that cannot be seen, a repeat is refused."""

    def test_a_repeat_is_not_added_again(self, store, worker, call):
        add(store, finished := a_run())
        worker.run()
        add(store, stored := a_run())
        caller = call()

        answers = caller.borrowed.add_runs([finished, stored, new := a_run()], may_be_stored=True)
        caller.commit()

        assert [answer.is_new for answer in answers] == [False, False, True]
        assert ids(all_runs(store)) == [finished.id, stored.id, new.id]


@in_modes(OPEN)
class TestFailing:
    """An operation that fails leaves nothing behind but the transaction that it found."""

    def test_what_was_done_before_stays_and_more_can_be_done(self, store, call):
        add(store, there := a_run())
        caller = call()
        caller.order()
        caller.borrowed.add_runs([before := a_run()])

        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):  # the driver's own
            caller.borrowed.add_runs([undone := a_run(unique=ONE), there])
        assert caller.is_open

        caller.order()
        caller.borrowed.add_runs([after := a_run(unique=ONE)])
        caller.commit()

        assert store.get_run(undone.id) is None
        assert ids(all_runs(store)) == [there.id, before.id, after.id]
        assert caller.orders() >= 2

    def test_a_mistake_of_the_caller_in_the_middle(self, store, clock, call):
        added(store)
        caller = call()
        caller.order()

        with pytest.raises(ZeroDivisionError):
            caller.borrowed.fire(
                now=clock.now(), limit=10, jobs=None, keys_of=lambda _: (), plan=lambda *_: 1 // 0
            )
        caller.borrowed.add_runs([run := a_run()])
        caller.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_what_it_wrote_before_it_failed_is_undone(self, store, call, monkeypatch):
        def half(query: Queries, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> Any:
            yield query.command(
                "insert_runs", many=[PLAIN_MAPPERS.new_run_row(run) for run in runs]
            )
            yield query("list_limits")
            raise ZeroDivisionError

        caller = call()
        caller.order()
        with monkeypatch.context() as patch:
            patch.setattr("tickwork._stores._sql.operations.inserts.add_runs", half)
            with pytest.raises(ZeroDivisionError):
                caller.borrowed.add_runs([undone := a_run()])
        caller.borrowed.add_runs([run := a_run()])
        caller.commit()

        assert store.get_run(undone.id) is None
        assert ids(all_runs(store)) == [run.id]
        assert caller.orders() > 0

    def test_it_can_be_the_first_of_its_transaction(self, store, worker, call):
        add(store, there := a_run())
        caller = call()

        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            caller.borrowed.add_runs([a_run(), there])
        caller.borrowed.add_runs([run := a_run()])
        caller.commit()

        assert ids(worker.claim()) == [there.id, run.id]


@in_modes(AT_ONCE)
class TestAtOnce:
    """Where each statement is committed by itself, an operation is: as a whole, or not at all."""

    def test_it_is_there_at_once(self, store, worker, call):
        caller = call()
        caller.borrowed.add_runs([run := a_run()])

        assert not caller.is_open
        assert ids(worker.claim()) == [run.id]

    def test_the_end_of_a_run(self, store, call, claim):
        caller = call()

        assert caller.borrowed.complete(claim, now=NOON)
        assert the_run(store, claim).status is RunStatus.COMPLETED
        assert store.count_taken([LIMIT]) == {LIMIT: 0}

    def test_a_failure_leaves_nothing(self, store, call):
        add(store, there := a_run())
        caller = call()

        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            caller.borrowed.add_runs([a_run(unique=ONE), there])

        assert not caller.is_open
        assert ids(all_runs(store)) == [there.id]
        assert store.add_runs([a_run(unique=ONE)])[0].is_new

    def test_a_transaction_can_be_begun_afterwards(self, store, call):
        caller = call()
        caller.borrowed.add_runs([run := a_run()])
        caller.connection.execute("BEGIN")
        caller.borrowed.add_runs([a_run()])
        caller.roll_back()

        assert ids(all_runs(store)) == [run.id]


@in_modes(OPEN + AT_ONCE)
class TestLooking:
    """A look leaves everything as it was."""

    def test_nothing_is_begun_or_ended(self, mode, store, call):
        caller = call()
        was_open = caller.is_open
        caller.borrowed.get_run(a_run().id)
        caller.borrowed.list_runs(RunFilter())

        # On a server a look is a statement, and with the first statement a transaction begins.
        begins = mode in OPEN and mode.kind in SERVERS
        assert caller.is_open is (was_open or begins)

    def test_closing_it_closes_nothing_of_the_callers(self, store, call):
        caller = call()
        caller.borrowed.close()

        caller.borrowed.add_runs([a_run()])
        caller.order()
