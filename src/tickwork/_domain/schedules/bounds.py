"""Rules that restrict other rules: start, end, windows of the day, excluded dates."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final, Self

from tickwork._domain.schedules.contract import Rule, take, walk
from tickwork._domain.schedules.interval import is_whole, whole_second
from tickwork._domain.schedules.text import encode_rule
from tickwork._domain.schedules.zones import DAY, FIRST_TS, LAST_TS, Zone, floor_ts
from tickwork._kernel.plain_text import count_of
from tickwork._kernel.step_budget import count_steps, step_budget
from tickwork.errors import InvalidSchedule, NaiveDatetime

FIRINGS_MAX: Final = 100_000
DATES_MAX: Final = 10_000
WINDOWS_MAX: Final = 100
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
# Stops the search if the rule never fires inside of its window. Enough for two years of days
# with one window.
_TRIES: Final = 1_500


def set_anchor(rule: Rule, at: datetime) -> Rule:
    """Set the anchor of a rule that counts from one. Any other rule stays as it is."""
    anchor: Callable[[datetime], Rule] | None = getattr(rule, "with_anchor", None)
    return rule if anchor is None else anchor(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A rule with a start and an end: a time, or a number of firings.

    ``max_firings`` counts the times of the rule from ``starting`` on, also missed ones, so that
    every machine computes the same end.
    """

    rule: Rule
    starting: datetime | None = None
    until: datetime | None = None
    max_firings: int | None = None

    def __post_init__(self) -> None:
        if self.starting is not None:
            object.__setattr__(self, "starting", whole_second(self.starting))
        if self.until is not None:
            object.__setattr__(self, "until", whole_second(self.until, is_end=True))
        if self.max_firings is None:
            return
        check_firings(self.max_firings)
        if self.starting is None:
            raise InvalidSchedule("max_firings needs a time to count from.", fix="Add starting=...")

    @property
    def tz(self) -> str:
        return self.rule.tz

    def with_anchor(self, at: datetime) -> Self:
        """The same bounds, counted from another time."""
        return replace(self, rule=set_anchor(self.rule, at), starting=at)

    def next_after(self, after: datetime) -> datetime | None:
        after = _in_utc(after)
        if self.starting is not None:
            after = max(after, self.starting - timedelta(seconds=1))
        due_at = self.rule.next_after(after)
        end = last_firing(self)
        return None if due_at is None or (end is not None and due_at > end) else due_at

    def prev_before(self, before: datetime) -> datetime | None:
        before, end = _in_utc(before), last_firing(self)
        if end is not None:
            before = min(before, end + timedelta(seconds=1))
        due_at = self.rule.prev_before(before)
        if due_at is None or (self.starting is not None and due_at < self.starting):
            return None
        return due_at

    def count_between(self, first: datetime, last: datetime) -> int:
        first, last, end = _in_utc(first), _in_utc(last), last_firing(self)
        first = first if self.starting is None else max(first, self.starting)
        last = last if end is None else min(last, end)
        return self.rule.count_between(first, last) if first <= last else 0

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        return take(self, count, after=after)

    def describe(self) -> str:
        words = [self.rule.describe()]
        if self.starting is not None:
            words.append(f"from {self.starting:%Y-%m-%d %H:%M:%S} UTC")
        if self.until is not None:
            words.append(f"until {self.until:%Y-%m-%d %H:%M:%S} UTC")
        if self.max_firings is not None:
            words.append(count_of(self.max_firings, "time"))
        return ", ".join(words)

    def to_text(self) -> str:
        return encode_rule(
            "bounded",
            rule=json.loads(self.rule.to_text()),
            starting=self.starting and self.starting.isoformat(),
            until=self.until and self.until.isoformat(),
            max_firings=self.max_firings,
        )


@lru_cache(maxsize=1024)
@step_budget()
def last_firing(bounded: Bounded) -> datetime | None:
    """The last time that may fire. It is computed once and cached, because that may be slow."""
    if bounded.max_firings is None or bounded.starting is None:
        return bounded.until
    last = None
    start = bounded.starting - timedelta(seconds=1)
    for last in islice(walk(bounded.rule, start), bounded.max_firings):  # noqa: B007
        count_steps()
    if last is None:
        return bounded.until
    return min(_in_utc(last), bounded.until or _in_utc(last))


def _in_utc(moment: datetime) -> datetime:
    """The same time in UTC: Python ignores folds when it compares datetimes of one zone."""
    if moment.tzinfo is None:
        raise NaiveDatetime(moment)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # the first or the last hours of all years, where no rule fires
        return datetime(1 if moment.year == 1 else 9999, 1, 1, tzinfo=UTC)


def just_after(moment: datetime) -> datetime:
    """The first whole second after this time.

    A schedule never fires at the instant at which it is created, so ``max_firings`` must not count
    that instant.
    """
    return moment.replace(microsecond=0) + timedelta(seconds=1)


