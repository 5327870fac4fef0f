from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.runs.outcome import (
    SUCCEEDED,
    Canceled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    OutcomeKind,
    Postponed,
    Skipped,
    Snoozed,
    Succeeded,
    Suspended,
)
from tickwork._domain.runs.retry import NO_RETRY, Exponential, Fixed, Jitter
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import PHASES, Phase, RunStatus
from tickwork._domain.runs.transitions import (
    EXPIRED,
    Transition,
    reap,
    settle,
    shorten_transition,
    skip_if_expired,
)
from unit.builders import MINUTE, NOON, SECOND, a_claim

TEN_SECONDS = timedelta(seconds=10)
THREE_TIMES = Fixed(attempts_max=3, delay=TEN_SECONDS)


def settled(claim: Claim, outcome: Outcome, **options: Any) -> Transition:
    facts: dict[str, Any] = {"now": NOON, "retry": NO_RETRY, "random": 0.5}
    return settle(claim, outcome, **facts | options)


def due_in(step: Transition) -> timedelta | None:
    return None if step.due_at is None else step.due_at - NOON


class TestSuccess:
    """A run that succeeded is completed, with its result."""

    def test_it_is_completed(self):
        step = settled(a_claim(), Succeeded('{"sent":3}', "a note"), started_at=NOON - SECOND)

        assert (step.to_status, step.due_at) == (RunStatus.COMPLETED, None)
        assert (step.result, step.reason) == ('{"sent":3}', "a note")
        assert (step.started_at, step.ended_at) == (NOON - SECOND, NOON)
        assert (step.uncounted_attempts, step.crash, step.postponements, step.phase) == (
            0,
            0,
            0,
            None,
        )

    def test_a_cancel_that_came_too_late_changes_nothing(self):
        step = settled(a_claim(), SUCCEEDED, is_cancel_requested=True)

        assert step.to_status is RunStatus.COMPLETED

    @pytest.mark.parametrize(
        ("claim", "expected"),
        [
            (a_claim(), False),
            (a_claim(attempt=2, attempts_max=3), True),
            (a_claim(crashes=1), True),
        ],
    )
    def test_only_a_first_attempt_needs_no_row_of_its_own(self, claim, expected):
        assert settled(claim, SUCCEEDED).leaves_attempt is expected


class TestFailure:
    """The maximum wins over the handler, and the handler over the policy."""

    @pytest.mark.parametrize(
        ("retry", "attempt", "failed", "delay"),
        [
            # No policy: an exception is final, a request is granted up to ten attempts.
            (NO_RETRY, 1, Failed("x"), None),
            (NO_RETRY, 1, Failed("x", delay=TEN_SECONDS), None),
            (NO_RETRY, 1, Failed("x", retry=False), None),
            (NO_RETRY, 1, Failed("x", retry=True), timedelta(seconds=60)),
            (NO_RETRY, 2, Failed("x", retry=True), timedelta(seconds=120)),
            (NO_RETRY, 9, Failed("x", retry=True), timedelta(seconds=60 * 2**8)),
            (NO_RETRY, 10, Failed("x", retry=True), None),
            (NO_RETRY, 1, Failed("x", retry=True, delay=TEN_SECONDS), TEN_SECONDS),
            # A policy: it decides, unless the handler says otherwise.
            (THREE_TIMES, 1, Failed("x"), TEN_SECONDS),
            (THREE_TIMES, 1, Failed("x", retry=True), TEN_SECONDS),
            (THREE_TIMES, 1, Failed("x", retry=True, delay=MINUTE), MINUTE),
            (THREE_TIMES, 1, Failed("x", delay=MINUTE), MINUTE),
            (THREE_TIMES, 1, Failed("x", retry=False), None),
            (THREE_TIMES, 2, Failed("x"), TEN_SECONDS),
            (THREE_TIMES, 3, Failed("x"), None),
            (THREE_TIMES, 3, Failed("x", retry=True), None),
            (Fixed(attempts_max=1, delay=MINUTE), 1, Failed("x", retry=True), None),
        ],
    )
    def test_whether_and_when_it_is_tried_again(self, retry, attempt, failed, delay):
        attempts_max = 10 if retry is NO_RETRY and attempt > 1 else retry.attempts_max
        step = settled(a_claim(attempt=attempt, attempts_max=attempts_max), failed, retry=retry)

        assert due_in(step) == delay
        assert step.to_status is (RunStatus.FAILED_PERMANENT if delay is None else RunStatus.FAILED)

    def test_the_random_number_decides_the_jitter(self):
        retry = Exponential(attempts_max=5, base=TEN_SECONDS)

        step = settled(a_claim(attempts_max=5), Failed("x"), retry=retry, random=0.25)

        assert due_in(step) == timedelta(seconds=2.5)

    def test_a_granted_request_shows_in_the_number_of_attempts(self):
        assert settled(a_claim(), Failed("x", retry=True)).attempts_max == 10
        assert settled(a_claim(), Failed("x")).attempts_max is None

    def test_the_rows_own_maximum_counts_not_the_policys(self):
        step = settled(a_claim(attempt=2, attempts_max=2), Failed("x"), retry=THREE_TIMES)

        assert step.to_status is RunStatus.FAILED_PERMANENT

    def test_the_error_is_kept(self):
        step = settled(a_claim(), Failed("ValueError: no", "Traceback"))

        assert (step.outcome, step.reason, step.traceback) == (
            OutcomeKind.FAILED,
            "ValueError: no",
            "Traceback",
        )
        assert step.leaves_attempt

    def test_a_negative_delay_is_due_at_once(self):
        step = settled(a_claim(), Failed("x", retry=True, delay=-MINUTE))

        assert due_in(step) == timedelta(0)
        assert step.phase is Phase.READY

    def test_a_delay_beyond_the_calendar_is_its_end(self):
        step = settled(a_claim(), Failed("x", retry=True, delay=timedelta.max))

        assert step.due_at == datetime.max.replace(tzinfo=UTC)


