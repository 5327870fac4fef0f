"""Counts of ended attempts, which stay true when runs are pruned and under a backlog."""

from collections import Counter
from datetime import timedelta

from tickwork._domain.rollups import ALL_JOBS, Rollup
from tickwork._domain.runs.outcome import Canceled, Failed, Interrupted, Skipped, Snoozed, Succeeded
from tickwork._domain.runs.retry import Exponential
from tickwork._domain.runs.status import RunStatus
from tickwork_conformance.builders import DAY, HOUR, MINUTE, NOON, a_run, add, ids, settled

JOBS = ["a", "b", "send_email"]


def totals(store, *, since=NOON - DAY, until=NOON + 3 * DAY, jobs=JOBS):
    """How many attempts of each job ended with each status."""
    found: Counter[tuple[str, str, str]] = Counter()
    for rollup in store.read_rollups(since=since, until=until, jobs=jobs):
        found[rollup.job, rollup.queue, rollup.status.value] += rollup.ended
    return dict(found)


def finish(store, worker, *runs, outcome=Succeeded()):  # noqa: B008  # a value that never changes
    add(store, *runs)
    for claim in worker.claim(100):
        worker.record(claim, outcome)


def compact(store, now):
    """Merge until nothing is left to merge."""
    for _ in range(20):
        if not store.compact_rollups(now=now, limit=100):
            return


class TestRollupCounts:
    """Each end is counted once, in the transaction that writes it."""

    def test_by_job_queue_and_status(self, store, worker):
        finish(store, worker, a_run(job="a"), a_run(job="a", queue="slow"), a_run(job="b"))
        finish(store, worker, a_run(job="b"), outcome=Failed("no"))

        assert totals(store) == {
            ("a", "default", "completed"): 1,
            ("a", "slow", "completed"): 1,
            ("b", "default", "completed"): 1,
            ("b", "default", "failed_permanent"): 1,
        }

    def test_of_all_jobs_by_queue(self, store, worker):
        finish(store, worker, a_run(job="a"), a_run(job="b"), a_run(job="b", queue="slow"))

        assert totals(store, jobs=[ALL_JOBS]) == {
            (ALL_JOBS, "default", "completed"): 2,
            (ALL_JOBS, "slow", "completed"): 1,
        }

    def test_of_a_minute(self, store, clock, worker):
        finish(store, worker, a_run(job="a"))
        clock.advance(seconds=90)
        finish(store, worker, a_run(job="a", created_at=clock.now(), due_at=clock.now()))

        found = store.read_rollups(since=NOON, until=NOON + HOUR, jobs=["a"])

        assert [(each.begins_at, each.ended) for each in found] == [(NOON, 1), (NOON + MINUTE, 1)]
        assert store.read_rollups(since=NOON + MINUTE, until=NOON + HOUR, jobs=["a"]) == found[1:]
        assert store.read_rollups(since=NOON, until=NOON + MINUTE, jobs=["a"]) == found[:1]

    def test_with_the_times_of_the_attempts(self, store, clock, worker):
        add(store, a_run(job="a", due_at=NOON))
        clock.advance(seconds=1)
        claim = worker.claim_one()
        started_at = clock.now()
        clock.advance(seconds=0.01)

        worker.record(claim, started_at=started_at)

        [found] = store.read_rollups(since=NOON, until=NOON + HOUR, jobs=["a"])
        assert found == Rollup(
            NOON,
            "a",
            "default",
            RunStatus.COMPLETED,
            1,
            runtimes=(0, 0, 0, 0, 1),  # 8 to 16 ms
            waits=(*[0] * 10, 1),  # 512 to 1,024 ms
        )

    def test_a_failed_attempt_is_counted_and_the_end_of_the_run_too(self, store, clock, worker):
        add(store, a_run(job="a", attempts_max=2))
        retry = Exponential(attempts_max=2)
        worker.record(worker.claim_one(), Failed("no"), retry=retry)
        clock.advance(hours=1)
        store.stage(now=clock.now(), limit=10)
        worker.record(worker.claim_one(), retry=retry)

        assert totals(store) == {
            ("a", "default", "failed"): 1,
            ("a", "default", "completed"): 1,
        }

    def test_an_attempt_without_an_end_is_not_counted(self, store, worker):
        add(store, a_run(job="a"), a_run(job="a"))
        first, second = worker.claim()
        worker.record(first, Interrupted("deploy"))
        worker.record(second, Snoozed(timedelta(hours=1)))

        assert totals(store) == {}

    def test_skipped_and_canceled_runs(self, store, clock, worker):
        add(store, waiting := a_run(job="a", due_at=NOON + HOUR), a_run(job="a"), a_run(job="b"))
        one, other = sorted(worker.claim(), key=lambda claim: claim.job)
        worker.record(one, Canceled("no longer needed"))
        worker.record(other, Skipped("holiday"))
        store.cancel(waiting.id, now=clock.now())

        assert totals(store) == {
            ("a", "default", "canceled"): 2,
            ("b", "default", "skipped"): 1,
        }

    def test_a_run_that_its_handler_completes(self, store, clock, worker):
        add(store, a_run(job="a"))
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(seconds=0.01)

        assert store.complete(claim, now=clock.now())
        store.after_complete([claim])

        [found] = store.read_rollups(since=NOON, until=NOON + HOUR, jobs=["a"])
        assert (found.ended, found.runtimes) == (1, (0, 0, 0, 0, 1))

    def test_a_repeated_record_counts_once(self, store, clock, worker):
        add(store, a_run(job="a"), a_run(job="a", attempts_max=2))
        one, other = worker.claim()
        steps = [
            settled(one, Succeeded(), now=clock.now()),
            settled(other, Failed("no"), now=clock.now(), retry=Exponential(attempts_max=2)),
        ]
        store.record(steps)

        store.record(steps, may_be_stored=True)

        assert sum(totals(store).values()) == 2

    def test_a_record_without_a_valid_claim_counts_nothing(self, store, clock, worker):
        add(store, a_run(job="a"))
        claim = worker.claim_one()
        clock.advance(minutes=5)
        worker.reap()
        worker.claim_one()

        assert worker.record(claim) == [claim.run_id]

        assert totals(store) == {}

    def test_they_stay_when_the_runs_are_pruned(self, store, clock, worker):
        finish(store, worker, *(runs := [a_run(job="a") for _ in range(3)]))

        store.delete_runs(ids(runs))

        assert totals(store) == {("a", "default", "completed"): 3}


