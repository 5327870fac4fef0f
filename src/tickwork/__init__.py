"""A job scheduler and durable queue on the database you already have.

Names are loaded at their first use: ``import tickwork`` is fast, and loads no driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork._control.schedule_definition import ScheduleDefinition
    from tickwork._control.schedule_view import ScheduleView
    from tickwork._define.options import JobDefaults
    from tickwork._dispatch.builder import JobBuilder, ScheduleBuilder
    from tickwork._dispatch.jobs import AsyncDraft, Draft, Job
    from tickwork._dispatch.runs import AsyncRunHandle, RunHandle
    from tickwork._domain.job import Misfire, Overlap
    from tickwork._domain.runs.outcome import JobResult
    from tickwork._domain.runs.run import Run
    from tickwork._domain.runs.status import RunStatus
    from tickwork._handlers.arguments import Secret
    from tickwork._handlers.context import RunContext, current_run
    from tickwork._handlers.handlers import ScheduledJob
    from tickwork._kernel.clock import Clock
    from tickwork._stores.contract import Attempt, RunFilter
    from tickwork.app.tickwork import Tickwork
    from tickwork.errors import Discard, RetryLater, Snooze, TickworkError, UndispatchedDraft
    from tickwork.schedules import Cron

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
    "AsyncDraft": "tickwork._dispatch.jobs",
    "AsyncRunHandle": "tickwork._dispatch.runs",
    "Attempt": "tickwork._stores.contract",
    "Clock": "tickwork._kernel.clock",
    "Cron": "tickwork.schedules",
    "Discard": "tickwork.errors",
    "Draft": "tickwork._dispatch.jobs",
    "Job": "tickwork._dispatch.jobs",
    "JobBuilder": "tickwork._dispatch.builder",
    "JobDefaults": "tickwork._define.options",
    "JobResult": "tickwork._domain.runs.outcome",
    "Misfire": "tickwork._domain.job",
    "Overlap": "tickwork._domain.job",
    "RetryLater": "tickwork.errors",
    "Run": "tickwork._domain.runs.run",
    "RunContext": "tickwork._handlers.context",
    "RunFilter": "tickwork._stores.contract",
    "RunHandle": "tickwork._dispatch.runs",
    "RunStatus": "tickwork._domain.runs.status",
    "ScheduleBuilder": "tickwork._dispatch.builder",
    "ScheduleDefinition": "tickwork._control.schedule_definition",
    "ScheduleView": "tickwork._control.schedule_view",
    "ScheduledJob": "tickwork._handlers.handlers",
    "Secret": "tickwork._handlers.arguments",
    "Snooze": "tickwork.errors",
    "Tickwork": "tickwork.app.tickwork",
    "TickworkError": "tickwork.errors",
    "UndispatchedDraft": "tickwork.errors",
    "current_run": "tickwork._handlers.context",
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
