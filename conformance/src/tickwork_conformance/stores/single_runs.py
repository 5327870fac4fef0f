"""Claims of one run by its id, and the runs that could start now."""

from datetime import timedelta

import pytest

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import one_at_a_time, waiting_key
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import ClaimRequest, Pause, PauseKind
from tickwork_conformance.builders import (
    ANN,
    BOB,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    UNKNOWN_ID,
    a_run,
    add,
    all_runs,
    crashed,
    ids,
    the_run,
)

KEY = "job:send_email"
SCHEDULE_KEY = one_at_a_time("digest")  # type: ignore[arg-type]


def claim(store, clock, run, *, worker=ANN, lease=MINUTE):
    run_id = getattr(run, "id", run)
    return store.claim_run(run_id, worker=worker, tag="tag", now=clock.now(), lease=lease)


class TestSingleRunsClaimingOne:
    """Exactly this run is claimed, even if others come before it."""

    def test_the_run_with_this_id_is_claimed(self, store, clock, worker):
        add(store, *(runs := [a_run(priority=n) for n in range(3)]))

        made = claim(store, clock, runs[2], lease=5 * MINUTE)

        assert (made.run_id, made.attempt, made.token) == (runs[2].id, 1, 1)
        assert made.lease_until == NOON + 5 * MINUTE
        run = the_run(store, runs[2])
        assert (run.status, run.phase) == (RunStatus.RUNNING, Phase.RUNNING)
        assert (run.worker, run.lease_until) == (ANN, made.lease_until)
        assert run.started_at == NOON  # it starts at once
        assert store.find_claims(worker=ANN, tag="tag") == [made]
        assert ids(worker.claim()) == ids(runs[:2])

    def test_its_outcome_can_be_recorded(self, store, clock, worker):
        add(store, run := a_run())

        assert worker.record(claim(store, clock, run), Succeeded('"done"')) == []
        assert the_run(store, run).result == '"done"'

    def test_a_run_that_is_not_due_yet(self, store, clock):
        add(store, run := a_run(due_at=NOON + HOUR))

        assert claim(store, clock, run) is not None
        assert the_run(store, run).due_at == NOON + HOUR

    def test_a_run_that_waits_for_its_retry(self, store, clock, worker):
        add(store, run := a_run(attempts_max=3))
        worker.record(worker.claim_one(), Failed("no"))
        assert the_run(store, run).status is RunStatus.FAILED

        made = claim(store, clock, run)

        assert (made.attempt, made.token) == (2, 2)

    def test_a_run_that_crashed_before(self, store, clock):
        crashed(store, clock, run := a_run())

        assert claim(store, clock, run).crashes == 1

    def test_a_claim_frees_the_waiting_key_of_its_schedule(self, store, clock):
        key = waiting_key("digest")  # type: ignore[arg-type]
        add(store, run := a_run(overlap_key=key))

        claim(store, clock, run)

        assert the_run(store, run).overlap_key is None

    def test_no_other_worker_gets_it(self, store, clock, other_worker):
        add(store, run := a_run())
        claim(store, clock, run)

        assert claim(store, clock, run, worker=BOB) is None
        assert other_worker.claim() == []
        assert the_run(store, run).worker == ANN

    def test_an_expired_claim_must_be_reaped_first(self, store, clock):
        add(store, run := a_run())
        claim(store, clock, run)
        clock.advance(minutes=2)

        assert claim(store, clock, run, worker=BOB) is None

    @pytest.mark.parametrize("run_id", [UNKNOWN_ID, RunId("no id at all")])
    def test_an_unknown_run(self, store, clock, run_id):
        assert claim(store, clock, run_id) is None

    def test_a_finished_run(self, store, clock, worker):
        add(store, run := a_run())
        worker.run()

        assert claim(store, clock, run) is None
        assert the_run(store, run).status is RunStatus.COMPLETED

    @pytest.mark.parametrize(
        ("kind", "name"), [(PauseKind.QUEUE, "default"), (PauseKind.JOB, "send_email")]
    )
    def test_a_paused_run_is_not_claimed(self, store, clock, kind, name):
        add(store, run := a_run())
        store.pause(Pause(kind, name, NOON, until=NOON + MINUTE))
        assert claim(store, clock, run) is None

        clock.advance(minutes=1)
        assert claim(store, clock, run) is not None


