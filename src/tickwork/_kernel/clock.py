"""Clocks. No other module of tickwork reads the system time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

from tickwork._kernel.blocking_calls import blocks_event_loop
from tickwork.errors import InvalidOption


class Clock(Protocol):
    """The current time.

    ``now`` can be compared with other machines, but may jump. ``monotonic`` measures durations
    on this machine and never goes back.

    Implementations: :class:`SystemClock`, :class:`StoreClock` and ``testing.ManualClock``. A
    clock that only a test moves has ``is_manual = True``.
    """

    def now(self) -> datetime:
        """The current time, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point in the past. Only differences mean anything."""
        ...


def check_clock(clock: Clock | None) -> Clock | None:
    """Check that a clock has what a program needs of it, and return it."""
    methods = ("now", "monotonic")
    if clock is not None and not all(callable(getattr(clock, name, None)) for name in methods):
        raise InvalidOption(
            "clock",
            clock,
            "must have now() and monotonic()",
            fix="Use tickwork.testing.ManualClock, or add both methods.",
        )
    return clock


def is_manual(clock: Clock) -> bool:
    """Whether only a test moves this clock. Leases then do not expire by themselves."""
    return bool(getattr(clock, "is_manual", False))


def _find_monotonic(boottime: int | None) -> Callable[[], float]:
    """Return the clock that measures durations: a function in C, because each attempt reads it.

    A lease also expires while a laptop is suspended, so the clock must count that time.
    CLOCK_MONOTONIC does not; CLOCK_BOOTTIME does, where the system has it.
    """
    return time.monotonic if boottime is None else partial(time.clock_gettime, boottime)


class SystemClock:
    __slots__ = ()

    monotonic = staticmethod(_find_monotonic(getattr(time, "CLOCK_BOOTTIME", None)))

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  # the only place that reads it


TRIES: Final = 3
PROMPT: Final = 0.1
"""If the first measurement takes longer than PROMPT seconds, it is repeated up to TRIES times."""

AGES_MAX: Final = 10
"""On an event loop, a measurement is used for so many times longer."""

STEP_MIN: Final = timedelta(seconds=2)
"""A difference of this much to the monotonic clock means that the clock was set."""


class StoreClock:
    """The time of the database, as an offset to the monotonic clock of this machine.

    Workers agree on the time even if their own clocks are wrong. The offset is measured at the
    first call and again every ``every`` seconds. If the database is unavailable, the last
    measurement stays valid. A slow answer is inexact: it only corrects the previous measurement
    where the two contradict each other.
    """

    def __init__(
        self, measure: Callable[[], datetime], *, base: Clock, every: float = 30.0
    ) -> None:
        self._measure = measure
        self.monotonic: Callable[[], float] = base.monotonic
        self._every = every
        self._origin: tuple[datetime, float] | None = None
        self._is_forgotten = False
        self.on_step: Callable[[timedelta], object] | None = None
        """Called when the clock of the database was set, with the difference."""

    def now(self) -> datetime:
        origin = self._origin
        if origin is not None:
            since = self.monotonic() - origin[1]
            is_valid = since < self._every and not self._is_forgotten
            # A query would stop the event loop. Background threads measure again soon.
            if is_valid or (since < self._every * AGES_MAX and blocks_event_loop()):
                return origin[0] + timedelta(0, since)
        origin = self._measure_again()
        return origin[0] + timedelta(0, self.monotonic() - origin[1])

    @property
    def is_stale(self) -> bool:
        """Whether the next call of now() queries the database."""
        origin = self._origin
        if origin is None or self._is_forgotten:
            return True
        return self.monotonic() - origin[1] >= self._every

    def forget(self) -> None:
        """Measure again at the next call. After a reconnect it may be another server."""
        self._is_forgotten = True

    def refresh(self) -> None:
        """Measure again if the last measurement is half as old as allowed.

        A background thread calls this, so that other threads never wait for the database.
        """
        origin = self._origin
        is_fresh = origin is not None and self.monotonic() - origin[1] < self._every / 2
        if self._is_forgotten or not is_fresh:
            self._measure_again()

    def _measure_again(self) -> tuple[datetime, float]:
        self._is_forgotten = False
        is_first = self._origin is None
        for _ in range(TRIES if is_first else 1):
            sent = self.monotonic()
            origin = self._origin = self._measure_once(self._origin)
            if self.monotonic() - sent <= PROMPT:
                break  # the next try is faster: the connection is open now
        return origin

    def _measure_once(self, before: tuple[datetime, float] | None) -> tuple[datetime, float]:
        sent = self.monotonic()
        try:
            answer = self._measure()
        except ConnectionError:
            if before is None:
                raise
            return before[0] + timedelta(seconds=sent - before[1]), sent
        # The answer was right at some moment between request and response. The network or this
        # process may have stalled meanwhile. Without a previous measurement, the middle is the
        # best estimate.
        received = self.monotonic()
        if before is None:
            return answer, (sent + received) / 2
        expected = before[0] + timedelta(seconds=received - before[1])
        latest = answer + timedelta(seconds=received - sent)
        measured = min(max(expected, answer), latest)
        if abs(measured - expected) >= STEP_MIN and self.on_step is not None:
            self.on_step(measured - expected)
        return measured, received


GAP_MAX: Final = 2.0
"""The most seconds that count between two looks: the observer may have been suspended."""


class ObservedTime:
    """Adds up the time between looks.

    When a process is suspended, or its machine sleeps, the clock goes on. The first look after
    that must not take a part of the process for stuck.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last_look = monotonic()
        self._seconds = 0.0

    def look(self, *, is_same: bool) -> float:
        """Return for how many seconds it has been the same, as far as that was observed."""
        now = self._monotonic()
        gap = min(now - self._last_look, GAP_MAX)
        self._last_look = now
        self._seconds = self._seconds + gap if is_same else 0.0
        return self._seconds
