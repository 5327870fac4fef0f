"""Schedule rules. Each constructor returns an immutable rule.

A rule computes its firings (``next_after``, ``prev_before``, ``preview``, ``count_between``),
describes itself in English (``describe``) and can be stored as text (``to_text``,
:func:`from_text`). The methods of a :class:`Timetable` refine it:

>>> from tickwork import schedules
>>> schedules.every_five_minutes().hours(range(9, 18)).weekdays().describe()
'every 5 minutes during hours 9 to 17 on Monday to Friday (UTC)'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from os import PathLike
from typing import Concatenate, Final, ParamSpec, Self

from tickwork._calendars.holiday_dates import read_holidays as _read_holidays
from tickwork._domain.schedules.bounds import Bounded, Window, Windowed
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.frequencies import Frequencies as _Frequencies
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.pattern import SYMBOLS, Pattern
from tickwork._domain.schedules.pattern import Symbols as _Symbols
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.timing import Timing as _Timing
from tickwork._kernel.clock import SystemClock as _SystemClock
from tickwork.errors import InvalidSchedule as _InvalidSchedule

P = ParamSpec("P")

_EMPTY: Final = _Timing()


@dataclass(frozen=True, slots=True)
class Timetable(_Frequencies):
    """A schedule rule, built by methods. Each method returns a new timetable.

    >>> from datetime import UTC, datetime
    >>> office = Timetable().every_five_minutes().hours(range(9, 18)).weekdays()
    >>> office.describe()
    'every 5 minutes during hours 9 to 17 on Monday to Friday (UTC)'
    >>> Timetable().weekdays().describe()
    'at 00:00 on Monday to Friday (UTC)'
    """

    timing: _Timing = _EMPTY
    # Named patterns for symbol(), and named calendars for except_on(). They are not part of the
    # rule, so equality ignores them.
    symbols: _Symbols | None = field(default=None, repr=False, compare=False)
    calendars: Callable[[str], frozenset[date]] | None = field(
        default=None, repr=False, compare=False
    )
    """Set for a rule that arrives as text: it names calendars, and no files. None for code."""

    @property
    def _timing(self) -> _Timing:
        return self.timing

    def _with_timing(self, timing: _Timing) -> Self:
        return type(self)(timing, self.symbols, self.calendars)

    def _holidays(
        self, calendar: str | PathLike[str] | None, country: str | None
    ) -> frozenset[date]:
        if self.calendars is None:
            return _read_holidays(calendar, country, now=_SystemClock().now())
        if country is not None:
            raise _InvalidSchedule(
                "A rule in text cannot name a country.",
                why="The dates of countries are read where code registers them.",
                fix="Register it in code, app.calendar('de', country='DE'), or in [calendars] of "
                "tickwork.toml, and write calendar='de'.",
            )
        return self.calendars(str(calendar))

    @property
    def _symbols(self) -> _Symbols:
        return SYMBOLS if self.symbols is None else self.symbols

    def rule(self, *, key: str | None = None) -> Rule:
        """Build the rule. ``key`` is the name that ``H`` in a cron expression hashes."""
        return self.timing.rule(key=key)

    @property
    def tz(self) -> str:
        """The name of the time zone."""
        # Without building the rule: the anchor or the key may still be missing.
        return self.timing.zone_name()

    def next_after(self, after: datetime) -> datetime | None:
        """The first firing strictly after this time; None if there is none."""
        return self.rule().next_after(after)

    def prev_before(self, before: datetime) -> datetime | None:
        """The last firing strictly before this time; None if there is none."""
        return self.rule().prev_before(before)

    def count_between(self, first: datetime, last: datetime) -> int:
        """The number of firings from ``first`` to ``last``, both included."""
        return self.rule().count_between(first, last)

    def preview(self, count: int, *, after: datetime | None = None) -> Sequence[datetime]:
        """The next ``count`` firings after this time, or from now; fewer if the rule ends."""
        return self.rule().preview(count, after=_SystemClock().now() if after is None else after)

    def describe(self) -> str:
        """The rule in plain English."""
        return self.rule().describe()

    def to_text(self) -> str:
        """The rule as text, for storage."""
        return self.rule().to_text()


def _constructor(method: Callable[Concatenate[Timetable, P], Timetable]) -> Callable[P, Timetable]:
    """A function that calls this method on an empty timetable."""

    def construct(*args: P.args, **kwargs: P.kwargs) -> Timetable:
        return method(Timetable(), *args, **kwargs)

    construct.__name__ = construct.__qualname__ = method.__name__
    construct.__doc__ = method.__doc__
    return construct


cron = _constructor(Timetable.cron)
pattern = _constructor(Timetable.pattern)
symbol = _constructor(Timetable.symbol)
every = _constructor(Timetable.every)
once = _constructor(Timetable.once)
on = _constructor(Timetable.on)
every_second = _constructor(Timetable.every_second)
every_two_seconds = _constructor(Timetable.every_two_seconds)
every_five_seconds = _constructor(Timetable.every_five_seconds)
every_ten_seconds = _constructor(Timetable.every_ten_seconds)
every_fifteen_seconds = _constructor(Timetable.every_fifteen_seconds)
every_twenty_seconds = _constructor(Timetable.every_twenty_seconds)
every_thirty_seconds = _constructor(Timetable.every_thirty_seconds)
every_minute = _constructor(Timetable.every_minute)
every_two_minutes = _constructor(Timetable.every_two_minutes)
every_three_minutes = _constructor(Timetable.every_three_minutes)
every_four_minutes = _constructor(Timetable.every_four_minutes)
every_five_minutes = _constructor(Timetable.every_five_minutes)
every_ten_minutes = _constructor(Timetable.every_ten_minutes)
every_fifteen_minutes = _constructor(Timetable.every_fifteen_minutes)
every_twenty_minutes = _constructor(Timetable.every_twenty_minutes)
every_thirty_minutes = _constructor(Timetable.every_thirty_minutes)
hourly = _constructor(Timetable.hourly)
every_hour = _constructor(Timetable.every_hour)
hourly_at = _constructor(Timetable.hourly_at)
every_two_hours = _constructor(Timetable.every_two_hours)
every_three_hours = _constructor(Timetable.every_three_hours)
every_four_hours = _constructor(Timetable.every_four_hours)
every_six_hours = _constructor(Timetable.every_six_hours)
daily = _constructor(Timetable.daily)
daily_at = _constructor(Timetable.daily_at)
twice_daily = _constructor(Timetable.twice_daily)
weekly = _constructor(Timetable.weekly)
weekly_on = _constructor(Timetable.weekly_on)
monthly = _constructor(Timetable.monthly)
monthly_on = _constructor(Timetable.monthly_on)
twice_monthly = _constructor(Timetable.twice_monthly)
last_day_of_month = _constructor(Timetable.last_day_of_month)
quarterly = _constructor(Timetable.quarterly)
yearly = _constructor(Timetable.yearly)
yearly_on = _constructor(Timetable.yearly_on)
seconds = _constructor(Timetable.seconds)
minutes = _constructor(Timetable.minutes)
hours = _constructor(Timetable.hours)
days = _constructor(Timetable.days)
months = _constructor(Timetable.months)
weekdays = _constructor(Timetable.weekdays)
weekends = _constructor(Timetable.weekends)
sundays = _constructor(Timetable.sundays)
mondays = _constructor(Timetable.mondays)
tuesdays = _constructor(Timetable.tuesdays)
wednesdays = _constructor(Timetable.wednesdays)
thursdays = _constructor(Timetable.thursdays)
fridays = _constructor(Timetable.fridays)
saturdays = _constructor(Timetable.saturdays)
timezone = _constructor(Timetable.timezone)
between = _constructor(Timetable.between)
unless_between = _constructor(Timetable.unless_between)
except_on = _constructor(Timetable.except_on)

__all__ = [
    "SYMBOLS",
    "Bounded",
    "Cron",
    "Interval",
    "Missing",
    "Once",
    "Pattern",
    "Recurrence",
    "Rule",
    "Timetable",
    "Unit",
    "Window",
    "Windowed",
    "between",
    "cron",
    "daily",
    "daily_at",
    "days",
    "every",
    "every_fifteen_minutes",
    "every_fifteen_seconds",
    "every_five_minutes",
    "every_five_seconds",
    "every_four_hours",
    "every_four_minutes",
    "every_hour",
    "every_minute",
    "every_second",
    "every_six_hours",
    "every_ten_minutes",
    "every_ten_seconds",
    "every_thirty_minutes",
    "every_thirty_seconds",
    "every_three_hours",
    "every_three_minutes",
    "every_twenty_minutes",
    "every_twenty_seconds",
    "every_two_hours",
    "every_two_minutes",
    "every_two_seconds",
    "except_on",
    "fridays",
    "from_text",
    "hourly",
    "hourly_at",
    "hours",
    "last_day_of_month",
    "minutes",
    "mondays",
    "monthly",
    "monthly_on",
    "months",
    "on",
    "once",
    "pattern",
    "quarterly",
    "saturdays",
    "seconds",
    "sundays",
    "symbol",
    "thursdays",
    "timezone",
    "tuesdays",
    "twice_daily",
    "twice_monthly",
    "unless_between",
    "wednesdays",
    "weekdays",
    "weekends",
    "weekly",
    "weekly_on",
    "yearly",
    "yearly_on",
]
