"""Finds the firings of calendar fields in a time zone, also when clocks change.

A *wildcard* rule fires at every moment whose wall time matches: times in a gap do not exist, and
repeated times fire twice. A *fixed* rule fires once for each matching wall time: a time in a gap
fires right after the gap, and a repeated time fires in the first pass.

Times are whole seconds since 1970. Every search is bounded.
"""

from collections.abc import Iterator
from typing import Final

from tickwork._domain.schedules.fields import Fields
from tickwork._domain.schedules.zones import DAY, FIRST_TS, LAST_TS, Zone
from tickwork._kernel.step_budget import count_steps

# All clock changes of any two days together never moved a clock further than this.
_REACH: Final = 2 * DAY


def next_ts(fields: Fields, zone: Zone, after: int) -> int | None:
    at = max(after + 1, FIRST_TS)
    if zone.is_utc and at <= LAST_TS:
        due_ts = fields.next(at)
        return due_ts if due_ts is not None and due_ts <= LAST_TS else None
    while at <= LAST_TS:
        start, end, offset, seen = zone.span_at(at)
        wall = at + offset
        if fields.is_fixed:
            if at == start and wall > seen and has_match(fields, seen, wall):
                return at
            wall = max(wall, seen)
        due_wall = fields.next(wall)
        if due_wall is not None and due_wall - offset < end:
            return due_wall - offset if due_wall - offset <= LAST_TS else None
        at = _look_next(at, end, due_wall, offset)
    return None


def _look_next(at: int, end: int, due_wall: int | None, offset: int) -> int:
    """Where to continue when the span that ends at ``end`` has no more matches."""
    if end - at < _REACH:
        return end
    if due_wall is None:
        return LAST_TS + 1
    # Nothing matches before the wall time `due_wall`, and no fold reaches back this far: skip
    # the spans between.
    return max(end, due_wall - offset - _REACH)


def prev_ts(fields: Fields, zone: Zone, before: int) -> int | None:
    at = min(before - 1, LAST_TS)
    if zone.is_utc and at >= FIRST_TS:
        due_ts = fields.prev(at)
        return due_ts if due_ts is not None and due_ts >= FIRST_TS else None
    while at >= FIRST_TS:
        start, _, offset, seen = zone.span_at(at)
        due_wall = fields.prev(at + offset)
        lowest = start + offset
        if due_wall is not None and due_wall >= (max(lowest, seen) if fields.is_fixed else lowest):
            return due_wall - offset if due_wall - offset >= FIRST_TS else None
        if fields.is_fixed and has_match(fields, seen, lowest):
            return start
        if at - start < _REACH:
            at = start - 1
        elif due_wall is None:
            return None
        else:
            at = min(start - 1, due_wall - offset + _REACH)
    return None


def matches_ts(fields: Fields, zone: Zone, ts: int) -> bool:
    start, _, offset, seen = zone.span_at(ts)
    wall = ts + offset
    if fields.is_fixed:
        if wall < seen:
            return False
        if ts == start and has_match(fields, seen, wall):
            return True
    return fields.matches(wall)


def instants(fields: Fields, zone: Zone, first: int, last: int) -> Iterator[int]:
    """Every firing ``first <= ts <= last``, in order. Faster than repeated next_ts()."""
    at, last = max(first, FIRST_TS), min(last, LAST_TS)
    while at <= last:
        start, end, offset, seen = zone.span_at(at)
        wall = at + offset
        if fields.is_fixed:
            if at == start and has_match(fields, seen, wall) and not fields.matches(wall):
                yield at
            wall = max(wall, seen)
        due_wall = fields.next(wall)
        if due_wall is None or due_wall - offset >= end:
            at = _look_next(at, end, due_wall, offset)
            continue
        yield from fields.between(due_wall, min(end, last + 1) + offset, offset)
        at = end


def count(fields: Fields, zone: Zone, first: int, last: int) -> int:
    """How many firings there are, ``first <= ts <= last``, without visiting them."""
    at, last, total = max(first, FIRST_TS), min(last, LAST_TS), 0
    while at <= last:
        count_steps()
        start, end, offset, seen = zone.span_at(at)
        end = min(end, last + 1)
        wall = at + offset
        if fields.is_fixed:
            if at == start and has_match(fields, seen, wall) and not fields.matches(wall):
                total += 1
            wall = max(wall, seen)
        if wall < end + offset:
            total += fields.count(wall, end + offset)
        at = end
    return total


def has_match(fields: Fields, first: int, last: int) -> bool:
    """Whether any wall time ``first <= wall < last`` matches."""
    if first >= last:
        return False
    due_ts = fields.next(first)
    return due_ts is not None and due_ts < last
