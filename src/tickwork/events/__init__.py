"""Facts about runs and schedules, told after the fact.

>>> from tickwork.events import RunFailed
>>> [field for field in RunFailed.__dataclass_fields__][-3:]
['attempt', 'error', 'retry_at']
"""

from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "Event",
    "RunCanceled",
    "RunDispatched",
    "RunFailed",
    "RunGaveUp",
    "RunLost",
    "RunPutOff",
    "RunSkipped",
    "RunStarted",
    "RunSucceeded",
    "ScheduleFired",
    "ScheduleSetAside",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that has happened. Subscribe to it to be told of everything."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunEvent(Event):
    run_id: str
    job: str
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDispatched(_RunEvent):
    """A run was added by this process.

    One that takes part in a transaction of the caller's is not told: whether it comes to be
    is decided by a commit that tickwork does not see.
    """

    queue: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_RunEvent):
    """An attempt begins: the handler is about to be called."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSucceeded(_RunEvent):
    """The run is completed."""

    attempt: int
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(_RunEvent):
    """An attempt failed, and there will be another one at ``retry_at``."""

    attempt: int
    error: str
    retry_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGaveUp(_RunEvent):
    """The run failed for the last time; a person decides what follows."""

    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(_RunEvent):
    """A filter or a policy held the run back for good."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPutOff(_RunEvent):
    """The run was given back without an attempt: held back, snoozed or interrupted."""

    reason: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCanceled(_RunEvent):
    """The run was canceled."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLost(_RunEvent):
    """What an attempt came to could not be written: another worker has the run."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFired(Event):
    """An instant of a schedule gave a run."""

    schedule: str
    tenant: str
    job: str
    run_id: str
    nominal_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSetAside(Event):
    """A schedule that is due could not be fired by this process."""

    schedule_id: str
    reason: str
