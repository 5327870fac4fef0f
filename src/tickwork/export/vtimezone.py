"""Describes a time zone for a calendar file: a ``VTIMEZONE`` component of RFC 5545."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tickwork._domain.schedules.zones import EPOCH, Zone, floor_ts

_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_YEARS_MIN: Final = 3
"""A change becomes a yearly rule if it followed the rule in at least so many years."""


class _Kind(NamedTuple):
    """What the clock changes of one kind have in common."""

    is_dst: bool
    before: int
    after: int
    name: str


def timezone_lines(zone: Zone, *, begin: datetime, end: datetime) -> list[str]:
    """The lines of the component, with the clock changes from ``begin`` until ``end``.

    A change that follows the same rule every year is written as that rule, which does not end.
    """
    onsets: defaultdict[_Kind, list[datetime]] = defaultdict(list)
    span = zone.span_at(floor_ts(begin))
    offset = span.offset
    onsets[_kind(zone, span.start, offset, offset)].append(_wall(span.start, offset))
    while span.end < floor_ts(end):
        at, span = span.end, zone.span_at(span.end)
        if span.offset != offset:
            onsets[_kind(zone, at, offset, span.offset)].append(_wall(at, offset))
            offset = span.offset
    return [
        "BEGIN:VTIMEZONE",
        f"TZID:{zone.name}",
        *(line for kind, walls in onsets.items() for line in _component(kind, walls, end.year)),
        "END:VTIMEZONE",
    ]


def _kind(zone: Zone, at: int, before: int, after: int) -> _Kind:
    moment = zone.datetime_at(at)
    return _Kind(bool(moment.dst()), before, after, moment.tzname() or zone.name)


def _wall(at: int, offset: int) -> datetime:
    """The wall time of a change by the offset before it, as RFC 5545 writes it."""
    return (EPOCH + timedelta(seconds=at + offset)).replace(tzinfo=None)


def _component(kind: _Kind, walls: Sequence[datetime], last: int) -> list[str]:
    name = "DAYLIGHT" if kind.is_dst else "STANDARD"
    lines = [
        f"BEGIN:{name}",
        f"DTSTART:{walls[0]:%Y%m%dT%H%M%S}",
        f"TZOFFSETFROM:{_offset(kind.before)}",
        f"TZOFFSETTO:{_offset(kind.after)}",
        f"TZNAME:{kind.name}",
    ]
    rule = _yearly_rule(walls, last=last)
    if rule:
        lines.append(f"RRULE:{rule}")
    else:
        lines += [f"RDATE:{wall:%Y%m%dT%H%M%S}" for wall in walls[1:]]
    return [*lines, f"END:{name}"]


def _yearly_rule(walls: Sequence[datetime], *, last: int) -> str:
    """The rule of changes that repeat every year; empty if they do not."""
    first = walls[0]
    years = [wall.year for wall in walls]
    if len(walls) < _YEARS_MIN or years != list(range(first.year, first.year + len(walls))):
        return ""
    if years[-1] < last - 1:
        return ""  # the zone gives it up
    if {(w.month, w.weekday(), w.time()) for w in walls} != {
        (first.month, first.weekday(), first.time())
    }:
        return ""
    for week in _weeks(walls):
        return f"FREQ=YEARLY;BYMONTH={first.month};BYDAY={week}{_WEEKDAYS[first.weekday()]}"
    return ""


def _weeks(walls: Sequence[datetime]) -> Iterator[int]:
    """Which weekday of its month every wall time is: the second is 2, the last is -1."""
    if all((wall + timedelta(days=7)).month != wall.month for wall in walls):
        yield -1
    if len({(wall.day - 1) // 7 for wall in walls}) == 1:
        yield (walls[0].day - 1) // 7 + 1


def _offset(seconds: int) -> str:
    sign = "-" if seconds < 0 else "+"
    minutes, rest = divmod(abs(seconds), 60)
    return f"{sign}{minutes // 60:02}{minutes % 60:02}" + (f"{rest:02}" if rest else "")
