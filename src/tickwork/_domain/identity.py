"""Who is who. Ids are distinct types, so that one cannot be passed for another."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NewType

RunId = NewType("RunId", str)
ScheduleId = NewType("ScheduleId", str)
WorkerId = NewType("WorkerId", str)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def firing_id(schedule: ScheduleId, nominal_at: datetime) -> RunId:
    """The id of the run that this instant of this schedule gives: always the same one.

    A ticker that does not know whether its insert arrived can repeat it without a
    duplicate. It is a UUID of version 8 that starts with the instant, as those of
    version 7 do, so that fired runs and dispatched ones sort together:

    >>> from datetime import UTC, datetime
    >>> hourly = ScheduleId("019b76da-a800-7000-8000-000000000001")
    >>> firing_id(hourly, datetime(2026, 1, 1, 9, tzinfo=UTC))
    '019b78c9-0a80-835a-81a6-1253e46ebd76'
    """
    instant = _micros(nominal_at - _EPOCH)
    digest = _digest(schedule, instant).hex()
    # Masked, for the few who schedule something before 1970.
    head = f"{instant // 1000 & 0xFFFF_FFFF_FFFF:012x}"
    return RunId(f"{head[:8]}-{head[8:]}-8{digest[:3]}-8{digest[3:6]}-{digest[6:18]}")


def spread(schedule: ScheduleId, nominal_at: datetime, *, within: timedelta) -> timedelta:
    """A delay in [0, ``within``) that is stable for this instant of this schedule.

    Every worker computes the same one, and over many schedules they lie evenly.
    """
    digest = _digest(schedule, _micros(nominal_at - _EPOCH))
    share = int.from_bytes(digest[9:16])  # what the id does not use
    return timedelta(microseconds=_micros(within) * share >> 56)


def _digest(schedule: ScheduleId, instant: int) -> bytes:
    return blake2b(f"{schedule} {instant}".encode(), digest_size=16).digest()


def _micros(length: timedelta) -> int:
    # By its parts, which takes half as long as a division.
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds
