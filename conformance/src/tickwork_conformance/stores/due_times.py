import pytest

from tickwork._domain.runs.outcome import Failed, Interrupted, Postponed, Snoozed
from tickwork._domain.runs.status import Phase
from tickwork._stores.contract import ChangeResult
from tickwork_conformance.builders import (
    HOUR,
    MINUTE,
    NOON,
    UNKNOWN_ID,
    a_run,
    add,
    ids,
    the_run,
)

KEY = "job:send_email"


class TestDueTimesRescheduling:
    """A run that no worker has claimed now can be rescheduled."""

    def test_a_run_that_is_ready_waits_instead(self, store, clock, worker):
        add(store, new := a_run())

        answer = store.reschedule(new.id, due_at=NOON + HOUR, now=clock.now())

        run = the_run(store, new)
        assert answer is ChangeResult.DONE
        assert (run.due_at, run.phase) == (NOON + HOUR, Phase.WAITING)
        assert worker.claim() == []

    def test_it_falls_due_at_its_new_time(self, store, clock, worker):
        add(store, run := a_run())
        store.reschedule(run.id, due_at=NOON + HOUR, now=clock.now())
        clock.advance(hours=1)

        assert store.stage(now=clock.now(), limit=10) == 1
        assert ids(worker.claim()) == [run.id]

    @pytest.mark.parametrize("due_at", [NOON, NOON - HOUR], ids=["now", "past"])
    def test_a_run_that_waits_is_ready_at_once(self, store, clock, worker, due_at):
        add(store, run := a_run(due_at=NOON + HOUR))

        answer = store.reschedule(run.id, due_at=due_at, now=clock.now())

        assert answer is ChangeResult.DONE
        [claim] = worker.claim()
        assert (claim.run_id, claim.due_at) == (run.id, due_at)

    def test_a_ready_run_can_be_due_earlier(self, store, clock, worker):
        add(store, first := a_run(), second := a_run())

        store.reschedule(second.id, due_at=NOON - HOUR, now=clock.now())

        assert ids(worker.claim()) == [second.id, first.id]

    def test_a_waiting_run_can_be_due_later(self, store, clock):
        add(store, run := a_run(due_at=NOON + MINUTE))

        store.reschedule(run.id, due_at=NOON + HOUR, now=clock.now())

        assert store.pending_work().due_at == NOON + HOUR

    def test_a_run_can_be_rescheduled_again(self, store, clock):
        add(store, run := a_run())
        for minutes in (5, 3, 9):
            store.reschedule(run.id, due_at=NOON + minutes * MINUTE, now=clock.now())

        assert the_run(store, run).due_at == NOON + 9 * MINUTE

    def test_a_blocked_run_that_is_rescheduled_waits(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, first := a_run(limit_keys=(KEY,)), second := a_run(limit_keys=(KEY,)))
        [claim] = worker.claim()
        assert claim.run_id == first.id

        store.reschedule(second.id, due_at=NOON + HOUR, now=clock.now())

        run = the_run(store, second)
        assert (run.phase, run.blocked_on) == (Phase.WAITING, None)

    @pytest.mark.parametrize(
        "outcome",
        [Failed("no"), Interrupted(), Snoozed(MINUTE), Postponed("not now")],
        ids=["waits for its retry", "given back", "snoozed", "postponed"],
    )
    def test_a_run_that_was_claimed_before(self, store, clock, worker, outcome):
        add(store, new := a_run(attempts_max=2))
        worker.record(worker.claim_one(), outcome)
        before = the_run(store, new)

        answer = store.reschedule(new.id, due_at=NOON + HOUR, now=clock.now())

        run = the_run(store, new)
        assert answer is ChangeResult.DONE
        assert (run.due_at, run.phase) == (NOON + HOUR, Phase.WAITING)
        assert (run.status, run.attempt) == (before.status, before.attempt)
        assert store.reschedule(new.id, due_at=NOON, now=clock.now()) is ChangeResult.DONE
        assert ids(worker.claim()) == [new.id]

    def test_other_fields_do_not_change(self, store, clock):
        add(store, new := a_run(priority=7, tags=("paid",), expires_at=NOON + HOUR))

        store.reschedule(new.id, due_at=NOON + MINUTE, now=clock.now())

        run = the_run(store, new)
        assert (run.created_at, run.expires_at) == (NOON, NOON + HOUR)
        assert (run.priority, run.tags, run.attempt) == (7, ("paid",), 0)


class TestDueTimesTooLate:
    """A run that is claimed or has ended cannot be rescheduled."""

    def test_a_running_run(self, store, clock, worker):
        add(store, run := a_run())
        worker.claim_one()

        answer = store.reschedule(run.id, due_at=NOON + HOUR, now=clock.now())

        assert answer is ChangeResult.CLAIMED
        assert the_run(store, run).due_at == NOON

    def test_a_run_that_has_ended(self, store, clock, worker):
        add(store, run := a_run())
        worker.run()

        answer = store.reschedule(run.id, due_at=NOON + HOUR, now=clock.now())

        assert answer is ChangeResult.FINISHED

    def test_an_unknown_run(self, store, clock):
        answer = store.reschedule(UNKNOWN_ID, due_at=NOON + HOUR, now=clock.now())

        assert answer is ChangeResult.UNKNOWN
