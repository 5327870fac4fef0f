from datetime import datetime, timedelta

from tickwork._domain.runs.links import SUSPENDED, WAITS
from tickwork._domain.runs.outcome import Suspended
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.runs.stored_events import FOREVER, EventName, NewEvent
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ChangeResult, RunFilter, Store
from tickwork.testing.clock import ManualClock
from tickwork_conformance.builders import (
    DAY,
    HOUR,
    NOON,
    UNKNOWN_ID,
    StoreDriver,
    a_run,
    add,
    an_id,
    ids,
    settled,
    the_run,
)

PAID = EventName("", "paid", "42")


def an_event(name: EventName = PAID, data: str = '{"amount": 5}', at: datetime = NOON) -> NewEvent:
    return NewEvent(an_id(), name, data, at, at + timedelta(days=30))


def a_wait_step(claim: Claim, until: datetime | None = NOON + DAY) -> Step:
    return Step("paid:42", 0, StepKind.WAIT, StepState.OPEN, claim.token, NOON, until)


def waiting(claim: Claim, until: datetime | None = NOON + DAY, name: EventName = PAID) -> Suspended:
    return Suspended(until or FOREVER, "waits", (a_wait_step(claim, until),), name)


def a_waiting_run(store: Store, worker: StoreDriver, until: datetime | None = NOON + DAY) -> Claim:
    add(store, a_run())
    claim = worker.claim_one()
    worker.record(claim, waiting(claim, until))
    return claim


def work_off(store: Store, clock: ManualClock) -> int:
    return store.work_outbox(now=clock.now(), limit=10)


class TestEvents:
    """The first event of a name and key is stored; every later one is ignored."""

    def test_it_is_found_by_its_name_and_key(self, store, worker):
        assert store.emit(an_event())

        assert store.find_event(PAID) == '{"amount": 5}'
        assert store.find_event(PAID._replace(key="43")) is None
        assert store.find_event(PAID._replace(event="Paid")) is None
        assert store.find_event(PAID._replace(tenant="acme")) is None

    def test_the_first_one_stays(self, store, worker):
        store.emit(an_event())

        assert not store.emit(an_event(data="2"))
        assert store.find_event(PAID) == '{"amount": 5}'

    def test_a_repeat_after_a_lost_answer_is_the_same_event(self, store, worker):
        event = an_event()
        store.emit(event)

        assert store.emit(event)

    def test_the_outbox_is_worked_off_once(self, store, clock, worker):
        assert not store.pending_work().has_outbox
        store.emit(an_event())
        assert store.pending_work().has_outbox
        assert store.next_due(now=clock.now()).has_outbox

        assert work_off(store, clock) == 1

        assert work_off(store, clock) == 0
        assert not store.pending_work().has_outbox

    def test_the_health_of_the_store_has_the_oldest_one_that_woke_no_run(
        self, store, clock, worker
    ):
        assert store.health().outbox_at is None
        for minutes in (2, 1):
            at = NOON + timedelta(minutes=minutes)
            name = PAID._replace(key=str(minutes))
            store.emit(an_event(name, at=at)._replace(id=new_id(at)))
        assert store.health().outbox_at == NOON + timedelta(minutes=1)

        work_off(store, clock)

        assert store.health().outbox_at is None

    def test_it_is_pruned_after_its_time(self, store, clock, worker):
        store.emit(an_event())

        store.prune(before=NOON + timedelta(days=29), limit=10)
        assert store.find_event(PAID) is not None
        store.prune(before=NOON + timedelta(days=31), limit=10)
        assert store.find_event(PAID) is None


