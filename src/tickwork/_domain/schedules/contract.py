"""The contract of all schedule rules."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, Protocol, runtime_checkable

from tickwork.errors import InvalidOption


@runtime_checkable
class Rule(Protocol):
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


def walk(rule: Rule, after: datetime) -> Iterator[datetime]:
    """All firings after this time. This never ends, unless the rule does."""
    due_at = rule.next_after(after)
    while due_at is not None:
        yield due_at
        due_at = rule.next_after(due_at)


PREVIEW_MAX: Final = 100_000


def take(rule: Rule, count: int, *, after: datetime) -> Sequence[datetime]:
    """The next ``count`` firings after this time; fewer if the rule ends."""
    return list(islice(walk(rule, after), check_count(count)))


def check_count(count: int) -> int:
    if not 0 <= count <= PREVIEW_MAX:
        raise InvalidOption("count", count, f"must be between 0 and {PREVIEW_MAX:,}")
    return count
