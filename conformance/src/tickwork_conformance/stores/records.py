import pytest

from tickwork._domain.runs.outcome import (
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
)
from tickwork._domain.runs.retry import NO_RETRY
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores.contract import Attempt, HeartbeatResult, JobRow
from tickwork_conformance.builders import (
    ANN,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    UNKNOWN_ID,
    a_run,
    add,
    all_runs,
    ids,
    settled,
    the_run,
)


class TestRecordsEnds:
    """A final transition moves the run to the history, with all its fields."""

    def test_a_run_that_succeeded(self, store, clock, worker):
        new = a_run(
            tags=("paid",), target="image-42", args='{"to": "ann"}', overlap_key="held:digest"
        )
        add(store, new)
        claim = worker.claim_one()
        clock.advance(seconds=3)

        lost = worker.record(claim, Succeeded('{"sent": true}'), started_at=NOON + SECOND)

        run = the_run(store, new)
        assert lost == []
        assert (run.status, run.phase) == (RunStatus.COMPLETED, None)
        assert (run.result, run.reason) == ('{"sent": true}', "")
        assert (run.started_at, run.ended_at) == (NOON + SECOND, NOON + 3 * SECOND)
        assert (run.worker, run.token, run.attempt) == (ANN, 1, 1)
        assert (run.lease_until, run.blocked_on, run.overlap_key) == (None, None, None)
        assert (run.created_at, run.due_at) == (NOON, NOON)
        assert (run.args, run.tags, run.target) == ('{"to": "ann"}', ("paid",), "image-42")

    @pytest.mark.parametrize(
        ("outcome", "status", "attempt"),
        [
            (Failed("KeyError: 'to'"), RunStatus.FAILED_PERMANENT, 1),
            (Skipped("KeyError: 'to'"), RunStatus.SKIPPED, 0),
            (Canceled("KeyError: 'to'"), RunStatus.CANCELED, 1),
            (Succeeded(note="KeyError: 'to'"), RunStatus.COMPLETED, 1),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_run_that_did_not_succeed_has_the_reason(
        self, store, worker, outcome, status, attempt
    ):
        add(store, new := a_run())
        claim = worker.claim_one()

        worker.record(claim, outcome)

        run = the_run(store, new)
        assert (run.status, run.reason) == (status, "KeyError: 'to'")
        assert (run.attempt, run.result, run.ended_at) == (attempt, None, NOON)
        assert run.outcome == settled(claim, outcome).outcome

    def test_a_run_that_has_ended_is_not_claimed_again(self, store, worker, other_worker):
        add(store, a_run())
        worker.run()

        assert other_worker.claim() == []

    def test_an_empty_record(self, store):
        assert store.record([]) == []

    def test_large_and_unusual_texts_are_stored(self, store, worker):
        add(store, new := a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("🦀" * 2_000, "ä" * 16_000, retry=False))

        story = store.run_record(new.id)

        assert story.run.reason == "🦀" * 2_000
        assert story.attempts[0].traceback == "ä" * 16_000

    def test_the_start_that_a_heartbeat_stored_is_kept(self, store, worker):
        add(store, new := a_run())
        claim = worker.claim_one()
        worker.start(claim)

        worker.record(claim)

        assert the_run(store, new).started_at == NOON


class TestRecordsUnfinishedRuns:
    """Any other transition makes the run wait or become ready again."""

    def test_a_run_that_failed_waits_for_its_retry(self, store, worker):
        add(store, new := a_run(attempts_max=3))
        claim = worker.claim_one()
        worker.start(claim)

        worker.record(claim, Failed("no route"))

        run = the_run(store, new)
        assert (run.status, run.phase) == (RunStatus.FAILED, Phase.WAITING)
        assert (run.due_at, run.reason) == (NOON + MINUTE, "no route")
        assert (run.attempt, run.attempts_max, run.token) == (1, 3, 1)
        assert (run.lease_until, run.worker, run.started_at) == (None, None, None)
        assert (run.ended_at, run.result) == (None, None)

    @pytest.mark.parametrize(
        ("outcome", "phase", "counters"),
        [
            (Snoozed(HOUR), Phase.WAITING, (0, 0, 0)),
            (Postponed("not now"), Phase.WAITING, (0, 0, 1)),
            (Interrupted(), Phase.READY, (0, 0, 0)),
            (Crashed("it died"), Phase.READY, (0, 1, 0)),
            (Crashed("it died", has_started=False), Phase.READY, (0, 0, 0)),
        ],
        ids=["snoozed", "put off", "interrupted", "crashed", "never started"],
    )
    def test_an_attempt_that_does_not_count_is_subtracted(
        self, store, worker, outcome, phase, counters
    ):
        add(store, new := a_run())

        worker.record(worker.claim_one(), outcome)

        run = the_run(store, new)
        assert (run.status, run.phase) == (RunStatus.PENDING, phase)
        assert (run.attempt, run.crashes, run.postponements) == counters

    def test_a_run_that_is_due_at_once_can_be_claimed_at_once(self, store, worker):
        add(store, run := a_run())
        worker.record(worker.claim_one(), Interrupted())

        assert ids(worker.claim()) == [run.id]

    def test_a_waiting_run_cannot_be_claimed(self, store, worker):
        add(store, a_run())
        worker.record(worker.claim_one(), Snoozed(SECOND))

        assert worker.claim() == []

    def test_counters_add_up(self, store, clock, worker):
        add(store, new := a_run())
        for _ in range(3):
            worker.record(worker.claim_one(), Postponed("not now"))
            clock.advance(hours=1)
            store.stage(now=clock.now(), limit=1)

        run = the_run(store, new)
        assert (run.postponements, run.attempt, run.token) == (3, 0, 3)

    def test_a_handler_that_requests_a_retry_gets_more_attempts(self, store, worker):
        add(store, new := a_run(attempts_max=1))

        worker.record(worker.claim_one(), Failed("no", retry=True), retry=NO_RETRY)

        run = the_run(store, new)
        assert (run.status, run.attempt, run.attempts_max) == (RunStatus.FAILED, 1, 10)

    def test_its_age_and_priority_stay_as_they_were(self, store, worker):
        add(store, new := a_run(priority=7, tags=("paid",), attempts_max=2))

        worker.record(worker.claim_one(), Failed("no"))

        run = the_run(store, new)
        assert (run.created_at, run.priority, run.tags) == (NOON, 7, ("paid",))

    def test_the_next_success_clears_the_reason(self, store, clock, worker):
        add(store, new := a_run(attempts_max=2))
        worker.record(worker.claim_one(), Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=1)

        worker.record(worker.claim_one())

        run = the_run(store, new)
        assert (run.status, run.attempt, run.reason) == (RunStatus.COMPLETED, 2, "")


class TestRecordsLostClaims:
    """A transition whose claim was lost is not written. The store returns the id of its run."""

    def test_the_run_was_taken_back(self, store, clock, worker):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()

        assert worker.record(stale) == [run.id]
        assert the_run(store, run).status is RunStatus.PENDING

    def test_another_worker_has_claimed_it(self, store, clock, worker, other_worker):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.claim_one()

        assert worker.record(stale, Succeeded('"mine"')) == [run.id]
        assert the_run(store, run).status is RunStatus.RUNNING

    def test_another_worker_has_finished_it(self, store, clock, worker, other_worker):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.record(other_worker.claim_one(), Succeeded('"theirs"'))

        assert worker.record(stale, Succeeded('"mine"')) == [run.id]
        assert the_run(store, run).result == '"theirs"'

    @pytest.mark.parametrize("may_be_stored", [False, True])
    @pytest.mark.parametrize("limit_keys", [(), ("job:send_email",)])
    def test_a_reaper_has_ended_it_under_the_same_token(
        self, store, clock, worker, limit_keys, may_be_stored
    ):
        store.set_limits({"job:send_email": 1})
        add(store, run := a_run(limit_keys=limit_keys))
        stale = worker.claim_one()
        store.cancel(run.id, now=clock.now())
        clock.advance(minutes=2)
        worker.reap()
        jobs = store.list_jobs()

        assert store.record([settled(stale)], may_be_stored=may_be_stored) == [run.id]
        assert the_run(store, run).status is RunStatus.CANCELED
        assert store.list_jobs() == jobs

    def test_an_unknown_run(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()._replace(run_id=UNKNOWN_ID)

        assert worker.record(claim) == [UNKNOWN_ID]
        assert store.get_run(UNKNOWN_ID) is None

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), Failed("no", retry=False), Failed("no"), Snoozed(MINUTE), Skipped("no")],
        ids=str,
    )
    def test_a_lost_outcome_changes_nothing(self, store, clock, worker, outcome):
        add(store, run := a_run(attempts_max=3))
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        before = store.run_record(run.id), store.list_jobs()

        lost = worker.record(stale, outcome)

        assert lost == [run.id]
        assert (store.run_record(run.id), store.list_jobs()) == before

    def test_the_others_of_its_batch_are_written(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(4)]))
        stale = worker.claim(2, lease=MINUTE)
        good = worker.claim(2, lease=HOUR)
        clock.advance(minutes=2)
        worker.reap()

        lost = store.record([settled(claim) for claim in (stale[0], good[0], stale[1], good[1])])

        assert lost == ids(runs[:2])
        assert [the_run(store, run).status for run in runs[2:]] == [RunStatus.COMPLETED] * 2

    def test_an_outcome_under_an_expired_lease_is_written_until_the_run_is_reaped(
        self, store, clock, worker
    ):
        add(store, run := a_run())
        claim = worker.claim_one(lease=MINUTE)
        clock.advance(hours=1)

        assert worker.record(claim) == []
        assert the_run(store, run).status is RunStatus.COMPLETED


