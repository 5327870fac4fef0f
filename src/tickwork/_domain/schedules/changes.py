"""What clock changes do to a rule: which of its times do not exist, or come twice."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.schedules.zones import EPOCH, LAST_TS, Zone, floor_ts

CHANGES_MAX: Final = 100
_SECOND: Final = timedelta(seconds=1)


class ClockChange(NamedTuple):
    """The instant at which the clocks of a zone are moved, and by how much.

    ``before`` and ``after`` are what they show at that instant; as wall times they have no
    zone. A change forward leaves a gap between the two, one back repeats what lies between.
    """

    zone: str
    at: datetime
    before: datetime
    after: datetime

    @property
    def is_forward(self) -> bool:
        """Whether an hour is left out, rather than repeated."""
        return self.after > self.before


class Effect(NamedTuple):
    """What a clock change does to one rule."""

    change: ClockChange
    missing: int  # of its times that day that do not exist
    repeated: int  # of those that come twice
    moved_to: datetime | None  # when a time that does not exist fires instead
    is_doubled: bool  # whether what comes twice fires twice

    @property
    def text(self) -> str:
        """In plain English."""
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
                return f"{head} {many} in the gap: skipped, because they do not exist."
            return f"{head} {many} in the gap: fires once, at {self.moved_to:%H:%M:%S %Z}."
        many = _times(self.repeated)
        passes = "in both passes" if self.is_doubled else "once, in the first pass"
        return f"{head} {many} in the hour that comes twice: fires {passes}."


def clock_changes(zone: str, *, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """When clocks are moved in a zone, in order."""
    place = Zone.named(zone)
    ts, last = floor_ts(after), min(floor_ts(until), LAST_TS)
    span = place.span_at(ts)
    for _ in range(CHANGES_MAX):
        if span.end > last:
            return
        following = place.span_at(span.end)
        if following.offset != span.offset:  # otherwise it is only a cut
            yield ClockChange(
                place.name,
                EPOCH + timedelta(seconds=span.end),
                _wall(span.end + span.offset),
                _wall(span.end + following.offset),
            )
        span = following


def effects(rule: Schedule, *, after: datetime, until: datetime) -> list[Effect]:
    """What the clock changes of a rule's zone do to it. None of those that do nothing."""
    if rule.tz == "UTC" or isinstance(rule, Interval | Once):
        return []
    twin = _in_utc(rule)
    if twin is None:
        return []
    found = (_effect(rule, twin, each) for each in clock_changes(rule.tz, after=after, until=until))
    return [effect for effect in found if effect is not None]


def _effect(rule: Schedule, twin: Schedule, change: ClockChange) -> Effect | None:
    """The rule beside its twin, for which no clock ever moves: its times are wall times."""
    low, high = sorted((change.before, change.after))
    first, last = low.replace(tzinfo=UTC), high.replace(tzinfo=UTC) - _SECOND
    count = twin.count_between(first, last)
    if not count:
        return None
    if change.is_forward:
        # One that also fires at the wall time after the gap would do so on any day.
        is_due_then = twin.count_between(high.replace(tzinfo=UTC), high.replace(tzinfo=UTC))
        moved = None if is_due_then else rule.next_after(change.at - _SECOND)
        if moved is not None and moved.astimezone(UTC) != change.at:
            moved = None
        return Effect(change, count, 0, moved, is_doubled=False)
    length = change.before - change.after
    fired = rule.count_between(change.at - length, change.at + length - _SECOND)
    return Effect(change, 0, count, None, is_doubled=fired > count)


def _in_utc(rule: Schedule) -> Schedule | None:
    """The same rule on a clock that is never moved."""

    def moved(facts: Any) -> Any:
        if not isinstance(facts, dict):
            return facts
        changed = {name: moved(value) for name, value in facts.items()}
        if "tz" in changed:
            changed["tz"] = "UTC"
        return changed

    facts = json.loads(rule.to_text())
    if facts.get("kind") == "recurrence":
        return None  # it counts from an instant, which would be another one
    try:
        return from_text(json.dumps(moved(facts)))
    except ValueError:
        return None


def _wall(seconds: int) -> datetime:
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)


def _times(count: int) -> str:
    return "1 of its times is" if count == 1 else f"{count} of its times are"