class TestRollupCompaction:
    """Merging changes how many rows there are, and no sum."""

    def test_the_rows_of_many_transactions(self, store, clock, worker):
        for _ in range(5):
            finish(store, worker, a_run(job="a"), a_run(job="b"))
        before = store.read_rollups(since=NOON, until=NOON + HOUR, jobs=[*JOBS, ALL_JOBS])

        compact(store, clock.now())

        after = store.read_rollups(since=NOON, until=NOON + HOUR, jobs=[*JOBS, ALL_JOBS])
        assert after == before
        assert {(each.job, each.ended) for each in after} == {("a", 5), ("b", 5), (ALL_JOBS, 10)}

    def test_more_rows_later(self, store, clock, worker):
        for _ in range(3):
            finish(store, worker, a_run(job="a"))
            compact(store, clock.now())

        assert totals(store) == {("a", "default", "completed"): 3}

    def test_old_minutes_become_hours_and_days(self, store, clock, worker):
        for _ in range(4):
            finish(store, worker, a_run(job="a", created_at=clock.now(), due_at=clock.now()))
            clock.advance(minutes=20)
        compact(store, clock.now())
        clock.advance(days=2)
        compact(store, clock.now())
        by_hour = store.read_rollups(since=NOON, until=NOON + DAY, jobs=["a"])
        clock.advance(days=60)
        compact(store, clock.now())
        by_day = store.read_rollups(since=NOON - DAY, until=NOON + DAY, jobs=["a"])

        assert sum(each.ended for each in by_hour) == sum(each.ended for each in by_day) == 4
        assert totals(store, jobs=[ALL_JOBS]) == {(ALL_JOBS, "default", "completed"): 4}
