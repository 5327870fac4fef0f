"""What a cron expression means, written down as slowly and plainly as possible.

This is the second opinion on `tickwork._domain.schedules.cron`. It follows chapter 3
of the design word by word, shares no code with the engine, and trusts `zoneinfo` in
one direction only: from an instant to the local time that a clock on the wall shows
(`wall_at`). That direction is never ambiguous and never imaginary.

An instant is a whole number of seconds since 1970 in UTC. A wall time is a naive
datetime. A window of instants includes both of its ends.
"""

import calendar
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)

# The Gregorian calendar repeats after 400 years, to the day of the week: whatever did
# not happen in a window of this length never will. A few days cover changes of offset.
CYCLE_SECONDS = (146_097 + 7) * 86_400

_FIRST_INSTANT = -62_135_596_800 + 2 * 86_400
_LAST_INSTANT = 253_402_300_799 - 2 * 86_400

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Meaning:
    """One expression, read: which wall times it names, and which DST rule it follows."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    names_day: Callable[[date], bool]
    is_fixed: bool

    def names(self, wall: datetime) -> bool:
        """Say whether the expression names this wall time."""
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.names_day(wall.date())
        )


@lru_cache(maxsize=4096)
def read(expr: str) -> Meaning:
    """Read a *valid* expression. What happens with others is not this module's promise."""
    fields = MACROS.get(expr.strip().lower(), expr).upper().split()
    if len(fields) == 5:
        fields = ["0", *fields]
    second, minute, hour, day, month, weekday = fields

    months = _numbers(month, 1, 12, {name: n for n, name in enumerate(_MONTHS, start=1)})
    in_day_field = _any_of([_day_of_month(item) for item in day.split(",")])
    in_weekday_field = _any_of([_day_of_week(item) for item in weekday.split(",")])
    either_is_open = day[0] in "*?" or weekday[0] in "*?"

    def names_day(d: date) -> bool:
        if d.month not in months:
            return False
        if either_is_open:
            return in_day_field(d) and in_weekday_field(d)
        return in_day_field(d) or in_weekday_field(d)

    return Meaning(
        seconds=_numbers(second, 0, 59),
        minutes=_numbers(minute, 0, 59),
        hours=_numbers(hour, 0, 23),
        names_day=names_day,
        is_fixed=not any(field.startswith("*") for field in (second, minute, hour)),
    )


def _numbers(
    field: str, low: int, high: int, names: dict[str, int] | None = None
) -> frozenset[int]:
    """Read `*`, `n`, `a-b`, `*/n`, `a-b/n` and `n/step`, in a list."""
    known = names or {}

    def number(text: str) -> int:
        return known[text] if text in known else int(text)

    found: set[int] = set()
    for item in field.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        if span in {"*", "?"}:
            values = range(low, high + 1)
        elif dash:
            values = range(number(first), number(last) + 1)
        elif slash:
            values = range(number(first), high + 1)
        else:
            values = range(number(first), number(first) + 1)
        found.update(values[:: int(step) if slash else 1])
    return frozenset(found)


def _any_of(tests: list[Callable[[date], bool]]) -> Callable[[date], bool]:
    return lambda d: any(test(d) for test in tests)


def _day_of_month(item: str) -> Callable[[date], bool]:
    if item == "L":
        return lambda d: d == _last_of_month(d)
    if item == "LW":
        return lambda d: d == _nearest_workday(_last_of_month(d))
    if item.endswith("W"):
        wanted = int(item[:-1])
        return lambda d: (
            wanted <= _last_of_month(d).day and d == _nearest_workday(d.replace(day=wanted))
        )
    numbers = _numbers(item, 1, 31)
    return lambda d: d.day in numbers


def _day_of_week(item: str) -> Callable[[date], bool]:
    names = {name: n for n, name in enumerate(_WEEKDAYS)}
    # A range may end on Sunday only as 7: FRI-SUN is 5-7, never 5-0.
    first, dash, last = item.partition("-")
    if dash and last.split("/")[0] == "SUN" and first not in {"SUN", "0"}:
        item = f"{first}-{last.replace('SUN', '7')}"
    if "#" in item:
        day, _, nth = item.partition("#")
        [weekday] = _numbers(day, 0, 7, names)
        return lambda d: _weekday(d) == weekday % 7 and (d.day - 1) // 7 + 1 == int(nth)
    if item.endswith("L"):
        [weekday] = _numbers(item[:-1], 0, 7, names)
        return lambda d: _weekday(d) == weekday % 7 and (d + 7 * _DAY).month != d.month
    # A week has the days 0-6, so that 1/2 is Monday, Wednesday and Friday. Only who starts
    # on day 7 gets as far as day 7.
    high = 7 if item.startswith("7") else 6
    numbers = {n % 7 for n in _numbers(item, 0, high, names)}
    return lambda d: _weekday(d) in numbers


def _weekday(d: date) -> int:
    return d.isoweekday() % 7


