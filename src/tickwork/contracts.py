"""The contracts that a program can implement itself: stores, engines, clocks, handlers, calendars.

All are protocols: a class needs their methods, and no base class. ``tickwork.testing.conformance``
has test suites for stores and engines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tickwork._define.engine_choice import EngineRegistration
from tickwork._define.handlers import JobHandler
from tickwork._domain.schedules.contract import Schedule
from tickwork._kernel.clock import Clock
from tickwork.engines.contract import Engine, EngineHost, EngineSetup
from tickwork.stores.contract import Store

__all__ = [
    "CalendarEntry",
    "CalendarExporter",
    "Clock",
    "Engine",
    "EngineHost",
    "EngineRegistration",
    "EngineSetup",
    "JobHandler",
    "Store",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarEntry:
    """A schedule, as an exporter of calendars gets it.

    ``id`` stays the same as long as the schedule exists. ``rule`` computes the firings.
    """

    id: str
    name: str
    job: str
    rule: Schedule
    tenant: str = ""
    description: str = ""


class CalendarExporter(Protocol):
    """Writes schedules as a calendar."""

    def export(self, entries: Iterable[CalendarEntry], *, begin: datetime, end: datetime) -> str:
        """Return a calendar with the firings from ``begin`` until ``end``.

        Where the format can express a rule exactly, the calendar may contain the rule itself.
        """
        ...
