"""Retry policies: how many attempts a run has, how long it waits, and after which errors."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from tickwork._domain.ranges import Range
from tickwork.errors import InvalidOption

ATTEMPTS_LIMIT: Final = 32_767
"""The most attempts of a run: what a small integer column can hold."""

ATTEMPTS_RANGE: Final = Range(
    1, ATTEMPTS_LIMIT, fix="It counts all attempts, the first one included."
)

_MICROSECOND: Final = timedelta(microseconds=1)


class Jitter(StrEnum):
    """How delays are randomized, so that runs that failed together do not retry together."""

    FULL = "full"  # a random part of the delay
    NONE = "none"


def _check_attempts(attempts_max: object) -> None:
    if not isinstance(attempts_max, int):
        raise InvalidOption("attempts", attempts_max, "must be an integer")
    ATTEMPTS_RANGE.check("attempts", attempts_max)


def _check_length(option: str, length: timedelta) -> None:
    if length < timedelta(0):
        raise InvalidOption(option, length, "must not be negative")


@dataclass(frozen=True, slots=True)
class NoRetry:
    """No retry policy: an exception is final, unless the handler raises RetryLater."""

    attempts_max: int = field(default=1, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same delay after every failed attempt."""

    attempts_max: int
    delay: timedelta

    def __post_init__(self) -> None:
        _check_attempts(self.attempts_max)
        _check_length("delay", self.delay)

    def delay_after(self, attempt: int, random: float) -> timedelta:  # noqa: ARG002  # the signature of Exponential
        assert attempt >= 1, attempt
        return self.delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """The delay doubles from ``base`` up to ``cap``. Full jitter takes a random part of it.

    >>> policy = Exponential(attempts_max=5, jitter=Jitter.NONE)
    >>> [policy.delay_after(attempt, 0.0).seconds for attempt in range(1, 9)]
    [1, 2, 4, 8, 16, 32, 60, 60]
    """

    attempts_max: int
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(seconds=60)
    jitter: Jitter = Jitter.FULL

    def __post_init__(self) -> None:
        _check_attempts(self.attempts_max)
        _check_length("base", self.base)
        _check_length("cap", self.cap)

    def delay_after(self, attempt: int, random: float) -> timedelta:
        """The delay after this attempt failed. ``random`` is in [0, 1)."""
        assert attempt >= 1, attempt
        assert 0.0 <= random < 1.0, random
        # Integers of microseconds cannot overflow. The shift is limited: after 80 doublings
        # even one microsecond is longer than any cap.
        ceiling = min(self.cap // _MICROSECOND, (self.base // _MICROSECOND) << min(attempt - 1, 80))
        if self.jitter is Jitter.FULL:
            ceiling = int(ceiling * random)
        return ceiling * _MICROSECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """A list of delays, one after each failed attempt. The last one repeats.

    >>> policy = Delays(attempts_max=5, delays=(timedelta(seconds=10), timedelta(minutes=1)))
    >>> [policy.delay_after(attempt, 0.0).seconds for attempt in range(1, 5)]
    [10, 60, 60, 60]
    """

    attempts_max: int
    delays: tuple[timedelta, ...]

    def __post_init__(self) -> None:
        _check_attempts(self.attempts_max)
        if not self.delays:
            raise InvalidOption("delays", self.delays, "must have at least one delay")
        for delay in self.delays:
            _check_length("delays", delay)

    def delay_after(self, attempt: int, random: float) -> timedelta:  # noqa: ARG002  # the signature of Exponential
        assert attempt >= 1, attempt
        return self.delays[min(attempt, len(self.delays)) - 1]


RetryPolicy: TypeAlias = NoRetry | Fixed | Exponential | Delays


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryErrors:
    """The exception types that are retried: those in ``only``, or all, but none in ``never``.

    They are not stored with the run. A process uses those of its own definition of the job.
    """

    only: tuple[type[BaseException], ...] = ()
    never: tuple[type[BaseException], ...] = ()

    def is_final(self, error: BaseException) -> bool:
        """Whether an attempt that failed with this error is the last one."""
        return isinstance(error, self.never) or bool(self.only and not isinstance(error, self.only))


ANY_ERROR: Final = RetryErrors()

NO_RETRY: Final = NoRetry()

RETRY_LATER_POLICY: Final = Exponential(
    attempts_max=10,
    base=timedelta(seconds=60),
    cap=timedelta(days=1),
    jitter=Jitter.NONE,
)
"""The policy of a job without one, when its handler raises RetryLater: 60 s, 120 s, 240 s, …"""
