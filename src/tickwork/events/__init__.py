"""Events: what happened to runs and schedules. Subscribe with ``@app.on(RunFailed)``.

A worker publishes an event after the change is in the database.

>>> from tickwork.events import AttemptFailed
>>> [field for field in AttemptFailed.__dataclass_fields__][-3:]
['attempt', 'error', 'retry_at']
"""

from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "AttemptFailed",
    "Event",
    "RunCanceled",
    "RunDispatched",
    "RunFailed",
    "RunLost",
    "RunPostponed",
    "RunSkipped",
    "RunStarted",
    "RunSucceeded",
    "ScheduleFired",
    "ScheduleNotFired",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. A subscriber to it gets every event."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunEvent(Event):
    run_id: str
    job: str
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDispatched(_RunEvent):
    """This process dispatched a run.

    A dispatch inside the caller's own transaction publishes no event: tickwork cannot see
    whether the caller commits it.
    """

    queue: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_RunEvent):
    """An attempt starts: the worker is about to call the handler."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSucceeded(_RunEvent):
    """The run is completed."""

    attempt: int
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(_RunEvent):
    """An attempt failed. ``retry_at`` is None if it was the last one: RunFailed follows."""

    attempt: int
    error: str
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(_RunEvent):
    """The run failed for the last time. It is not retried automatically."""

    attempt: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(_RunEvent):
    """A filter or a policy skipped the run. The handler is never called."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPostponed(_RunEvent):
    """The run is due again later: a filter deferred it, or it was snoozed or interrupted.

    The attempt does not count.
    """

    reason: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCanceled(_RunEvent):
    """The run was canceled."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLost(_RunEvent):
    """The outcome of an attempt was not stored: another worker has taken over the run."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFired(Event):
    """A schedule fell due and created a run."""

    schedule: str
    tenant: str
    job: str
    run_id: str
    nominal_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleNotFired(Event):
    """This process could not fire a due schedule, for example because its rule is invalid."""

    schedule_id: str
    reason: str