class TestRecordsBatches:
    """One batch can have transitions of all kinds."""

    def test_each_run_of_a_batch_gets_its_own_status(self, store, worker):
        outcomes: list[Outcome] = [
            Succeeded("1"),
            Failed("no"),
            Failed("no", retry=False),
            Snoozed(HOUR),
            Skipped("not today"),
            Interrupted(),
            Canceled(),
        ]
        add(store, *(runs := [a_run(attempts_max=2) for _ in outcomes]))
        claims = worker.claim()

        lost = store.record(
            [settled(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
        )

        assert lost == []
        assert [the_run(store, run).status for run in runs] == [
            RunStatus.COMPLETED,
            RunStatus.FAILED,
            RunStatus.FAILED_PERMANENT,
            RunStatus.PENDING,
            RunStatus.SKIPPED,
            RunStatus.PENDING,
            RunStatus.CANCELED,
        ]

    def test_hundreds_at_once(self, store, worker):
        add(store, *(a_run() for _ in range(500)))
        claims = worker.claim(500)

        assert store.record([settled(claim) for claim in claims]) == []
        assert {run.status for run in all_runs(store)} == {RunStatus.COMPLETED}


class TestRecordsAttempts:
    """An attempt is stored, unless the row of the run has all its values."""

    def test_the_success_of_a_first_attempt_needs_no_row(self, store, worker):
        add(store, run := a_run())
        worker.run()

        assert store.run_record(run.id).attempts == []

    def test_a_failed_attempt_is_kept_with_its_error(self, store, clock, worker):
        add(store, run := a_run(attempts_max=2))
        claim = worker.claim_one()
        clock.advance(seconds=2)

        worker.record(claim, Failed("no route", "Traceback …"), started_at=NOON + SECOND)

        assert store.run_record(run.id).attempts == [
            Attempt(
                run_id=run.id,
                token=1,
                attempt=1,
                outcome="failed",
                started_at=NOON + SECOND,
                ended_at=NOON + 2 * SECOND,
                error="no route",
                traceback="Traceback …",
                worker=ANN,
            )
        ]

    def test_the_record_lists_attempts_in_order(self, store, clock, worker):
        add(store, run := a_run(attempts_max=3))
        for outcome in (Failed("first"), Snoozed(MINUTE, "later"), Failed("second"), Succeeded()):
            worker.record(worker.claim_one(), outcome)
            clock.advance(minutes=1)
            store.stage(now=clock.now(), limit=1)

        attempts = store.run_record(run.id).attempts

        assert [(one.token, one.attempt, one.outcome, one.error) for one in attempts] == [
            (1, 1, "failed", "first"),
            (2, 2, "snoozed", "later"),
            (3, 2, "failed", "second"),
            (4, 3, "succeeded", ""),
        ]

    @pytest.mark.parametrize(
        "outcome", [Skipped("no"), Postponed("no")], ids=["skipped", "postponed"]
    )
    def test_without_an_attempt_there_is_no_row(self, store, worker, outcome):
        add(store, run := a_run())
        worker.record(worker.claim_one(), outcome)

        assert store.run_record(run.id).attempts == []

    def test_the_start_that_a_heartbeat_stored_is_kept(self, store, worker):
        add(store, run := a_run(attempts_max=2))
        claim = worker.claim_one()
        worker.start(claim)

        worker.record(claim, Failed("no"))

        assert store.run_record(run.id).attempts[0].started_at == NOON


class TestRecordsJobRows:
    """The row of a job has its last run, its last success and its last error."""

    def test_a_success(self, store, worker):
        add(store, a_run())
        worker.run()

        assert store.list_jobs() == [
            JobRow("", "send_email", last_run_at=NOON, last_success_at=NOON)
        ]

    def test_an_error(self, store, worker):
        add(store, a_run())
        worker.record(worker.claim_one(), Failed("no route"))

        assert store.list_jobs() == [
            JobRow(
                "",
                "send_email",
                last_run_at=NOON,
                last_error_at=NOON,
                last_error="no route",
                failures=1,
            )
        ]

    def test_errors_in_a_row_are_counted_across_runs_and_attempts(self, store, worker):
        add(store, a_run(attempts_max=2), a_run(), a_run())
        for claim in worker.claim():
            worker.record(claim, Failed("no"))

        assert store.list_jobs()[0].failures == 3

    def test_a_crash_is_an_error(self, store, clock, worker):
        add(store, a_run())
        worker.start(worker.claim_one())
        clock.advance(minutes=2)
        worker.reap()

        [job] = store.list_jobs()
        assert (job.failures, job.last_error_at) == (1, NOON + 2 * MINUTE)
        assert "lease" in job.last_error

    def test_a_success_resets_the_failures_and_keeps_the_last_error(self, store, clock, worker):
        add(store, a_run(), a_run())
        first, second = worker.claim()
        worker.record(first, Failed("no route"))
        clock.advance(minutes=1)
        worker.record(second)

        [job] = store.list_jobs()
        assert (job.failures, job.last_error, job.last_error_at) == (0, "no route", NOON)
        assert (job.last_run_at, job.last_success_at) == (NOON + MINUTE, NOON + MINUTE)

    def test_within_one_batch_the_last_end_counts(self, store, worker):
        add(store, *(a_run() for _ in range(4)))
        first, second, third, fourth = worker.claim()

        store.record(
            [
                settled(fourth, Failed("fourth"), now=NOON + 4 * SECOND),
                settled(second, Succeeded(), now=NOON + 2 * SECOND),
                settled(first, Failed("first"), now=NOON + SECOND),
                settled(third, Failed("third"), now=NOON + 3 * SECOND),
            ]
        )

        assert store.list_jobs() == [
            JobRow(
                "",
                "send_email",
                last_run_at=NOON + 4 * SECOND,
                last_success_at=NOON + 2 * SECOND,
                last_error_at=NOON + 4 * SECOND,
                last_error="fourth",
                failures=2,
            )
        ]

    def test_a_canceled_run_only_changes_the_last_run(self, store, worker):
        add(store, a_run())
        worker.record(worker.claim_one(), Canceled("enough"))

        assert store.list_jobs() == [JobRow("", "send_email", last_run_at=NOON)]

    @pytest.mark.parametrize(
        "outcome",
        [Skipped("no"), Postponed("no"), Interrupted(), Snoozed(MINUTE)],
        ids=lambda outcome: type(outcome).__name__,
    )
    def test_an_outcome_that_is_neither_success_nor_failure_changes_nothing(
        self, store, worker, outcome
    ):
        add(store, a_run())
        worker.record(worker.claim_one(), outcome)

        assert store.list_jobs() == []

    def test_a_worker_may_update_the_row_later(self, store, clock, worker):
        add(store, a_run(), a_run())
        first = settled(worker.claim_one(), now=clock.now())
        second = settled(worker.claim_one(), now=clock.now() + MINUTE)

        store.record([first], touches_jobs=False)
        store.record([second], touches_jobs=False)
        assert [row.last_run_at for row in store.list_jobs()] == []
        store.touch_jobs([first, second])

        [row] = store.list_jobs()
        assert (row.last_run_at, row.last_success_at) == (NOON + MINUTE, NOON + MINUTE)
        store.touch_jobs([first])
        assert store.list_jobs() == [row]

    def test_each_tenant_and_job_has_its_own_row(self, store, worker):
        add(store, a_run(tenant="acme"), a_run(tenant="zoo"), a_run(job="sweep"))
        first, second, third = worker.claim()
        store.record([settled(first), settled(second, Failed("no")), settled(third)])

        assert [(job.tenant, job.name, job.failures) for job in store.list_jobs()] == [
            ("", "sweep", 0),
            ("acme", "send_email", 0),
            ("zoo", "send_email", 1),
        ]
        assert [job.name for job in store.list_jobs(tenant="acme")] == ["send_email"]


class TestRecordsCompleting:
    """A handler can complete its run in the transaction of its own writes."""

    def test_the_run_is_completed(self, store, clock, worker):
        add(store, new := a_run())
        claim = worker.claim_one()
        worker.start(claim)
        clock.advance(seconds=5)

        assert store.complete(claim, now=clock.now(), result='"done"')

        run = the_run(store, new)
        assert (run.status, run.phase, run.result) == (RunStatus.COMPLETED, None, '"done"')
        assert (run.started_at, run.ended_at) == (NOON, NOON + 5 * SECOND)
        assert (run.worker, run.token, run.attempt) == (ANN, 1, 1)

    def test_completing_does_not_change_the_row_of_the_job(self, store, clock, worker):
        add(store, a_run())
        store.complete(worker.claim_one(), now=clock.now())

        assert store.list_jobs() == []

    @pytest.mark.parametrize("is_claimed_again", [False, True], ids=["taken back", "claimed"])
    def test_a_claim_that_was_lost_completes_nothing(
        self, store, clock, worker, other_worker, is_claimed_again
    ):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        if is_claimed_again:
            other_worker.claim_one()

        assert not store.complete(stale, now=clock.now())
        assert not the_run(store, run).is_finished

    def test_a_run_that_another_has_finished_is_left_as_it_is(
        self, store, clock, worker, other_worker
    ):
        add(store, run := a_run())
        stale = worker.claim_one()
        clock.advance(minutes=2)
        worker.reap()
        other_worker.record(other_worker.claim_one(), Succeeded('"theirs"'))

        assert not store.complete(stale, now=clock.now(), result='"mine"')
        assert the_run(store, run).result == '"theirs"'

    @pytest.mark.parametrize("by", ["complete", "record"])
    def test_a_run_is_completed_once(self, store, clock, worker, by):
        add(store, a_run())
        claim = worker.claim_one()
        if by == "complete":
            store.complete(claim, now=clock.now())
        else:
            worker.record(claim)
        before = the_run(store, claim)
        clock.advance(minutes=1)

        assert not store.complete(claim, now=clock.now(), result='"again"')
        assert the_run(store, claim) == before

    def test_a_completed_run_is_unknown_to_heartbeats(self, store, clock, worker):
        add(store, a_run())
        claim = worker.claim_one()
        store.complete(claim, now=clock.now())

        assert worker.beat(claim) == HeartbeatResult([], [])
