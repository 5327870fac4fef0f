from tickwork._domain.runs.outcome import Failed
from tickwork._stores.contract import PendingWork, UpcomingRuns
from tickwork_conformance.builders import HOUR, MINUTE, NOON, a_run, add

NOTHING = PendingWork(None, None, is_blocked=False, is_ready=False)


class TestPendingWorkPendingWork:
    """One query returns what there is to stage, to reap, to sweep and to claim."""

    def test_an_empty_store_has_no_pending_work(self, store):
        assert store.pending_work() == NOTHING

    def test_a_run_that_is_due_waits_for_a_worker(self, store):
        add(store, a_run())

        assert store.pending_work() == NOTHING._replace(is_ready=True)

    def test_the_earliest_waiting_run_counts(self, store):
        add(store, a_run(due_at=NOON + HOUR), a_run(due_at=NOON + MINUTE))

        assert store.pending_work() == NOTHING._replace(due_at=NOON + MINUTE)

    def test_a_run_that_was_staged_no_longer_waits(self, store, clock):
        add(store, a_run(due_at=NOON + MINUTE), a_run(due_at=NOON + HOUR))
        clock.advance(minutes=1)

        store.stage(now=clock.now(), limit=10)

        assert store.pending_work() == NOTHING._replace(due_at=NOON + HOUR, is_ready=True)

    def test_a_run_that_waits_for_its_retry(self, store, worker):
        add(store, a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))

        assert store.pending_work() == NOTHING._replace(due_at=NOON + MINUTE)

    def test_the_earliest_end_of_a_lease_counts(self, store, clock, worker, other_worker):
        add(store, a_run())
        worker.claim_one()
        clock.advance(seconds=10)
        add(store, a_run())
        other_worker.claim_one()

        assert store.pending_work() == NOTHING._replace(lease_until=NOON + MINUTE)

    def test_a_run_that_found_its_limit_full_is_blocked(self, store, worker):
        store.set_limits({"job:x": 1})
        add(store, *(a_run(limit_keys=("job:x",)) for _ in range(2)))

        [claim] = worker.claim()

        ahead = store.pending_work()
        assert ahead == PendingWork(None, claim.lease_until, is_blocked=True, is_ready=False)

    def test_a_finished_run_is_no_pending_work(self, store, worker):
        add(store, a_run())
        worker.record(worker.claim_one())

        assert store.pending_work() == NOTHING

    def test_a_timer_asks_for_what_is_due_next(self, store, clock):
        assert store.next_due(now=clock.now()) == UpcomingRuns(None, None)
        add(store, a_run(), a_run(due_at=NOON + HOUR), a_run(due_at=NOON + MINUTE))

        assert store.next_due(now=clock.now()) == UpcomingRuns(NOON + MINUTE, None)
        clock.advance(hours=2)
        assert store.next_due(now=clock.now()) == UpcomingRuns(NOON + MINUTE, None)
        store.stage(now=clock.now(), limit=10)
        assert store.next_due(now=clock.now()) == UpcomingRuns(None, None)
