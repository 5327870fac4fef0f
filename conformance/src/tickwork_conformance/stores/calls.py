"""Runs that call other runs, wait for their ends, and cancel them."""

from datetime import timedelta

import pytest

from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.links import CALLED, CALLS, SUSPENDED
from tickwork._domain.runs.outcome import Canceled, Failed, Outcome, Skipped, Succeeded, Suspended
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState, SubRun
from tickwork._domain.runs.stored_events import FOREVER
from tickwork._stores.contract import ChangeResult, Store
from tickwork.testing.clock import ManualClock
from tickwork_conformance.builders import (
    MINUTE,
    NOON,
    StoreDriver,
    a_run,
    add,
    ids,
    settled,
    the_run,
)

HOUR = timedelta(hours=1)


def calling(claim: Claim, *runs: NewRun) -> Suspended:
    """The outcome of an attempt that calls these runs: they are named 0, 1 and so on."""
    steps = [
        Step(str(place), place, StepKind.CALL, StepState.OPEN, claim.token, NOON, digest="d")
        for place in range(len(runs))
    ]
    calls = tuple(map(SubRun, steps, runs))
    return Suspended(FOREVER, "waits", calls=calls, waits_for_runs=True)


class Family:
    """A run that has called others, and those."""

    def __init__(self, store: Store, worker: StoreDriver, *children: NewRun) -> None:
        self.store = store
        add(store, a_run())
        self.parent = worker.claim_one()
        self.children = children or (a_run(), a_run())
        worker.record(self.parent, calling(self.parent, *self.children))

    @property
    def phase(self) -> Phase | None:
        return the_run(self.store, self.parent).phase

    @property
    def states(self) -> list[StepState]:
        return [step.state for step in self.store.load_steps(self.parent.run_id)]

    @property
    def values(self) -> list[str | None]:
        return [step.value for step in self.store.load_steps(self.parent.run_id)]


def claim_children(worker: StoreDriver) -> list[Claim]:
    return sorted(worker.claim(), key=lambda claim: claim.run_id)


