from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.runs.outcome import (
    ERROR_MAX,
    SUCCEEDED,
    TRACEBACK_MAX,
    Failed,
    JobResult,
    Snoozed,
    Succeeded,
    outcome_of_exception,
    outcome_of_result,
    shorten,
)
from tickwork._payload.codec import encode
from tickwork.errors import Discard, InvalidDuration, RetryLater, Snooze


class TestReturning:
    """A return value is a success, unless it is a failed JobResult."""

    @pytest.mark.parametrize(
        ("returned", "outcome"),
        [
            (None, SUCCEEDED),
            (0, Succeeded("0")),
            (False, Succeeded("false")),
            ({"sent": 3}, Succeeded('{"sent":3}')),
            (JobResult.success(), Succeeded("null")),
            (JobResult.success([1]), Succeeded("[1]")),
            (JobResult.failure("no"), Failed("no")),
            (JobResult.failure("no", should_retry=False), Failed("no", retry=False)),
            (
                JobResult.failure("no", should_retry=True, retry_delay="5m"),
                Failed("no", retry=True, delay=timedelta(minutes=5)),
            ),
            (JobResult.failure("no", retry_delay=90), Failed("no", delay=timedelta(seconds=90))),
        ],
    )
    def test_it_means(self, returned, outcome):
        assert outcome_of_result(returned) == outcome

    def test_a_result_that_cannot_be_stored_does_not_undo_the_work(self):
        outcome = outcome_of_result(object())

        assert isinstance(outcome, Succeeded)
        assert outcome.result is None
        assert outcome.note.startswith("The result was not stored. ")

    def test_nor_does_one_that_is_too_large(self):
        short = partial(encode, size_max=10)

        assert outcome_of_result("x" * 8, encode=short) == Succeeded('"xxxxxxxx"')
        assert outcome_of_result("x" * 9, encode=short)[0] is None

    def test_an_invalid_delay_is_an_error_at_once(self):
        with pytest.raises(InvalidDuration):
            JobResult.failure("no", retry_delay="soon")


class TestRaising:
    """An exception is a failure, unless it is a signal."""

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (ValueError("no"), Failed("ValueError: no")),
            (ValueError(), Failed("ValueError")),
            (RetryLater(30, "busy"), Failed("RetryLater: busy", "", True, timedelta(seconds=30))),
            (RetryLater(), Failed("RetryLater", "", True)),
            (Discard("gone"), Failed("Discard: gone", "", retry=False)),
            (Snooze(60, "not yet"), Snoozed(timedelta(minutes=1), "not yet")),
            (Snooze("1m"), Snoozed(timedelta(minutes=1))),
            (RetryLater("30s"), Failed("RetryLater", "", True, timedelta(seconds=30))),
        ],
    )
    def test_it_means(self, error, outcome):
        if isinstance(outcome, Failed):
            outcome = outcome._replace(exception=error)

        assert outcome_of_exception(error) == outcome

    @pytest.mark.parametrize("signal", [Snooze("soon"), RetryLater("soon")])
    def test_an_invalid_delay_is_a_failure(self, signal):
        outcome = outcome_of_exception(signal)

        assert isinstance(outcome, Failed)
        assert "'soon'" in outcome.error
        assert outcome.retry is None

    def test_the_traceback_is_kept_within_bounds(self):
        outcome = outcome_of_exception(ValueError("x" * 5_000), traceback="y" * 50_000)

        assert isinstance(outcome, Failed)
        assert (len(outcome.error), len(outcome.traceback)) <= (ERROR_MAX, TRACEBACK_MAX)

    def test_an_error_without_a_message_is_still_an_outcome(self):
        class MuteError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        outcome = outcome_of_exception(MuteError())

        assert isinstance(outcome, Failed)
        assert outcome.error.endswith("MuteError: (the message cannot be shown)")


class TestBounds:
    """A stored text has a limit, and fits into every database."""

    @given(st.text(), st.integers(60, 200))
    def test_it_is_never_longer_than_the_limit(self, text, length_max):
        assert len(shorten(text * 20, length_max)) <= length_max

    @given(
        st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=50)
    )
    def test_a_short_text_stays_as_it_is(self, text):
        assert shorten(text, 50) == text

    def test_characters_that_databases_cannot_store_are_escaped(self):
        assert shorten("a\x00b", 50) == "a\\x00b"
        assert shorten("ä\ud800b", 50) == "ä\\ud800b"

    def test_head_and_tail_survive(self):
        kept = shorten("head" + "." * 1_000 + "tail", 100)

        assert kept.startswith("head")
        assert kept.endswith("tail")
        assert " characters … " in kept