class TestEventsThatWakeRuns:
    """An event before the wait and one after it have the same effect."""

    def test_a_run_waits_until_its_limit(self, store, worker):
        claim = a_waiting_run(store, worker)

        run = the_run(store, claim)
        assert (run.phase, run.due_at) == (Phase.WAITING, NOON + DAY)
        assert run.links == SUSPENDED | WAITS

    def test_a_run_without_a_limit_waits_for_ever(self, store, clock, worker):
        claim = a_waiting_run(store, worker, until=None)
        clock.set(NOON + 400 * DAY)

        run = the_run(store, claim)
        assert (run.status, run.phase) == (RunStatus.PENDING, Phase.WAITING)
        assert store.stage(now=clock.now(), limit=10) == 0
        assert worker.claim() == []
        assert store.pending_work().due_at == FOREVER

    def test_an_event_wakes_it(self, store, clock, worker):
        claims = [a_waiting_run(store, worker), a_waiting_run(store, worker, until=None)]
        clock.set(NOON + HOUR)

        store.emit(an_event(at=clock.now()))
        work_off(store, clock)

        runs = [the_run(store, claim) for claim in claims]
        assert [(run.phase, run.due_at) for run in runs] == [(Phase.READY, NOON + HOUR)] * 2
        assert sorted(ids(worker.claim())) == sorted(ids(claims))

    def test_other_events_do_not(self, store, clock, worker):
        claim = a_waiting_run(store, worker)

        for name in (PAID._replace(key="43"), PAID._replace(tenant="acme")):
            store.emit(an_event(name))
        work_off(store, clock)

        assert the_run(store, claim).phase is Phase.WAITING

    def test_an_event_that_was_stored_before_makes_it_ready_at_once(self, store, clock, worker):
        store.emit(an_event())
        work_off(store, clock)

        claim = a_waiting_run(store, worker, until=None)

        assert the_run(store, claim).phase is Phase.READY

    def test_a_run_waits_for_one_event_at_a_time(self, store, clock, worker):
        first = a_waiting_run(store, worker)
        store.emit(an_event())
        work_off(store, clock)
        claim = worker.claim_one()
        other = PAID._replace(event="shipped")
        store.record([settled(claim, waiting(claim, name=other), now=clock.now())])

        store.emit(an_event(other))
        work_off(store, clock)

        assert ids(worker.claim()) == [first.run_id]

    def test_a_canceled_run_is_not_woken(self, store, clock, worker):
        claim = a_waiting_run(store, worker, until=None)
        assert store.cancel(claim.run_id, now=clock.now()) is ChangeResult.DONE

        store.emit(an_event())

        assert work_off(store, clock) == 1
        assert the_run(store, claim).status is RunStatus.CANCELED

    def test_a_run_that_runs_already_reads_it_itself(self, store, clock, worker):
        a_waiting_run(store, worker)
        clock.set(NOON + DAY)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()

        store.emit(an_event())
        work_off(store, clock)

        step = store.resolve_wait(claim, a_wait_step(claim), PAID, now=clock.now())
        assert step.state is StepState.DONE


