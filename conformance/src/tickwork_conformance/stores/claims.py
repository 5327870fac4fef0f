from datetime import timedelta

import pytest

from tickwork._domain.runs.outcome import Failed, Interrupted, Postponed
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork_conformance.builders import (
    ANN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    a_fired_run,
    a_run,
    add,
    crashed,
    ids,
    settled,
    the_run,
)


class TestClaimsClaiming:
    """A claim gives a run to one worker, and to no other, until its lease runs out."""

    def test_a_due_run_goes_to_exactly_one_worker(self, store, worker, other_worker):
        add(store, run := a_run())

        first = worker.claim()
        second = other_worker.claim()

        assert ids(first) == [run.id]
        assert second == []

    def test_an_empty_store_gives_no_claims(self, worker):
        assert worker.claim() == []

    def test_a_claim_has_all_values_that_an_attempt_needs(self, store, worker):
        new = a_fired_run(
            "digest",
            NOON - MINUTE,
            job="resize",
            tenant="acme",
            queue="images",
            due_at=NOON - SECOND,
            expires_at=NOON + HOUR,
            args='{"width": 80}',
            attempts_max=5,
            limit_keys=("job:resize",),
            target="image-42",
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        add(store, new)

        claims = worker.claim(lease=MINUTE)

        assert claims == [
            Claim(
                run_id=new.id,
                job="resize",
                tenant="acme",
                queue="images",
                args='{"width": 80}',
                attempt=1,
                attempts_max=5,
                crashes=0,
                token=1,
                due_at=NOON - SECOND,
                lease_until=NOON + MINUTE,
                postponements=0,
                expires_at=NOON + HOUR,
                schedule="digest",
                nominal_at=NOON - MINUTE,
                limit_keys=("job:resize",),
                target="image-42",
                trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                checkpoint=None,
            )
        ]

    def test_the_run_shows_its_worker_and_the_end_of_its_lease(self, store, worker):
        add(store, new := a_run())

        worker.claim(lease=MINUTE)

        run = the_run(store, new)
        assert (run.status, run.phase) == (RunStatus.RUNNING, Phase.RUNNING)
        assert (run.worker, run.lease_until) == (ANN, NOON + MINUTE)
        assert (run.token, run.attempt) == (1, 1)
        assert run.started_at is None

    def test_a_job_may_have_a_lease_of_its_own(self, store, worker):
        add(store, a_run(job="sweep"), a_run(job="resize"))

        claims = worker.claim(lease=MINUTE, lease_by_job={"resize": HOUR})

        assert [claim.lease_until for claim in claims] == [NOON + MINUTE, NOON + HOUR]

    def test_every_claim_has_a_greater_token(self, store, clock, worker):
        add(store, a_run())
        tokens = []
        for _ in range(3):
            tokens.append(worker.claim_one().token)
            clock.advance(minutes=2)
            worker.reap()

        assert tokens == [1, 2, 3]

    def test_attempts_count_up_from_one(self, store, clock, worker):
        add(store, a_run(attempts_max=3))
        attempts = []
        for _ in range(3):
            claim = worker.claim_one()
            attempts.append(claim.attempt)
            worker.record(claim, Failed("no"))
            clock.advance(minutes=1)
            store.stage(now=clock.now(), limit=10)

        assert attempts == [1, 2, 3]

    def test_the_next_attempt_gets_the_checkpoint_of_the_last_one(self, store, clock, worker):
        add(store, a_run(attempts_max=2))
        claim = worker.claim_one()
        store.save_progress(claim, checkpoint='{"page": 7}')
        worker.record(claim, Postponed("not now"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)

        claim = worker.claim_one()

        assert (claim.checkpoint, claim.postponements, claim.attempt) == ('{"page": 7}', 1, 1)


class TestClaimsOrder:
    """Runs are claimed by priority, then by due time, then by age."""

    def test_a_lower_priority_goes_first(self, store, worker):
        runs = [a_run(priority=priority) for priority in (100, -5, 10, 0)]
        add(store, *runs)

        claims = worker.claim()

        assert ids(claims) == [runs[1].id, runs[3].id, runs[2].id, runs[0].id]

    def test_of_equal_priorities_the_earliest_due_run_goes_first(self, store, worker):
        runs = [a_run(due_at=NOON - seconds * SECOND) for seconds in (1, 3, 2)]
        add(store, *runs)

        claims = worker.claim()

        assert ids(claims) == [runs[1].id, runs[2].id, runs[0].id]

    def test_of_equal_due_times_the_oldest_run_goes_first(self, store, worker):
        runs = [a_run(), a_run(), a_run()]
        add(store, *runs[::-1])

        claims = worker.claim()

        assert ids(claims) == ids(runs)

    def test_a_small_claim_takes_the_first_runs_of_the_order(self, store, worker):
        add(store, *(a_run(priority=50) for _ in range(20)), best := a_run(priority=1))

        claims = worker.claim(1)

        assert ids(claims) == [best.id]


class TestClaimsLimit:
    """A worker gets no more runs than its limit."""

    @pytest.mark.parametrize("limit", [0, 1, 3, 5, 9])
    def test_a_claim_has_no_more_runs_than_its_limit(self, store, worker, limit):
        runs = [a_run() for _ in range(5)]
        add(store, *runs)

        claims = worker.claim(limit)

        assert ids(claims) == ids(runs[:limit])

    def test_the_remaining_runs_go_to_the_next_claim(self, store, worker, other_worker):
        runs = [a_run() for _ in range(5)]
        add(store, *runs)

        assert ids(worker.claim(3)) == ids(runs[:3])
        assert ids(other_worker.claim(3)) == ids(runs[3:])


class TestClaimsQueuesAndJobs:
    """A worker claims runs of its queues and jobs only, wherever they are in the order."""

    def test_a_worker_claims_only_runs_of_its_queues(self, store, worker):
        runs = [a_run(queue=queue) for queue in ("emails", "images", "reports")]
        add(store, *runs)

        claims = worker.claim(queues=("reports", "emails"))

        assert ids(claims) == [runs[0].id, runs[2].id]

    def test_a_worker_claims_only_runs_of_jobs_that_it_knows(self, store, worker):
        runs = [a_run(job=job) for job in ("resize", "sweep", "send_email")]
        add(store, *runs)

        claims = worker.claim(jobs=("sweep", "resize", "unheard_of"))

        assert ids(claims) == [runs[0].id, runs[1].id]

    def test_queue_and_job_must_both_match(self, store, worker):
        add(
            store,
            a_run(queue="emails", job="sweep"),
            both := a_run(queue="emails", job="resize"),
            a_run(queue="images", job="resize"),
        )

        claims = worker.claim(queues=("emails",), jobs=("resize",))

        assert ids(claims) == [both.id]

    @pytest.mark.parametrize("wanted", [{"queues": ()}, {"jobs": ()}], ids=["queue", "job"])
    def test_a_worker_without_queues_or_jobs_claims_nothing(self, store, worker, wanted):
        add(store, a_run())

        assert worker.claim(**wanted) == []

    @pytest.mark.parametrize("wanted", [{"queues": ("Emails",)}, {"jobs": ("Emails",)}])
    def test_names_are_equal_only_letter_by_letter(self, store, worker, wanted):
        add(store, a_run(queue="emails", job="emails"))

        assert worker.claim(**wanted) == []

    @pytest.mark.parametrize(
        "others", [{"queue": "theirs"}, {"job": "theirs"}], ids=["queue", "job"]
    )
    def test_a_backlog_of_other_jobs_does_not_delay_a_claim(self, store, worker, others):
        add(store, *(a_run(priority=1, **others) for _ in range(200)))
        add(store, *(ours := [a_run(priority=50), a_run(priority=50)]))

        claims = worker.claim(2, queues=("default",), jobs=("send_email",))

        assert ids(claims) == ids(ours)

    def test_the_order_holds_across_queues_and_jobs(self, store, worker):
        runs = [
            a_run(priority=priority, queue=f"queue-{priority % 3}", job=f"job-{priority % 4}")
            for priority in range(12)
        ]
        add(store, *runs[::-1])

        claims = worker.claim(
            7,
            queues=("queue-2", "queue-0", "queue-1"),
            jobs=("job-3", "job-0", "job-1", "job-2"),
        )

        assert ids(claims) == ids(runs[:7])

    def test_runs_of_all_tenants_are_in_one_order(self, store, worker):
        runs = [a_run(tenant=tenant) for tenant in ("zoo", "", "acme")]
        add(store, *runs)

        assert ids(worker.claim()) == ids(runs)


class TestClaimsAfterACrash:
    """Runs that may have crashed a worker are claimed one at a time."""

    def test_at_most_one_crashed_run_is_claimed_at_a_time(self, store, clock, worker):
        crashed(store, clock, a_run(), a_run(), a_run())
        add(store, fresh := a_run(priority=500))

        claims = worker.claim()

        assert sum(claim.crashes > 0 for claim in claims) == 1
        assert fresh.id in ids(claims)

    def test_the_other_crashed_runs_are_claimed_later(self, store, clock, worker):
        crashed(store, clock, *(runs := [a_run(), a_run(), a_run()]))

        claims = [claim for _ in range(3) for claim in worker.claim()]

        assert sorted(ids(claims)) == ids(runs)

    def test_a_claim_has_the_number_of_crashes(self, store, clock, worker):
        crashed(store, clock, a_run())

        assert worker.claim_one().crashes == 1


class TestClaimsStarting:
    """A worker that starts a run at once stores the start with the claim."""

    def test_the_start_is_stored_with_the_claim(self, store, clock, worker):
        add(store, run := a_run())
        worker.claim(is_starting=True)

        assert the_run(store, run).started_at == clock.now()

    def test_without_a_start_the_run_has_not_started(self, store, worker):
        add(store, run := a_run())
        worker.claim()

        assert the_run(store, run).started_at is None


class TestClaimsAhead:
    """A worker prefetches only runs that can wait in memory without blocking others."""

    def test_a_run_that_a_second_search_finds_again_is_claimed_once(self, store, worker):
        # The first run finds its limit full, so the claim searches again for one that can start.
        store.set_limits({"job:limited": 1})
        limited = [a_run(limit_keys=("job:limited",), due_at=NOON - HOUR) for _ in range(2)]
        add(store, *limited)
        worker.claim_one()
        add(store, *(plain := [a_run(due_at=NOON - MINUTE + SECOND * n) for n in range(3)]))

        claims = worker.claim(1, ahead=2)

        assert ids(claims) == ids(plain)
        assert [the_run(store, run).token for run in plain] == [1, 1, 1]

    def test_a_plain_run_may_be_claimed_ahead(self, store, worker):
        add(store, run := a_run())

        assert ids(worker.claim(0, ahead=10)) == [run.id]

    def test_a_run_with_a_limit_is_not_prefetched(self, store, worker):
        store.set_limits({"job:send_email": 5})
        add(store, run := a_run(limit_keys=("job:send_email",)))

        assert worker.claim(0, ahead=10) == []
        assert the_run(store, run).phase is Phase.READY

    def test_a_run_that_would_be_blocked_is_not_prefetched(self, store, worker):
        store.set_limits({"job:send_email": 1})
        add(store, *(a_run(limit_keys=("job:send_email",)) for _ in range(2)))
        worker.claim(1)

        worker.claim(0, ahead=10)

        assert store.count_runs().by_phase[Phase.BLOCKED] == 0

    def test_a_run_that_crashed_is_not_prefetched(self, store, clock, worker):
        crashed(store, clock, run := a_run())

        assert worker.claim(0, ahead=10) == []
        assert the_run(store, run).phase is Phase.READY

    def test_a_run_that_was_claimed_before_is_not_prefetched(self, store, clock, worker):
        add(store, run := a_run())
        claim = worker.claim_one()
        store.record([settled(claim, Interrupted(), now=clock.now())])

        assert worker.claim(0, ahead=10) == []
        assert the_run(store, run).phase is Phase.READY

    def test_runs_behind_them_are_prefetched(self, store, worker):
        add(store, *(a_run(priority=1, limit_keys=("job:send_email",)) for _ in range(50)))
        add(store, plain := a_run(priority=50))

        assert ids(worker.claim(0, ahead=1)) == [plain.id]

    def test_some_start_and_others_wait(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(5)]))

        claims = worker.claim(2, ahead=2, is_starting=True)

        assert ids(claims) == ids(runs[:4])
        started = [the_run(store, run).started_at for run in runs]
        assert started == [clock.now(), clock.now(), None, None, None]

    def test_a_run_that_must_not_be_prefetched_may_start(self, store, worker):
        store.set_limits({"job:send_email": 5})
        add(store, *(runs := [a_run(priority=1, limit_keys=("job:send_email",)) for _ in range(3)]))
        add(store, *(plain := [a_run(priority=90) for _ in range(3)]))

        assert ids(worker.claim(1, ahead=2)) == ids([runs[0], *plain[:2]])
        assert {the_run(store, run).phase for run in runs[1:]} == {Phase.READY}

    def test_runs_that_must_not_be_prefetched_do_not_hide_the_others(self, store, worker):
        add(store, *(a_run(priority=1, limit_keys=("job:send_email",)) for _ in range(50)))
        add(store, first := a_run(priority=0), behind := a_run(priority=90))

        assert ids(worker.claim(1, ahead=10)) == ids([first, behind])

    def test_a_run_that_starts_instead_of_a_blocked_one_is_not_prefetched_too(self, store, worker):
        # The first search found it as a run to prefetch; then a slot was free for it.
        store.set_limits({"job:send_email": 1})
        add(store, *(a_run(limit_keys=("job:send_email",), priority=1) for _ in range(2)))
        add(store, *(a_run() for _ in range(4)))

        claims = worker.claim(2, ahead=2)

        assert len(set(ids(claims))) == len(claims)
        assert {claim.token for claim in claims} == {1}
        assert all(the_run(store, claim).token == 1 for claim in claims)

    def test_no_run_is_prefetched_while_slots_are_free(self, store, worker):
        store.set_limits({"job:send_email": 1})
        add(store, *(runs := [a_run(limit_keys=("job:send_email",)) for _ in range(3)]))

        assert ids(worker.claim(2, ahead=2)) == ids(runs[:1])

    def test_leases_of_jobs_apply_to_started_and_prefetched_runs(self, store, clock, worker):
        add(store, a_run(), a_run())

        claims = worker.claim(1, ahead=1, lease_by_job={"send_email": timedelta(hours=1)})

        assert {claim.lease_until for claim in claims} == {clock.now() + timedelta(hours=1)}

    def test_a_run_with_a_limit_may_wait_for_a_moment(self, store, clock, worker):
        store.set_limits({"job:send_email": 5})
        add(store, *(runs := [a_run(limit_keys=("job:send_email",)) for _ in range(5)]))

        claims = worker.claim(2, hold=2, is_starting=True)

        assert ids(claims) == ids(runs[:4])
        started = [the_run(store, run).started_at for run in runs]
        assert started == [clock.now(), clock.now(), None, None, None]

    @pytest.mark.parametrize(("limit", "hold"), [(0, 2), (1, 0), (1, 1), (2, 0), (0, 0), (0, 1)])
    def test_only_as_many_as_have_a_slot_are_stored_as_started(
        self, store, clock, worker, limit, hold
    ):
        add(store, *(runs := [a_run() for _ in range(3)]))

        claims = worker.claim(limit, hold=hold, is_starting=True)

        assert ids(claims) == ids(runs[: limit + hold])
        started = [the_run(store, run).started_at for run in runs]
        assert started == [clock.now()] * limit + [None] * (3 - limit)

    def test_a_held_run_takes_a_slot_of_its_limit(self, store, worker):
        store.set_limits({"job:send_email": 3})
        add(store, *(runs := [a_run(limit_keys=("job:send_email",)) for _ in range(5)]))

        assert ids(worker.claim(1, hold=4)) == ids(runs[:3])
        assert worker.claim(1) == []

    def test_a_run_that_was_claimed_before_must_not_wait(self, store, clock, worker):
        add(store, *(runs := [a_run(), a_run()]))
        for claim in worker.claim():
            store.record([settled(claim, Interrupted(), now=clock.now())])

        assert ids(worker.claim(1, hold=1)) == ids(runs[:1])

    @pytest.mark.parametrize("how", ["ahead", "hold"])
    def test_only_runs_of_allowed_jobs_are_prefetched(self, store, worker, how):
        add(store, *(slow := [a_run(job="slow", priority=1) for _ in range(3)]))
        add(store, *(quick := [a_run(job="quick", priority=90) for _ in range(3)]))

        claims = worker.claim(1, **{how: 5}, may_wait=frozenset({"quick"}))

        assert ids(claims) == ids([slow[0], *quick])
