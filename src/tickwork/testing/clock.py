"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta
from threading import Lock

from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When, as_instant

_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that shows the time it was set to, so that tests need not wait.

    Threads can share it. ``monotonic`` grows as the time moves forward, and stays as it is
    when the time is set back.

    >>> clock = ManualClock()
    >>> clock.advance(hours=1, minutes=30).isoformat()
    '2026-01-01T01:30:00+00:00'
    >>> clock.monotonic()
    5400.0
    """

    is_manual = True

    def __init__(self, start: When = _START) -> None:
        self._lock = Lock()
        self._now = as_instant(start, option="start")
        self._elapsed = timedelta(0)

    def __repr__(self) -> str:
        return f"ManualClock({self.now().isoformat()})"

    def now(self) -> datetime:
        """The time that was set, as an aware datetime in UTC."""
        return self._now

    def monotonic(self) -> float:
        """The seconds by which this clock has moved forward."""
        return self._elapsed.total_seconds()

    def set(self, moment: When) -> datetime:
        """Set the time, an aware datetime or ISO text with an offset; return it in UTC.

        It may be earlier than before: the clocks of machines do jump back.

        Raises:
            NaiveDatetime: ``moment`` has no time zone.
        """
        target = as_instant(moment, option="moment")
        with self._lock:
            self._elapsed += max(target - self._now, timedelta(0))
            self._now = target
        return target

    def advance(
        self,
        length: timedelta | float | str = timedelta(0),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> datetime:
        """Move the time forward; return the new time. No run is executed.

        ``length`` is a timedelta, a number of seconds, or text such as ``"1h30m"``.

        Raises:
            ValueError: The length is negative. Use :meth:`set` to go back.
            InvalidDuration: The length is not a duration.
        """
        step = as_duration(length) + timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        if step < timedelta(0):
            raise ValueError(f"advance() cannot go back (by {-step}). Use set().")
        with self._lock:
            self._elapsed += step
            self._now += step
            return self._now
