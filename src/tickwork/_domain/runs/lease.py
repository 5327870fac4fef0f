"""Leases: how long a claim is valid, when to extend it, and when to stop the attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.ranges import Range

LEASE_MIN: Final = timedelta(seconds=1)
LEASE_MAX: Final = timedelta(days=1)
LEASE_RANGE: Final = Range(
    LEASE_MIN, LEASE_MAX, fix="A lease may be shorter than the work: heartbeats extend it."
)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim is valid unless it is extended.

    >>> lease = Lease(timedelta(seconds=60))
    >>> lease.beat_every, lease.stop_after
    (datetime.timedelta(seconds=20), datetime.timedelta(seconds=48))
    """

    length: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        LEASE_RANGE.check("lease", self.length)

    @property
    def beat_every(self) -> timedelta:
        """The interval of heartbeats. The lease survives one lost heartbeat."""
        return self.length / 3

    @property
    def stop_after(self) -> timedelta:
        """How long after the last successful heartbeat the worker must stop the attempt.

        Another worker may claim the run when the lease expires. The last fifth is the time for
        this worker to stop.
        """
        return self.length * 4 / 5

    def until(self, now: datetime) -> datetime:
        """When a lease that is extended now expires."""
        return now + self.length

    def must_stop(self, *, extended_at: float, monotonic: float) -> bool:
        """Whether the worker must stop the attempt, by its own monotonic clock.

        ``extended_at`` is the time *before* the worker sent the last successful heartbeat: the
        database may have executed it at any moment after that.
        """
        return monotonic - extended_at >= self.stop_after.total_seconds()


LEASE_DEFAULT: Final = Lease()


def has_expired(lease_until: datetime, *, now: datetime) -> bool:
    """Whether other workers may claim the run. ``now`` is the time of the database."""
    return now >= lease_until
