"""``Interval`` and ``Once``: firings at a fixed distance, or a single one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self, TypeAlias

from tickwork._domain.schedules.contract import check_count, take
from tickwork._domain.schedules.text import encode_rule
from tickwork._domain.schedules.zones import EPOCH, FIRST_TS, LAST_TS, Zone, floor_ts
from tickwork._kernel.durations import DELAY_MAX, format_duration
from tickwork.errors import InvalidSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Fires at ``anchor + k * length`` for k = 0, 1, 2, …, in elapsed time, without drift."""

    length: timedelta
    anchor: datetime
    tz: str = "UTC"

    def __post_init__(self) -> None:
        if self.length < timedelta(seconds=1) or self.length.microseconds:
            raise InvalidSchedule(
                f"An interval must be a positive whole number of seconds, got {self.length}.",
            )
        if self.length > DELAY_MAX:
            days, most = self.length.days, DELAY_MAX.days
            raise InvalidSchedule(f"An interval must be at most {most:,} days, got {days:,} days.")
        object.__setattr__(self, "anchor", whole_second(self.anchor))
        Zone.named(self.tz)

    def with_anchor(self, at: datetime) -> Self:
        """The same interval, counted from another time."""
        return replace(self, anchor=at)

    def next_after(self, after: datetime) -> datetime | None:
        return self._at((floor_ts(after) - floor_ts(self.anchor)) // self._seconds + 1)

    def prev_before(self, before: datetime) -> datetime | None:
        ceiling = min(floor_ts(before) + (before.microsecond > 0), LAST_TS + 1)
        index = (ceiling - 1 - floor_ts(self.anchor)) // self._seconds
        return self._at(index) if index >= 0 else None

    def count_between(self, first: datetime, last: datetime) -> int:
        anchor = floor_ts(self.anchor)
        start = max(floor_ts(first) + (first.microsecond > 0), anchor)
        lowest = -((anchor - start) // self._seconds)
        return max(0, (min(floor_ts(last), LAST_TS) - anchor) // self._seconds - lowest + 1)

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        return take(self, count, after=after)

    def describe(self) -> str:
        length = format_duration(self.length)
        return f"every {length}, counted from {self.anchor:%Y-%m-%d %H:%M:%S} UTC"

    def to_text(self) -> str:
        return encode_rule(
            "interval",
            seconds=self._seconds,
            anchor=self.anchor.isoformat(),
            tz=self.tz,
        )

    @property
    def _seconds(self) -> int:
        return self.length.days * 86_400 + self.length.seconds

    def _at(self, index: int) -> datetime | None:
        ts = floor_ts(self.anchor) + max(index, 0) * self._seconds
        return Zone.named(self.tz).datetime_at(ts) if ts <= LAST_TS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A single firing."""

    at: datetime
    tz: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", whole_second(self.at))
        Zone.named(self.tz)

    def next_after(self, after: datetime) -> datetime | None:
        return self._local() if floor_ts(after) < floor_ts(self.at) else None

    def prev_before(self, before: datetime) -> datetime | None:
        ceiling = floor_ts(before) + (before.microsecond > 0)
        return self._local() if ceiling > floor_ts(self.at) else None

    def count_between(self, first: datetime, last: datetime) -> int:
        start = floor_ts(first) + (first.microsecond > 0)
        return int(start <= floor_ts(self.at) <= floor_ts(last))

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        due_at = self.next_after(after)
        return [due_at] if due_at is not None and check_count(count) else []

    def describe(self) -> str:
        return f"once, at {self._local():%Y-%m-%d %H:%M:%S} ({self.tz})"

    def to_text(self) -> str:
        return encode_rule("once", at=self.at.isoformat(), tz=self.tz)

    def _local(self) -> datetime:
        return self.at.astimezone(Zone.named(self.tz).info)


def is_whole(number: object) -> bool:
    """Whether this is an int and not a bool."""
    return isinstance(number, int) and not isinstance(number, bool)


_TEXT_MAX: Final = 64

Instant: TypeAlias = datetime | str
"""An aware datetime, or its ISO text with an offset: ``2026-01-01T09:00+01:00``."""


def whole_second(moment: Instant, *, is_end: bool = False) -> datetime:
    """This time in UTC and whole seconds. A start is rounded up, an end is rounded down.

    Raises:
        InvalidSchedule: It is not a time, or outside of the supported years.
        NaiveDatetime: It has no time zone.
    """
    if isinstance(moment, str) and len(moment) <= _TEXT_MAX:
        with suppress(ValueError):
            moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise InvalidSchedule(
            f"{repr(moment)[:_TEXT_MAX]} is not a time.",
            fix="Write datetime(2026, 1, 1, tzinfo=UTC) or '2026-01-01T00:00Z'.",
        )
    ts = floor_ts(moment) + (moment.microsecond > 0 and not is_end)
    if not FIRST_TS <= ts <= LAST_TS:
        raise InvalidSchedule(f"{moment} is not in the years 2 to 9998.")
    return EPOCH + timedelta(seconds=ts)
