"""The common base of cron expressions and patterns."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NoReturn

from tickwork._domain.schedules import search
from tickwork._domain.schedules.contract import check_count
from tickwork._domain.schedules.describe import describe
from tickwork._domain.schedules.fields import Fields, FieldValues
from tickwork._domain.schedules.zones import LAST_TS, UTC_ZONE, Zone, floor_ts
from tickwork._kernel.step_budget import step_budget


class CalendarRule:
    """Calendar fields in a time zone. Immutable.

    Rules are equal if their texts are equal, not if they match the same times.
    """

    __slots__ = ("_fields", "_identity", "_zone")

    _fields: Fields
    _zone: Zone
    _identity: tuple[object, ...]  # for equality

    def __init__(self, identity: tuple[object, ...], values: FieldValues, zone: Zone) -> None:
        put = object.__setattr__
        put(self, "_identity", identity)
        put(self, "_fields", Fields(values))
        put(self, "_zone", zone)

    @property
    def tz(self) -> str:
        """The name of the time zone."""
        return self._zone.name

    @property
    def values(self) -> FieldValues:
        """The allowed values of each field."""
        return self._fields.values

    def next_ts(self, after: int) -> int | None:
        """:meth:`next` in whole seconds since 1970."""
        return search.next_ts(self._fields, self._zone, after)

    def prev_ts(self, before: int) -> int | None:
        """:meth:`prev` in whole seconds since 1970."""
        return search.prev_ts(self._fields, self._zone, before)

    def next(self, after: datetime) -> datetime | None:
        """The first firing strictly after this time; None if there is none."""
        ts = floor_ts(after)
        if self._zone is UTC_ZONE and 0 <= ts < LAST_TS:
            # The same as below with fewer calls, which take most of the time.
            due_ts = self._fields.next(ts + 1)
            return (
                None if due_ts is None or due_ts > LAST_TS else datetime.fromtimestamp(due_ts, UTC)
            )
        due_ts = search.next_ts(self._fields, self._zone, ts)
        return None if due_ts is None else self._zone.datetime_at(due_ts)

    def prev(self, before: datetime) -> datetime | None:
        """The last firing strictly before this time; None if there is none."""
        # With a fraction of a second, a firing in this second is earlier.
        ts = floor_ts(before) + (before.microsecond > 0)
        due_ts = search.prev_ts(self._fields, self._zone, ts)
        return None if due_ts is None else self._zone.datetime_at(due_ts)

    def next_after(self, after: datetime) -> datetime | None:
        """The same as :meth:`next`; all rules have this method."""
        return self.next(after)

    def prev_before(self, before: datetime) -> datetime | None:
        """The same as :meth:`prev`; all rules have this method."""
        return self.prev(before)

    def matches(self, moment: datetime) -> bool:
        """Whether this time is a firing. Firings are whole seconds."""
        if moment.microsecond and moment.tzinfo is not None:
            return False
        if moment.tzinfo is UTC and self._zone is UTC_ZONE:
            fields = self._fields
            return fields.has_time(moment.hour, moment.minute, moment.second) and fields.has_date(
                moment.year, moment.month, moment.day
            )
        return search.matches_ts(self._fields, self._zone, floor_ts(moment))

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Every firing from ``first`` to ``last``, both included, in order."""
        start = floor_ts(first) + (first.microsecond > 0)
        instants = search.instants(self._fields, self._zone, start, floor_ts(last))
        return self._zone.datetimes(instants, first=start)

    @step_budget()
    def count_between(self, first: datetime, last: datetime) -> int:
        """The number of firings from ``first`` to ``last``, without iterating over them."""
        start = floor_ts(first) + (first.microsecond > 0)
        return search.count(self._fields, self._zone, start, floor_ts(last))

    def take(self, count: int, after: datetime) -> Sequence[datetime]:
        """The next ``count`` firings after this time; fewer if there are no more."""
        first = self.next_ts(floor_ts(after))
        if first is None or check_count(count) == 0:
            return []
        instants = search.instants(self._fields, self._zone, first, LAST_TS)
        return list(self._zone.datetimes(islice(instants, count), first=first))

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        """The same as :meth:`take`; all rules have this method."""
        return self.take(count, after)

    def describe(self) -> str:
        """The rule in plain English, with its time zone."""
        return f"{describe(self._fields.values)} ({self._zone.name})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")
