"""Time zones as integer arithmetic.

A zone is a sequence of spans, each with one offset from UTC. A wall time is a number, too: the
seconds since 1970-01-01 00:00 on the wall clock. So a DST rule is a comparison of integers, and
the search for the next firing builds no datetimes.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import repeat
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from tickwork._kernel.step_budget import count_steps
from tickwork.errors import InvalidSchedule, NaiveDatetime, suggest

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = 86_400

# Searches end here. With any offset, these are still valid datetimes.
FIRST_TS: Final = -62_104_060_800  # 0002-01-01
LAST_TS: Final = 253_370_764_799  # 9998-12-31 23:59:59

# The spans of a zone are found by reading the offset every three days, and by bisection where
# two offsets differ. No zone had two changes within 3.98 days (Freetown, 1939); a test checks
# all zones.
_STEP: Final = 3 * DAY
_BLOCK_BITS: Final = 26  # spans are found and cached for 2^26 seconds (two years) at a time
_BLOCKS_MAX: Final = 64  # kept of one zone: a request may ask for any year
_BLOCK_STEPS: Final = 100  # finding the spans of a block takes as long as so many steps


class Span(NamedTuple):
    """A period with one offset: ``start <= ts < end``.

    ``seen`` is the wall time that clocks had reached before the span. If the span starts at a
    later wall time, it follows a gap. If it starts at an earlier one, it repeats part of the
    day: a fold.
    """

    start: int
    end: int
    offset: int
    seen: int


_ALL_OF_UTC: Final = Span(FIRST_TS - DAY, LAST_TS + DAY, 0, FIRST_TS - DAY)


class Zone:
    """A named time zone. Times are whole seconds since 1970."""

    __slots__ = ("_blocks", "info", "is_utc", "name")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name: str = name
        self.info: tzinfo = info
        self.is_utc: bool = name == "UTC"
        self._blocks: dict[int, tuple[Span, ...]] = {}

    @staticmethod
    def named(zone: str | tzinfo) -> "Zone":
        """The zone of this name. Equal names give the same object.

        Raises:
            InvalidSchedule: There is no such zone, or the ``tzinfo`` has no IANA name.
        """
        if isinstance(zone, str):
            return _load(zone)
        if zone is UTC:
            return _load("UTC")
        if isinstance(zone, ZoneInfo) and zone.key:
            return _load(zone.key)
        raise InvalidSchedule(
            f"{zone!r} has no IANA name.",
            why="A schedule is stored as text, with the name of its time zone.",
            fix="Use 'Europe/Berlin' or ZoneInfo('Europe/Berlin').",
        )

    def span_at(self, ts: int) -> Span:
        if self.is_utc:
            return _ALL_OF_UTC
        block = self._blocks.get(ts >> _BLOCK_BITS)
        if block is None:
            count_steps(_BLOCK_STEPS)
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            # Two threads may compute the same spans; both results are right.
            block = self._blocks[ts >> _BLOCK_BITS] = self._find_spans(ts >> _BLOCK_BITS)
        for span in block:
            if ts < span.end:
                return span
        raise AssertionError((self.name, ts))

    def ts_of_wall(self, wall: int) -> int:
        """When clocks first show this wall time. For a time in a gap, the end of the gap."""
        span = self.span_at(wall - 2 * DAY)
        while wall >= span.end + span.offset:
            span = self.span_at(span.end)
        return max(span.start, wall - span.offset)

    def datetimes(self, instants: Iterable[int], *, first: int) -> Iterator[datetime]:
        """Convert many instants, none of them before ``first``."""
        if first >= 0:
            return map(datetime.fromtimestamp, instants, repeat(self.info))
        return map(self.datetime_at, instants)

    def datetime_at(self, ts: int) -> datetime:
        if ts >= 0:
            return datetime.fromtimestamp(ts, self.info)
        # Not every platform supports negative timestamps.
        return (EPOCH + timedelta(seconds=ts)).astimezone(self.info)

    def _offset_at(self, ts: int) -> int:
        moment = EPOCH + timedelta(seconds=min(max(ts, FIRST_TS), LAST_TS))
        offset = moment.astimezone(self.info).utcoffset()
        assert offset is not None, self.name
        return offset.days * DAY + offset.seconds

    def _find_spans(self, block: int) -> tuple[Span, ...]:
        first, last = block << _BLOCK_BITS, (block + 1) << _BLOCK_BITS
        spans: list[Span] = []
        # The search starts one step early, so that `seen` includes a fold just before this block.
        start = at = first - _STEP
        offset = self._offset_at(at)
        seen = start + offset
        while at < last:
            ahead = at + _STEP
            while at < ahead:
                if self._offset_at(ahead) == offset:
                    at = ahead
                    continue
                change = self._first_change(at, ahead, offset)
                spans.append(Span(start, change, offset, seen))
                seen = max(seen, change + offset)
                start = at = change
                offset = self._offset_at(change)
        spans.append(Span(start, last, offset, seen))
        return tuple(_clip(spans, first, last))

    def _first_change(self, before: int, after: int, offset: int) -> int:
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset_at(middle) == offset:
                before = middle
            else:
                after = middle
        return after

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Zone.named, (self.name,)


def _clip(spans: list[Span], first: int, last: int) -> Iterable[Span]:
    for span in spans:
        if span.end <= first or span.start >= last:
            continue
        start, end = max(span.start, first), min(span.end, last)
        # A cut is not a clock change: clocks had reached exactly this wall time, or a later
        # one if the cut is inside of a fold.
        seen = span.seen if start == span.start else max(span.seen, start + span.offset)
        yield Span(start, end, span.offset, seen)


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    if name.upper() in {"UTC", "Z"}:
        return Zone("UTC", UTC)
    if name in {"localtime", "posixrules"}:
        raise InvalidSchedule(
            f"{name!r} is a different time zone on every machine.",
            fix="Use the name of the zone, such as 'Europe/Berlin'.",
        )
    try:
        return Zone(name, ZoneInfo(name))
    except (ValueError, OSError, LookupError):
        # LookupError: unknown. ValueError: not a name at all, such as '../x'.
        # OSError: a folder of zones, such as 'America'.
        shown = name if len(name) <= 64 else f"{name[:61]}..."
        raise InvalidSchedule(
            f"There is no time zone {shown!r}.",
            why="Time zones are named as in the IANA database, such as 'Europe/Berlin'.",
            fix=suggest(name[:64], _zone_names()),
        ) from None


@cache
def _zone_names() -> tuple[str, ...]:
    """All names, read once: that opens every file of the database."""
    return tuple(sorted(available_timezones()))


UTC_ZONE: Final = Zone.named("UTC")


def floor_ts(moment: datetime) -> int:
    """The last whole second at or before this time, exact in any year.

    Raises:
        NaiveDatetime: ``moment`` has no time zone.
    """
    if moment.tzinfo is None:
        raise NaiveDatetime(moment)
    since = moment - EPOCH
    return since.days * DAY + since.seconds
