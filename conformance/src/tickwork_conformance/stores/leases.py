import pytest

from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition, reap
from tickwork._stores.contract import Expired, HeartbeatResult, HeldClaim
from tickwork_conformance.builders import (
    ANN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_run,
    add,
    ids,
    the_run,
)


class TestLeasesHeartbeats:
    """A heartbeat extends every valid lease, and returns those that were lost."""

    def test_a_heartbeat_extends_the_lease(self, store, worker):
        add(store, run := a_run())
        claim = worker.claim_one(lease=MINUTE)

        beat = worker.beat(claim, until=NOON + HOUR)

        assert beat == HeartbeatResult([], [])
        assert the_run(store, run).lease_until == NOON + HOUR

    def test_a_lease_that_is_extended_is_not_reaped(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one(lease=MINUTE)
        worker.beat(claim, until=NOON + HOUR)
        clock.advance(minutes=59)

        assert worker.reap() == []

    def test_a_heartbeat_extends_many_leases(self, store, worker):
        add(store, *(runs := [a_run() for _ in range(50)]))
        claims = worker.claim(50)

        worker.beat(*claims[::-1], until=NOON + HOUR)

        assert {the_run(store, run).lease_until for run in runs} == {NOON + HOUR}

    def test_a_heartbeat_never_shortens_a_lease(self, store, worker):
        add(store, run := a_run())
        claim = worker.claim_one(lease=HOUR)

        worker.beat(claim, until=NOON + MINUTE)

        assert the_run(store, run).lease_until == NOON + HOUR

    def test_an_empty_heartbeat(self, store):
        assert store.extend_leases([], until=NOON + HOUR) == HeartbeatResult([], [])

    def test_a_check_of_claims_returns_lost_claims_and_cancel_requests(self, store, worker):
        add(store, *(a_run() for _ in range(4)))
        held, canceled, finished, lost = worker.claim(4)
        store.cancel(canceled.run_id, now=NOON)
        store.complete(finished, now=NOON)
        before = the_run(store, held)

        check = store.check_claims(
            [
                *(HeldClaim(claim.run_id, claim.token) for claim in (held, canceled, finished)),
                HeldClaim(lost.run_id, lost.token - 1),
                HeldClaim(a_run().id, 1),
            ]
        )

        assert finished.run_id in check.gone
        assert lost.run_id in check.gone
        assert len(check.gone) == 3
        assert check.cancel_requested == [canceled.run_id]
        assert the_run(store, held) == before

    def test_an_expired_lease_can_be_extended_until_the_run_is_reaped(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one(lease=MINUTE)
        clock.advance(minutes=5)

        beat = worker.beat(claim, until=NOON + HOUR)

        assert beat.lost == []
        assert the_run(store, run).lease_until == NOON + HOUR

    def test_a_reaper_may_leave_an_expired_lease(self, store, clock, worker):
        add(store, kept := a_run(), taken := a_run())
        worker.claim(2, lease=MINUTE)
        clock.advance(minutes=5)

        def decide(expired: Expired) -> Transition | None:
            if expired.claim.run_id == kept.id:
                return None
            return reap(expired.claim, has_started=expired.has_started, now=clock.now())

        steps = store.reap(now=clock.now(), limit=10, decide=decide)

        assert [step.claim.run_id for step in steps] == [taken.id]
        assert the_run(store, kept).status is RunStatus.RUNNING
        assert the_run(store, taken).status is RunStatus.PENDING


class TestLeasesLostLeases:
    """A worker that lost a lease is notified, and can change nothing."""

    def test_a_run_that_was_taken_back_is_lost(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()

        beat = worker.beat(claim)

        assert beat.lost == [run.id]
        assert the_run(store, run).lease_until is None

    def test_a_run_that_another_has_claimed_is_lost(self, store, clock, worker, other_worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim_one(lease=MINUTE)

        beat = worker.start(claim, until=NOON + HOUR)

        assert beat.lost == [run.id]
        assert the_run(store, run).lease_until == clock.now() + MINUTE
        assert the_run(store, run).started_at is None

    def test_a_run_that_the_same_worker_claimed_again_has_another_token(self, store, clock, worker):
        add(store, run := a_run())
        first = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        worker.claim_one()

        assert worker.beat(first).lost == [run.id]

    def test_a_finished_run_is_not_reported_as_lost(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim)

        assert worker.beat(claim) == HeartbeatResult([], [])

    def test_a_lost_lease_does_not_affect_the_others(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run(priority=500)]))
        lost = worker.claim_one(lease=MINUTE)
        kept = worker.claim_one(lease=HOUR)
        clock.advance(minutes=2)
        worker.reap()

        beat = worker.beat(lost, kept, until=NOON + 3 * HOUR)

        assert beat.lost == [runs[0].id]
        assert the_run(store, runs[1]).lease_until == NOON + 3 * HOUR


class TestLeasesStarts:
    """A heartbeat stores when a handler was called. Only a started run can have crashed."""

    def test_a_heartbeat_stores_the_start(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        clock.advance(seconds=1)

        worker.start(claim)

        assert the_run(store, run).started_at == NOON + SECOND

    def test_a_prefetched_run_has_not_started(self, store, worker):
        add(store, run := a_run())

        worker.beat(worker.claim_one())

        assert the_run(store, run).started_at is None

    def test_later_heartbeats_do_not_change_the_start(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(seconds=20)

        worker.beat(claim)

        assert the_run(store, run).started_at == NOON


class TestLeasesCancelRequests:
    """A heartbeat returns the runs that are requested to stop."""

    def test_a_heartbeat_returns_canceled_runs_only(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run(), a_run()]))
        claims = worker.claim()
        store.cancel(runs[1].id, now=clock.now())

        beat = worker.beat(*claims)

        assert beat == HeartbeatResult([], [runs[1].id])

    def test_a_cancel_request_is_returned_until_the_run_has_ended(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.cancel(run.id, now=clock.now())

        beats = [worker.beat(claim), worker.beat(claim)]
        worker.record(claim)

        assert [beat.cancel_requested for beat in beats] == [[run.id], [run.id]]
        assert worker.beat(claim).cancel_requested == []


class TestLeasesReleasingAWorker:
    """Runs of a worker that is known to be dead are released before their leases expire."""

    def test_runs_of_a_released_worker_can_be_reaped_at_once(
        self, store, clock, worker, other_worker
    ):
        add(store, *(runs := [a_run(), a_run(), a_run()]))
        worker.claim(2, lease=HOUR)
        other_worker.claim(lease=HOUR)

        released = store.release_worker(ANN, now=clock.now())

        assert released == 2
        assert [step.claim.run_id for step in other_worker.reap()] == ids(runs[:2])
        assert the_run(store, runs[2]).status is RunStatus.RUNNING

    def test_a_worker_without_claims(self, store, clock, worker):
        add(store, a_run())
        worker.run()

        assert store.release_worker(ANN, now=clock.now()) == 0


class TestLeasesProgress:
    """Progress and checkpoints are stored while the claim is valid."""

    def test_progress_and_checkpoint_are_kept(self, store, worker):
        add(store, new := a_run())
        claim = worker.claim_one()

        is_kept = store.save_progress(claim, progress='{"done": 3}', checkpoint='"page 7"')

        run = the_run(store, new)
        assert is_kept
        assert (run.progress, run.checkpoint) == ('{"done": 3}', '"page 7"')

    def test_a_value_that_is_not_given_stays_the_same(self, store, worker):
        add(store, new := a_run())
        claim = worker.claim_one()
        store.save_progress(claim, progress="1", checkpoint="2")

        store.save_progress(claim, progress="3")
        store.save_progress(claim)

        run = the_run(store, new)
        assert (run.progress, run.checkpoint) == ("3", "2")

    @pytest.mark.parametrize("is_claimed_again", [False, True], ids=["taken back", "claimed"])
    def test_a_claim_that_was_lost_saves_nothing(
        self, store, clock, worker, other_worker, is_claimed_again
    ):
        add(store, new := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        if is_claimed_again:
            other_worker.claim_one()

        assert not store.save_progress(stale, progress="1", checkpoint="2")
        run = the_run(store, new)
        assert (run.progress, run.checkpoint) == (None, None)

    def test_nothing_is_saved_for_a_finished_run(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        worker.record(claim)

        assert not store.save_progress(claim, progress="1")

    def test_a_finished_run_keeps_its_progress(self, store, worker):
        add(store, new := a_run())
        claim = worker.claim_one()
        store.save_progress(claim, progress="100", checkpoint="2")

        worker.record(claim)

        run = the_run(store, new)
        assert (run.progress, run.checkpoint) == ("100", "2")


class TestLeasesFencing:
    """No operation accepts a claim that was lost."""

    def test_the_holder_of_the_claim_is_not_affected(self, store, clock, worker, other_worker):
        add(store, new := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.start(other_worker.claim_one())
        before = the_run(store, new)

        store.extend_leases([HeldClaim(stale.run_id, stale.token, NOON)], until=NOON + HOUR)
        store.save_progress(stale, progress="1")
        store.complete(stale, now=clock.now())
        worker.record(stale)

        assert the_run(store, new) == before