def _last_of_month(d: date) -> date:
    return d.replace(day=calendar.monthrange(d.year, d.month)[1])


def _nearest_workday(d: date) -> date:
    """Return the Monday to Friday nearest to `d` that lies in the same month."""
    near = sorted(
        (d + n * _DAY for n in range(-3, 4)),
        # Saturday is nearer to Friday and Sunday to Monday, so no two are equally near.
        key=lambda other: abs(other - d),
    )
    return next(other for other in near if other.month == d.month and other.isoweekday() <= 5)


# ---------------------------------------------------------------- zones


@dataclass(frozen=True)
class Change:
    """From `at` on, the zone's offset is `after`; just before it was `before`."""

    at: int
    before: timedelta
    after: timedelta

    def skips(self, wall: datetime) -> bool:
        """Say whether this wall time lies in the gap that the change made."""
        return wall_of(self.at, self.before) <= wall < wall_of(self.at, self.after)

    @property
    def is_gap(self) -> bool:
        """Say whether clocks went forward."""
        return self.after > self.before


def wall_of(instant: int, offset: timedelta) -> datetime:
    """Return what a clock shows that is `offset` ahead of UTC."""
    return (_EPOCH + timedelta(seconds=instant) + offset).replace(tzinfo=None)


def wall_at(instant: int, zone: ZoneInfo) -> datetime:
    """Return what a clock in this zone shows at this instant."""
    return wall_of(instant, offset_at(instant, zone))


def offset_at(instant: int, zone: ZoneInfo) -> timedelta:
    """Return how far a clock in this zone is ahead of UTC at this instant."""
    offset = (_EPOCH + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def offset_changes(zone: ZoneInfo, start: int, end: int) -> list[Change]:
    """List the changes of offset in a window.

    Abbreviations and names of rules may change without the offset; that is no change.
    """
    years = range(_clamp_year(start), _clamp_year(end) + 1)
    return [
        change for year in years for change in _changes_in(zone, year) if start <= change.at <= end
    ]


def _clamp_year(instant: int) -> int:
    return (_EPOCH + timedelta(seconds=min(max(instant, _FIRST_INSTANT), _LAST_INSTANT))).year


@lru_cache(maxsize=20_000)
def _changes_in(zone: ZoneInfo, year: int) -> tuple[Change, ...]:
    # No zone has ever changed its offset twice within three days (Freetown came closest,
    # in 1939, with almost four), so a look every three days finds every change.
    first = max(instant_of(datetime(year, 1, 1, tzinfo=UTC)), _FIRST_INSTANT)
    last = min(instant_of(datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)), _LAST_INSTANT)
    looks = [*range(first - 1, last, 3 * 86_400), last]
    found = []
    for early, late in itertools.pairwise(looks):
        before, after = offset_at(early, zone), offset_at(late, zone)
        if before != after:
            at = _first_second_with(after, zone, early, late)
            found.append(Change(at=at, before=before, after=after))
    return tuple(found)


def _first_second_with(offset: timedelta, zone: ZoneInfo, early: int, late: int) -> int:
    while late - early > 1:
        middle = (early + late) // 2
        if offset_at(middle, zone) == offset:
            late = middle
        else:
            early = middle
    return late


# ---------------------------------------------------------------- the rule


def instants_showing(wall: datetime, zone: ZoneInfo) -> list[int]:
    """List the instants at which a clock in this zone shows `wall`: none, one or two."""
    as_if_utc = instant_of(wall.replace(tzinfo=UTC))
    offsets = _offsets_around(zone, wall.date())
    instants = {as_if_utc - int(offset / _SECOND) for offset in offsets}
    return sorted(instant for instant in instants if wall_at(instant, zone) == wall)


def firings_for(wall: datetime, zone: ZoneInfo, *, is_fixed: bool) -> list[int]:
    """Apply the rule for DST to one wall time that the expression names."""
    instants = instants_showing(wall, zone)
    if not is_fixed:
        return instants  # none in a gap, both passes of a fold
    if instants:
        return instants[:1]  # the first pass
    as_if_utc = instant_of(wall.replace(tzinfo=UTC))
    around = offset_changes(zone, as_if_utc - 3 * 86_400, as_if_utc + 3 * 86_400)
    [gap] = [change for change in around if change.skips(wall)]
    return [gap.at]  # the first instant after the gap


