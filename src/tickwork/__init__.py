"""A job scheduler and durable queue on the database you already have.

Names are loaded at their first use: ``import tickwork`` is fast, and loads no driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork._client.builder import JobBuilder, ScheduleBuilder
    from tickwork._client.jobs import AsyncDraft, Draft, Job
    from tickwork._client.runs import AsyncRunHandle, RunHandle
    from tickwork._client.schedule_definition import ScheduleDefinition
    from tickwork._client.schedule_view import ScheduleView
    from tickwork._define.arguments import Secret
    from tickwork._define.context import RunContext, current_run
    from tickwork._define.handlers import ScheduledJob
    from tickwork._define.options import JobDefaults
    from tickwork._domain.job import Misfire, Overlap
    from tickwork._domain.outcome import JobResult
    from tickwork._domain.run import Run
    from tickwork._domain.status import RunStatus
    from tickwork._kernel.clock import Clock
    from tickwork.app import Tickwork
    from tickwork.errors import Discard, RetryLater, Snooze, TickworkError, UndispatchedDraft
    from tickwork.schedules import Cron
    from tickwork.stores.contract import Attempt, RunFilter

__version__ = "0.1.0"

__all__ = [
    "AsyncDraft",
    "AsyncRunHandle",
    "Attempt",
    "Clock",
    "Cron",
    "Discard",
    "Draft",
    "Job",
    "JobBuilder",
    "JobDefaults",
    "JobResult",
    "Misfire",
    "Overlap",
    "RetryLater",
    "Run",
    "RunContext",
    "RunFilter",
    "RunHandle",
    "RunStatus",
    "ScheduleBuilder",
    "ScheduleDefinition",
    "ScheduleView",
    "ScheduledJob",
    "Secret",
    "Snooze",
    "Tickwork",
    "TickworkError",
    "UndispatchedDraft",
    "__version__",
    "current_run",
]

_HOMES = {
    "AsyncDraft": "tickwork._client.jobs",
    "AsyncRunHandle": "tickwork._client.runs",
    "Attempt": "tickwork.stores.contract",
    "Clock": "tickwork._kernel.clock",
    "Cron": "tickwork.schedules",
    "Discard": "tickwork.errors",
    "Draft": "tickwork._client.jobs",
    "Job": "tickwork._client.jobs",
    "JobBuilder": "tickwork._client.builder",
    "JobDefaults": "tickwork._define.options",
    "JobResult": "tickwork._domain.outcome",
    "Misfire": "tickwork._domain.job",
    "Overlap": "tickwork._domain.job",
    "RetryLater": "tickwork.errors",
    "Run": "tickwork._domain.run",
    "RunContext": "tickwork._define.context",
    "RunFilter": "tickwork.stores.contract",
    "RunHandle": "tickwork._client.runs",
    "RunStatus": "tickwork._domain.status",
    "ScheduleBuilder": "tickwork._client.builder",
    "ScheduleDefinition": "tickwork._client.schedule_definition",
    "ScheduleView": "tickwork._client.schedule_view",
    "ScheduledJob": "tickwork._define.handlers",
    "Secret": "tickwork._define.arguments",
    "Snooze": "tickwork.errors",
    "Tickwork": "tickwork.app",
    "TickworkError": "tickwork.errors",
    "UndispatchedDraft": "tickwork.errors",
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