class TestGivingBack:
    """Who did not fail pays no attempt."""

    def test_a_snoozed_run_is_due_after_its_delay(self):
        step = settled(a_claim(attempt=2, attempts_max=3), Snoozed(MINUTE, "not yet"))

        assert (step.to_status, due_in(step), step.uncounted_attempts) == (
            RunStatus.PENDING,
            MINUTE,
            1,
        )
        assert (step.reason, step.phase) == ("not yet", Phase.WAITING)

    def test_an_interruption_is_due_at_once(self):
        step = settled(a_claim(), Interrupted())

        assert (step.to_status, step.due_at, step.uncounted_attempts) == (
            RunStatus.PENDING,
            NOON,
            1,
        )
        assert step.phase is Phase.READY

    @pytest.mark.parametrize(
        ("postponements", "seconds"),
        [(0, 30), (1, 60), (2, 120), (4, 480), (5, 600), (10_000, 600)],
    )
    def test_a_run_that_a_filter_defers_waits_longer_each_time(self, postponements, seconds):
        step = settled(a_claim(postponements=postponements), Postponed("when options no"))

        assert due_in(step) == timedelta(seconds=seconds)
        assert (step.to_status, step.uncounted_attempts, step.postponements) == (
            RunStatus.PENDING,
            1,
            1,
        )
        assert not step.leaves_attempt

    def test_a_skipped_run_is_finished_with_the_reason(self):
        step = settled(a_claim(), Skipped("skip options so"))

        assert (step.to_status, step.due_at) == (RunStatus.SKIPPED, None)
        assert (step.uncounted_attempts, step.reason, step.leaves_attempt) == (
            1,
            "skip options so",
            False,
        )


class TestAttemptRows:
    """An attempt that was made leaves a row; one that was not leaves none."""

    @pytest.mark.parametrize(
        ("outcome", "started_at", "expected"),
        [
            (Failed("x"), None, True),
            (Snoozed(MINUTE), None, True),
            (Skipped("x"), NOON, False),
            (Postponed("x"), NOON, False),
            (Interrupted(), NOON, True),
            (Interrupted(), None, False),
            (Canceled(), NOON, True),
            (Canceled(), None, False),
            (Crashed("x"), None, True),
            (Crashed("x", has_started=False), NOON, False),
        ],
    )
    def test_which_do(self, outcome, started_at, expected):
        assert settled(a_claim(), outcome, started_at=started_at).leaves_attempt is expected


