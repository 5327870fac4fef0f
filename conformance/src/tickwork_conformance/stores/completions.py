"""The steps after a handler has completed its run in a transaction of its own."""

from datetime import timedelta

import pytest

from tickwork._domain.limits.limits import one_at_a_time
from tickwork._domain.runs.outcome import Failed, Skipped
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork_conformance.builders import (
    NOON,
    SECOND,
    a_fired_run,
    a_run,
    add,
    added,
    all_runs,
    ids,
    in_phase,
    the_run,
    tick,
)

KEY = "job:send_email"
QUEUE_KEY = "queue:default"


def limited(count, *keys):
    return [a_run(limit_keys=keys or (KEY,)) for _ in range(count)]


class TestCompletionsFollowingSteps:
    """A run whose row is gone was completed; otherwise the transaction was rolled back."""

    def test_it_returns_the_completed_runs(self, store, clock, worker):
        add(store, *(a_run() for _ in range(3)))
        claims = worker.claim()
        for claim in claims[1:]:
            store.complete(claim, now=clock.now())

        assert store.after_complete(claims) == ids(claims[1:])
        assert the_run(store, claims[0]).status is RunStatus.RUNNING
        assert store.after_complete([]) == []

    def test_the_row_of_the_job_has_the_time(self, store, clock, worker):
        add(store, a_run(), a_run(tenant="acme"))
        claims = worker.claim()
        for claim in claims:
            store.complete(claim, now=clock.now())
        clock.advance(seconds=5)

        store.after_complete(claims)

        jobs = store.list_jobs()
        assert [(job.tenant, job.name) for job in jobs] == [
            ("", "send_email"),
            ("acme", "send_email"),
        ]
        assert {(job.last_run_at, job.last_success_at, job.failures) for job in jobs} == {
            (NOON, NOON, 0)
        }

    def test_a_late_report_does_not_set_an_earlier_time(self, store, clock, worker):
        add(store, a_run(), a_run())
        early, late = worker.claim()
        store.complete(early, now=clock.now())
        clock.advance(seconds=5)
        worker.record(late)

        store.after_complete([early])

        [job] = store.list_jobs()
        assert (job.last_run_at, job.last_success_at) == (NOON + 5 * SECOND, NOON + 5 * SECOND)

    def test_a_completion_resets_the_failures_in_a_row(self, store, clock, worker):
        add(store, a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()
        store.complete(claim, now=clock.now())
        assert store.list_jobs()[0].failures == 1

        store.after_complete([claim])

        assert store.list_jobs()[0].failures == 0

    def test_a_run_that_waited_for_its_limit_is_unblocked(self, store, clock, worker):
        store.set_limits({KEY: 2})
        add(store, *(runs := limited(5)))
        claims = worker.claim()
        for claim in claims:
            store.complete(claim, now=clock.now())

        store.after_complete(claims)

        assert in_phase(store, Phase.READY) == ids(runs[2:4])
        assert in_phase(store, Phase.BLOCKED) == [runs[4].id]

    def test_nothing_is_freed_twice(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *(runs := limited(4)))
        [first] = worker.claim()
        store.complete(first, now=clock.now())
        store.after_complete([first])
        [second] = worker.claim()
        assert second.run_id == runs[1].id

        assert store.after_complete([first]) == [first.run_id]

        assert in_phase(store, Phase.BLOCKED) == ids(runs[2:])
        assert worker.claim() == []
        assert store.count_taken([KEY]) == {KEY: 1}

    def test_runs_are_unblocked_for_each_of_its_limits(self, store, clock, worker):
        store.set_limits({KEY: 1, QUEUE_KEY: 1})
        add(store, held := a_run(limit_keys=(KEY, QUEUE_KEY)))
        add(store, one := a_run(limit_keys=(KEY,)), other := a_run(limit_keys=(QUEUE_KEY,)))
        claim = worker.claim_one()
        worker.claim()
        assert in_phase(store, Phase.BLOCKED) == [one.id, other.id]
        store.complete(claim, now=clock.now())

        store.after_complete([claim])

        assert claim.run_id == held.id
        assert in_phase(store, Phase.READY) == [one.id, other.id]

    def test_the_next_run_of_a_schedule_is_unblocked(self, store, clock, worker):
        key = one_at_a_time("digest")  # type: ignore[arg-type]
        add(store, *(runs := limited(2, key)))
        [claim] = worker.claim()
        store.complete(claim, now=clock.now())

        store.after_complete([claim])

        assert ids(worker.claim()) == [runs[1].id]

    def test_a_completion_that_was_rolled_back_changes_nothing(self, store, clock, worker):
        store.set_limits({KEY: 1})
        add(store, *limited(2))
        [claim] = worker.claim()

        assert store.after_complete([claim]) == []

        assert store.list_jobs() == []
        assert len(in_phase(store, Phase.BLOCKED)) == 1
        assert worker.record(claim, Failed("it was rolled back")) == []

    @pytest.mark.parametrize("is_finished", [False, True], ids=["running", "finished"])
    def test_a_lost_claim_is_not_reported_as_completed(
        self, store, clock, worker, other_worker, is_finished
    ):
        add(store, a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        theirs = other_worker.claim_one()
        if is_finished:
            store.complete(theirs, now=clock.now())

        assert store.after_complete([stale]) == []
        assert store.list_jobs() == []

    def test_a_run_with_another_end_was_not_completed(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim, Failed("no"))

        assert store.after_complete([claim]) == []

    def test_a_completion_ends_the_row_of_skips_before_it(self, store, clock, worker):
        # As when it is recorded: the next skip is not in a row with those before this run.
        added(store)
        for outcome in (Skipped("deferred"), None, Skipped("deferred")):
            tick(store, clock)
            claim = worker.claim_one()
            if outcome is None:
                store.complete(claim, now=clock.now())
                store.after_complete([claim])
            else:
                worker.record(claim, outcome)
            clock.advance(minutes=1)

        rows = sorted(all_runs(store), key=lambda run: str(run.nominal_at))
        assert [(run.status.value, run.instants) for run in rows] == [
            ("skipped", 1),
            ("completed", 1),
            ("skipped", 1),
        ]


class TestCompletionsAttempts:
    """The attempt that completed the run is stored, if it was not the first."""

    def test_the_second_attempt_leaves_a_row(self, store, clock, worker):
        add(store, run := a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(timedelta(seconds=3))
        store.complete(claim, now=clock.now())

        kept = store.run_record(run.id).attempts

        assert [(each.attempt, each.outcome) for each in kept] == [(1, "failed"), (2, "succeeded")]
        assert kept[1].ended_at - kept[1].started_at == 3 * SECOND

    def test_a_lost_claim_leaves_no_row(self, store, clock, worker):
        add(store, run := a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()

        assert not store.complete(stale, now=clock.now())
        assert [each.attempt for each in store.run_record(run.id).attempts] == [1]

    def test_the_first_attempt_needs_no_row(self, store, clock, worker):
        add(store, run := a_fired_run())
        store.complete(worker.claim_one(), now=clock.now())

        assert store.run_record(run.id).attempts == []
