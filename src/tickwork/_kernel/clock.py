"""The one door for time. Nothing else in tickwork asks the system what time it is."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, for whoever was handed this clock.

    Two clocks in one, because they answer different questions. ``now`` places a moment
    among those of other machines; it may jump. ``monotonic`` measures how long something
    took on this machine; it never goes back.

    Three kinds implement it: :class:`SystemClock`, ``testing.ManualClock``, and the clock
    of a store, which shows the database's time by its measured offset to ``monotonic``.
    """

    def now(self) -> datetime:
        """This moment, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point in the past. Only differences mean anything."""
        ...


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
