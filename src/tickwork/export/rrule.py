"""Schedule rules as recurrence rules of RFC 5545 (``RRULE``), where an exact one exists.

A recurrence rule describes wall times. Each wall time is one instant, unless clocks change: a
calendar program moves a time that does not exist, and takes the first of two. A schedule does the
same only in part. So a rule is exact if no clock change within :data:`HORIZON` touches its times.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from tickwork._domain.schedules.bounds import Bounded, Windowed, last_firing
from tickwork._domain.schedules.calendar import CalendarRule
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.fields import (
    EVERY_DAY,
    EVERY_HOUR,
    EVERY_MONTH,
    EVERY_WEEKDAY,
    EVERY_YEAR,
    NO_MARKS,
    DayMarks,
    Fields,
    FieldValues,
    bits,
)
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.recurrence import Missing, Recurrence, Unit
from tickwork._domain.schedules.search import has_match, next_ts
from tickwork._domain.schedules.zones import DAY, LAST_TS, UTC_ZONE, Zone, floor_ts

HORIZON: Final = timedelta(days=3653)
PARTS_MAX: Final = 24
"""A schedule that needs more recurrence rules than this is not written as rules."""

EXCLUDED_MAX: Final = 1_000

_SECOND: Final = timedelta(seconds=1)
_DAY_NAMES: Final = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
_WORKDAYS: Final = 0b0111110
_MONDAY, _FRIDAY = 0b0000010, 0b0100000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


class RecurrenceRule(NamedTuple):
    """A recurrence rule with its first firing, which is a firing of the schedule.

    ``text`` is empty for a single firing. ``excluded`` are firings of the rule that the schedule
    leaves out.
    """

    first: datetime  # in the time zone of the rule
    zone: str
    text: str
    excluded: tuple[datetime, ...] = ()


class _Parts(NamedTuple):
    """A rule without the rules around it that restrict it."""

    core: Rule
    windows: tuple[Windowed, ...]
    dates: frozenset[date]
    until: datetime | None

    def allows(self, second: int) -> bool:
        """Whether the windows allow this second of the day."""
        return all(window.allows_second(second) for window in self.windows)


def find_rrules(rule: Rule, *, begin: datetime) -> list[RecurrenceRule] | None:
    """Describe the firings from ``begin`` on by recurrence rules; None if none are exact.

    Together the rules fire when the schedule does, each firing once. There are none if the
    schedule does not fire any more.
    """
    first = rule.next_after(begin.astimezone(UTC) - _SECOND)
    if first is None:
        return []
    parts = _unwrap(rule)
    match parts.core:
        case Once():
            return [RecurrenceRule(first, rule.tz, "")]
        case Interval(length=length):
            if parts.windows:
                return None
            text = _finish(_interval_text(length), parts)
            return [RecurrenceRule(first.astimezone(UTC), "UTC", text)]
        case Recurrence() as core:
            return _from_recurrence(core, parts, first)
        case CalendarRule() as core:
            return _from_calendar(core, parts, rule, first)
        case _:
            return None


def _unwrap(rule: Rule) -> _Parts:
    windows: list[Windowed] = []
    ends: list[datetime] = []
    while isinstance(rule, Bounded | Windowed):
        if isinstance(rule, Windowed):
            windows.append(rule)
        else:
            end = last_firing(rule)
            ends += [] if end is None else [end]
        rule = rule.rule
    dates = frozenset[date]().union(*(window.dates for window in windows))
    return _Parts(rule, tuple(windows), dates, min(ends, default=None))


def _finish(text: str, parts: _Parts) -> str:
    if parts.until is None:
        return text
    return f"{text};UNTIL={parts.until.astimezone(UTC):%Y%m%dT%H%M%SZ}"


# ---------------------------------------------------------------- intervals and recurrences


def _interval_text(length: timedelta) -> str:
    seconds = length.days * DAY + length.seconds
    for unit, name in ((DAY, "DAILY"), (3600, "HOURLY"), (60, "MINUTELY")):
        if seconds % unit == 0:
            return _every(name, seconds // unit)
    return _every("SECONDLY", seconds)


def _every(frequency: str, interval: int) -> str:
    return f"FREQ={frequency}" + (f";INTERVAL={interval}" if interval > 1 else "")


def _from_recurrence(
    core: Recurrence, parts: _Parts, first: datetime
) -> list[RecurrenceRule] | None:
    zone = Zone.named(core.tz)
    start = floor_ts(core.anchor)
    day, second = divmod(start + zone.span_at(start).offset, DAY)

    def is_moved(change: int) -> bool:
        """Whether a firing is at this clock change because its own time does not exist."""
        wall = change + zone.span_at(change).offset
        return wall % DAY != second and _fires(core, zone, change)

    if any(is_moved(change) for change, *_ in _changes(zone, first, parts.until)):
        return None

    def walls(ordinal: int) -> list[int]:
        wall = (ordinal - _EPOCH_ORDINAL) * DAY + second
        return [wall] if _fires(core, zone, zone.ts_of_wall(wall)) else []

    excluded = _excluded(parts, zone, first, walls)
    if excluded is None:
        return None
    text = _recurrence_text(core, date.fromordinal(day + _EPOCH_ORDINAL))
    return [RecurrenceRule(first, core.tz, _finish(text, parts), excluded)]


def _recurrence_text(core: Recurrence, anchor: date) -> str:
    match core.unit:
        case Unit.DAY:
            return _every("DAILY", core.interval)
        case Unit.WEEK:
            days = core.weekdays or (anchor.isoweekday() % 7,)
            names = ",".join(_DAY_NAMES[day] for day in days)
            return f"{_every('WEEKLY', core.interval)};BYDAY={names};WKST=MO"
        case Unit.MONTH:
            return f"{_every('MONTHLY', core.interval)};{_month_day(anchor.day, core.missing)}"
        case Unit.YEAR:
            month_day = _month_day(anchor.day, core.missing)
            return f"{_every('YEARLY', core.interval)};BYMONTH={anchor.month};{month_day}"


def _month_day(day: int, missing: Missing) -> str:
    if day <= 28 or missing is Missing.SKIP:
        return f"BYMONTHDAY={day}"
    if day == 31:
        return "BYMONTHDAY=-1"
    # The last of these days that the month has.
    return f"BYMONTHDAY={_numbers(range(28, day + 1))};BYSETPOS=-1"


# ---------------------------------------------------------------- cron expressions and patterns


def _from_calendar(
    core: CalendarRule, parts: _Parts, rule: Rule, first: datetime
) -> list[RecurrenceRule] | None:
    zone = Zone.named(core.tz)
    by_time = _split_times(core.values, parts)
    split = [each for values in by_time for each in _split_days(values)]
    if not _are_exact(split, zone, first, parts.until):
        in_utc = None if parts.windows else _in_utc(core.values, zone, first, parts.until)
        if in_utc is None:
            return None
        zone, split = UTC_ZONE, [in_utc]
    if len(split) > PARTS_MAX:
        return None
    rules = []
    for values in split:
        text = _values_text(values, is_utc=zone.is_utc)
        if text is None:
            return None
        fields = Fields(values)
        start = _first_of(fields, zone, rule, first)
        if start is None:
            continue
        excluded = _excluded(parts, zone, start, partial(_walls_on, fields))
        if excluded is None:
            return None
        rules.append(RecurrenceRule(start, zone.name, _finish(text, parts), excluded))
    return rules


def _first_of(fields: Fields, zone: Zone, rule: Rule, first: datetime) -> datetime | None:
    """The first firing of the schedule that these fields match."""
    at = next_ts(fields, zone, floor_ts(first) - 1)
    for _ in range(EXCLUDED_MAX):
        if at is None:
            return None
        if _fires(rule, zone, at):
            return zone.datetime_at(at)
        at = next_ts(fields, zone, at)
    return None


def _split_times(values: FieldValues, parts: _Parts) -> Iterator[FieldValues]:
    """Split by hours and minutes, so that each part allows every combination of its values."""
    if not parts.windows:
        yield values
        return
    by_seconds: dict[int, dict[int, int]] = {}  # hour: minute: seconds
    for hour in bits(values.hours):
        for minute in bits(values.minutes):
            base = hour * 3600 + minute * 60
            allowed = sum(1 << s for s in bits(values.seconds) if parts.allows(base + s))
            if allowed:
                by_seconds.setdefault(hour, {})[minute] = allowed
    by_hour: dict[tuple[tuple[int, int], ...], int] = {}  # minutes with their seconds: hours
    for hour, seconds_by_minute in by_seconds.items():
        minutes: dict[int, int] = {}
        for minute, seconds in seconds_by_minute.items():
            minutes[seconds] = minutes.get(seconds, 0) | 1 << minute
        key = tuple(sorted(minutes.items()))
        by_hour[key] = by_hour.get(key, 0) | 1 << hour
    for key, hours in by_hour.items():
        for seconds, mask in key:
            yield values._replace(hours=hours, minutes=mask, seconds=seconds)


def _split_days(values: FieldValues) -> Iterator[FieldValues]:
    """Split days that no single recurrence rule describes; the parts have no day in common."""
    marks = values.marks
    nearest = bits(marks.nearest_workday)
    if values.is_either and marks == NO_MARKS:
        one = values._replace(is_either=False, marks=NO_MARKS)
        yield one._replace(weekdays=EVERY_WEEKDAY)
        yield one._replace(days=EVERY_DAY & ~values.days)
    elif (
        marks == DayMarks(nearest_workday=marks.nearest_workday)
        and len(nearest) == 1
        and nearest[0] <= 27
        and (values.days, values.weekdays, values.is_either) == (0, EVERY_WEEKDAY, False)
    ):
        [day] = nearest
        one = values._replace(marks=NO_MARKS)
        yield one._replace(days=1 << day, weekdays=_WORKDAYS)
        if day == 1:  # a Saturday moves to the third, not into the month before
            yield one._replace(days=0b1100, weekdays=_MONDAY)
        else:
            yield one._replace(days=1 << (day - 1), weekdays=_FRIDAY)
            yield one._replace(days=1 << (day + 1), weekdays=_MONDAY)
    else:
        yield values


def _values_text(values: FieldValues, *, is_utc: bool) -> str | None:
    """The recurrence rule of these fields; None if there is none."""
    marks = values.marks
    if values.years != EVERY_YEAR or values.is_either or marks.nearest_workday:
        return None
    numbers = [*bits(values.days), *([-1] if marks.last_day else [])]
    named = [_DAY_NAMES[day] for day in bits(values.weekdays)]
    counted = [f"-1{_DAY_NAMES[day]}" for day in bits(marks.last_weekday)]
    counted += [f"{nth}{_DAY_NAMES[day]}" for day, nth in marks.nth_weekday]
    if counted:  # not all programs read a mix of both
        named = [f"{nth}{name}" for name in named for nth in range(1, 6)]
    has_numbers = values.days != EVERY_DAY
    has_names = values.weekdays != EVERY_WEEKDAY
    times = (values.hours.bit_count(), values.minutes.bit_count(), values.seconds.bit_count())
    tail = [] if values.months == EVERY_MONTH else [f"BYMONTH={_numbers(bits(values.months))}"]
    frequency = "DAILY"
    if marks.last_workday:
        if numbers or has_names or marks != DayMarks(last_workday=True):
            return None
        count = times[0] * times[1] * times[2]
        frequency = "MONTHLY"
        tail += ["BYDAY=MO,TU,WE,TH,FR", f"BYSETPOS={_numbers(range(-count, 0))}"]
    elif has_numbers and counted:
        return None  # RFC 5545 does not define such a combination
    else:
        if has_numbers:
            tail.append(f"BYMONTHDAY={_numbers(numbers)}")
        if has_names:
            tail.append(f"BYDAY={','.join([*named, *counted])}")
        if has_numbers or counted:
            frequency = "MONTHLY"
        elif has_names:
            frequency = "WEEKLY"
    hours = [] if times[0] == 1 else [f"BYHOUR={_numbers(bits(values.hours))}"]
    if is_utc and values.hours == EVERY_HOUR and not counted and not marks.last_workday:
        frequency, hours = "HOURLY", []
    minutes = [] if times[1] == 1 else [f"BYMINUTE={_numbers(bits(values.minutes))}"]
    seconds = [] if times[2] == 1 else [f"BYSECOND={_numbers(bits(values.seconds))}"]
    return ";".join([f"FREQ={frequency}", *tail, *hours, *minutes, *seconds])


def _in_utc(
    values: FieldValues, zone: Zone, first: datetime, until: datetime | None
) -> FieldValues | None:
    """The same minutes of every hour in UTC, if all offsets of the zone have the same minutes."""
    every_hour = FieldValues(seconds=values.seconds, minutes=values.minutes)
    if values._replace(marks=NO_MARKS) != every_hour or values.marks != NO_MARKS:
        return None
    offset = zone.span_at(floor_ts(first)).offset
    changes = _changes(zone, first, until)
    if offset % 60 or any((new - offset) % 3600 for _, _, new in changes):
        return None
    shift = offset // 60
    return every_hour._replace(
        minutes=sum(1 << (minute - shift) % 60 for minute in bits(values.minutes))
    )


# ---------------------------------------------------------------- clock changes and dates


def _changes(zone: Zone, first: datetime, until: datetime | None) -> Iterator[tuple[int, int, int]]:
    """Clock changes within the horizon: the instant, and the offsets before and after it."""
    start = floor_ts(first)
    last = min(start + HORIZON.days * DAY, LAST_TS)
    last = last if until is None else min(last, floor_ts(until))
    span = zone.span_at(start)
    while span.end <= last:
        following = zone.span_at(span.end)
        if following.offset != span.offset:
            yield span.end, span.offset, following.offset
        span = following


def _are_exact(
    split: Sequence[FieldValues], zone: Zone, first: datetime, until: datetime | None
) -> bool:
    changes = [] if zone.is_utc else list(_changes(zone, first, until))
    for values in split:
        fields = Fields(values)
        for at, before, after in changes:
            is_gap = after > before
            low, high = sorted((at + before, at + after))
            if (is_gap or not fields.is_fixed) and has_match(fields, low, high):
                return False
    return True


def _fires(rule: Rule, zone: Zone, ts: int) -> bool:
    # Not "a second before" as a datetime: that is wall time, and wrong at a clock change.
    due_at = rule.next_after(zone.datetime_at(ts - 1))
    return due_at is not None and floor_ts(due_at) == ts


def _walls_on(fields: Fields, ordinal: int) -> list[int]:
    midnight = (ordinal - _EPOCH_ORDINAL) * DAY
    return list(fields.between(midnight, midnight + DAY))


def _excluded(
    parts: _Parts, zone: Zone, first: datetime, walls: Callable[[int], list[int]]
) -> tuple[datetime, ...] | None:
    """The firings on excluded dates, from ``first`` on; None if there are too many."""
    excluded: list[datetime] = []
    for day in sorted(parts.dates):
        for wall in walls(day.toordinal()):
            ts = zone.ts_of_wall(wall)
            if ts > floor_ts(first) and (parts.until is None or ts <= floor_ts(parts.until)):
                excluded.append(zone.datetime_at(ts))
        if len(excluded) > EXCLUDED_MAX:
            return None
    return tuple(excluded)


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
