import pytest

from tickwork._domain.runs.outcome import Succeeded
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.transitions import reap
from tickwork._stores.contract import Expired
from tickwork_conformance.builders import (
    ANN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_run,
    add,
    crashed,
    ids,
    the_run,
)


class TestExpiredLeasesReaping:
    """A run whose lease has expired is taken back from its worker."""

    def test_a_reaped_run_can_be_claimed_by_another_worker(
        self, store, clock, worker, other_worker
    ):
        add(store, run := a_run())
        worker.claim_one(lease=MINUTE)
        clock.advance(minutes=1)

        steps = other_worker.reap()
        claims = other_worker.claim()

        assert [step.claim.run_id for step in steps] == [run.id]
        assert ids(claims) == [run.id]
        assert claims[0].token == 2

    def test_a_lease_is_not_reaped_before_it_has_expired(self, store, clock, worker):
        add(store, run := a_run())
        worker.claim_one(lease=MINUTE)
        clock.advance(milliseconds=59_999)

        assert worker.reap() == []
        assert the_run(store, run).status is RunStatus.RUNNING

    def test_a_reaped_run_has_no_worker(self, store, clock, worker):
        add(store, new := a_run())
        worker.start(worker.claim_one())
        clock.advance(minutes=2)

        worker.reap()

        run = the_run(store, new)
        assert (run.status, run.phase) == (RunStatus.PENDING, Phase.READY)
        assert (run.lease_until, run.worker, run.started_at) == (None, None, None)

    def test_the_oldest_leases_are_reaped_first(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(3)]))
        for seconds in (30, 10, 20):
            worker.claim_one(lease=seconds * SECOND)
        clock.advance(minutes=1)

        steps = [step for _ in range(3) for step in worker.reap(1)]

        assert [step.claim.run_id for step in steps] == [runs[1].id, runs[2].id, runs[0].id]

    def test_no_more_than_the_limit(self, store, clock, worker):
        add(store, *(a_run() for _ in range(5)))
        worker.claim()
        clock.advance(minutes=2)

        assert [len(worker.reap(2)) for _ in range(4)] == [2, 2, 1, 0]

    def test_a_run_without_a_claim_is_not_reaped(self, store, clock, worker):
        add(store, a_run(), a_run(due_at=NOON + MINUTE))
        clock.advance(days=1)

        assert worker.reap() == []


class TestExpiredLeaseDecisions:
    """The caller decides about each run whose lease has expired, and gets all facts for that."""

    def test_the_decision_gets_all_facts(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one(lease=MINUTE)
        worker.beat(claim, until=NOON + HOUR)
        clock.advance(hours=1)
        seen = []

        def decide(expired):
            seen.append(expired)
            return reap(expired.claim, has_started=False, now=clock.now())

        steps = store.reap(now=clock.now(), limit=10, decide=decide)

        assert seen == [
            Expired(
                claim=claim._replace(lease_until=NOON + HOUR),
                has_started=False,
                is_cancel_requested=False,
                worker=ANN,
            )
        ]
        assert [step.claim.run_id for step in steps] == [run.id]

    def test_the_decision_knows_whether_the_handler_was_called(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run()]))
        started, waiting = worker.claim()
        worker.start(started)
        worker.beat(waiting)
        clock.advance(minutes=2)

        worker.reap()

        assert [the_run(store, run).crashes for run in runs] == [1, 0]
        assert [the_run(store, run).attempt for run in runs] == [0, 0]

    def test_the_decision_knows_whether_a_cancel_was_requested(self, store, clock, worker):
        add(store, run := a_run())
        worker.claim_one()
        store.cancel(run.id, now=clock.now())
        clock.advance(minutes=2)

        worker.reap()

        assert the_run(store, run).status is RunStatus.CANCELED

    def test_no_decision_when_nothing_has_expired(self, store, clock, worker):
        add(store, a_run())
        worker.claim_one()

        steps = store.reap(now=clock.now(), limit=10, decide=lambda _: pytest.fail("called"))

        assert steps == []

    def test_a_decision_that_fails_releases_no_run(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run()]))
        claims = worker.claim()
        clock.advance(minutes=2)

        def decide(expired):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.reap(now=clock.now(), limit=10, decide=decide)

        assert [the_run(store, run).status for run in runs] == [RunStatus.RUNNING] * 2
        assert [worker.record(claim) for claim in claims] == [[], []]


class TestExpiredLeasesCrashes:
    """A lease that expired without an outcome is a crashed attempt."""

    def test_a_crash_is_stored_as_an_attempt(self, store, clock, worker):
        add(store, run := a_run())
        worker.start(worker.claim_one())
        clock.advance(minutes=2)
        worker.reap()

        [attempt] = store.run_record(run.id).attempts

        assert (attempt.outcome, attempt.token, attempt.attempt) == ("crashed", 1, 1)
        assert (attempt.started_at, attempt.ended_at) == (NOON, NOON + 2 * MINUTE)
        assert attempt.worker == ANN
        assert "lease" in attempt.error

    def test_a_run_that_crashed_can_complete_later(self, store, clock, worker):
        crashed(store, clock, run := a_run())

        worker.record(worker.claim_one(), Succeeded())

        assert the_run(store, run).status is RunStatus.COMPLETED
        assert [one.outcome for one in store.run_record(run.id).attempts] == [
            "crashed",
            "succeeded",
        ]

    def test_the_third_crash_is_final(self, store, clock, worker):
        add(store, new := a_run())
        for _ in range(3):
            worker.start(worker.claim_one())
            clock.advance(minutes=2)
            worker.reap()

        run = the_run(store, new)
        assert (run.status, run.crashes) == (RunStatus.FAILED_PERMANENT, 3)
        assert "died 3 times" in run.reason
        assert len(store.run_record(new.id).attempts) == 3
