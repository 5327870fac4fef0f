"""Every change that the dashboard and the API can make, each declared once with ``@act``."""

from typing import Final

from tickwork.dashboard.actions import ACTS
from tickwork.dashboard.acts import (
    alerts,
    definitions,
    events,
    limits,
    pauses,
    runs,
    schedules,
    workers,
)

__all__ = [
    "ALL_ACTS",
    "alerts",
    "definitions",
    "events",
    "limits",
    "pauses",
    "runs",
    "schedules",
    "workers",
]

ALL_ACTS: Final = tuple(ACTS.values())