class TestSingleRunsLimits:
    """Limits apply to a claim by id, too."""

    def test_the_claim_takes_slots(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := [a_run(limit_keys=(KEY,)) for _ in range(2)]))

        made = claim(store, clock, runs[1])

        assert store.count_taken([KEY]) == {KEY: 1}
        assert worker.claim() == []
        worker.record(made)
        assert ids(worker.claim()) == [runs[0].id]

    def test_a_full_limit_changes_nothing(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, first := a_run(limit_keys=(KEY,)))
        claim(store, clock, first)
        later = a_run(limit_keys=("queue:default", KEY), due_at=NOON + HOUR)
        add(store, later)
        before = all_runs(store)

        assert claim(store, clock, later) is None
        assert all_runs(store) == before
        assert store.count_taken(["queue:default", KEY]) == {"queue:default": 0, KEY: 1}

    def test_a_blocked_run_starts_when_a_slot_is_free(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := [a_run(limit_keys=(KEY,)) for _ in range(3)]))
        [held] = worker.claim()
        assert the_run(store, runs[2]).phase is Phase.BLOCKED
        assert claim(store, clock, runs[2]) is None

        store.complete(held, now=clock.now())  # it unblocks no run

        made = claim(store, clock, runs[2])
        assert made is not None
        assert the_run(store, runs[2]).blocked_on is None
        assert the_run(store, runs[1]).phase is Phase.BLOCKED
        worker.record(made)
        assert the_run(store, runs[1]).phase is Phase.READY

    def test_a_slot_that_it_kept_is_not_needed_again(self, store, clock, worker):
        add(store, run := a_run(limit_keys=(SCHEDULE_KEY,), attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        assert store.count_taken([SCHEDULE_KEY]) == {SCHEDULE_KEY: 1}

        assert claim(store, clock, run) is not None
        assert store.count_taken([SCHEDULE_KEY]) == {SCHEDULE_KEY: 1}

    def test_a_key_without_a_limit_does_not_block(self, store, clock):
        add(store, run := a_run(limit_keys=(KEY,)))

        assert claim(store, clock, run) is not None


class TestSingleRunsDueRuns:
    """The runs that a claim would take, in its order. Nothing is changed."""

    def due(self, store, clock, limit=10, **wanted):
        return ids(store.due_runs(ClaimRequest(limit, **wanted), now=clock.now()))

    def test_in_the_order_of_claims(self, store, clock, worker):
        runs = [
            a_run(priority=5),
            a_run(priority=1),
            a_run(priority=5, created_at=NOON - MINUTE),
            a_run(due_at=NOON + SECOND),
        ]
        add(store, *runs)

        assert self.due(store, clock) == [runs[1].id, runs[2].id, runs[0].id]
        assert self.due(store, clock, limit=2) == [runs[1].id, runs[2].id]
        assert self.due(store, clock) == ids(worker.claim())
        assert self.due(store, clock) == []

    def test_only_runs_of_these_queues_and_jobs(self, store, clock):
        add(store, mine := a_run(queue="mine"), a_run(queue="other"), job := a_run(job="other"))

        assert self.due(store, clock, queues=("mine",)) == [mine.id]
        assert self.due(store, clock, jobs=("other",)) == [job.id]

    def test_no_paused_or_blocked_runs(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, paused := a_run(queue="paused"), *(a_run(limit_keys=(KEY,)) for _ in range(2)))
        store.pause(Pause(PauseKind.QUEUE, "paused", NOON))
        worker.claim()

        assert self.due(store, clock) == []
        store.resume(PauseKind.QUEUE, "paused")
        assert self.due(store, clock) == [paused.id]

    def test_no_expired_runs(self, store, clock):
        add(store, run := a_run(expires_at=NOON + MINUTE))
        assert self.due(store, clock) == [run.id]
        clock.advance(minutes=1)
        assert self.due(store, clock) == [run.id]
        clock.advance(timedelta(microseconds=1))
        assert self.due(store, clock) == []

    def test_each_run_has_all_its_fields(self, store, clock):
        add(store, run := a_run(args='{"to":"ann"}', tags=("a", "b"), target="order-1"))

        [found] = store.due_runs(ClaimRequest(1), now=clock.now())

        assert found == the_run(store, run)