class TestEventsThatDecideWaits:
    """A wait is decided once: by its event if it is stored, or else by its time."""

    def test_neither(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        step = a_wait_step(claim)

        assert store.resolve_wait(claim, step, PAID, now=clock.now()) == step
        assert store.load_steps(claim.run_id) == []

    def test_the_event(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.emit(an_event())

        step = store.resolve_wait(claim, a_wait_step(claim), PAID, now=clock.now())

        assert (step.state, step.value) == (StepState.DONE, '{"amount": 5}')
        assert store.load_steps(claim.run_id) == [step]

    def test_the_event_wins_if_the_time_has_passed_too(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.emit(an_event())

        step = store.resolve_wait(claim, a_wait_step(claim), PAID, now=NOON + 2 * DAY)

        assert step.state is StepState.DONE

    def test_the_time(self, store, clock, worker):
        first = a_waiting_run(store, worker)
        clock.set(NOON + DAY)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()

        step = store.resolve_wait(claim, a_wait_step(first), PAID, now=clock.now())

        assert (step.state, step.token) == (StepState.TIMEOUT, claim.token)
        store.emit(an_event())
        assert store.load_steps(claim.run_id) == [step]

    def test_a_lost_claim_decides_nothing(self, store, clock, worker, other_worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.emit(an_event())
        worker.start(claim)
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim_one()

        assert store.resolve_wait(claim, a_wait_step(claim), PAID, now=clock.now()) is None
        assert store.load_steps(claim.run_id) == []

    def test_a_repeat_after_a_lost_answer(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.emit(an_event())
        first = store.resolve_wait(claim, a_wait_step(claim), PAID, now=clock.now())

        again = store.resolve_wait(claim, a_wait_step(claim), PAID, now=clock.now())

        assert again == first
        assert store.load_steps(claim.run_id) == [first]


class TestWaitsThatAreOpen:
    """``list_waits``: who waits for what, since when, until when."""

    def test_runs_in_the_order_of_their_ids(self, store, clock, worker):
        first = a_waiting_run(store, worker)
        clock.set(NOON + HOUR)
        second = a_waiting_run(store, worker, until=None)

        page = store.list_waits(limit=10)

        assert page.cursor is None
        assert page.waits == sorted(page.waits)
        assert {wait.run_id: (wait.event, wait.key, wait.until) for wait in page.waits} == {
            first.run_id: ("paid", "42", NOON + DAY),
            second.run_id: ("paid", "42", FOREVER),
        }
        assert {wait.since for wait in page.waits} == {NOON}
        assert {(wait.job, wait.queue, wait.tenant) for wait in page.waits} == {
            (first.job, first.queue, first.tenant)
        }

    def test_pages(self, store, worker):
        claims = [a_waiting_run(store, worker) for _ in range(3)]

        first = store.list_waits(limit=2)
        second = store.list_waits(after=first.cursor, limit=2)

        assert (len(first.waits), len(second.waits), second.cursor) == (2, 1, None)
        assert sorted(wait.run_id for wait in (*first.waits, *second.waits)) == sorted(ids(claims))

    def test_a_run_that_was_woken_or_canceled_is_not_listed(self, store, clock, worker):
        woken = a_waiting_run(store, worker)
        canceled = a_waiting_run(store, worker)
        store.cancel(canceled.run_id, now=clock.now())
        clock.set(NOON + DAY)
        store.stage(now=clock.now(), limit=10)

        assert store.list_waits(limit=10).waits == []

        assert worker.claim_one().run_id == woken.run_id
        assert store.list_waits(limit=10).waits == []

    def test_a_run_that_sleeps_is_suspended_and_waits_for_no_event(self, store, worker):
        waiting_run = a_waiting_run(store, worker)
        add(store, a_run(due_at=NOON + DAY))  # it is delayed
        add(store, a_run())
        claim = worker.claim_one()
        sleep = Step("sleep:1d", 0, StepKind.SLEEP, StepState.OPEN, claim.token, NOON, NOON + DAY)
        worker.record(claim, Suspended(NOON + DAY, "sleeps", (sleep,)))

        assert [wait.run_id for wait in store.list_waits(limit=10).waits] == [waiting_run.run_id]
        found = store.list_runs(RunFilter(is_suspended=True)).runs
        assert sorted(ids(found)) == sorted([waiting_run.run_id, claim.run_id])
        completed = RunFilter(is_suspended=True, statuses=frozenset({RunStatus.COMPLETED}))
        assert store.list_runs(completed).runs == []


class TestEventsAndSleepers:
    """``wake`` ends a sleep."""

    def test_it_continues_now(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        sleep = Step("sleep:1d", 0, StepKind.SLEEP, StepState.OPEN, claim.token, NOON, NOON + DAY)
        worker.record(claim, Suspended(NOON + DAY, "sleeps", (sleep,)))

        assert store.wake(claim.run_id, now=clock.now()) is ChangeResult.DONE

        assert store.load_steps(claim.run_id) == [sleep._replace(state=StepState.DONE)]
        assert ids(worker.claim()) == [claim.run_id]

    def test_a_run_that_was_dispatched_for_later_does_not_sleep(self, store, clock, worker):
        add(store, run := a_run(due_at=NOON + DAY))

        assert store.wake(run.id, now=clock.now()) is ChangeResult.CLAIMED
        assert the_run(store, run).phase is Phase.WAITING

    def test_other_runs_are_left_alone(self, store, clock, worker):
        add(store, run := a_run())
        assert store.wake(UNKNOWN_ID, now=clock.now()) is ChangeResult.UNKNOWN
        assert store.wake(run.id, now=clock.now()) is ChangeResult.CLAIMED
        worker.run()
        assert store.wake(run.id, now=clock.now()) is ChangeResult.FINISHED
