"""The effects of clock changes on a rule: times that do not exist, or that repeat."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.zones import EPOCH, LAST_TS, Zone, floor_ts

CHANGES_MAX: Final = 100
_SECOND: Final = timedelta(seconds=1)


class ClockChange(NamedTuple):
    """A clock change of a time zone. ``before`` and ``after`` are wall times, without a zone."""

    zone: str
    at: datetime
    before: datetime
    after: datetime

    @property
    def is_forward(self) -> bool:
        """Whether clocks skip times, instead of repeating them."""
        return self.after > self.before


class Effect(NamedTuple):
    """What a clock change does to one rule."""

    change: ClockChange
    missing: int  # times of the rule that do not exist
    repeated: int  # times of the rule that repeat
    moved_to: datetime | None  # when a missing time fires instead
    is_doubled: bool  # whether repeated times fire twice

    @property
    def text(self) -> str:
        change = self.change
        day, from_, to = (
            f"{change.before:%Y-%m-%d}",
            f"{change.before:%H:%M}",
            f"{change.after:%H:%M}",
        )
        way = "forward" if change.is_forward else "back"
        head = f"{day}: clocks in {change.zone} go {way} from {from_} to {to};"
        if change.is_forward:
            many = _times(self.missing)
            if self.moved_to is None:
                return f"{head} {many} in the gap: skipped."
            return f"{head} {many} in the gap: fires once, at {self.moved_to:%H:%M:%S %Z}."
        many = _times(self.repeated)
        how_often = "twice" if self.is_doubled else "once, at the first time"
        return f"{head} {many} in the repeated period: fires {how_often}."


def clock_changes(zone: str, *, after: datetime, until: datetime) -> Iterator[ClockChange]:
    named_zone = Zone.named(zone)
    ts, last = floor_ts(after), min(floor_ts(until), LAST_TS)
    span = named_zone.span_at(ts)
    for _ in range(CHANGES_MAX):
        if span.end > last:
            return
        following = named_zone.span_at(span.end)
        if following.offset != span.offset:  # otherwise the span was only cut
            yield ClockChange(
                named_zone.name,
                EPOCH + timedelta(seconds=span.end),
                _wall(span.end + span.offset),
                _wall(span.end + following.offset),
            )
        span = following


def effects(rule: Rule, *, after: datetime, until: datetime) -> list[Effect]:
    """List what the clock changes of its time zone do to a rule. Most changes do nothing."""
    if rule.tz == "UTC" or isinstance(rule, Interval | Once):
        return []
    twin = _in_utc(rule)
    if twin is None:
        return []
    candidates = (
        _effect(rule, twin, each) for each in clock_changes(rule.tz, after=after, until=until)
    )
    return [effect for effect in candidates if effect is not None]


def _effect(rule: Rule, twin: Rule, change: ClockChange) -> Effect | None:
    """Compare the rule with its twin in UTC, whose times are the wall times of the rule."""
    low, high = sorted((change.before, change.after))
    first, last = low.replace(tzinfo=UTC), high.replace(tzinfo=UTC) - _SECOND
    count = twin.count_between(first, last)
    if not count:
        return None
    if change.is_forward:
        # If the rule also has a time right after the gap, it fires then anyway: nothing is moved.
        is_due_then = twin.count_between(high.replace(tzinfo=UTC), high.replace(tzinfo=UTC))
        moved = None if is_due_then else rule.next_after(change.at - _SECOND)
        if moved is not None and moved.astimezone(UTC) != change.at:
            moved = None
        return Effect(change, count, 0, moved, is_doubled=False)
    length = change.before - change.after
    fired = rule.count_between(change.at - length, change.at + length - _SECOND)
    return Effect(change, 0, count, None, is_doubled=fired > count)


def _in_utc(rule: Rule) -> Rule | None:
    """The same rule in UTC, without clock changes."""

    def replace_zones(stored: Any) -> Any:
        if not isinstance(stored, dict):
            return stored
        changed = {name: replace_zones(value) for name, value in stored.items()}
        if "tz" in changed:
            changed["tz"] = "UTC"
        return changed

    stored = json.loads(rule.to_text())
    if stored.get("kind") == "recurrence":
        return None  # its anchor would be a different time in UTC
    try:
        return from_text(json.dumps(replace_zones(stored)))
    except ValueError:
        return None


def _wall(seconds: int) -> datetime:
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)


def _times(count: int) -> str:
    return "1 time is" if count == 1 else f"{count} times are"