@lru_cache(maxsize=200_000)
def _offsets_around(zone: ZoneInfo, day: date) -> frozenset[timedelta]:
    # Offsets are less than a day, so three days on either side hold every candidate.
    noon = instant_of(datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
    start, end = noon - 3 * 86_400, noon + 3 * 86_400
    changes = offset_changes(zone, start, end)
    return frozenset({offset_at(start, zone)} | {change.after for change in changes})


def firings(expr: str | Meaning, zone: ZoneInfo, start: int, end: int) -> list[int]:
    """List every instant in this window at which the expression fires."""
    meaning = read(expr) if isinstance(expr, str) else expr
    start, end = max(start, _FIRST_INSTANT), min(end, _LAST_INSTANT)
    # One second before the window counts too: a gap that ends exactly where the window
    # starts is named by wall times of the offset that was in force before it.
    changes = offset_changes(zone, start, end)
    offsets = [offset_at(start - 1, zone), *(change.after for change in changes)]
    walls = _named_walls(meaning, wall_of(start - 1, min(offsets)), wall_of(end, max(offsets)))
    found = {
        instant
        for wall in walls
        for instant in firings_for(wall, zone, is_fixed=meaning.is_fixed)
        if start <= instant <= end
    }
    return sorted(found)


def _named_walls(meaning: Meaning, first: datetime, last: datetime) -> Iterator[datetime]:
    hours, minutes = sorted(meaning.hours), sorted(meaning.minutes)
    seconds = sorted(meaning.seconds)
    day = first.date()
    while day <= last.date():
        if meaning.names_day(day):
            for hour, minute in itertools.product(hours, minutes):
                whole_minute = datetime(day.year, day.month, day.day, hour, minute)  # a wall time
                if whole_minute > last or whole_minute + 60 * _SECOND <= first:
                    continue
                for second in seconds:
                    wall = whole_minute.replace(second=second)
                    if first <= wall <= last:
                        yield wall
        day += _DAY


def scan(expr: str, zone: ZoneInfo, start: int, end: int) -> list[int]:
    """Do what `firings` does for a wildcard expression, by looking at every single second.

    Nothing can be plainer, and nothing slower: it is here to check `firings`.
    """
    meaning = read(expr)
    assert not meaning.is_fixed
    seconds = range(start, end + 1)
    return [instant for instant in seconds if meaning.names(wall_at(instant, zone))]


# ---------------------------------------------------------------- the questions


def instant_of(moment: datetime) -> int:
    """Return the last whole second that is not later than this moment."""
    return (moment.astimezone(UTC) - _EPOCH) // _SECOND


def moment_of(instant: int, zone: ZoneInfo) -> datetime:
    """Return the instant as an aware datetime in this zone, with the right fold."""
    return (_EPOCH + timedelta(seconds=instant)).astimezone(zone)


def next_after(expr: str | Meaning, zone: ZoneInfo, after: datetime) -> int | None:
    """Return the first firing that is strictly later, or None if there is none in 400 years."""
    meaning = read(expr) if isinstance(expr, str) else expr
    start = instant_of(after) + 1
    end_of_search = min(start + CYCLE_SECONDS, _LAST_INSTANT)
    for length in _growing_windows(meaning):
        start = _skip_unnamed_days(meaning, start, end_of_search, direction=+1)
        if start > end_of_search:
            return None
        found = firings(meaning, zone, start, min(start + length, end_of_search))
        if found:
            return found[0]
        start += length + 1
    raise AssertionError


def prev_before(expr: str | Meaning, zone: ZoneInfo, before: datetime) -> int | None:
    """Return the last firing that is strictly earlier, or None if there is none in 400 years."""
    meaning = read(expr) if isinstance(expr, str) else expr
    end = instant_of(before) - (before.microsecond == 0)
    end_of_search = max(end - CYCLE_SECONDS, _FIRST_INSTANT)
    for length in _growing_windows(meaning):
        end = _skip_unnamed_days(meaning, end, end_of_search, direction=-1)
        if end < end_of_search:
            return None
        found = firings(meaning, zone, max(end - length, end_of_search), end)
        if found:
            return found[-1]
        end -= length + 1
    raise AssertionError


def fires_at(expr: str | Meaning, zone: ZoneInfo, moment: datetime) -> bool:
    """Say whether the expression fires at exactly this moment."""
    instant = instant_of(moment)
    return moment.microsecond == 0 and firings(expr, zone, instant, instant) == [instant]


def _growing_windows(meaning: Meaning) -> Iterator[int]:
    """Look closely at first, then hour by hour, or a few hours at once if few seconds count."""
    hours = 1 if len(meaning.seconds) > 6 else 6
    return itertools.chain([15, 240], itertools.repeat(hours * 3_600))


def _skip_unnamed_days(
    meaning: Meaning, instant: int, end_of_search: int, *, direction: Literal[1, -1]
) -> int:
    """Move on to three days short of a day that the expression names.

    Nothing fires further away from a named day than that: an offset is less than a day,
    and so is a gap.
    """
    if not _FIRST_INSTANT <= instant <= _LAST_INSTANT:
        return instant
    here = wall_of(instant, timedelta(0)).date()
    day = here - direction * 3 * _DAY
    last = wall_of(end_of_search, timedelta(0)).date()
    while not meaning.names_day(day):
        if day == last:
            return end_of_search + direction
        day += direction * _DAY
    if (day - here) * direction <= 4 * _DAY:
        return instant
    resume = day - direction * 3 * _DAY
    return instant_of(datetime(resume.year, resume.month, resume.day, 12, tzinfo=UTC))