class TestCanceling:
    """A cancelled run gets no further attempt, whatever the outcome of this one."""

    def test_it_is_canceled(self):
        step = settled(a_claim(), Canceled("by ann"))

        assert (step.to_status, step.due_at, step.reason) == (RunStatus.CANCELED, None, "by ann")

    @pytest.mark.parametrize(
        "outcome",
        [Failed("x", retry=True), Snoozed(MINUTE), Interrupted(), Postponed("x"), Crashed("x")],
        ids=lambda outcome: type(outcome).__name__,
    )
    def test_a_canceled_run_gets_no_further_attempt(self, outcome):
        step = settled(a_claim(), outcome, is_cancel_requested=True)

        assert (step.to_status, step.due_at) == (RunStatus.CANCELED, None)

    def test_a_last_failure_stays_a_failure(self):
        step = settled(a_claim(), Failed("x"), is_cancel_requested=True)

        assert step.to_status is RunStatus.FAILED_PERMANENT


class TestExpiring:
    """An expired run is skipped, with a reason."""

    def test_it_may_start_up_to_its_last_moment(self):
        claim = a_claim(expires_at=NOON)

        assert skip_if_expired(claim, now=NOON) is None
        assert skip_if_expired(claim, now=NOON + SECOND) == Skipped(EXPIRED)
        assert skip_if_expired(a_claim(), now=NOON) is None

    @pytest.mark.parametrize(
        ("outcome", "status"),
        [
            (Snoozed(MINUTE), RunStatus.SKIPPED),
            (Postponed("when options no"), RunStatus.SKIPPED),
            (Failed("no", retry=True), RunStatus.FAILED_PERMANENT),
        ],
    )
    def test_a_run_that_could_only_start_too_late_ends_now(self, outcome, status):
        step = settled(a_claim(expires_at=NOON + SECOND), outcome)

        assert (step.to_status, step.due_at, step.attempts_max) == (status, None, None)
        assert step.reason.endswith(EXPIRED)

    def test_a_run_that_can_still_start_continues(self):
        step = settled(a_claim(expires_at=NOON + MINUTE), Snoozed(MINUTE))

        assert step.to_status is RunStatus.PENDING


class TestCrashing:
    """A crash costs a crash and not an attempt; three of them are enough."""

    def test_the_run_is_due_again_at_once(self):
        step = settled(a_claim(attempt=2, attempts_max=2), Crashed("killed"))

        assert (step.to_status, step.due_at) == (RunStatus.PENDING, NOON)
        assert (step.crash, step.uncounted_attempts, step.leaves_attempt) == (1, 1, True)

    def test_the_third_is_the_last(self):
        step = settled(a_claim(crashes=2), Crashed("killed"))

        assert (step.to_status, step.due_at) == (RunStatus.FAILED_PERMANENT, None)
        assert step.reason == "The worker died 3 times during this run. killed"

    def test_a_job_may_allow_another_number(self):
        step = settled(a_claim(crashes=2), Crashed("killed"), crashes_max=4)

        assert step.to_status is RunStatus.PENDING

    def test_a_run_that_had_not_started_is_not_charged(self):
        step = settled(a_claim(crashes=2), Crashed("killed", has_started=False))

        assert (step.to_status, step.crash, step.uncounted_attempts) == (RunStatus.PENDING, 0, 1)

    def test_a_lease_that_ended_is_a_crash(self):
        claim = a_claim(lease_until=NOON, crashes=1)

        step = reap(claim, has_started=True, now=NOON)

        assert (step.to_status, step.crash, step.uncounted_attempts) == (RunStatus.PENDING, 1, 1)
        assert reap(claim, has_started=False, now=NOON).crash == 0
        assert reap(claim, has_started=True, now=NOON, crashes_max=2).is_final
        assert (
            reap(claim, has_started=True, now=NOON, is_cancel_requested=True).to_status
            is RunStatus.CANCELED
        )

    def test_a_lease_that_holds_is_not_reaped(self):
        with pytest.raises(AssertionError):
            reap(a_claim(lease_until=NOON + SECOND), has_started=True, now=NOON)


