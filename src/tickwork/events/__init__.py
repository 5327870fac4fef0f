"""Events: what happened to runs and schedules. Subscribe with ``@app.on(RunFailed)``.

A worker publishes an event after the change is in the database.

>>> from tickwork.events import AttemptFailed
>>> [field for field in AttemptFailed.__dataclass_fields__][-3:]
['retry_at', 'started_at', 'exception']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.events.classes import (
        AttemptFailed,
        Event,
        EventEmitted,
        ExpectationMet,
        ExpectationMissed,
        FiringsMissed,
        FiringsSkipped,
        JobFailing,
        JobRecovered,
        RunAccepted,
        RunCanceled,
        RunDispatched,
        RunFailed,
        RunLost,
        RunPostponed,
        RunReplaced,
        RunsClaimed,
        RunSkipped,
        RunStarted,
        RunSubmitted,
        RunSucceeded,
        RunSuspended,
        ScheduleFired,
        ScheduleNotFired,
    )

__all__ = [
    "AttemptFailed",
    "Event",
    "EventEmitted",
    "ExpectationMet",
    "ExpectationMissed",
    "FiringsMissed",
    "FiringsSkipped",
    "JobFailing",
    "JobRecovered",
    "RunAccepted",
    "RunCanceled",
    "RunDispatched",
    "RunFailed",
    "RunLost",
    "RunPostponed",
    "RunReplaced",
    "RunSkipped",
    "RunStarted",
    "RunSubmitted",
    "RunSucceeded",
    "RunSuspended",
    "RunsClaimed",
    "ScheduleFired",
    "ScheduleNotFired",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tickwork.events' has no attribute {name!r}")
    value = getattr(import_module("tickwork.events.classes"), name)
    globals()[name] = value
    return value
