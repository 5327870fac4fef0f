"""Two transactions at a time on a server: what one connection alone cannot show."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from itertools import product
from typing import Any, TypeAlias, TypeVar

import pytest

from contract.builders import (
    ANN,
    BOB,
    HOUR,
    MINUTE,
    NOON,
    StoreDriver,
    a_fired_run,
    a_job,
    a_run,
    a_schedule,
    add,
    added,
    all_runs,
    an_id,
    ids,
    in_phase,
    settled,
    the_run,
    tick,
)
from contract.stores.conftest import SERVERS
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Overlap, ScheduleRow
from tickwork._domain.limits.debounce import ReplaceRule
from tickwork._domain.limits.limits import UniqueKey, gate_of
from tickwork._domain.runs.outcome import Failed, Skipped, Succeeded
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.transitions import reap
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.tick import STILL_RUNNING, TickPlan, keys_wanted, plan_tick
from tickwork._stores import open_store
from tickwork._stores._sql import server_store
from tickwork._stores._sql.operations import (
    claim,
    control,
    inserts,
    leases,
    limits,
    rates,
    reads,
    record,
    schedules,
)
from tickwork._stores._sql.server_store import ServerStore
from tickwork._stores._sql.statement import Operation, Rows, Statement
from tickwork._stores._sql.store import drive
from tickwork._stores.contract import (
    AddedRun,
    ChangeResult,
    ClaimRequest,
    HeldClaim,
    NewSchedule,
    Pause,
    PauseKind,
    RunFilter,
    Store,
)
from tickwork._stores.mysql.literals import listed
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork.testing import ManualClock

T = TypeVar("T")

AnyStore: TypeAlias = ServerStore[Any]

LIMIT = "job:send_email"
WAIT_SECONDS_MAX = 20.0
WAITING: dict[type[object], str] = {
    PostgresStore: "SELECT count(*) FROM pg_locks WHERE NOT granted",
    # The server does not refresh this view while it is read all the time.
    MysqlStore: "SELECT variable_value FROM"
    " /*M! information_schema.global_status */ /*!80017 performance_schema.global_status */"
    " WHERE variable_name = 'innodb_row_lock_current_waits'",
}


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.servers(kind)) for kind in sorted(SERVERS)]
)
def store(request: pytest.FixtureRequest) -> Iterator[ServerStore[Any]]:
    store = open_store(request.getfixturevalue(f"{request.param}_url"))
    assert isinstance(store, ServerStore)
    store.install()
    yield store
    store.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.fixture
def begin(store: AnyStore) -> Iterator[Callable[[], "OpenTransaction"]]:
    begun: list[OpenTransaction] = []

    def begin() -> OpenTransaction:
        begun.append(OpenTransaction(store))
        return begun[-1]

    yield begin
    for transaction in begun:
        transaction.close()


class OpenTransaction:
    """A transaction on a connection of its own that stays open until the test ends it."""

    def __init__(self, store: AnyStore) -> None:
        self._connection = store._connect()
        self._context = self._connection.transaction()
        self._context.__enter__()

    def run(self, operation: Operation[T]) -> T:
        result = drive(operation, self._connection)
        if self._connection._unsent:
            self._connection._send()
        return result

    def ask(self, statement: Statement) -> Rows:
        """Run one statement, and wait for its answer."""
        rows: Rows = self._connection.execute(statement._replace(needs_result=True))
        return rows

    def commit(self) -> None:
        self._context.__exit__(None, None, None)

    def roll_back(self) -> None:
        error = RuntimeError()
        assert not self._context.__exit__(RuntimeError, error, None)

    def close(self) -> None:
        self._connection.close()


def waits(store: AnyStore, done: "Future[Any]") -> bool:
    """Whether another transaction waits for a lock, instead of being done."""
    waiting = WAITING[type(store)]
    with closing(store._connect()) as connection:
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while not done.done() and time.monotonic() < give_up_at:
            with connection.transaction():
                [[count]] = connection.execute(Statement("waiting", (waiting,), {}))
            if int(count):
                return True
            threading.Event().wait(0.005)
    return False


@contextmanager
def quickly() -> Iterator[None]:
    """The block does not wait for a lock."""
    began_at = time.monotonic()
    yield
    assert time.monotonic() - began_at < 5


def claiming(
    store: AnyStore, wanted: ClaimRequest, worker: Any = ANN, *, now: datetime = NOON
) -> Operation[list[Claim]]:
    return claim.claim(store.query, wanted, worker=worker, tag="tag", now=now, lease=MINUTE)


def interrupted(operation: Operation[T], *, before: str, act: Callable[[], object]) -> Operation[T]:
    """The same, with something that happens just before a statement of this name is sent."""
    statement = next(operation)
    try:
        while True:
            if statement.name == before:
                act()
            statement = operation.send((yield statement))
    except StopIteration as end:
        result: T = end.value
        return result


class TestClaiming:
    """Each of two open claims gets runs of its own, whatever the other holds."""

    def test_the_second_passes_over_what_the_first_holds(self, store, begin):
        add(store, *(runs := [a_run() for _ in range(10)]))

        first = begin().run(claiming(store, ClaimRequest(4)))
        second = begin().run(claiming(store, ClaimRequest(4)))
        third = begin().run(claiming(store, ClaimRequest(4)))

        assert ids(first) + ids(second) + ids(third) == ids(runs)

    def test_pair_by_pair_too(self, store, begin):
        # A backlog that neither of them may take, longer than what a claim looks at.
        add(store, *[a_run(job="unknown", priority=1) for _ in range(100)])
        add(store, *(runs := [a_run(job="known") for _ in range(8)]))
        wanted = ClaimRequest(4, jobs=("known",))

        first = begin().run(claiming(store, wanted))
        second = begin().run(claiming(store, wanted))

        assert ids(first) + ids(second) == ids(runs)

    def test_what_is_not_wanted_is_not_locked(self, store, begin):
        add(store, *(emails := [a_run(job="send_email", priority=2) for _ in range(5)]))
        add(store, *(sweeps := [a_run(job="sweep") for _ in range(5)]))
        other = begin()

        claimed = other.run(claiming(store, ClaimRequest(5, jobs=("sweep",))))

        assert ids(claimed) == ids(sweeps)
        assert ids(StoreDriver(store, ManualClock(NOON)).claim(5)) == ids(emails)

    def test_no_more_is_locked_than_is_taken(self, store, begin):
        add(store, *[a_run() for _ in range(50)])
        begin().run(claiming(store, ClaimRequest(3)))

        text = "SELECT id FROM tickwork_run FOR UPDATE SKIP LOCKED"
        free = begin().ask(Statement("free", (text,), {}))

        assert len(free) == 47

    def test_a_run_that_was_canceled_meanwhile_is_not_claimed(self, store, begin, background):
        add(store, run := a_run(), other := a_run())
        canceling = begin()
        canceling.run(control.cancel(store.query, run.id, now=NOON, reason=""))

        claimed = StoreDriver(store, ManualClock(NOON)).claim(5)

        assert ids(claimed) == [other.id]
        canceling.commit()
        assert the_run(store, run).status is RunStatus.CANCELED


SHAPES: dict[str, ClaimRequest] = {
    "anything": ClaimRequest(4),
    "one queue": ClaimRequest(4, queues=("emails",)),
    "several queues": ClaimRequest(4, queues=("emails", "reports", "nothing")),
    "one job": ClaimRequest(4, jobs=("send_email",)),
    "several jobs": ClaimRequest(4, jobs=("send_email", "sweep", "nothing")),
    "queues and jobs": ClaimRequest(4, queues=("emails", "reports"), jobs=("send_email", "sweep")),
    "ahead": ClaimRequest(0, ahead=4),
    "some ahead": ClaimRequest(2, ahead=2),
    "starting": ClaimRequest(4, is_starting=True),
}


@pytest.mark.parametrize("is_by_pairs", [False, True], ids=["", "by pairs"])
@pytest.mark.parametrize("wanted", SHAPES.values(), ids=SHAPES)
class TestEveryShape:
    """Three open claims each get as many runs as they want, and none of them waits."""

    def test_each_gets_its_own(self, store, begin, monkeypatch, wanted, is_by_pairs):
        if is_by_pairs:
            # It looks at less than it wants, and so at the head of each queue and job.
            monkeypatch.setattr(claim, "HEAD_FACTORS", (0,))
            monkeypatch.setattr(claim, "HEAD_MIN", 1)
        store.pause(Pause(PauseKind.QUEUE, "paused", NOON, ""))
        places = list(product(("emails", "reports", "paused"), ("send_email", "sweep"), range(3)))
        for queue, job, priority in places:
            add(store, *(a_run(queue=queue, job=job, priority=priority) for _ in range(4)))

        with quickly():
            claims = [begin().run(claiming(store, wanted)) for _ in range(3)]

        found = [run_id for one in claims for run_id in ids(one)]
        assert len(set(found)) == len(found)
        assert {len(one) for one in claims} == {4}


class TestBriefClaims:
    """A brief claim takes the first runs it finds, and looks further only if it finds none."""

    def test_what_is_at_the_head_is_enough(self, store, monkeypatch):
        monkeypatch.setattr(claim, "HEAD_FACTORS", (0,))
        monkeypatch.setattr(claim, "HEAD_MIN", 2)
        add(store, *(a_run(job=job, priority=n) for n, job in enumerate(["ours", "other", "ours"])))
        wanted = ClaimRequest(5, jobs=("ours",), may_stop_early=True)

        found = [
            len(store.claim(wanted, worker=ANN, tag=str(number), now=NOON, lease=MINUTE))
            for number in range(3)
        ]

        assert sum(found) == 2
        assert found[0] >= 1


class TestCanceling:
    """Canceling a run that is just being claimed requests its worker to stop."""

    @pytest.mark.parametrize("is_by_schedule", [False, True])
    def test_a_run_that_is_being_claimed(self, store, begin, background, is_by_schedule):
        add(store, run := a_fired_run("digest", unique=UniqueKey("key", None)))
        claiming_it = begin()
        assert len(claiming_it.run(claiming(store, ClaimRequest(1)))) == 1

        if is_by_schedule:
            canceled = background.submit(store.cancel_schedule, "", "digest", now=NOON)
        else:
            canceled = background.submit(store.cancel, run.id, now=NOON)
        assert waits(store, canceled)
        claiming_it.commit()

        assert canceled.result(WAIT_SECONDS_MAX) == (
            1 if is_by_schedule else ChangeResult.REQUESTED
        )
        found = the_run(store, run)
        assert (found.status, found.cancel_requested_at) == (RunStatus.RUNNING, NOON)
        [again] = store.add_runs([a_run(unique=UniqueKey("key", None))])
        assert again.run_id == run.id, "it holds its key still"


class TestFencing:
    """A worker that lost a lease writes nothing, even when it began to write before."""

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), Failed("no"), Failed("no", retry=False)],
        ids=["succeeded", "failed", "failed for good"],
    )
    def test_a_write_that_waits_for_a_takeover_does_not_land(
        self, store, begin, background, clock, outcome
    ):
        add(store, *[a_run(attempts_max=9) for _ in range(50)])
        stale = StoreDriver(store, clock).claim(50)
        clock.advance(minutes=5)
        takeover = begin()
        taken_back = takeover.run(
            record.reap(store.query, now=clock.now(), limit=50, decide=given_back(clock))
        )
        assert len(taken_back) == 50
        retaken = takeover.run(
            claim.claim(
                store.query, ClaimRequest(50), worker=BOB, tag="bob", now=clock.now(), lease=MINUTE
            )
        )
        assert len(retaken) == 50

        late = background.submit(store.record, [settled(one, outcome) for one in stale])
        assert waits(store, late)
        takeover.commit()

        assert sorted(late.result(WAIT_SECONDS_MAX)) == sorted(ids(stale))
        assert all(the_run(store, one).worker == BOB for one in stale)
        assert store.record([settled(one, now=clock.now()) for one in retaken]) == []

    def test_a_write_that_waits_for_a_heartbeat_lands(self, store, begin, background, clock):
        add(store, *[a_run() for _ in range(50)])
        claims = StoreDriver(store, clock).claim(50)
        heartbeat = begin()
        held = [HeldClaim(one.run_id, one.token, NOON) for one in claims]
        beat = heartbeat.run(leases.extend_leases(store.query, held, until=NOON + 2 * MINUTE))
        assert beat.lost == []

        writing = background.submit(store.record, [settled(one) for one in claims])
        assert waits(store, writing)
        heartbeat.commit()

        assert writing.result(WAIT_SECONDS_MAX) == []
        assert all(the_run(store, one).status is RunStatus.COMPLETED for one in claims)

    def test_a_heartbeat_beside_a_write_does_not_wait_and_loses_nothing(self, store, begin, clock):
        add(store, *[a_run() for _ in range(6)])
        claims = StoreDriver(store, clock).claim(6)
        writing = begin()
        writing.run(record.record(store.query, [settled(one) for one in claims[:3]]))

        with quickly():
            beat = StoreDriver(store, clock).start(*claims, until=NOON + 2 * MINUTE)

        assert beat.lost == []
        assert all(the_run(store, one).lease_until == NOON + 2 * MINUTE for one in claims[3:])
        writing.commit()
        assert StoreDriver(store, clock).beat(*claims).lost == []

    def test_a_heartbeat_does_not_extend_what_was_taken_over(self, store, begin, clock):
        add(store, a_run())
        [stale] = StoreDriver(store, clock).claim(1)
        clock.advance(minutes=5)
        takeover = begin()
        takeover.run(record.reap(store.query, now=clock.now(), limit=1, decide=given_back(clock)))
        before = the_run(store, stale).lease_until

        # The takeover is not committed yet: the run is passed over, neither lost nor extended.
        assert StoreDriver(store, clock).beat(stale).lost == []
        assert the_run(store, stale).lease_until == before
        takeover.commit()

        assert StoreDriver(store, clock).beat(stale).lost == [stale.run_id]

    def test_a_reaper_passes_over_what_is_being_written(self, store, begin, clock):
        add(store, *[a_run() for _ in range(2)])
        first, second = StoreDriver(store, clock).claim(2)
        clock.advance(minutes=5)
        writing = begin()
        writing.run(record.record(store.query, [settled(first)]))

        with quickly():
            reaped = StoreDriver(store, clock).reap()

        assert [step.claim.run_id for step in reaped] == [second.run_id]
        writing.commit()


def given_back(clock: ManualClock) -> Any:
    return lambda expired: reap(expired.claim, has_started=False, now=clock.now())


class TestLimits:
    """A limit is never exceeded, and no run waits for a free slot."""

    def limited(self, store: Store, *, slots: int = 1, runs: int = 2) -> list[Any]:
        store.set_limits({LIMIT: slots})
        made = [a_run(limit_keys=(LIMIT,)) for _ in range(runs)]
        add(store, *made)
        return made

    def test_a_run_blocked_while_its_slot_is_freed_is_unblocked(
        self, store, begin, background, clock
    ):
        # The script that loses a wake-up when a finisher does not take the gate: it would look
        # for blocked runs before the other has committed that there is one.
        _, waiting = self.limited(store)
        [held] = StoreDriver(store, clock).claim(1)
        claiming_other = begin()
        assert claiming_other.run(claiming(store, ClaimRequest(1), BOB)) == []

        finishing = background.submit(store.record, [settled(held)])
        assert waits(store, finishing)
        claiming_other.commit()

        assert finishing.result(WAIT_SECONDS_MAX) == []
        assert the_run(store, waiting).phase is Phase.READY

    def test_a_run_claimed_while_its_slot_is_being_freed_stays_ready(self, store, begin, clock):
        _, waiting = self.limited(store)
        [held] = StoreDriver(store, clock).claim(1)
        finishing = begin()
        finishing.run(record.record(store.query, [settled(held)]))

        with quickly():
            assert StoreDriver(store, clock, BOB).claim(1) == []
        assert the_run(store, waiting).phase is Phase.READY
        finishing.commit()

        assert ids(StoreDriver(store, clock, BOB).claim(1)) == [waiting.id]

    def test_the_last_place_goes_to_one_of_two(self, store, begin, clock):
        first, second = self.limited(store)
        one = begin()
        assert ids(one.run(claiming(store, ClaimRequest(1)))) == [first.id]

        # The gate is the other's: left as it is, for later.
        assert StoreDriver(store, clock, BOB).claim(1) == []
        assert the_run(store, second).phase is Phase.READY
        one.commit()

        assert StoreDriver(store, clock, BOB).claim(1) == []
        assert the_run(store, second).phase is Phase.BLOCKED
        assert store.count_taken([LIMIT]) == {LIMIT: 1}

    def test_places_are_counted_after_the_gate_is_had(self, store, begin, background, clock):
        # Two places: one is taken by a claim that is not committed yet, and one run is blocked
        # though there seems to be room for two. Who counted before it held the gate would let
        # out two.
        self.limited(store, slots=1, runs=3)
        [held] = StoreDriver(store, clock).claim(1)
        assert StoreDriver(store, clock).claim(2) == []
        assert len(in_phase(store, Phase.BLOCKED)) == 2
        # Freed in a caller's own transaction, which locks no gate and unblocks no run.
        assert store.complete(held, now=NOON)
        add(store, late := a_run(limit_keys=(LIMIT,)))
        taking = begin()
        assert ids(taking.run(claiming(store, ClaimRequest(1)))) == [late.id]

        sweeping = background.submit(store.sweep, now=NOON, limit=10)
        assert waits(store, sweeping)
        taking.commit()

        assert sweeping.result(WAIT_SECONDS_MAX) == 0
        assert len(in_phase(store, Phase.BLOCKED)) == 2

    def test_gates_are_taken_in_one_order(self, store, begin, background, clock):
        # Two finishers of runs with the same two keys, given in opposite order.
        keys = sorted(["job:a", "job:b"], key=gate_of)
        store.set_limits(dict.fromkeys(keys, 2))
        add(store, a_run(limit_keys=tuple(keys)), a_run(limit_keys=tuple(reversed(keys))))
        claims = StoreDriver(store, clock).claim(2)
        assert len(claims) == 2

        done = [background.submit(store.record, [settled(one)]) for one in claims]

        assert [one.result(WAIT_SECONDS_MAX) for one in done] == [[], []]
        assert store.count_taken(keys) == dict.fromkeys(keys, 0)

    def test_changing_a_limit_waits_for_claims_under_way(self, store, begin, background, clock):
        first, second = self.limited(store)
        claim_under_way = begin()
        assert ids(claim_under_way.run(claiming(store, ClaimRequest(1)))) == [first.id]

        changing = background.submit(store.change_limit, LIMIT, 2, now=NOON)
        assert waits(store, changing)
        claim_under_way.commit()
        changing.result(WAIT_SECONDS_MAX)

        assert ids(StoreDriver(store, clock, BOB).claim(2)) == [second.id]

    def test_a_sweep_unblocks_runs_that_waited_for_a_completed_run(self, store, clock):
        _, waiting = self.limited(store)
        [held] = StoreDriver(store, clock).claim(1)
        assert StoreDriver(store, clock).claim(1) == []
        assert store.complete(held, now=NOON)
        assert the_run(store, waiting).phase is Phase.BLOCKED

        assert store.sweep(now=NOON, limit=10) == 1

    def test_completing_takes_no_gate(self, store, begin, clock):
        self.limited(store)
        [held] = StoreDriver(store, clock).claim(1)
        caller = begin()
        assert caller.run(record.complete(store.query, held, now=NOON))

        with quickly():
            store.sweep(now=NOON, limit=10)
            store.change_limit(LIMIT, 3, now=NOON)
        caller.commit()


class TestRates:
    """A rate is never exceeded, and turns are taken by one of two."""

    KEY = "job/minute:send_email"

    def rated(self, store: Store, *, starts: int = 1, runs: int = 2) -> list[Any]:
        store.set_limits({self.KEY: starts})
        made = [a_run(limit_keys=(self.KEY,)) for _ in range(runs)]
        add(store, *made)
        return made

    def test_the_last_start_goes_to_one_of_two(self, store, begin, clock):
        first, second = self.rated(store)
        one = begin()
        assert ids(one.run(claiming(store, ClaimRequest(1)))) == [first.id]

        # The gate is the other's: left as it is, for later.
        assert StoreDriver(store, clock, BOB).claim(1) == []
        assert the_run(store, second).phase is Phase.READY
        one.commit()

        assert StoreDriver(store, clock, BOB).claim(1) == []
        assert the_run(store, second).phase is Phase.BLOCKED

    def test_one_that_was_given_up_is_none(self, store, begin, clock):
        first, _ = self.rated(store)
        one = begin()
        one.run(claiming(store, ClaimRequest(1)))
        one.roll_back()

        assert ids(StoreDriver(store, clock, BOB).claim(1)) == [first.id]

    def test_starts_are_counted_after_the_gate_is_had(self, store, begin, background, clock):
        # A claim by id waits for the gate: a count from before would start it.
        _, second = self.rated(store)
        one = begin()
        one.run(claiming(store, ClaimRequest(1)))
        by_name = background.submit(
            store.claim_run, second.id, worker=BOB, tag="tag", now=NOON, lease=MINUTE
        )
        assert waits(store, by_name)
        one.commit()

        assert by_name.result(WAIT_SECONDS_MAX) is None

    def test_a_turn_is_taken_once(self, store, begin, clock):
        self.rated(store, runs=3)
        StoreDriver(store, clock).claim(1)
        StoreDriver(store, clock).claim(1)
        clock.advance(minutes=1)
        one = begin()
        assert one.run(rates.unblock_rated(store.query, now=clock.now(), limit=10)) == 1

        with quickly():
            assert store.unblock_rated(now=clock.now(), limit=10) == 0
        one.commit()

        assert store.unblock_rated(now=clock.now(), limit=10) == 0
        assert len(in_phase(store, Phase.READY)) == 1

    def test_a_key_that_is_used_again_is_not_forgotten(self, store, begin, clock):
        self.rated(store)
        StoreDriver(store, clock).run(1)
        for run in all_runs(store):
            store.cancel(run.id, now=clock.now())
        clock.advance(minutes=2)
        add(store, *[a_run(limit_keys=(self.KEY,)) for _ in range(2)])
        one = begin()
        assert len(one.run(claiming(store, ClaimRequest(1), now=clock.now()))) == 1

        with quickly():
            store.prune(before=clock.now(), limit=10)
        one.commit()

        assert StoreDriver(store, clock, BOB).claim(1) == []


class TestUniqueness:
    """One run for a key, however many add it at once, without needless waits."""

    KEY = UniqueKey("send_email:42", None)

    def adding(self, store: AnyStore, *runs: Any) -> Operation[list[AddedRun]]:
        return inserts.add_runs(store.query, runs)

    def leave_behind(self, store: AnyStore, begin: Callable[[], OpenTransaction]) -> None:
        """The key of a run that is not there."""
        leaving = begin()
        leaving.ask(store.query("protect_keys", many=[(self.KEY.key, an_id(), None, 0)]))
        leaving.commit()

    def test_the_second_waits_and_gets_the_id_of_the_first(self, store, begin, background):
        first, second = a_run(unique=self.KEY), a_run(unique=self.KEY)
        one = begin()
        one.run(self.adding(store, first))

        other = background.submit(store.add_runs, [second])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(first.id, is_new=False)]
        assert store.get_run(second.id) is None

    def test_the_second_is_added_when_the_first_gives_up(self, store, begin, background):
        first, second = a_run(unique=self.KEY), a_run(unique=self.KEY)
        one = begin()
        one.run(self.adding(store, first))

        other = background.submit(store.add_runs, [second])
        assert waits(store, other)
        one.roll_back()

        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(second.id, is_new=True)]
        assert store.get_run(first.id) is None

    def test_a_key_whose_window_has_passed_goes_to_one_of_two(self, store, begin, background):
        add(store, old := a_run(unique=UniqueKey("k", NOON + MINUTE)))
        later = NOON + 2 * MINUTE
        first, second = (
            a_run(created_at=later, unique=UniqueKey("k", later + MINUTE)) for _ in range(2)
        )
        one = begin()
        assert one.run(self.adding(store, first)) == [AddedRun(first.id, is_new=True)]

        other = background.submit(store.add_runs, [second])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(first.id, is_new=False)]
        assert store.get_run(old.id) is not None

    def test_a_key_whose_run_is_gone_goes_to_one_of_two(self, store, begin, background):
        # As a finisher leaves it that found the key held by another.
        self.leave_behind(store, begin)
        first, second = a_run(unique=self.KEY), a_run(unique=self.KEY)
        one = begin()
        assert one.run(self.adding(store, first)) == [AddedRun(first.id, is_new=True)]

        other = background.submit(store.add_runs, [second])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(first.id, is_new=False)]

    def test_a_key_is_taken_over_only_from_whom_it_was_seen_with(self, store, begin, background):
        # The moment between the second's two statements, which no two calls could be made to hit.
        self.leave_behind(store, begin)
        first, second = a_run(unique=self.KEY), a_run(unique=self.KEY)
        one, other = begin(), begin()
        protecting = store.query("protect_keys", many=[(self.KEY.key, second.id, None, 0)])
        *before, count = protecting.parts
        if isinstance(store, PostgresStore):
            free, take_over = before
            other.ask(protecting._replace(parts=(free,)))
        else:
            look, take_over, _ = before
            [found] = other.ask(protecting._replace(parts=(look,)))
            take_over = take_over.replace(":found", listed([found]))
        one.run(self.adding(store, first))

        taking_over = background.submit(other.ask, protecting._replace(parts=(take_over,)))
        assert waits(store, taking_over)
        one.commit()
        taking_over.result(WAIT_SECONDS_MAX)

        assert other.ask(protecting._replace(parts=(count,))) in ([(0,)], ((0,),))

    def test_a_key_that_is_being_taken_over_does_not_hold_up_its_run(self, store, begin, clock):
        add(store, a_run(unique=UniqueKey("k", NOON + MINUTE)))
        [held] = StoreDriver(store, clock).claim(1, lease=5 * MINUTE)
        clock.advance(minutes=2)
        taker = a_run(created_at=clock.now(), unique=UniqueKey("k", clock.now() + MINUTE))
        taking_over = begin()
        assert taking_over.run(self.adding(store, taker)) == [AddedRun(taker.id, is_new=True)]

        with quickly():
            assert store.record([settled(held, now=clock.now())]) == []
        taking_over.commit()

        other = a_run(created_at=clock.now(), unique=UniqueKey("k", clock.now() + MINUTE))
        assert store.add_runs([other]) == [AddedRun(taker.id, is_new=False)]

    def test_a_run_whose_key_is_taken_does_not_delay_the_holder(self, store, begin, clock):
        add(store, holder := a_run(unique=self.KEY))
        [held] = StoreDriver(store, clock).claim(1)
        caller = begin()
        assert caller.run(self.adding(store, a_run(unique=self.KEY))) == [
            AddedRun(holder.id, is_new=False)
        ]

        with quickly():
            assert store.record([settled(held)]) == []
        caller.commit()

        assert store.add_runs([a_run(unique=self.KEY)])[0].is_new

    def test_many_at_once_add_one(self, store, background):
        together = threading.Barrier(4)

        def add_own() -> list[AddedRun]:
            together.wait()
            answers: list[AddedRun] = store.add_runs(
                [a_run(unique=UniqueKey(f"k{n}", None)) for n in range(5)]
            )
            return answers

        for _ in range(5):
            answers = [one.result(60) for one in [background.submit(add_own) for _ in range(4)]]
            for n in range(5):
                assert len({answer[n].run_id for answer in answers}) == 1
                assert sum(answer[n].is_new for answer in answers) == 1
            worker = StoreDriver(store, ManualClock(NOON))
            assert len(worker.run(100)) == 5

    def test_an_overlap_key_goes_to_one_of_two(self, store, begin, background):
        first, second = a_run(overlap_key="held:x"), a_run(overlap_key="held:x")
        one = begin()
        one.run(self.adding(store, first))

        other = background.submit(store.add_runs, [second])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(first.id, is_new=False)]

    def test_a_repeat_that_overtakes_the_first_try_adds_nothing_twice(
        self, store, begin, background
    ):
        # The connection went, but the server has not noticed yet, and commits a moment later.
        run = a_run()
        first = begin()
        first.run(self.adding(store, run))

        again = background.submit(store.add_runs, [run], may_be_stored=True)
        assert waits(store, again)
        first.commit()

        assert again.result(WAIT_SECONDS_MAX) == [AddedRun(run.id, is_new=False)]

    def test_a_repeat_that_the_first_try_overtakes_adds_nothing_twice(self, store, clock):
        # It is committed, claimed and even finished after the repeat has looked for it.
        first = [a_run()]

        def finish_it() -> None:
            while first:
                add(store, first.pop())
                StoreDriver(store, clock).run()

        run = first[0]
        answers = store._write(
            lambda query: interrupted(
                inserts.add_runs(query, [run], may_be_stored=True),
                before="insert_runs",
                act=finish_it,
            )
        )

        assert answers == [AddedRun(run.id, is_new=False)]
        assert [found.status for found in store.get_runs([run.id])] == [RunStatus.COMPLETED]
        assert StoreDriver(store, clock).claim() == []


def firing(store: AnyStore, *, now: datetime = NOON) -> Operation[TickPlan]:
    known = {"send_email": a_job()}
    rule = Interval(length=MINUTE, anchor=NOON)
    return schedules.fire(
        store.query,
        now=now,
        limit=10,
        jobs=known,
        keys_of=lambda rows: keys_wanted(rows, now=now, jobs=known),
        plan=lambda rows, taken: plan_tick(
            rows, now=now, jobs=known, rule_of=lambda _: rule, taken=taken
        ),
    )


class TestReplacements:
    """A run that a dispatch replaces is locked: no claim sees half of it, and none is lost."""

    KEY = "waiting:send_email:42"

    def replacing(self, text: str = "{}", key: str = KEY, **given: Any) -> NewRun:
        return a_run(overlap_key=key, replaces=ReplaceRule(), args=text, **given)

    def adding(self, store: AnyStore, *runs: NewRun) -> Operation[list[AddedRun]]:
        return inserts.add_runs(store.query, runs)

    def test_a_claim_passes_over_a_run_that_is_being_replaced(self, store, begin):
        add(store, first := self.replacing('{"n":1}'), other := a_run())
        one = begin()
        one.run(self.adding(store, self.replacing('{"n":2}')))

        with quickly():
            claims = StoreDriver(store, ManualClock(NOON)).claim()
        one.commit()
        [late] = StoreDriver(store, ManualClock(NOON)).claim()

        assert ids(claims) == [other.id]
        assert (late.run_id, late.args) == (first.id, '{"n":2}')

    def test_a_dispatch_beside_a_claim_waits_and_adds_another_run(self, store, begin, background):
        add(store, first := self.replacing('{"n":1}'))
        one = begin()
        [claim] = one.run(claiming(store, ClaimRequest(1)))

        other = background.submit(store.add_runs, [second := self.replacing('{"n":2}')])
        assert waits(store, other)
        one.commit()

        assert (claim.run_id, claim.args) == (first.id, '{"n":1}')
        assert other.result(WAIT_SECONDS_MAX) == [AddedRun(second.id, is_new=True)]
        assert the_run(store, first).args == '{"n":1}'

    def test_a_claim_between_the_look_and_the_lock_is_not_overwritten(self, store, begin):
        add(store, first := self.replacing('{"n":1}'))
        worker = StoreDriver(store, ManualClock(NOON))
        second, one = self.replacing('{"n":2}'), begin()

        [answer] = one.run(
            interrupted(
                self.adding(store, second), before="lock_waiting", act=lambda: worker.claim(1)
            )
        )
        one.commit()

        assert answer == AddedRun(second.id, is_new=True)
        assert [the_run(store, run).args for run in (first, second)] == ['{"n":1}', '{"n":2}']

    def test_of_two_dispatches_the_second_waits_and_wins(self, store, begin, background):
        add(store, first := self.replacing())
        one = begin()
        one.run(self.adding(store, self.replacing('{"n":1}')))

        other = background.submit(store.add_runs, [self.replacing('{"n":2}')])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX)[0].is_replaced
        assert the_run(store, first).args == '{"n":2}'

    def test_of_two_first_dispatches_the_second_waits_and_wins(self, store, begin, background):
        one = begin()
        one.run(self.adding(store, first := self.replacing('{"n":1}')))

        other = background.submit(store.add_runs, [self.replacing('{"n":2}')])
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == [
            AddedRun(first.id, is_new=False, is_replaced=True)
        ]
        assert the_run(store, first).args == '{"n":2}'

    def test_many_at_once_lose_nothing(self, store, background):
        """Each key has at most one waiting run, and after each dispatch one with its arguments."""
        keys = [f"waiting:send_email:{n}" for n in range(3)]
        together = threading.Barrier(4)
        ended = threading.Event()
        claimed: list[Claim] = []

        def dispatch(writer: int) -> dict[str, int]:
            together.wait()
            for number in range(40):
                ordered = keys if (writer + number) % 2 else keys[::-1]
                store.add_runs(
                    [self.replacing(f'{{"n":{number},"by":{writer}}}', key) for key in ordered]
                )
            return {}

        def work() -> None:
            together.wait()
            worker = StoreDriver(store, ManualClock(NOON))
            while not ended.is_set():
                claims = worker.claim(5)
                claimed.extend(claims)
                for each in claims:
                    assert worker.record(each) == []

        working = background.submit(work)
        writing = [background.submit(dispatch, writer) for writer in range(3)]
        for each in writing:
            each.result(120)
        ended.set()
        working.result(60)
        waiting = StoreDriver(store, ManualClock(NOON)).claim(10)

        assert len(waiting) <= len(keys)
        started = [each.args for each in [*claimed, *waiting]]
        # The last dispatch of each writer came after all its others: each key has a start after it.
        finished = store.list_runs(RunFilter(), limit=1000).runs
        assert len({run.id for run in finished}) == len(started)
        last = [f'"n":39,"by":{writer}}}' for writer in range(3)]
        assert any(text.endswith(end) for text in started for end in last)


class TestFiring:
    """One run for a firing, however many tick."""

    def test_a_schedule_that_is_being_fired_is_left_alone(self, store, begin, clock):
        added(store)
        one = begin()
        assert len(one.run(firing(store)).runs) == 1

        with quickly():
            assert tick(store, clock).runs == []
        one.commit()

        assert tick(store, clock).runs == []

    def test_a_stamp_meanwhile_does_not_wait(self, store, begin):
        held, free = added(store), added(store, "free", next_due_at=None)
        one = begin()
        one.run(firing(store))

        with quickly():
            store.stamp_seen(jobs=[], schedules=[held.id, free.id], now=NOON + MINUTE)
        one.commit()

        seen = [row.seen_at for row in store.list_schedules()]
        assert seen == [NOON, NOON + MINUTE]  # the one that was held is stamped the next time

    def test_a_prune_meanwhile_does_not_wait(self, store, begin):
        added(store)
        added(store, "old", next_due_at=None)
        one = begin()
        one.run(firing(store))

        with quickly():
            assert store.prune(before=NOON + MINUTE, limit=10).schedules == 1
        one.commit()

        assert [row.spec.name for row in store.list_schedules()] == ["digest"]

    def test_a_ticker_that_gave_up_leaves_it_to_the_next(self, store, begin, clock):
        added(store)
        one = begin()
        one.run(firing(store))
        one.roll_back()

        assert len(tick(store, clock).runs) == 1


class TestRegistering:
    """Programs that start together define the same schedules."""

    def adding(self, store: AnyStore) -> Operation[list[ScheduleRow]]:
        new = [NewSchedule(ScheduleId(an_id()), a_schedule(name), NOON) for name in "ab"]
        return schedules.add_schedules(store.query, new, now=NOON)

    def test_the_second_is_answered_with_the_first(self, store, begin, background):
        one = begin()
        first = one.run(self.adding(store))

        other = background.submit(lambda: store._write(lambda _: self.adding(store)))
        assert waits(store, other)
        one.commit()

        assert other.result(WAIT_SECONDS_MAX) == first

    def test_one_that_is_there_does_not_vanish_before_it_is_read(self, store, begin, background):
        row = added(store, "a")
        one = begin()
        assert one.run(self.adding(store))[0] == row

        removed = background.submit(store.remove_schedule, row.id)
        assert waits(store, removed)
        one.commit()

        assert removed.result(WAIT_SECONDS_MAX)


class Meeting:
    """Two operations that go on together, once each has come to a statement of its own."""

    def __init__(self, store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._barrier = threading.Barrier(2)
        self.repeats = 0
        sleep = server_store._sleep

        def counting(times: int) -> None:
            self.repeats += 1
            sleep(times)

        monkeypatch.setattr(server_store, "_sleep", counting)

    def write(self, begin: Callable[[], Operation[T]], *, at: str) -> T:
        waits = [self._barrier.wait]

        def meet() -> None:
            # Once: after a retry there is no conflict any more.
            while waits:
                waits.pop()(WAIT_SECONDS_MAX)

        return self._store._write(lambda _: interrupted(begin(), before=at, act=meet))


class TestCircles:
    """Two that wait for each other: the database ends one of them, and the store repeats it."""

    @pytest.fixture
    def meeting(self, store, monkeypatch) -> Meeting:
        return Meeting(store, monkeypatch)

    def test_a_tick_that_cancels_beside_a_record_that_counts_skips(
        self, store, background, meeting, clock
    ):
        # The one holds the schedule and wants its run, the other holds the run.
        added(store, overlap=Overlap.CANCEL_RUNNING)
        tick(store, clock)
        held = StoreDriver(store, clock).claim_one(lease=HOUR)
        clock.advance(minutes=1)

        ticked = background.submit(
            meeting.write,
            lambda: firing(store, now=clock.now()),
            at="runs_of_schedules",
        )
        steps = [settled(held, Skipped("closed"), now=clock.now())]
        lost = meeting.write(lambda: record.record(store.query, steps), at="lock_marks")

        runs = [*ticked.result(WAIT_SECONDS_MAX).runs, *tick(store, clock).runs]
        assert [run.nominal_at for run in runs] == [NOON + MINUTE]
        assert lost == []
        assert the_run(store, held).status is RunStatus.SKIPPED
        assert ids(StoreDriver(store, clock).claim()) == ids(runs)
        assert meeting.repeats >= 1  # a quick one may conflict once more

    @pytest.mark.parametrize("folder", ["tick", "record"])
    def test_a_prune_beside_skips_that_are_counted(self, store, background, meeting, clock, folder):
        # The one holds the row that counts them and wants the schedule, the other holds that.
        added(store)
        tick(store, clock)
        driver = StoreDriver(store, clock)
        driver.record(driver.claim_one(), Skipped(STILL_RUNNING))
        clock.advance(minutes=1)
        tick(store, clock)
        held = driver.claim_one(lease=HOUR)
        if folder == "tick":
            clock.advance(minutes=1)
            tick(store, clock)  # it is there still
            clock.advance(minutes=1)

        pruned = background.submit(
            meeting.write,
            lambda: reads.prune(store.query, before=clock.now(), limit=10),
            at="prune_runs",
        )
        if folder == "tick":
            meeting.write(lambda: firing(store, now=clock.now()), at="merge_skips")
        else:
            steps = [settled(held, Skipped(STILL_RUNNING), now=clock.now())]
            meeting.write(lambda: record.record(store.query, steps), at="merge_skips")

        pruned.result(WAIT_SECONDS_MAX)
        tick(store, clock)
        rows = [run for run in all_runs(store) if run.status is RunStatus.SKIPPED]
        counted = [row for row in rows if clock.now() in {row.nominal_at, row.last_nominal_at}]
        assert len(counted) == 1
        assert meeting.repeats >= 1  # a quick one may conflict once more


class TestStaging:
    """Runs that are due are staged once, by the first transaction."""

    def test_two_stagers_share_the_work(self, store, begin):
        add(store, *[a_run(due_at=NOON + MINUTE) for _ in range(10)])
        one = begin()
        assert one.run(claim.stage(store.query, now=NOON + MINUTE, limit=4)) == 4

        with quickly():
            assert store.stage(now=NOON + MINUTE, limit=100) == 6
        one.commit()

    def test_two_pruners_share_the_work(self, store, begin, clock):
        add(store, *[a_run() for _ in range(10)])
        StoreDriver(store, clock).run(10)
        one = begin()
        pruned = one.run(reads.prune(store.query, before=NOON + MINUTE, limit=4))
        assert pruned.runs == 4

        with quickly():
            assert store.prune(before=NOON + MINUTE, limit=100).runs == 6
        one.commit()

    def test_a_prune_delays_no_other_transaction(self, store, begin, clock):
        """Not even while it is not committed, and whatever it takes away."""
        driver, key = StoreDriver(store, clock), "job/second:send_email"
        store.set_limits({LIMIT: 1, key: 1})
        add(store, *[a_run(limit_keys=(LIMIT, key), unique=UniqueKey("k", NOON + MINUTE))])
        driver.run(10)
        store.stamp_seen(jobs=["old"], schedules=[], now=NOON)
        added(store, "retired", next_due_at=NOON + HOUR)
        clock.advance(hours=1)
        pruning = begin()
        found = store._read(reads.old_definitions, before=clock.now(), limit=100)
        pruned = pruning.run(
            reads.prune(store.query, before=clock.now(), limit=100, definitions=found)
        )
        assert (pruned.runs, pruned.schedules, pruned.jobs > 0) == (1, 1, True)

        with quickly():
            add(store, *[a_run(limit_keys=(LIMIT,)) for _ in range(3)])
            claims = driver.claim(3)
            assert len(claims) == 1
            driver.start(*claims)
            assert store.sweep(now=clock.now(), limit=10) == 0
            assert store.unblock_rated(now=clock.now(), limit=10) == 0
            assert store.stage(now=clock.now(), limit=10) == 0
            assert tick(store, clock).runs == []
            assert store.pending_work().is_blocked
        pruning.commit()
        assert driver.record(claims[0]) == []


class TestLettingOut:
    """Two transactions that free slots of one key unblock different runs."""

    def test_blocked_runs_are_passed_over_that_another_holds(self, store, begin, clock):
        store.set_limits({LIMIT: 2})
        add(store, *[a_run(limit_keys=(LIMIT,)) for _ in range(4)])
        StoreDriver(store, clock).claim(2)
        assert StoreDriver(store, clock).claim(2) == []
        blocked = in_phase(store, Phase.BLOCKED)
        one = begin()
        assert one.run(limits._unblock_up_to(store.query, {LIMIT: 1})) == 1

        with quickly():
            other = begin()
            assert other.run(limits._unblock_up_to(store.query, {LIMIT: 1})) == 1
        one.commit()
        other.commit()

        assert sorted(in_phase(store, Phase.READY)) == sorted(blocked)
