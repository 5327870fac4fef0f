"""How fast runs arrive, by queue."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.rollups import minute_of
from tickwork._stores.contract import CreatedRuns, Store

COUNTED_MAX: Final = 10_000
"""The newest runs that are counted: with more in the span of time, it is a shorter one."""

RATE_MINUTES: Final = 5
"""Rates are those of the last minutes, the current one included."""

_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The runs that were created since an instant."""

    since: datetime
    now: datetime
    counts: list[CreatedRuns]

    def per_minute(self, queue: str | None = None) -> float:
        """How many runs were created per minute: in one queue, or in all."""
        number = sum(each.number for each in self.counts if queue in {None, each.queue})
        return number / (max(self.now - self.since, _SECOND) / _MINUTE)


def read_arrivals(store: Store, *, now: datetime) -> Arrivals:
    """Count the runs of the last five minutes, or of the time in which the newest arrived."""
    since = minute_of(now) - (RATE_MINUTES - 1) * _MINUTE
    created = store.count_created(since=since, most=COUNTED_MAX)
    return Arrivals(created.since, now, created.counts)