REASONS = st.sampled_from(["", "because"])
DELAYS = st.timedeltas()
OUTCOMES = st.one_of(
    st.builds(Succeeded, st.none() | st.just("{}")),
    st.builds(Failed, REASONS, REASONS, st.none() | st.booleans(), st.none() | DELAYS),
    st.builds(Snoozed, DELAYS, REASONS),
    st.builds(Suspended, st.sampled_from([NOON, NOON + MINUTE]), REASONS),
    st.builds(Skipped, REASONS),
    st.builds(Postponed, REASONS),
    st.builds(Interrupted, REASONS),
    st.builds(Canceled, REASONS),
    st.builds(Crashed, REASONS, st.booleans()),
)
CLAIMS = st.builds(
    lambda attempt, more, **options: a_claim(
        attempt=attempt, attempts_max=attempt + more, **options
    ),
    attempt=st.integers(1, 20),
    more=st.integers(0, 5),
    crashes=st.integers(0, 5),
    postponements=st.integers(0, 100),
    expires_at=st.none() | st.just(NOON) | st.just(NOON + MINUTE),
)
RETRIES = (
    st.just(NO_RETRY)
    | st.just(THREE_TIMES)
    | st.builds(Exponential, attempts_max=st.integers(1, 20), jitter=st.sampled_from(Jitter))
)


class TestEveryTransition:
    """Whatever the outcome of an attempt, the step is one that the tables allow."""

    @given(CLAIMS, OUTCOMES, RETRIES, st.floats(0, 1, exclude_max=True), st.booleans())
    def test_it_is_a_step_out_of_running(self, claim, outcome, retry, random, is_canceled):
        step = settled(claim, outcome, retry=retry, random=random, is_cancel_requested=is_canceled)

        assert RunStatus.RUNNING.can_transition_to(step.to_status)
        assert step.is_final == step.to_status.is_final == (step.due_at is None)
        assert step.due_at is None or step.due_at >= NOON
        assert step.phase is None or step.phase in PHASES[step.to_status]
        # The row after the step: no count below zero, and room for the next attempt.
        used = claim.attempt - step.uncounted_attempts
        assert used >= 0
        if not step.is_final:
            assert used < (step.attempts_max or claim.attempts_max)

    @given(CLAIMS, OUTCOMES, RETRIES)
    def test_shortened_it_stays_what_it_is(self, claim, outcome, retry):
        step = settled(claim, outcome, retry=retry)

        short = shorten_transition(step, "The database rejected a value (22003).")

        assert short.is_short
        assert short._replace(result=None, reason="", traceback="") == step._replace(
            result=None, reason="", traceback=""
        )
        assert short.reason.endswith("not stored. The database rejected a value (22003).")

    @pytest.mark.parametrize("text", ["✓" * 1000, "x" * 5000, "\x00", "\ud800"])
    def test_a_long_or_odd_reason_is_shortened(self, text):
        step = settled(a_claim(), Failed(text, traceback=text))

        short = shorten_transition(step, "why")

        assert short.is_short
        assert short.reason.startswith(("\\u2713", "x", "\\x00", "\\ud800"))

    def test_both_ends_of_a_run_that_its_handler_completed_are_shortened(self):
        failed = settled(a_claim(), Failed("✓"))
        step = settled(a_claim(), Succeeded('"✓"'))._replace(if_rolled_back=failed)

        short = shorten_transition(step, "why")

        assert short.if_rolled_back is not None
        assert short.if_rolled_back.is_short
        assert short.if_rolled_back.to_status is RunStatus.FAILED_PERMANENT

    def test_every_outcome_has_its_own_name(self):
        examples: list[Outcome] = [
            SUCCEEDED,
            Failed("x"),
            Snoozed(MINUTE),
            Suspended(NOON + MINUTE),
            Skipped("x"),
            Postponed("x"),
            Interrupted(),
            Canceled(),
            Crashed("x"),
        ]

        assert {type(example) for example in examples} == set(get_args(Outcome))
        assert {settled(a_claim(), example).outcome for example in examples} == set(OutcomeKind)