class TestCallsThatAreMade:
    """They are added in the transaction that suspends the caller."""

    def test_once_with_the_step(self, store, worker):
        family = Family(store, worker)

        steps = store.load_steps(family.parent.run_id)
        assert [step.ref for step in steps] == [child.id for child in family.children]
        assert {(step.kind, step.state, step.digest) for step in steps} == {
            (StepKind.CALL, StepState.OPEN, "d")
        }
        parent = the_run(store, family.parent)
        assert (parent.phase, parent.due_at) == (Phase.WAITING, FOREVER)
        assert parent.links == SUSPENDED | CALLS
        assert [the_run(store, child).links for child in family.children] == [CALLED] * 2
        assert sorted(ids(worker.claim())) == sorted(child.id for child in family.children)

    def test_a_repeat_after_a_lost_answer_adds_none(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        made = settled(claim, calling(claim, a_run()), now=clock.now())
        store.record([made])

        assert store.record([made], may_be_stored=True) == []

        assert len(worker.claim()) == 1

    def test_a_lost_claim_calls_nothing(self, store, clock, worker, other_worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(minutes=2)
        worker.reap()
        other = other_worker.claim_one()

        made = settled(claim, calling(claim, a_run()), now=clock.now())
        assert store.record([made]) == [claim.run_id]

        assert worker.claim() == []
        assert store.load_steps(claim.run_id) == []
        other_worker.record(other)

    def test_a_caller_that_was_canceled_meanwhile_calls_nothing(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.cancel(claim.run_id, now=clock.now())

        worker.record(claim, calling(claim, a_run()))

        assert the_run(store, claim).status is RunStatus.CANCELED
        assert worker.claim() == []

    def test_who_has_called_a_run(self, store, worker):
        family = Family(store, worker)

        assert store.find_callers(family.children[0].id) == [family.parent.run_id]
        assert store.find_callers(family.parent.run_id) == []
        for claim in claim_children(worker):
            worker.record(claim)
        worker.record(worker.claim_one())
        assert store.find_callers(family.children[0].id) == [family.parent.run_id]


class TestCallsThatEnd:
    """The transaction that ends the last one makes the caller ready."""

    def test_the_caller_continues_after_the_last_one(self, store, clock, worker):
        family = Family(store, worker)
        first, second = claim_children(worker)
        clock.advance(MINUTE)

        worker.record(first, Succeeded("1"))
        assert (family.phase, family.values) == (Phase.WAITING, ["1", None])
        worker.record(second, Succeeded("2"))

        assert (family.phase, family.values) == (Phase.READY, ["1", "2"])
        assert the_run(store, family.parent).due_at == clock.now()
        assert family.states == [StepState.DONE] * 2
        assert worker.claim_one().run_id == family.parent.run_id

    def test_both_in_one_batch(self, store, clock, worker):
        family = Family(store, worker)
        ends = [settled(claim, Succeeded(), now=clock.now()) for claim in claim_children(worker)]

        assert store.record(ends) == []

        assert (family.phase, family.values) == (Phase.READY, [None, None])

    @pytest.mark.parametrize(
        "outcome", [Failed("no paper"), Skipped("closed"), Canceled("not now")], ids=repr
    )
    def test_without_success(self, store, worker, outcome):
        family = Family(store, worker, a_run(job="print"))

        worker.record(claim_children(worker)[0], outcome)

        assert (family.phase, family.states) == (Phase.READY, [StepState.FAILED])
        [value] = family.values
        assert '"print"' in (value or "")

    def test_a_retry_is_no_end(self, store, clock, worker):
        family = Family(store, worker, a_run(attempts_max=2))

        worker.record(claim_children(worker)[0], Failed("no paper"))
        assert family.phase is Phase.WAITING

        clock.advance(HOUR)
        store.stage(now=clock.now(), limit=10)
        worker.record(claim_children(worker)[0], Succeeded("5"))
        assert (family.phase, family.values) == (Phase.READY, ["5"])

    def test_the_crash_limit(self, store, clock, worker):
        family = Family(store, worker, a_run())
        for _ in range(10):
            if family.phase is Phase.READY:
                break
            for claim in claim_children(worker):
                worker.start(claim)
            clock.advance(minutes=2)
            worker.reap()

        assert family.states == [StepState.FAILED]

    def test_a_cancel_of_one_that_waits(self, store, clock, worker):
        family = Family(store, worker, a_run())

        assert store.cancel(family.children[0].id, now=clock.now()) is ChangeResult.DONE

        assert (family.phase, family.states) == (Phase.READY, [StepState.FAILED])

    def test_in_a_transaction_of_the_handler(self, store, clock, worker):
        family = Family(store, worker, a_run())
        [claim] = claim_children(worker)

        assert store.complete(claim, now=clock.now(), result="7")
        store.after_complete([claim])

        assert (family.phase, family.values) == (Phase.READY, ["7"])

    def test_a_wake_up_that_was_lost_is_found_by_the_sweep(self, store, clock, worker):
        family = Family(store, worker, a_run())
        [claim] = claim_children(worker)
        store.complete(claim, now=clock.now(), result="7")  # and the process dies
        assert family.phase is Phase.WAITING

        for _ in range(3):
            store.sweep(now=clock.now(), limit=1)

        assert (family.phase, family.values) == (Phase.READY, ["7"])

    def test_the_result_stays_when_the_run_is_pruned(self, store, clock, worker):
        family = Family(store, worker, a_run())
        worker.record(claim_children(worker)[0], Succeeded("7"))

        store.delete_runs([family.children[0].id])

        assert family.values == ["7"]

    def test_a_caller_that_waits_again_for_calls_that_have_ended(self, store, clock, worker):
        family = Family(store, worker, a_run())
        store.reschedule(family.parent.run_id, due_at=clock.now(), now=clock.now())
        claims = claim_children(worker)
        parent = next(each for each in claims if each.run_id == family.parent.run_id)
        child = next(each for each in claims if each.run_id != family.parent.run_id)
        worker.record(child, Succeeded("7"))  # while the caller runs

        worker.record(parent, Suspended(FOREVER, "waits", waits_for_runs=True))

        assert (family.phase, family.values) == (Phase.READY, ["7"])


class TestCallsOfUniqueRuns:
    """A run whose key is taken is not added: the caller waits for the one that holds it."""

    def test_one_that_has_not_ended(self, store, clock, worker):
        key = UniqueKey("report", None)
        add(store, holder := a_run(unique=key, priority=1_000))
        family = Family(store, worker, a_run(unique=key))
        assert [step.ref for step in store.load_steps(family.parent.run_id)] == [holder.id]

        worker.record(claim_children(worker)[0], Succeeded("7"))
        store.sweep(now=clock.now(), limit=10)

        assert (family.phase, family.values) == (Phase.READY, ["7"])

    def test_one_that_has_ended_but_keeps_its_key(self, store, clock, worker):
        key = UniqueKey("report", until=NOON + HOUR)
        add(store, a_run(unique=key))
        worker.record(worker.claim_one(), Succeeded("7"))

        family = Family(store, worker, a_run(unique=key))

        assert (family.phase, family.values) == (Phase.READY, ["7"])

    def test_it_is_not_canceled_with_the_caller(self, store, clock, worker):
        key = UniqueKey("report", None)
        add(store, holder := a_run(unique=key, priority=1_000))
        family = Family(store, worker, a_run(unique=key))

        store.cancel(family.parent.run_id, now=clock.now())
        work_off(store, clock)

        assert the_run(store, holder).status is RunStatus.PENDING


def work_off(store: Store, clock: ManualClock) -> None:
    for _ in range(100):
        if not store.work_outbox(now=clock.now(), limit=10):
            return


class TestCallsOfRunsThatEnd:
    """The calls of a run that ends without success are canceled."""

    def test_those_that_wait_and_those_that_run(self, store, clock, worker):
        family = Family(store, worker)
        running = worker.claim_one()
        [waiting] = [each for each in family.children if each.id != running.run_id]

        store.cancel(family.parent.run_id, now=clock.now())
        assert store.pending_work().has_outbox
        work_off(store, clock)

        assert not store.pending_work().has_outbox
        assert the_run(store, waiting).status is RunStatus.CANCELED
        assert the_run(store, running).cancel_requested_at is not None
        worker.record(running, Canceled("as requested"))

    def test_their_calls_too(self, store, clock, worker):
        family = Family(store, worker, a_run())
        [middle] = claim_children(worker)
        leaf = a_run()
        worker.record(middle, calling(middle, leaf))

        store.cancel(family.parent.run_id, now=clock.now())
        work_off(store, clock)

        assert the_run(store, middle).status is RunStatus.CANCELED
        assert the_run(store, leaf).status is RunStatus.CANCELED

    @pytest.mark.parametrize(
        ("outcome", "status"),
        [(Failed("no paper"), RunStatus.CANCELED), (Succeeded(), RunStatus.PENDING)],
        ids=["failed", "completed"],
    )
    def test_of_a_caller_that_no_longer_waits(self, store, clock, worker, outcome, status):
        family = Family(store, worker, a_run(due_at=NOON + HOUR))
        store.reschedule(family.parent.run_id, due_at=clock.now(), now=clock.now())
        worker.record(worker.claim_one(), outcome)

        work_off(store, clock)

        assert the_run(store, family.children[0]).status is status

    def test_a_run_for_which_another_one_waits_goes_on(self, store, clock, worker):
        key = UniqueKey("report", None)
        first = Family(store, worker, a_run(unique=key, due_at=NOON + HOUR))
        second = Family(store, worker, a_run(unique=key))

        store.cancel(first.parent.run_id, now=clock.now())
        work_off(store, clock)

        assert the_run(store, first.children[0]).status is RunStatus.PENDING
        store.cancel(first.children[0].id, now=clock.now())
        assert (second.phase, second.states) == (Phase.READY, [StepState.FAILED])


class TestCallsAndRetries:
    def test_a_retry_gets_the_results_of_calls_that_completed(self, store, clock, worker):
        family = Family(store, worker)
        outcomes: list[Outcome] = [Succeeded("1"), Failed("no paper")]
        for claim, outcome in zip(claim_children(worker), outcomes, strict=True):
            worker.record(claim, outcome)
        worker.record(worker.claim_one(), Failed("a call failed"))

        again = a_run(retry_of=family.parent.run_id)
        store.add_retries([again])

        assert [(step.name, step.value) for step in store.load_steps(again.id)] == [("0", "1")]
