"""``Recurrence``: every nth day, week, month or year, counted from an anchor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Final, Self

from tickwork._domain.schedules.contract import take, walk
from tickwork._domain.schedules.interval import is_whole, whole_second
from tickwork._domain.schedules.text import encode_rule
from tickwork._domain.schedules.zones import DAY, LAST_TS, Zone, floor_ts
from tickwork._kernel.step_budget import count_steps, step_budget
from tickwork.errors import InvalidSchedule

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_INTERVAL_MAX: Final = 10_000
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


class Unit(StrEnum):
    """The unit of a recurrence."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class Missing(StrEnum):
    """What happens in a month without this day, such as 31 April."""

    CLAMP = "clamp"  # the last day of the month
    SKIP = "skip"  # the month is skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Every ``interval`` days, weeks, months or years, at the time of day of the anchor.

    Each firing is computed from the anchor, not from the previous firing, so that the 31st stays
    the 31st after a short month. A clock change moves a firing to a time that exists, and never
    runs it twice. ``weekdays`` (0 is Sunday) is for weeks, which start on Monday.
    """

    unit: Unit
    anchor: datetime
    interval: int = 1
    weekdays: tuple[int, ...] = ()
    missing: Missing = Missing.CLAMP
    tz: str = "UTC"

    def __post_init__(self) -> None:
        if not (is_whole(self.interval) and 1 <= self.interval <= _INTERVAL_MAX):
            raise InvalidSchedule(
                f"interval must be between 1 and {_INTERVAL_MAX:,}, got {self.interval!r}."
            )
        if self.weekdays and self.unit is not Unit.WEEK:
            raise InvalidSchedule(f"weekdays is for weekly recurrences, not for a {self.unit}.")
        if not all(is_whole(day) and 0 <= day <= 7 for day in self.weekdays):
            raise InvalidSchedule(f"weekdays must be between 0 and 7, got {self.weekdays}.")
        weekdays = tuple(sorted({day % 7 for day in self.weekdays}))
        object.__setattr__(self, "weekdays", weekdays)
        object.__setattr__(self, "anchor", whole_second(self.anchor))
        Zone.named(self.tz)

    def with_anchor(self, at: datetime) -> Self:
        """The same recurrence, counted from another time."""
        return replace(self, anchor=at)

    @step_budget()
    def next_after(self, after: datetime) -> datetime | None:
        zone = Zone.named(self.tz)
        bound = min(max(floor_ts(after), floor_ts(self.anchor) - 1), LAST_TS)
        for ts in self._firings_from(zone, bound):
            if ts > bound:
                return zone.datetime_at(ts)
        return None

    @step_budget()
    def prev_before(self, before: datetime) -> datetime | None:
        zone = Zone.named(self.tz)
        bound = min(floor_ts(before) + (before.microsecond > 0), LAST_TS + 1)
        if bound <= floor_ts(self.anchor):
            return None
        for index in range(self._index_of(self._day_of(zone, bound)) + 1, -1, -1):
            for ts in reversed(self._instants(zone, index) or ()):
                if ts < bound:
                    return zone.datetime_at(ts)
        return None

    @step_budget()
    def count_between(self, first: datetime, last: datetime) -> int:
        before, end = floor_ts(first) - (first.microsecond == 0), floor_ts(last)
        after = min(max(before, floor_ts(self.anchor) - 1), LAST_TS)
        start = Zone.named(self.tz).datetime_at(after)
        instants = map(floor_ts, walk(self, start))
        return sum(1 for _ in takewhile(lambda ts: ts <= end, instants))

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        return take(self, count, after=after)

    def describe(self) -> str:
        local = self.anchor.astimezone(Zone.named(self.tz).info)
        every = (
            f"every {self.unit}" if self.interval == 1 else f"every {self.interval} {self.unit}s"
        )
        days = f" on {', '.join(_WEEKDAYS[day] for day in self.weekdays)}" if self.weekdays else ""
        return f"{every}{days} at {local:%H:%M:%S}, counted from {local:%Y-%m-%d} ({self.tz})"

    def to_text(self) -> str:
        return encode_rule(
            "recurrence",
            unit=self.unit,
            interval=self.interval,
            anchor=self.anchor.isoformat(),
            weekdays=list(self.weekdays) or None,
            missing=self.missing,
            tz=self.tz,
        )

    def _firings_from(self, zone: Zone, bound: int) -> Iterator[int]:
        """The firings from about this time on."""
        index = max(self._index_of(self._day_of(zone, bound)) - 1, 0)
        misses = 0
        # The calendar repeats after 400 years: a day that is missing in all of them never comes.
        while misses < 400:
            instants = self._instants(zone, index)
            if instants is None:
                return
            yield from instants
            misses = 0 if instants else misses + 1
            index += 1

    def _instants(self, zone: Zone, index: int) -> list[int] | None:
        """The firings in the interval with this index, from the anchor on; None after year 9998."""
        count_steps()
        try:
            walls = self._walls(zone, index)
        except (OverflowError, ValueError):
            return None
        anchor = floor_ts(self.anchor)
        return [ts for ts in map(zone.ts_of_wall, walls) if anchor <= ts <= LAST_TS]

    def _day_of(self, zone: Zone, ts: int) -> date:
        return date.fromordinal((ts + zone.span_at(ts).offset) // DAY + _EPOCH_ORDINAL)

    def _start(self, zone: Zone) -> tuple[date, int]:
        """The day of the anchor and its second of the day, in wall time."""
        ts = floor_ts(self.anchor)
        day, second = divmod(ts + zone.span_at(ts).offset, DAY)
        return date.fromordinal(day + _EPOCH_ORDINAL), second

    def _index_of(self, day: date) -> int:
        """The number of whole intervals between the anchor and this day."""
        start = self._start(Zone.named(self.tz))[0]
        match self.unit:
            case Unit.DAY:
                passed = (day - start).days
            case Unit.WEEK:
                passed = (_monday(day) - _monday(start)).days // 7
            case Unit.MONTH:
                passed = (day.year - start.year) * 12 + day.month - start.month
            case Unit.YEAR:
                passed = day.year - start.year
        return passed // self.interval

    def _walls(self, zone: Zone, index: int) -> list[int]:
        """The wall times in the interval with this index: one, one for each weekday, or none."""
        start, second = self._start(zone)
        step = index * self.interval
        match self.unit:
            case Unit.DAY:
                days = [start + timedelta(days=step)]
            case Unit.WEEK:
                monday = _monday(start) + timedelta(weeks=step)
                wanted = self.weekdays or (start.isoweekday() % 7,)
                days = sorted(monday + timedelta(days=(day - 1) % 7) for day in wanted)
            case Unit.MONTH:
                days = self._in_month(start, start.year * 12 + start.month - 1 + step)
            case Unit.YEAR:
                days = self._in_month(start, (start.year + step) * 12 + start.month - 1)
        if days and days[-1].year > 9998:
            raise OverflowError
        return [(day.toordinal() - _EPOCH_ORDINAL) * DAY + second for day in days]

    def _in_month(self, start: date, months: int) -> list[date]:
        year, month = divmod(months, 12)
        first_of_next = date(year + (month == 11), (month + 1) % 12 + 1, 1)
        last = (first_of_next - timedelta(days=1)).day
        if start.day > last and self.missing is Missing.SKIP:
            return []
        return [date(year, month + 1, min(start.day, last))]


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
