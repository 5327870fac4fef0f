"""The days of a recurrence rule of RFC 5545, in counted steps.

Only days matter here, so a rule that repeats within a day is refused.
"""

from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from tickwork._kernel.step_budget import count_steps
from tickwork.errors import InvalidSchedule

_UNITS: Final = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_TIMES: Final = ("BYHOUR", "BYMINUTE", "BYSECOND")
_DAY_PARTS: Final = ("BYMONTHDAY", "BYYEARDAY", "BYDAY", "BYWEEKNO")
_KNOWN: Final = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYSETPOS", *_TIMES, *_DAY_PARTS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringDays:
    """The days on which a recurrence rule has an instance. Negative numbers count from the end."""

    start: date
    unit: str
    interval: int
    count: int | None
    until: date
    week_start: int  # 0 is Monday
    months: frozenset[int]
    weeks: frozenset[int]
    year_days: frozenset[int]
    month_days: frozenset[int]
    weekdays: frozenset[tuple[int, int]]  # which one of the month or year, 0 for each; its day
    positions: frozenset[int]

    def between(self, low: date, high: date) -> Iterator[date]:
        """The days from ``low`` to ``high``, both included, in order."""
        high, total = min(high, self.until), 0
        index = 0 if self.count is not None else max(self._index_of(low), 0)
        while True:  # ends after `high`: each period is later than the one before
            count_steps()
            try:
                first, days = self._period(index)
            except (OverflowError, ValueError):  # after the year 9999
                return
            if first > high:
                return
            matching = [day for day in days if self._matches(day)]
            for day in self._at_positions(matching):
                if not self.start <= day <= high:
                    continue
                total += 1
                if self.count is not None and total > self.count:
                    return
                if day >= low:
                    yield day
            index += 1

    def _index_of(self, day: date) -> int:
        """The number of whole intervals between the start and this day."""
        start = self.start
        match self.unit:
            case "DAILY":
                passed = (day - start).days
            case "WEEKLY":
                passed = (day - self._week_of(start)).days // 7
            case "MONTHLY":
                passed = (day.year - start.year) * 12 + day.month - start.month
            case _:
                passed = day.year - start.year
        return passed // self.interval

    def _week_of(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.week_start) % 7)

    def _period(self, index: int) -> tuple[date, Iterable[date]]:
        """The first day of a period, and the days in it that may match."""
        start, step = self.start, index * self.interval
        match self.unit:
            case "DAILY":
                first = start + timedelta(days=step)
                return first, (first,)
            case "WEEKLY":
                first = self._week_of(start) + timedelta(weeks=step)
                return first, [first + timedelta(days=each) for each in range(7)]
            case "MONTHLY":
                year, month = divmod(start.year * 12 + start.month - 1 + step, 12)
                return date(year, month + 1, 1), self._days_of_month(year, month + 1)
            case _:
                year = start.year + step
                months = sorted(self.months) or range(1, 13)
                days = (day for month in months for day in self._days_of_month(year, month))
                return date(year, 1, 1), days

    def _days_of_month(self, year: int, month: int) -> Iterator[date]:
        length = monthrange(year, month)[1]
        days: Iterable[int] = range(1, length + 1)
        if self.month_days:
            counted = {day if day > 0 else length + 1 + day for day in self.month_days}
            days = sorted(day for day in counted if 1 <= day <= length)
        for day in days:
            count_steps()
            yield date(year, month, day)

    def _matches(self, day: date) -> bool:
        length = monthrange(day.year, day.month)[1]
        number, year_length = day.timetuple().tm_yday, date(day.year, 12, 31).timetuple().tm_yday
        return (
            (not self.months or day.month in self.months)
            and (not self.weeks or _is_in(self.weeks, *_week_number(day)))
            and (not self.year_days or _is_in(self.year_days, number, year_length))
            and (not self.month_days or _is_in(self.month_days, day.day, length))
            and (
                not self.weekdays
                or any(
                    weekday == day.weekday()
                    and (nth == 0 or self._is_nth(nth, day, length, number, year_length))
                    for nth, weekday in self.weekdays
                )
            )
        )

    def _is_nth(self, nth: int, day: date, length: int, number: int, year_length: int) -> bool:
        """Whether it is the nth such weekday: of the month, or of the year if no month is set."""
        if self.unit == "MONTHLY" or self.months:
            number, year_length = day.day, length
        return nth == ((number - 1) // 7 + 1 if nth > 0 else -((year_length - number) // 7 + 1))

    def _at_positions(self, days: Sequence[date]) -> Sequence[date]:
        if not self.positions:
            return days
        return [
            day for place, day in enumerate(days, 1) if _is_in(self.positions, place, len(days))
        ]


def _is_in(numbers: frozenset[int], number: int, last: int) -> bool:
    return number in numbers or number - last - 1 in numbers


def _week_number(day: date) -> tuple[int, int]:
    year, week, _ = day.isocalendar()
    return week, date(year, 12, 28).isocalendar().week


def read_recurrence(parts: Mapping[str, Sequence[Any]], start: date) -> RecurringDays:
    """Read the parts of a rule, each with its values. Errors do not repeat them.

    Raises:
        InvalidSchedule: The rule repeats within a day, or has a part that is not known.
        ValueError, TypeError, LookupError: It is not a rule at all.
    """
    if set(parts) - _KNOWN:
        raise InvalidSchedule("A recurrence rule has a part that cannot be read.")
    unit = str(parts["FREQ"][0]).upper()
    is_counted = "COUNT" in parts or "BYSETPOS" in parts
    if unit not in _UNITS or (is_counted and any(len(parts.get(each, ())) > 1 for each in _TIMES)):
        raise InvalidSchedule(
            "An event repeats within a day.",
            why="A calendar is read for its days, and this one may have very many times.",
            fix="Let the event repeat by days, weeks, months or years.",
        )
    week_start = _WEEKDAYS.index(str(parts.get("WKST", ["MO"])[0]).upper())
    if "BYWEEKNO" in parts and week_start != 0:
        raise InvalidSchedule("A rule with BYWEEKNO must have weeks that start on Monday.")
    interval = int(parts.get("INTERVAL", [1])[0])
    if interval < 1:
        raise InvalidSchedule("The interval of a rule must be greater than 0.")
    months, month_days = _numbers(parts, "BYMONTH"), _numbers(parts, "BYMONTHDAY")
    weekdays = frozenset(_weekday(each, unit) for each in parts.get("BYDAY", ()))
    if not any(name in parts for name in _DAY_PARTS):
        # The start says which day of the week, of the month or of the year.
        if unit == "YEARLY":
            months = months or frozenset({start.month})
        if unit in {"YEARLY", "MONTHLY"}:
            month_days = frozenset({start.day})
        elif unit == "WEEKLY":
            weekdays = frozenset({(0, start.weekday())})
    return RecurringDays(
        start=start,
        unit=unit,
        interval=interval,
        count=int(parts["COUNT"][0]) if "COUNT" in parts else None,
        until=min((as_day(each) for each in parts.get("UNTIL", ())), default=date.max),
        week_start=week_start,
        months=months,
        weeks=_numbers(parts, "BYWEEKNO"),
        year_days=_numbers(parts, "BYYEARDAY"),
        month_days=month_days,
        weekdays=weekdays,
        positions=_numbers(parts, "BYSETPOS"),
    )


def _numbers(parts: Mapping[str, Sequence[Any]], name: str) -> frozenset[int]:
    return frozenset(map(int, parts.get(name, ())))


def _weekday(text: Any, unit: str) -> tuple[int, int]:
    """Which one and its day: ``-1SU`` is (-1, 6). Only months and years count their weekdays."""
    number, day = str(text)[:-2], _WEEKDAYS.index(str(text)[-2:].upper())
    return (int(number) if number and unit in {"MONTHLY", "YEARLY"} else 0), day


def as_day(moment: date | datetime) -> date:
    """The day of a date or a time.

    Raises:
        TypeError: It is neither, such as a time of day.
    """
    if not isinstance(moment, date):
        raise TypeError
    return moment.date() if isinstance(moment, datetime) else moment
