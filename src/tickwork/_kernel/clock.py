"""The one door for time. Nothing else in tickwork asks the system what time it is."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol


class Clock(Protocol):
    """What time it is, for whoever was handed this clock.

    Two clocks in one, because they answer different questions. ``now`` places a moment
    among those of other machines; it may jump. ``monotonic`` measures how long something
    took on this machine; it never goes back.

    Three kinds implement it: :class:`SystemClock`, :class:`StoreClock` and
    ``testing.ManualClock``. One that moves only when it is told to has ``is_manual = True``.
    """

    def now(self) -> datetime:
        """This moment, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point in the past. Only differences mean anything."""
        ...


def is_manual(clock: Clock) -> bool:
    """Whether time stands still until somebody moves it: leases do not end by themselves."""
    return bool(getattr(clock, "is_manual", False))


# A lease goes on ending while a laptop is closed, so the clock that watches it must
# count that time too. CLOCK_MONOTONIC does not; CLOCK_BOOTTIME does, where there is one.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The time of this machine."""

    __slots__ = ()

    def now(self) -> datetime:
        """This moment, as an aware datetime in UTC."""
        return datetime.now(UTC)  # noqa: TID251  # this is the door

    def monotonic(self) -> float:
        """Seconds since this machine started, those it slept through included."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


TRIES: Final = 3
PROMPT: Final = 0.1
"""Seconds that the first measurement may take, or it is made again, this often at most."""


class StoreClock:
    """The time of a database, by its measured offset to this machine's monotonic clock.

    Workers whose wall clocks are an hour apart then agree all the same. It is measured at the
    first look and again every ``every`` seconds; when the database is away, the last
    measurement holds. An answer that was long under way says little: what was known before holds
    as far as it agrees with it.
    """

    def __init__(
        self, measure: Callable[[], datetime], *, base: Clock, every: float = 30.0
    ) -> None:
        self._measure = measure
        self._base = base
        self._monotonic = base.monotonic
        self._every = every
        self._origin: tuple[datetime, float] | None = None
        self._is_forgotten = False

    def now(self) -> datetime:
        """This moment, as the database would say."""
        origin = self._origin
        if origin is not None and not self._is_forgotten:
            since = self._monotonic() - origin[1]
            if since < self._every:
                return origin[0] + timedelta(0, since)
        origin = self._measure_anew()
        return origin[0] + timedelta(0, self._monotonic() - origin[1])

    @property
    def is_stale(self) -> bool:
        """Whether the next look asks the database."""
        origin = self._origin
        if origin is None or self._is_forgotten:
            return True
        return self._base.monotonic() - origin[1] >= self._every

    def monotonic(self) -> float:
        """As the machine's."""
        return self._base.monotonic()

    def forget(self) -> None:
        """Measure anew at the next look: after a reconnect it may be another server."""
        self._is_forgotten = True

    def keep(self) -> None:
        """Measure when the last measurement is half as old as it may be.

        For a thread that has the time: nobody else then waits for the database.
        """
        origin = self._origin
        is_fresh = origin is not None and self._base.monotonic() - origin[1] < self._every / 2
        if self._is_forgotten or not is_fresh:
            self._measure_anew()

    def _measure_anew(self) -> tuple[datetime, float]:
        self._is_forgotten = False
        is_first = self._origin is None
        for _ in range(TRIES if is_first else 1):
            sent = self._base.monotonic()
            origin = self._origin = self._measured(self._origin)
            if self._base.monotonic() - sent <= PROMPT:
                break  # else what follows comes closer: the connection is there by now
        return origin

    def _measured(self, before: tuple[datetime, float] | None) -> tuple[datetime, float]:
        sent = self._base.monotonic()
        try:
            told = self._measure()
        except ConnectionError:
            if before is None:
                raise
            return before[0] + timedelta(seconds=sent - before[1]), sent
        # The answer was true at some moment between then and now: it may have waited for a network
        # that stalled, or for us, who were frozen. Without anything else to go by, the middle errs
        # least.
        came = self._base.monotonic()
        if before is None:
            return told, (sent + came) / 2
        expected = before[0] + timedelta(seconds=came - before[1])
        return min(max(expected, told), told + timedelta(seconds=came - sent)), came
