"""Move the clock, and execute everything that falls due on the way at its own time."""

from datetime import timedelta

from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork.app.tickwork import Tickwork
from tickwork.errors import InvalidOption
from tickwork.testing.clock import ManualClock
from tickwork.testing.drain import LIMIT, DrainResult, Passes


def travel(
    app: Tickwork,
    length: timedelta | float | str = 0,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    limit: int = LIMIT,
) -> DrainResult:
    """Move the clock forward by this much; return the attempts that were made on the way.

    The clock moves from one due time to the next, and everything that is due there is
    executed. So every firing, retry and delayed run happens at its own time, in order, by the
    same code as in a worker:

    >>> from tickwork import testing
    >>> with testing.app() as app:
    ...     report = app.schedule("report", lambda: None).weekdays().hours(9)
    ...     done = testing.travel(app, days=7)
    ...     len(done), done[-1].at.isoformat()
    (5, '2026-01-07T09:00:00+00:00')

    Raises:
        StillDue: At one instant, runs were still due after ``limit`` runs.
        InvalidOption: The application has no manual clock.
    """
    step = as_duration(length) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return _arrive(app, clock_of(app), step, limit)


def travel_to(app: Tickwork, moment: When, *, limit: int = LIMIT) -> DrainResult:
    """As :func:`travel`, up to an instant: an aware datetime, or ISO text with an offset."""
    clock = clock_of(app)
    return _arrive(app, clock, as_instant(moment, option="moment") - clock.now(), limit)


def clock_of(app: Tickwork) -> ManualClock:
    """The manual clock of an application.

    Raises:
        InvalidOption: It has another clock.
    """
    if not isinstance(app.clock, ManualClock):
        raise InvalidOption(
            "clock",
            app.clock,
            "must be a ManualClock",
            fix="Use testing.app(), testing.swap(app), or Tickwork(..., clock=ManualClock()).",
        )
    return app.clock


def _arrive(app: Tickwork, clock: ManualClock, length: timedelta, limit: int) -> DrainResult:
    if length < timedelta(0):
        raise InvalidOption(
            "length",
            length,
            "must not be negative",
            fix="To move the clock back without running anything, call clock.set().",
        )
    target = clock.now() + length
    # A schedule whose program is not seen for longer than this is retired.
    rest = app.settings.retire_after / 2
    with Passes(app, limit) as passes:
        transitions, upcoming = passes.run_until_idle(until=target)
        # It ends: each round moves the clock towards the target. A handler may move it further;
        # it is not set back then.
        while (now := clock.now()) < target:
            clock.set(min(upcoming.next_at or target, now + rest, target))
            more, upcoming = passes.run_until_idle(until=target)
            transitions += more
    return DrainResult(app, transitions)
