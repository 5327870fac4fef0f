"""Who is who. Ids are distinct types, so that one cannot be passed for another."""

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NewType

RunId = NewType("RunId", str)
ScheduleId = NewType("ScheduleId", str)
WorkerId = NewType("WorkerId", str)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


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
    digest = _digest(schedule, nominal_at).hex()
    milliseconds = (nominal_at - _EPOCH) // _MILLISECOND
    # Masked, for the few who schedule something before 1970.
    head = f"{milliseconds & 0xFFFF_FFFF_FFFF:012x}"
    return RunId(f"{head[:8]}-{head[8:]}-8{digest[:3]}-8{digest[3:6]}-{digest[6:18]}")


def spread(schedule: ScheduleId, nominal_at: datetime, *, within: timedelta) -> timedelta:
    """A delay in [0, ``within``) that is stable for this instant of this schedule.

    Every worker computes the same one, and over many schedules they lie evenly.
    """
    share = int.from_bytes(_digest(schedule, nominal_at)[9:16])  # what the id does not use
    return (within // _MICROSECOND * share >> 56) * _MICROSECOND


def _digest(schedule: ScheduleId, nominal_at: datetime) -> bytes:
    instant = (nominal_at - _EPOCH) // _MICROSECOND
    return blake2b(f"{schedule} {instant}".encode(), digest_size=16).digest()
