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

# All clock changes of any two days together never moved a clock further than this.
_REACH: Final = 2 * DAY


def next_ts(fields: Fields, zone: Zone, after: int) -> int | None:
    at = max(after + 1, FIRST_TS)
    if zone.is_utc and at <= LAST_TS:
        found = fields.next(at)
        return found if found is not None and found <= LAST_TS else None
    while at <= LAST_TS:
        start, end, offset, seen = zone.span_at(at)
        wall = at + offset
        if fields.is_fixed:
            if at == start and wall > seen and has_match(fields, seen, wall):
                return at
            wall = max(wall, seen)
        found = fields.next(wall)
        if found is not None and found - offset < end:
            return found - offset if found - offset <= LAST_TS else None
        at = _look_next(at, end, found, offset)
    return None


def _look_next(at: int, end: int, found: int | None, offset: int) -> int:
    """Where to continue when the span that ends at ``end`` has no more matches."""
    if end - at < _REACH:
        return end
    if found is None:
        return LAST_TS + 1
    # Nothing matches before the wall time `found`, and no fold reaches back this far: skip
    # the spans between.
    return max(end, found - offset - _REACH)


def prev_ts(fields: Fields, zone: Zone, before: int) -> int | None:
    at = min(before - 1, LAST_TS)
    if zone.is_utc and at >= FIRST_TS:
        found = fields.prev(at)
        return found if found is not None and found >= FIRST_TS else None
    while at >= FIRST_TS:
        start, _, offset, seen = zone.span_at(at)
        found = fields.prev(at + offset)
        lowest = start + offset
        if found is not None and found >= (max(lowest, seen) if fields.is_fixed else lowest):
            return found - offset if found - offset >= FIRST_TS else None
        if fields.is_fixed and has_match(fields, seen, lowest):
            return start
        if at - start < _REACH:
            at = start - 1
        elif found is None:
            return None
        else:
            at = min(start - 1, found - offset + _REACH)
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
        found = fields.next(wall)
        if found is None or found - offset >= end:
            at = _look_next(at, end, found, offset)
            continue
        yield from fields.between(found, min(end, last + 1) + offset, offset)
        at = end


def count(fields: Fields, zone: Zone, first: int, last: int) -> int:
    """How many firings there are, ``first <= ts <= last``, without visiting them."""
    at, last, total = max(first, FIRST_TS), min(last, LAST_TS), 0
    while at <= last:
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
    found = fields.next(first)
    return found is not None and found < last
