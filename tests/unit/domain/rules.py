"""Rules for tests of ticking: simple enough to be right, and strange enough to be useful."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from unit.builders import NOON


@dataclass(frozen=True)
class Grid:
    """An instant every ``length``, for ever, on a grid through noon."""

    length: timedelta
    tz: str = "UTC"

    def next_after(self, after: datetime) -> datetime | None:
        return self._at((after - NOON) // self.length + 1)

    def prev_before(self, before: datetime) -> datetime | None:
        return self._at(-((NOON - before) // self.length) - 1)

    def count_between(self, first: datetime, last: datetime) -> int:
        return (last - NOON) // self.length + (NOON - first) // self.length + 1

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def to_text(self) -> str:
        return f"every {self.length}"

    def _at(self, step: int) -> datetime:
        return (NOON + step * self.length).astimezone(ZoneInfo(self.tz))


@dataclass(frozen=True)
class Stuck(Grid):
    """A rule that breaks its promise: it never moves on."""

    def next_after(self, after: datetime) -> datetime | None:
        return after

    def prev_before(self, before: datetime) -> datetime | None:
        return before


@dataclass(frozen=True)
class Ending(Grid):
    """A grid that ends at noon."""

    def next_after(self, after: datetime) -> datetime | None:
        found = super().next_after(after)
        return None if found is None or found > NOON else found

    def prev_before(self, before: datetime) -> datetime | None:
        return super().prev_before(min(before, NOON + timedelta(microseconds=1)))


@dataclass(frozen=True)
class Forgetful(Grid):
    """A rule that was changed since: it knows nothing of the instants that it gave."""

    def prev_before(self, before: datetime) -> datetime | None:
        return None

    def count_between(self, first: datetime, last: datetime) -> int:
        return 0
