import pytest

from tickwork._domain.identity import ScheduleId
from tickwork._domain.limits.limits import UniqueKey, one_at_a_time
from tickwork._domain.runs.links import HAS_STEPS, SUSPENDED
from tickwork._domain.runs.outcome import Failed, Snoozed, Succeeded, Suspended
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._stores.contract import ChangeResult, Store
from tickwork.testing.clock import ManualClock
from tickwork_conformance.builders import (
    DAY,
    HOUR,
    MINUTE,
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

KEY = "job:send_email"


def a_step(name: str, claim: Claim, value: str | None = '"paid"', **given: object) -> Step:
    facts = {"place": 0, "kind": StepKind.STEP, "state": StepState.DONE, "at": NOON} | given
    return Step(name=name, token=claim.token, value=value, **facts)  # type: ignore[arg-type]


def a_sleep(claim: Claim, name: str = "sleep:1d") -> Step:
    until = NOON + DAY
    return a_step(name, claim, None, kind=StepKind.SLEEP, state=StepState.OPEN, until=until)


def sleeping(claim: Claim) -> Suspended:
    return Suspended(NOON + DAY, "sleeps: sleep:1d", (a_sleep(claim),))


def resume(store: Store, clock: ManualClock, worker: StoreDriver) -> Claim:
    """Claim a run again that sleeps until the next day."""
    clock.set(NOON + DAY)
    assert store.stage(now=clock.now(), limit=10) == 1
    return worker.claim_one()


class TestSteps:
    """A step is stored under its name, once, by the attempt that holds the run."""

    def test_a_run_has_none_at_first(self, store, worker):
        add(store, run := a_run())

        assert store.load_steps(run.id) == []
        assert store.load_steps(UNKNOWN_ID) == []

    def test_they_are_read_as_they_were_stored_in_order(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        steps = [
            a_step("charge", claim, '{"amount": 5, "currency": "€"}'),
            a_step("card", claim, '"4711"', place=1, is_secret=True, version="2026.11"),
            a_step("ship", claim, "{}", place=2, state=StepState.FAILED, at=NOON + HOUR),
        ]

        assert store.save_steps(claim, steps[:1])
        assert store.save_steps(claim, steps[1:])

        assert store.load_steps(claim.run_id) == steps

    def test_a_claim_that_was_lost_stores_nothing(self, store, clock, worker, other_worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(minutes=2)
        worker.reap()
        late = a_step("charge", claim)

        assert not store.save_steps(claim, [late])
        newer = other_worker.claim_one()
        assert not store.save_steps(claim, [late])

        assert store.load_steps(claim.run_id) == []
        assert store.save_steps(newer, [a_step("charge", newer)])

    def test_a_run_that_ended_stores_nothing(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim)

        assert not store.save_steps(claim, [a_step("charge", claim)])
        assert store.load_steps(claim.run_id) == []

    def test_a_repeat_after_a_lost_answer_changes_nothing(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.save_steps(claim, [a_step("charge", claim, "1")])

        again = [a_step("charge", claim, "2"), a_step("ship", claim, "3", place=1)]

        assert store.save_steps(claim, again)
        assert [step.value for step in store.load_steps(claim.run_id)] == ["1", "3"]

    def test_runs_have_their_own_names(self, store, worker):
        add(store, a_run(), a_run())
        first, second = worker.claim()
        store.save_steps(first, [a_step("charge", first, "1")])
        store.save_steps(second, [a_step("charge", second, "2")])

        assert [step.value for step in store.load_steps(second.run_id)] == ["2"]

    def test_names_differ_in_case_and_trailing_spaces(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        names = ["a", "A", "a ", "ä", "a" * 200]

        store.save_steps(claim, [a_step(name, claim) for name in names])

        assert sorted(step.name for step in store.load_steps(claim.run_id)) == sorted(names)

    def test_they_are_part_of_the_record_of_a_run(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.save_steps(claim, [step := a_step("charge", claim)])
        worker.record(claim)

        assert store.run_record(claim.run_id).steps == [step]
        assert store.load_steps(claim.run_id) == [step]

    def test_a_heartbeat_and_a_step_do_not_disturb_each_other(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()

        worker.start(claim)
        assert store.save_steps(claim, [a_step("charge", claim)])

        assert worker.beat(claim).lost == []

    def test_they_are_deleted_with_their_run(self, store, clock, worker):
        add(store, a_run(), a_run())
        first, second = worker.claim()
        for claim in (first, second):
            store.save_steps(claim, [a_step("charge", claim)])
            worker.record(claim)

        store.delete_runs([first.run_id])
        assert store.load_steps(first.run_id) == []
        assert store.load_steps(second.run_id) != []

        store.prune(before=clock.now() + DAY, limit=10)
        assert store.load_steps(second.run_id) == []


class TestStepsOfRetries:
    """A run that repeats a failed one has the steps of that run that are done."""

    def test_they_are_copied(self, store, clock, worker):
        add(store, old := a_run())
        claim = worker.claim_one()
        done = [a_step("charge", claim), a_sleep(claim)._replace(place=1)]
        failed = a_step("ship", claim, "{}", place=2, state=StepState.FAILED)
        later = a_sleep(claim, "sleep:9d")._replace(place=3, until=NOON + 9 * DAY)
        store.save_steps(claim, [*done, failed, later])
        worker.record(claim, Failed("no"))
        clock.set(NOON + DAY)

        again = a_run(retry_of=old.id, created_at=clock.now(), due_at=clock.now())
        [added] = store.add_retries([again])

        assert added.is_new
        assert store.load_steps(again.id) == done
        assert worker.claim_one().links == HAS_STEPS
        assert len(store.load_steps(old.id)) == 4

    def test_a_repeat_after_a_lost_answer(self, store, worker):
        add(store, old := a_run())
        claim = worker.claim_one()
        store.save_steps(claim, [a_step("charge", claim)])
        worker.record(claim, Failed("no"))
        again = a_run(retry_of=old.id)
        store.add_retries([again])

        [added] = store.add_retries([again], may_be_stored=True)

        assert added.run_id == again.id
        assert len(store.load_steps(again.id)) == 1

    def test_a_unique_key_that_is_taken(self, store, worker):
        key = UniqueKey("one", None)
        add(store, old := a_run())
        claim = worker.claim_one()
        store.save_steps(claim, [a_step("charge", claim)])
        worker.record(claim, Failed("no"))
        add(store, holder := a_run(unique=key))

        [added] = store.add_retries([again := a_run(retry_of=old.id, unique=key)])

        assert (added.run_id, added.is_new) == (holder.id, False)
        assert store.load_steps(again.id) == []


class TestStepsOfSuspensions:
    """A suspended run waits without a lease, and continues with the steps that it has stored."""

    def test_it_waits_until_its_time(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()

        assert worker.record(claim, sleeping(claim), started_at=NOON) == []

        run = the_run(store, claim)
        assert (run.status, run.phase) == (RunStatus.PENDING, Phase.WAITING)
        assert (run.due_at, run.lease_until, run.worker) == (NOON + DAY, None, None)
        assert (run.links, run.was_suspended) == (SUSPENDED, True)
        assert run.reason == "sleeps: sleep:1d"
        assert store.load_steps(claim.run_id) == [a_sleep(claim)]
        assert store.stage(now=NOON + DAY - MINUTE, limit=10) == 0

    def test_it_continues_as_a_first_attempt(self, store, clock, worker):
        add(store, a_run(attempts_max=3))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()
        assert claim.attempt == 2
        store.record([settled(claim, sleeping(claim), now=clock.now())])

        resumed = resume(store, clock, worker)

        assert (resumed.attempt, resumed.crashes, resumed.links) == (1, 0, SUSPENDED)
        assert resumed.token == claim.token + 1
        assert resumed.has_resumed

    def test_crashes_before_it_are_forgotten(self, store, clock, worker):
        add(store, a_run())
        worker.start(worker.claim_one())
        clock.advance(minutes=2)
        worker.reap()
        claim = worker.claim_one()
        assert claim.crashes == 1

        store.record([settled(claim, sleeping(claim), now=clock.now())])

        assert the_run(store, claim).crashes == 0
        assert resume(store, clock, worker).crashes == 0

    def test_attempts_and_its_end_are_in_the_record(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim, sleeping(claim), started_at=NOON)
        resumed = resume(store, clock, worker)

        store.record([settled(resumed, Succeeded("1"), now=clock.now(), started_at=clock.now())])

        record = store.run_record(claim.run_id)
        assert (record.run.status, record.run.attempt) == (RunStatus.COMPLETED, 1)
        assert [each.outcome for each in record.attempts] == ["suspended", "succeeded"]
        assert [each.token for each in record.attempts] == [claim.token, resumed.token]

    def test_a_run_that_has_started_does_not_expire(self, store, clock, worker):
        add(store, a_run(expires_at=NOON + HOUR))
        claim = worker.claim_one()

        worker.record(claim, sleeping(claim))

        assert the_run(store, claim).expires_at is None
        assert resume(store, clock, worker).expires_at is None

    @pytest.mark.parametrize("outcome", [Snoozed(MINUTE), Failed("no")], ids=["snooze", "failure"])
    def test_other_returns_keep_the_expiry(self, store, worker, outcome):
        add(store, a_run(expires_at=NOON + HOUR, attempts_max=2))
        claim = worker.claim_one()

        worker.record(claim, outcome)

        run = the_run(store, claim)
        assert (run.expires_at, run.links) == (NOON + HOUR, 0)

    def test_it_frees_its_slots(self, store, worker):
        store.set_limits({KEY: 1})
        add(store, a_run(limit_keys=(KEY,)), a_run(limit_keys=(KEY,)))
        claim = worker.claim_one()
        assert worker.claim() == []

        worker.record(claim, sleeping(claim))

        assert store.count_taken([KEY]) == {KEY: 0}
        assert len(worker.claim()) == 1

    def test_it_keeps_the_slot_of_its_schedule(self, store, worker):
        key = one_at_a_time(ScheduleId(an_id()))
        add(store, a_run(limit_keys=(key,)))
        claim = worker.claim_one()

        worker.record(claim, sleeping(claim))

        assert store.count_taken([key]) == {key: 1}

    def test_a_lost_claim_suspends_nothing(self, store, clock, worker, other_worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(minutes=2)
        worker.reap()
        newer = other_worker.claim_one()

        assert worker.record(claim, sleeping(claim)) == [claim.run_id]

        assert store.load_steps(claim.run_id) == []
        assert other_worker.beat(newer).lost == []

    def test_a_cancel_ends_it_at_once(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim, sleeping(claim))

        assert store.cancel(claim.run_id, now=clock.now()) is ChangeResult.DONE
        assert the_run(store, claim).status is RunStatus.CANCELED

    def test_a_cancel_that_came_before_ends_it(self, store, clock, worker):
        add(store, a_run(), a_run())
        canceled, other = worker.claim()
        store.cancel(canceled.run_id, now=clock.now())

        steps = [settled(one, sleeping(one)) for one in (canceled, other)]
        assert store.record(steps) == []

        assert the_run(store, canceled).status is RunStatus.CANCELED
        assert the_run(store, other).was_suspended

    def test_a_repeat_after_a_lost_answer(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        step = settled(claim, sleeping(claim))
        store.record([step])

        assert store.record([step], may_be_stored=True) == []
        assert store.record([step]) == [claim.run_id]
        assert len(store.run_record(claim.run_id).attempts) == 1

    def test_a_repeat_after_it_has_continued(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        step = settled(claim, sleeping(claim))
        store.record([step])
        resume(store, clock, worker)

        assert store.record([step], may_be_stored=True) == []

    def test_a_sleep_that_is_over_is_ready_at_once(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()

        worker.record(claim, Suspended(NOON, "sleeps", (a_sleep(claim),)))

        assert the_run(store, claim).phase is Phase.READY
        assert ids(worker.claim()) == [claim.run_id]
