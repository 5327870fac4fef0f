"""How long a claim holds, when to extend it, and when to let go of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._kernel.durations import format_duration
from tickwork.errors import InvalidOption

LEASE_MIN: Final = timedelta(seconds=1)
LEASE_MAX: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Lease:
    """A length for which a claim holds unless it is extended.

    >>> lease = Lease(timedelta(seconds=60))
    >>> lease.beat_every, lease.stop_after
    (datetime.timedelta(seconds=20), datetime.timedelta(seconds=48))
    """

    length: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if not LEASE_MIN <= self.length <= LEASE_MAX:
            raise InvalidOption(
                "lease",
                self.length,
                f"must be between {format_duration(LEASE_MIN)} and {format_duration(LEASE_MAX)}",
                fix="A lease may be shorter than the work: heartbeats extend it.",
            )

    @property
    def beat_every(self) -> timedelta:
        """The pace of heartbeats: one of them may be lost without losing the lease."""
        return self.length / 3

    @property
    def stop_after(self) -> timedelta:
        """How long after the last heartbeat that landed the holder must stop its work.

        Others may take the run at the end of the lease. The last fifth is what this
        worker has to notice, and to stop.
        """
        return self.length * 4 / 5

    def until(self, now: datetime) -> datetime:
        """When a lease that is taken or extended now will end."""
        return now + self.length

    def must_stop(self, *, extended_at: float, monotonic: float) -> bool:
        """Whether the holder has to stop, by its own monotonic clock.

        ``extended_at`` is that clock's time *before* the request which last extended the
        lease was sent: the database may have acted on it at any moment after that.
        """
        return monotonic - extended_at >= self.stop_after.total_seconds()


LEASE_DEFAULT: Final = Lease()


def has_expired(lease_until: datetime, *, now: datetime) -> bool:
    """Whether others may take the run. ``now`` is the database's time."""
    return now >= lease_until
