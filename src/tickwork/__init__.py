"""A job scheduler and durable queue on the database you already have.

Names are loaded at their first use: ``import tickwork`` is fast, and loads no driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork._client.schedule_definition import ScheduleDefinition
    from tickwork._client.schedule_view import ScheduleView
    from tickwork._define.arguments import Secret
    from tickwork._define.context import RunContext, current_run
    from tickwork._define.handlers import ScheduledJob
    from tickwork._domain.outcome import JobResult
    from tickwork._domain.status import RunStatus
    from tickwork.app import Tickwork
    from tickwork.errors import Discard, RetryLater, Snooze, TickworkError
    from tickwork.schedules import Cron

__version__ = "0.1.0"

__all__ = [
    "Cron",
    "Discard",
    "JobResult",
    "RetryLater",
    "RunContext",
    "RunStatus",
    "ScheduleDefinition",
    "ScheduleView",
    "ScheduledJob",
    "Secret",
    "Snooze",
    "Tickwork",
    "TickworkError",
    "__version__",
    "current_run",
]

_HOMES = {
    "Cron": "tickwork.schedules",
    "Discard": "tickwork.errors",
    "JobResult": "tickwork._domain.outcome",
    "RetryLater": "tickwork.errors",
    "RunContext": "tickwork._define.context",
    "RunStatus": "tickwork._domain.status",
    "ScheduleDefinition": "tickwork._client.schedule_definition",
    "ScheduleView": "tickwork._client.schedule_view",
    "ScheduledJob": "tickwork._define.handlers",
    "Secret": "tickwork._define.arguments",
    "Snooze": "tickwork.errors",
    "Tickwork": "tickwork.app",
    "TickworkError": "tickwork.errors",
    "current_run": "tickwork._define.context",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tickwork' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
