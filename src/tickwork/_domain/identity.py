"""Ids. Each kind is its own type, so that the type checker finds mix-ups."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NewType

RunId = NewType("RunId", str)
ScheduleId = NewType("ScheduleId", str)
WorkerId = NewType("WorkerId", str)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def firing_id(schedule: ScheduleId, nominal_at: datetime) -> RunId:
    """The id of the run for this firing. It is always the same.

    So a ticker can repeat an insert of unknown outcome without a duplicate. The id is a UUID of
    version 8. It starts with the time, as version 7 does, so that runs of schedules and
    dispatched runs sort together:

    >>> from datetime import UTC, datetime
    >>> hourly = ScheduleId("019b76da-a800-7000-8000-000000000001")
    >>> firing_id(hourly, datetime(2026, 1, 1, 9, tzinfo=UTC))
    '019b78c9-0a80-835a-81a6-1253e46ebd76'
    """
    micros = _micros(nominal_at - _EPOCH)
    digest = _digest(schedule, micros).hex()
    # Masked, for times before 1970.
    head = f"{micros // 1000 & 0xFFFF_FFFF_FFFF:012x}"
    return RunId(f"{head[:8]}-{head[8:]}-8{digest[:3]}-8{digest[3:6]}-{digest[6:18]}")


def jitter_of(schedule: ScheduleId, nominal_at: datetime, *, within: timedelta) -> timedelta:
    """The jitter of this firing: a delay in [0, ``within``), the same on every worker."""
    digest = _digest(schedule, _micros(nominal_at - _EPOCH))
    share = int.from_bytes(digest[9:16])  # bits that the id does not use
    return timedelta(microseconds=_micros(within) * share >> 56)


def _digest(schedule: ScheduleId, micros: int) -> bytes:
    return blake2b(f"{schedule} {micros}".encode(), digest_size=16).digest()


def _micros(length: timedelta) -> int:
    # This takes half the time of a division.
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds


def drain_lock_of(worker: WorkerId) -> str:
    """The lock that asks a worker to drain: as the row of a lock, the request needs no table."""
    return f"tickwork drain {worker}"


def unwritten_lock_of(worker: WorkerId) -> str:
    """The lock whose owner is a report about outcomes that a worker could not write."""
    return f"tickwork unwritten {worker}"


def problem_lock_of(worker: WorkerId) -> str:
    """The lock whose owner is a report about the part of a worker that cannot work."""
    return f"tickwork problem {worker}"
