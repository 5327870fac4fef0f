"""What every rule can do, whatever it is made of."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Schedule(Protocol):
    """A rule that says when something is due: an immutable value, stored as text.

    Instants are aware datetimes in whole seconds, in the rule's own zone.
    """

    @property
    def tz(self) -> str:
        """The name of the zone in which the rule thinks."""
        ...

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant strictly after this one; None when there is no more."""
        ...

    def prev_before(self, before: datetime) -> datetime | None:
        """The last instant strictly before this one; None when there was none."""
        ...

    def count_between(self, first: datetime, last: datetime) -> int:
        """How many instants there are from ``first`` to ``last``, both included."""
        ...

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        """The next ``count`` instants after this one; fewer when the rule ends."""
        ...

    def describe(self) -> str:
        """The rule in plain English."""
        ...

    def to_text(self) -> str:
        """The rule as text that ``schedules.from_text`` reads back; equal rules, equal text."""
        ...


def walk(rule: Schedule, after: datetime) -> Iterator[datetime]:
    """Every instant after this one. Endless, unless the rule ends: bound it."""
    found = rule.next_after(after)
    while found is not None:
        yield found
        found = rule.next_after(found)
