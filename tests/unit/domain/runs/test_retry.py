from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._domain.runs.retry import (
    ANY_ERROR,
    NO_RETRY,
    RETRY_LATER_POLICY,
    Delays,
    Exponential,
    Fixed,
    Jitter,
    RetryErrors,
)
from tickwork.errors import InvalidOption

LENGTHS = st.timedeltas(min_value=timedelta(0))
RANDOM = st.floats(0, 1, exclude_max=True)
EXPONENTIAL = st.builds(
    Exponential,
    attempts_max=st.integers(1, 100),
    base=LENGTHS,
    cap=LENGTHS,
    jitter=st.sampled_from(Jitter),
)
POLICIES = (
    EXPONENTIAL
    | st.builds(Fixed, attempts_max=st.integers(1, 100), delay=LENGTHS)
    | st.just(NO_RETRY)
)


def seconds(policy: Fixed | Exponential, attempts: int, random: float = 0.5) -> list[float]:
    return [
        policy.delay_after(attempt, random).total_seconds() for attempt in range(1, attempts + 1)
    ]


class TestDelays:
    """A delay doubles from base to cap; with full jitter it is a random part of that."""

    def test_it_doubles_up_to_the_cap(self):
        policy = Exponential(
            attempts_max=9,
            base=timedelta(seconds=2),
            cap=timedelta(seconds=20),
            jitter=Jitter.NONE,
        )

        assert seconds(policy, 5) == [2, 4, 8, 16, 20]

    def test_full_jitter_takes_a_part_of_it(self):
        policy = Exponential(attempts_max=9)

        assert seconds(policy, 4, random=0.25) == [0.25, 0.5, 1, 2]

    def test_a_base_above_the_cap_is_the_cap(self):
        policy = Exponential(attempts_max=2, base=timedelta(minutes=5), jitter=Jitter.NONE)

        assert seconds(policy, 1) == [60]

    def test_a_fixed_one_stays_the_same(self):
        assert seconds(Fixed(attempts_max=3, delay=timedelta(seconds=7)), 3) == [7, 7, 7]

    def test_on_request_it_is_one_minute_doubling_for_ten_attempts(self):
        assert seconds(RETRY_LATER_POLICY, 9) == [60 * 2**doublings for doublings in range(9)]
        assert RETRY_LATER_POLICY.attempts_max == 10

    @given(st.timedeltas(timedelta(0), timedelta(days=1)), st.integers(1, 12))
    def test_without_jitter_it_is_exact(self, base, attempt):
        policy = Exponential(attempts_max=2, base=base, cap=timedelta.max, jitter=Jitter.NONE)

        assert policy.delay_after(attempt, 0.5) == base * 2 ** (attempt - 1)

    @given(EXPONENTIAL, st.integers(1, 32_767), RANDOM)
    def test_it_is_never_negative_and_never_above_the_cap(self, policy, attempt, random):
        assert timedelta(0) <= policy.delay_after(attempt, random) <= policy.cap

    @given(EXPONENTIAL, st.integers(1, 1_000), RANDOM)
    def test_it_never_shrinks_from_attempt_to_attempt(self, policy, attempt, random):
        assert policy.delay_after(attempt, random) <= policy.delay_after(attempt + 1, random)


class TestPolicies:
    """A policy checks its values."""

    def test_without_one_there_is_one_attempt(self):
        assert NO_RETRY.attempts_max == 1

    @pytest.mark.parametrize("attempts_max", [0, -1, 32_768])
    def test_the_number_of_attempts_has_limits(self, attempts_max):
        with pytest.raises(InvalidOption, match="must be between 1 and"):
            Exponential(attempts_max=attempts_max)

    def test_a_delay_cannot_be_negative(self):
        with pytest.raises(InvalidOption, match="negative"):
            Fixed(attempts_max=2, delay=timedelta(seconds=-1))
        with pytest.raises(InvalidOption, match="negative"):
            Exponential(attempts_max=2, cap=timedelta(seconds=-1))


class TestListedDelays:
    """A list of delays replaces the formula; the last one repeats."""

    def test_the_last_delay_repeats(self):
        policy = Delays(attempts_max=6, delays=(timedelta(seconds=1), timedelta(seconds=5)))

        assert [policy.delay_after(n, 0.9).total_seconds() for n in range(1, 6)] == [1, 5, 5, 5, 5]

    @pytest.mark.parametrize("delays", [(), (timedelta(seconds=-1),)])
    def test_invalid_delays_are_refused(self, delays):
        with pytest.raises(InvalidOption, match="delays"):
            Delays(attempts_max=2, delays=delays)


class TestErrorsToRetry:
    """Exception types decide whether a failed attempt is retried at all."""

    @pytest.mark.parametrize(
        ("errors", "error", "is_final"),
        [
            (ANY_ERROR, ValueError(), False),
            (RetryErrors(only=(OSError,)), ConnectionResetError(), False),
            (RetryErrors(only=(OSError,)), ValueError(), True),
            (RetryErrors(never=(ValueError,)), UnicodeError(), True),
            (RetryErrors(never=(ValueError,)), OSError(), False),
            (RetryErrors(only=(OSError,), never=(ConnectionError,)), ConnectionError(), True),
            (RetryErrors(only=(OSError,), never=(ConnectionError,)), TimeoutError(), False),
        ],
    )
    def test_the_types_decide(self, errors, error, is_final):
        assert errors.is_final(error) is is_final
