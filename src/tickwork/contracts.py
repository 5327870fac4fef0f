"""The contracts that a program can implement itself: stores, engines, clocks, handlers, calendars.

Most are protocols: a class needs their methods, and no base class. ``ThreadPoolEngine``,
``ThreadEngine`` and ``RemoteEngine`` are bases of engines. ``tickwork_conformance`` has test
suites for stores and engines.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tickwork._define.engine_choice import EngineRegistration
from tickwork._domain.schedules.contract import Rule
from tickwork._engines.contract import Engine, EngineHealth, EngineHost, EngineSetup
from tickwork._handlers.handlers import JobHandler
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import Store

if TYPE_CHECKING:
    from tickwork._engines.local.thread_pool import ThreadPoolEngine
    from tickwork._engines.local.threads import ThreadEngine
    from tickwork._engines.remote.remote_engine import (
        Handover,
        RemoteEngine,
        Transport,
        encode_message,
    )
    from tickwork._engines.wire import AppLocation

__all__ = [
    "AppLocation",
    "CalendarEntry",
    "CalendarExporter",
    "Clock",
    "Engine",
    "EngineHealth",
    "EngineHost",
    "EngineRegistration",
    "EngineSetup",
    "Handover",
    "JobHandler",
    "RemoteEngine",
    "Store",
    "ThreadEngine",
    "ThreadPoolEngine",
    "Transport",
    "encode_message",
]

_HOMES = {
    "AppLocation": "tickwork._engines.wire",
    "Handover": "tickwork._engines.remote.remote_engine",
    "RemoteEngine": "tickwork._engines.remote.remote_engine",
    "ThreadEngine": "tickwork._engines.local.threads",
    "ThreadPoolEngine": "tickwork._engines.local.thread_pool",
    "Transport": "tickwork._engines.remote.remote_engine",
    "encode_message": "tickwork._engines.remote.remote_engine",
}
"""Loaded at their first use: exporters of calendars need no engine."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tickwork.contracts' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarEntry:
    """A schedule, as an exporter of calendars gets it.

    ``id`` stays the same as long as the schedule exists. ``rule`` computes the firings.
    """

    id: str
    name: str
    job: str
    rule: Rule
    tenant: str = ""
    description: str = ""


class CalendarExporter(Protocol):
    """Writes schedules as a calendar."""

    def export(self, entries: Iterable[CalendarEntry], *, begin: datetime, end: datetime) -> str:
        """Return a calendar with the firings from ``begin`` until ``end``.

        Where the format can express a rule exactly, the calendar may contain the rule itself.
        """
        ...