def check_firings(count: int) -> None:
    if not (is_whole(count) and 1 <= count <= FIRINGS_MAX):
        raise InvalidSchedule(f"max_firings must be between 1 and {FIRINGS_MAX:,}, got {count!r}.")


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A window of the day in wall time, both ends included. It may pass midnight."""

    first: time
    last: time

    @classmethod
    def parse(cls, first: str | time, last: str | time) -> Self:
        """Parse two times of day, such as ``09:00`` and ``17:00``."""
        return cls(parse_time(first), parse_time(last))

    def holds(self, second: int) -> bool:
        """Whether this second of the day is in the window."""
        first, last = _second_of(self.first), _second_of(self.last)
        if first <= last:
            return first <= second <= last
        return second >= first or second <= last

    def __str__(self) -> str:
        return f"{self.first:%H:%M:%S}-{self.last:%H:%M:%S}"


_TIME: Final = re.compile(r"(\d\d?)(?::(\d\d))?(?::(\d\d))?", re.ASCII)


def parse_time(text: object) -> time:
    """Parse a time of day: ``9``, ``09:00`` or ``9:00:30``.

    Raises:
        InvalidSchedule: It is not a time of day.
    """
    if isinstance(text, time):
        if text.tzinfo is not None or text.microsecond:
            raise InvalidSchedule(
                f"A time of day must have whole seconds and no time zone, got {text}."
            )
        return text
    match = _TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is not None:
        hour, minute, second = (int(part or 0) for part in match.groups())
        if hour < 24 and minute < 60 and second < 60:
            return time(hour, minute, second)
    raise InvalidSchedule(f"{text!r} is not a time of day.", fix="Write it as '13:00'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """A rule that fires only inside or outside of windows of the day, and not on some dates.

    Several ``between`` windows are alternatives. ``unless`` and ``dates`` override them. All use
    the time zone of the rule.
    """

    rule: Rule
    between: tuple[Window, ...] = ()
    unless: tuple[Window, ...] = ()
    dates: frozenset[date] = frozenset()

    def __post_init__(self) -> None:
        if len(self.dates) > DATES_MAX:
            raise InvalidSchedule(
                f"except_on() takes at most {DATES_MAX:,} dates, got {len(self.dates):,}."
            )
        windows = len(self.between) + len(self.unless)
        if windows > WINDOWS_MAX:
            raise InvalidSchedule(
                f"A rule has at most {WINDOWS_MAX} windows of the day, got {windows:,}."
            )
        object.__setattr__(self, "between", tuple(sorted(set(self.between))))
        object.__setattr__(self, "unless", tuple(sorted(set(self.unless))))

    @property
    def tz(self) -> str:
        return self.rule.tz

    def with_anchor(self, at: datetime) -> Self:
        """The same windows, with a rule counted from another time."""
        return replace(self, rule=set_anchor(self.rule, at))

    @step_budget()
    def next_after(self, after: datetime) -> datetime | None:
        zone = Zone.named(self.tz)
        due_at = self.rule.next_after(after)
        for _ in range(self._tries):
            count_steps()
            if due_at is None or self._allows(zone, floor_ts(due_at)):
                return due_at
            # Continue at the end of the range that is not allowed.
            change = self._range_around(zone, floor_ts(due_at))[1]
            due_at = self.rule.next_after(zone.datetime_at(change - 1))
        return None

    @step_budget()
    def prev_before(self, before: datetime) -> datetime | None:
        zone = Zone.named(self.tz)
        due_at = self.rule.prev_before(before)
        for _ in range(self._tries):
            count_steps()
            if due_at is None or self._allows(zone, floor_ts(due_at)):
                return due_at
            change = self._range_around(zone, floor_ts(due_at))[0]
            due_at = self.rule.prev_before(zone.datetime_at(change))
        return None

    @step_budget()
    def count_between(self, first: datetime, last: datetime) -> int:
        zone = Zone.named(self.tz)
        at = max(floor_ts(first) + (first.microsecond > 0), FIRST_TS)
        end = min(floor_ts(last), LAST_TS)
        total = 0
        while at <= end:
            count_steps()
            change = self._range_around(zone, at)[1]
            if self._allows(zone, at):
                until = zone.datetime_at(min(change - 1, end))
                total += self.rule.count_between(zone.datetime_at(at), until)
            at = change
        return total

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        return take(self, count, after=after)

    def describe(self) -> str:
        words = [self.rule.describe()]
        if self.between:
            words.append(f"only between {' or '.join(map(str, self.between))}")
        if self.unless:
            words.append(f"not between {' or '.join(map(str, self.unless))}")
        if self.dates:
            words.append(f"not on {count_of(len(self.dates), 'date')}")
        return ", ".join(words)

    def to_text(self) -> str:
        return encode_rule(
            "windowed",
            rule=json.loads(self.rule.to_text()),
            between=[str(window) for window in self.between] or None,
            unless=[str(window) for window in self.unless] or None,
            dates=sorted(day.isoformat() for day in self.dates) or None,
        )

    @property
    def _tries(self) -> int:
        return _TRIES + len(self.dates)

    def allows_second(self, second: int) -> bool:
        """Whether the windows allow this second of the day."""
        if any(window.holds(second) for window in self.unless):
            return False
        return not self.between or any(window.holds(second) for window in self.between)

    def _allows(self, zone: Zone, ts: int) -> bool:
        day, second = divmod(ts + zone.span_at(ts).offset, DAY)
        if not self.allows_second(second):
            return False
        return date.fromordinal(day + _EPOCH_ORDINAL) not in self.dates

    def _range_around(self, zone: Zone, ts: int) -> tuple[int, int]:
        """The range around this time in which _allows() gives the same answer; end excluded."""
        start, end, offset, _ = zone.span_at(ts)
        day, second = divmod(ts + offset, DAY)
        edges = {0, DAY}
        # An excluded date is skipped as a whole.
        if date.fromordinal(day + _EPOCH_ORDINAL) not in self.dates:
            for window in self.between + self.unless:
                edges |= {_second_of(window.first), _second_of(window.last) + 1}
        since = max(edge for edge in edges if edge <= second)
        until = min(edge for edge in edges if edge > second)
        return max(start, ts - second + since), min(end, ts - second + until)


def _second_of(moment: time) -> int:
    return moment.hour * 3600 + moment.minute * 60 + moment.second
