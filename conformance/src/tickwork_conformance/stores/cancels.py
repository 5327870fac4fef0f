import pytest

from tickwork._domain.runs.outcome import Canceled, Failed, Succeeded
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import ChangeResult, Store
from tickwork_conformance.builders import (
    MINUTE,
    NOON,
    UNKNOWN_ID,
    StoreDriver,
    a_fired_run,
    a_run,
    add,
    ids,
    the_run,
)

KEY = "job:send_email"


def make_waiting(store: Store, worker: StoreDriver) -> NewRun:
    add(store, run := a_run(due_at=NOON + MINUTE))
    return run


def make_ready(store: Store, worker: StoreDriver) -> NewRun:
    add(store, run := a_run())
    return run


def make_blocked(store: Store, worker: StoreDriver) -> NewRun:
    store.set_limits({KEY: 1})
    add(store, a_run(limit_keys=(KEY,)), run := a_run(limit_keys=(KEY,)))
    worker.claim()
    return run


def make_failed(store: Store, worker: StoreDriver) -> NewRun:
    add(store, run := a_run(attempts_max=2))
    worker.record(worker.claim_one(), Failed("no"))
    return run


NOT_RUNNING = {
    Phase.WAITING: make_waiting,
    Phase.READY: make_ready,
    Phase.BLOCKED: make_blocked,
    "waiting for its retry": make_failed,
}


class TestCancelsCancelingWhatDoesNotRun:
    """A run that does not run is canceled at once."""

    @pytest.mark.parametrize("make", NOT_RUNNING.values(), ids=NOT_RUNNING)
    def test_a_waiting_run_is_canceled_in_every_phase(self, store, clock, worker, make):
        new = make(store, worker)
        clock.advance(seconds=1)

        answer = store.cancel(new.id, now=clock.now(), reason="ordered by mistake")

        run = the_run(store, new)
        assert answer is ChangeResult.DONE
        assert (run.status, run.phase, run.blocked_on) == (RunStatus.CANCELED, None, None)
        assert (run.ended_at, run.reason) == (clock.now(), "ordered by mistake")

    @pytest.mark.parametrize("make", NOT_RUNNING.values(), ids=NOT_RUNNING)
    def test_a_canceled_run_is_not_claimed(self, store, clock, worker, make):
        new = make(store, worker)
        store.cancel(new.id, now=clock.now())
        clock.advance(days=1)

        store.stage(now=clock.now(), limit=10)
        store.sweep(now=clock.now(), limit=10)

        assert new.id not in ids(worker.claim())

    def test_a_canceled_run_keeps_its_attempts(self, store, clock, worker):
        new = make_failed(store, worker)

        store.cancel(new.id, now=clock.now())

        story = store.run_record(new.id)
        assert [one.error for one in story.attempts] == ["no"]
        assert (story.run.attempt, story.run.token) == (1, 1)

    def test_a_cancel_does_not_change_the_row_of_the_job(self, store, clock, worker):
        add(store, run := a_run())
        store.cancel(run.id, now=clock.now())

        assert store.list_jobs() == []


class TestCancelsCancelingWhatRuns:
    """A running run is requested to stop; its worker decides the outcome."""

    def test_it_stays_running_until_its_worker_records_an_outcome(self, store, clock, worker):
        add(store, new := a_run())
        worker.claim_one()

        answer = store.cancel(new.id, now=clock.now())

        run = the_run(store, new)
        assert answer is ChangeResult.REQUESTED
        assert (run.status, run.cancel_requested_at) == (RunStatus.RUNNING, NOON)

    def test_the_first_request_is_the_one_that_is_kept(self, store, clock, worker):
        add(store, run := a_run())
        worker.claim_one()
        store.cancel(run.id, now=clock.now())
        clock.advance(seconds=9)

        answer = store.cancel(run.id, now=clock.now())

        assert answer is ChangeResult.REQUESTED
        assert the_run(store, run).cancel_requested_at == NOON

    def test_the_worker_stopped_the_run(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.cancel(run.id, now=clock.now())

        assert worker.record(claim, Canceled("requested")) == []
        assert the_run(store, run).status is RunStatus.CANCELED

    def test_a_run_can_complete_after_a_cancel_request(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.cancel(run.id, now=clock.now())

        assert worker.record(claim, Succeeded()) == []
        assert the_run(store, run).status is RunStatus.COMPLETED

    def test_a_request_that_the_worker_missed_reaches_the_next_worker(
        self, store, clock, worker, other_worker
    ):
        add(store, run := a_run(attempts_max=2))
        claim = worker.claim_one()
        store.cancel(run.id, now=clock.now())
        worker.record(claim, Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)

        beat = other_worker.beat(other_worker.claim_one())

        assert beat.cancel_requested == [run.id]


class TestCancelsTooLate:
    """A finished run cannot be canceled, nor can an unknown one."""

    def test_a_finished_run(self, store, clock, worker):
        add(store, run := a_run())
        worker.run()

        assert store.cancel(run.id, now=clock.now()) is ChangeResult.FINISHED
        assert the_run(store, run).status is RunStatus.COMPLETED

    def test_a_run_that_was_canceled_before(self, store, clock):
        add(store, run := a_run())
        store.cancel(run.id, now=clock.now(), reason="first")

        assert store.cancel(run.id, now=clock.now(), reason="second") is ChangeResult.FINISHED
        assert the_run(store, run).reason == "first"

    def test_an_unknown_run(self, store, clock):
        assert store.cancel(UNKNOWN_ID, now=clock.now()) is ChangeResult.UNKNOWN


class TestCancelsCancelingASchedule:
    """All unfinished runs of a schedule are canceled, or requested to stop."""

    def test_waiting_runs_are_canceled_and_running_ones_requested_to_stop(
        self, store, clock, worker
    ):
        running, ready = a_fired_run(nominal_at=NOON), a_fired_run(nominal_at=NOON - MINUTE)
        waiting = a_fired_run(nominal_at=NOON + MINUTE, due_at=NOON + MINUTE)
        add(store, running)
        worker.claim()
        add(store, ready, waiting)

        count = store.cancel_schedule("", "digest", now=clock.now(), reason="unregistered")

        assert count == 3
        assert the_run(store, running).cancel_requested_at == NOON
        for canceled in (the_run(store, ready), the_run(store, waiting)):
            assert (canceled.status, canceled.reason) == (RunStatus.CANCELED, "unregistered")

    def test_runs_of_other_schedules_are_not_canceled(self, store, clock):
        others = [
            a_fired_run("digest", tenant="acme"),
            a_fired_run("Digest"),
            a_fired_run("report"),
            a_run(),
        ]
        add(store, *others)

        assert store.cancel_schedule("", "digest", now=clock.now()) == 0
        assert not any(the_run(store, run).is_finished for run in others)

    def test_finished_runs_are_not_counted(self, store, clock, worker):
        add(store, a_fired_run())
        worker.run()

        assert store.cancel_schedule("", "digest", now=clock.now()) == 0
