"""The contract of all schedule rules."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Protocol, runtime_checkable

from tickwork.errors import InvalidOption


@runtime_checkable
class Schedule(Protocol):
    """A schedule rule: an immutable value that can be stored as text.

    Firings are aware datetimes in whole seconds, in the time zone of the rule.
    """

    @property
    def tz(self) -> str:
        """The name of the time zone."""
        ...

    def next_after(self, after: datetime) -> datetime | None:
        """The first firing strictly after this time; None if there is none."""
        ...

    def prev_before(self, before: datetime) -> datetime | None:
        """The last firing strictly before this time; None if there is none."""
        ...

    def count_between(self, first: datetime, last: datetime) -> int:
        """The number of firings from ``first`` to ``last``, both included."""
        ...

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        """The next ``count`` firings after this time; fewer if the rule ends."""
        ...

    def describe(self) -> str:
        """The rule in plain English."""
        ...

    def to_text(self) -> str:
        """The rule as text, for ``schedules.from_text``. Equal rules have equal texts."""
        ...


def walk(rule: Schedule, after: datetime) -> Iterator[datetime]:
    """All firings after this time. This never ends, unless the rule does."""
    found = rule.next_after(after)
    while found is not None:
        yield found
        found = rule.next_after(found)


class PreviewClock:
    """The clock of a preview without a start. ``tickwork.schedules`` sets it.

    The domain does not read the time itself.
    """

    now: ClassVar[Callable[[], datetime] | None] = None


def preview_start(after: datetime | None) -> datetime:
    """The time after which a preview begins."""
    if after is not None:
        return after
    if PreviewClock.now is None:
        raise InvalidOption(
            "after", None, "must be a datetime with a time zone", fix="Import tickwork.schedules."
        )
    return PreviewClock.now()
