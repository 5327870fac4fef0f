"""Searches the fields of a calendar rule, as bit masks.

All times here are wall times: seconds since 1970-01-01 00:00 on the wall clock (see ``zones``). A
mask has a bit for each allowed value of a field, so "the next allowed minute" is a shift and a
bit count.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

from tickwork._domain.schedules.zones import DAY
from tickwork._kernel.step_budget import count_steps

EVERY_SECOND: Final = (1 << 60) - 1
EVERY_MINUTE: Final = (1 << 60) - 1
EVERY_HOUR: Final = (1 << 24) - 1
EVERY_DAY: Final = (1 << 32) - 2
EVERY_MONTH: Final = (1 << 13) - 2
EVERY_WEEKDAY: Final = (1 << 7) - 1
EVERY_YEAR: Final = -1

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST_YEAR: Final = 1
_LAST_YEAR: Final = 9999
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# The calendar repeats after 400 years, with weekdays.
_CYCLE: Final = 400
_TIMES_KEPT: Final = 1440  # longer lists of times are not cached


class DayMarks(NamedTuple):
    """Days that depend on the length and the weekdays of the month."""

    last_day: bool = False  # L
    last_workday: bool = False  # LW
    nearest_workday: int = 0  # nW: a mask of days
    last_weekday: int = 0  # 5L: a mask of weekdays
    nth_weekday: tuple[tuple[int, int], ...] = ()  # 5#2: (weekday, n)


NO_MARKS: Final = DayMarks()


class FieldValues(NamedTuple):
    """The allowed values of each field.

    ``is_either`` joins day of month and day of week with "or", as Vixie's cron does if both are
    restricted. ``is_fixed`` is a job at fixed times of day: a clock change moves it to a time
    that exists, and never runs it twice.
    """

    seconds: int = 1
    minutes: int = EVERY_MINUTE
    hours: int = EVERY_HOUR
    days: int = EVERY_DAY
    months: int = EVERY_MONTH
    weekdays: int = EVERY_WEEKDAY
    years: int = EVERY_YEAR
    marks: DayMarks = NO_MARKS
    is_either: bool = False
    is_fixed: bool = False


class Fields:
    """A search over :class:`FieldValues`: which wall times match, and which is next."""

    __slots__ = (
        "_any_day",
        "_day_masks",
        "_earliest",
        "_first_minute",
        "_first_second",
        "_hours",
        "_is_possible",
        "_latest",
        "_minutes",
        "_seconds",
        "_times",
        "_two_weeks",
        "is_fixed",
        "values",
    )

    def __init__(self, values: FieldValues) -> None:
        seconds, minutes, hours = values[:3]
        self.values = values
        self.is_fixed = values.is_fixed
        self._seconds, self._minutes, self._hours = seconds, minutes, hours
        # Most rules restrict at most the weekdays, and need no calendar.
        is_weekly = (
            values.months == EVERY_MONTH
            and values.days == EVERY_DAY
            and values.years == EVERY_YEAR
            and values.marks is NO_MARKS
            and not values.is_either
        )
        self._two_weeks = values.weekdays * 0b10000001 if is_weekly else 0
        self._any_day = self._two_weeks == _EVERY_DAY_OF_TWO_WEEKS
        self._first_second = (seconds & -seconds).bit_length() - 1
        self._first_minute = ((minutes & -minutes).bit_length() - 1) * 60 + self._first_second
        self._earliest = ((hours & -hours).bit_length() - 1) * 3600 + self._first_minute
        self._latest = _last_time(seconds, minutes, hours)
        self._day_masks: dict[int, int] = {}
        self._is_possible: bool | None = None
        self._times: list[int] | None = None  # all times of day, when first needed

    # ------------------------------------------------------------ one wall time

    def matches(self, wall: int) -> bool:
        day, second = divmod(wall, DAY)
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        return self.has_time(hour, minute, second) and (self._any_day or self._has_day(day))

    def next(self, wall: int) -> int | None:
        """The first matching wall time at or after this one."""
        day, second = divmod(wall, DAY)
        if second <= self._latest and (self._any_day or self._has_day(day)):
            minute, second = divmod(second, 60)
            hour, minute = divmod(minute, 60)
            if self._hours >> hour & 1:
                ahead = self._minutes >> minute
                if ahead & 1:
                    rest = self._seconds >> second
                    if rest:
                        return wall + (rest & -rest).bit_length() - 1
                    ahead ^= 1
                if ahead:
                    minutes = (ahead & -ahead).bit_length() - 1
                    return wall - second + minutes * 60 + self._first_second
            ahead = self._hours >> (hour + 1)
            hour += (ahead & -ahead).bit_length()
            return day * DAY + hour * 3600 + self._first_minute
        next_day = self._next_day(day + 1)
        return None if next_day is None else next_day * DAY + self._earliest

    def prev(self, wall: int) -> int | None:
        """The last matching wall time at or before this one."""
        day, second = divmod(wall, DAY)
        if second >= self._earliest and (self._any_day or self._has_day(day)):
            minute, second = divmod(second, 60)
            hour, minute = divmod(minute, 60)
            start = day * DAY + hour * 3600
            if self._hours >> hour & 1:
                behind = self._minutes & ((2 << minute) - 1)
                if behind >> minute:
                    rest = self._seconds & ((2 << second) - 1)
                    if rest:
                        return start + minute * 60 + rest.bit_length() - 1
                    behind ^= 1 << minute
                if behind:
                    return start + _last_time(self._seconds, behind, 1)
            behind = self._hours & ((1 << hour) - 1)
            return day * DAY + _last_time(self._seconds, self._minutes, behind)
        previous_day = self._prev_day(day - 1)
        return None if previous_day is None else previous_day * DAY + self._latest

    # ------------------------------------------------------------ many wall times

    def between(self, first: int, last: int, offset: int = 0) -> Iterator[int]:
        """Every matching wall time ``first <= wall < last``, in order, less ``offset``."""
        times = self._times_of_day()
        day = self._next_day(first // DAY)
        while day is not None and day * DAY < last:
            midnight = day * DAY
            low = 0 if first <= midnight else bisect_left(times, first - midnight)
            high = len(times) if midnight + DAY <= last else bisect_left(times, last - midnight)
            start = midnight - offset
            for place in range(low, high):
                yield start + times[place]
            day = self._next_day(day + 1)

    def _times_of_day(self) -> list[int]:
        if self._times is None:
            times = [3600 * h + 60 * m for h in bits(self._hours) for m in bits(self._minutes)]
            if self._seconds != 1:
                seconds = bits(self._seconds)
                times = [at + second for at in times for second in seconds]
                if len(times) > _TIMES_KEPT:
                    return times
            self._times = times
        return self._times

    def count(self, first: int, last: int) -> int:
        """How many wall times ``first <= wall < last`` match, without visiting them."""
        day = first // DAY
        a_day = self._count_time(DAY)
        whole = self._count_days(day, last // DAY) * a_day
        return whole + self._count_rest(last) - self._count_rest(first)

    def _count_rest(self, wall: int) -> int:
        """Matches from midnight up to, but not at, this wall time."""
        day, second = divmod(wall, DAY)
        return self._count_time(second) if self._any_day or self._has_day(day) else 0

    def _count_time(self, until: int) -> int:
        """Matching times of day before this second of the day."""
        hour, rest = divmod(until, 3600)
        minute, second = divmod(rest, 60)
        a_minute = self._seconds.bit_count()
        a_hour = self._minutes.bit_count() * a_minute
        total = (self._hours & ((1 << hour) - 1)).bit_count() * a_hour
        if self._hours >> hour & 1:
            total += (self._minutes & ((1 << minute) - 1)).bit_count() * a_minute
            if self._minutes >> minute & 1:
                total += (self._seconds & ((1 << second) - 1)).bit_count()
        return total

    def _count_days(self, first: int, last: int) -> int:
        """Matching days, ``first <= day < last``."""
        if self._any_day:
            return last - first
        total = 0
        while first < last:
            count_steps()
            when = date.fromordinal(first + _EPOCH_ORDINAL)
            mask = self._days_of(when.year, when.month) >> when.day
            left = _length(when.year, when.month) - when.day + 1
            if first + left > last:
                mask &= (1 << (last - first)) - 1
            total += mask.bit_count()
            first += left
        return total

    # ------------------------------------------------------------ days

    def has_date(self, year: int, month: int, day: int) -> bool:
        return self._any_day or bool(self._days_of(year, month) >> day & 1)

    def has_time(self, hour: int, minute: int, second: int) -> bool:
        return bool(self._hours >> hour & self._minutes >> minute & self._seconds >> second & 1)

    def _has_day(self, day: int) -> bool:
        if self._two_weeks:
            return bool(self._two_weeks >> (day + _EPOCH_WEEKDAY) % 7 & 1)
        when = date.fromordinal(day + _EPOCH_ORDINAL)
        return bool(self._days_of(when.year, when.month) >> when.day & 1)

    def _next_day(self, day: int) -> int | None:
        if self._two_weeks:
            ahead = self._two_weeks >> (day + _EPOCH_WEEKDAY) % 7
            return day + (ahead & -ahead).bit_length() - 1
        when = date.fromordinal(max(day + _EPOCH_ORDINAL, _FIRST_ORDINAL))
        year, month = when.year, when.month
        mask = self._days_of(year, month) >> when.day
        if mask:
            return when.toordinal() - _EPOCH_ORDINAL + (mask & -mask).bit_length() - 1
        if not self._can_match():
            return None
        years, months, end = self.values.years, self.values.months, year + _CYCLE
        while True:
            count_steps()
            ahead = months >> (month + 1)
            if ahead:
                month += (ahead & -ahead).bit_length()
            else:
                month = (months & -months).bit_length() - 1
                year += 1
                if not years >> year & 1:
                    later = years >> year
                    if later == 0:
                        return None
                    year += (later & -later).bit_length() - 1
                    end = max(end, year + _CYCLE)
            if year > end or year > _LAST_YEAR:
                return None
            mask = self._days_of(year, month)
            if mask:
                first = date(year, month, 1).toordinal() - _EPOCH_ORDINAL
                return first + (mask & -mask).bit_length() - 2

    def _prev_day(self, day: int) -> int | None:
        if self._two_weeks:
            weekday = 7 + (day + _EPOCH_WEEKDAY) % 7
            return day - weekday + (self._two_weeks & ((2 << weekday) - 1)).bit_length() - 1
        when = date.fromordinal(min(day + _EPOCH_ORDINAL, _LAST_ORDINAL))
        year, month = when.year, when.month
        mask = self._days_of(year, month) & ((2 << when.day) - 1)
        if mask:
            return when.toordinal() - _EPOCH_ORDINAL - when.day + mask.bit_length() - 1
        if not self._can_match():
            return None
        years, months, end = self.values.years, self.values.months, year - _CYCLE
        while True:
            count_steps()
            behind = months & ((1 << month) - 1)
            if behind:
                month = behind.bit_length() - 1
            else:
                month = months.bit_length() - 1
                year -= 1
                if year >= 0 and not years >> year & 1:
                    earlier = years & ((1 << year) - 1)
                    if earlier == 0:
                        return None
                    year = earlier.bit_length() - 1
                    end = min(end, year - _CYCLE)
            if year < end or year < _FIRST_YEAR:
                return None
            mask = self._days_of(year, month)
            if mask:
                first = date(year, month, 1).toordinal() - _EPOCH_ORDINAL
                return first + mask.bit_length() - 2

    def _days_of(self, year: int, month: int) -> int:
        if not (self.values.months >> month & self.values.years >> year & 1):
            return 0
        first_weekday = date(year, month, 1).isoweekday() % 7
        return self._days_of_shape(_length(year, month), first_weekday)

    def _days_of_shape(self, length: int, first_weekday: int) -> int:
        """The same, for any month of this length that starts on this weekday."""
        shape = length * 8 + first_weekday
        mask = self._day_masks.get(shape)
        if mask is None:
            mask = self._day_masks[shape] = _day_mask(self.values, length, first_weekday)
        return mask

    def _can_match(self) -> bool:
        """Whether any month has a matching day: `0 0 30 2 *` has none."""
        if self._is_possible is None:
            lengths = {_LENGTHS[month] for month in bits(self.values.months)}
            if 28 in lengths:
                lengths.add(29)
            self._is_possible = any(
                self._days_of_shape(length, weekday) for length in lengths for weekday in range(7)
            )
        return self._is_possible


_EVERY_DAY_OF_TWO_WEEKS: Final = (1 << 14) - 1
_EPOCH_WEEKDAY: Final = 4  # 1970-01-01 was a Thursday
_FIRST_ORDINAL: Final = date(_FIRST_YEAR, 1, 1).toordinal()
_LAST_ORDINAL: Final = date(_LAST_YEAR, 12, 31).toordinal()


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def step_mask(first: int, last: int, step: int = 1) -> int:
    """A mask of ``first``, ``first + step`` and so on, up to ``last``."""
    count = (last - first) // step + 1
    # A number of all ones in base 2^step: one bit in every step.
    return ((1 << count * step) - 1) // ((1 << step) - 1) << first


_ONE_A_WEEK: Final = step_mask(0, 28, 7)


def _last_time(seconds: int, minutes: int, hours: int) -> int:
    """The latest second of the day that these masks allow."""
    last_minute = 60 * hours.bit_length() + minutes.bit_length() - 61
    return 60 * last_minute + seconds.bit_length() - 1


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _day_mask(values: FieldValues, length: int, first_weekday: int) -> int:
    """The matching days of a month of this length that starts on this weekday (0: Sunday)."""
    whole = (1 << (length + 1)) - 2
    by_number = values.days & whole
    by_weekday = 0
    for weekday in bits(values.weekdays):
        by_weekday |= _days_on(weekday, first_weekday)
    marks = values.marks
    if marks is not NO_MARKS:
        last_weekday = (first_weekday + length - 1) % 7
        if marks.last_day:
            by_number |= 1 << length
        if marks.last_workday:
            # Saturday (6) steps back one day, Sunday (0) two.
            by_number |= 1 << (length - {6: 1, 0: 2}.get(last_weekday, 0))
        for day in bits(marks.nearest_workday & whole):
            by_number |= 1 << _nearest_workday(day, length, (first_weekday + day - 1) % 7)
        for weekday in bits(marks.last_weekday):
            by_weekday |= 1 << ((_days_on(weekday, first_weekday) & whole).bit_length() - 1)
        for weekday, nth in marks.nth_weekday:
            by_weekday |= 1 << (1 + (weekday - first_weekday) % 7 + 7 * (nth - 1))
    if values.is_either:
        return (by_number | by_weekday) & whole
    return by_number & by_weekday & whole


def _days_on(weekday: int, first_weekday: int) -> int:
    """The days of a month that fall on this weekday. The mask may be longer than the month."""
    return _ONE_A_WEEK << (1 + (weekday - first_weekday) % 7)


def _nearest_workday(day: int, length: int, weekday: int) -> int:
    """The nearest Monday to Friday in the same month."""
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
