"""The reference store: the whole contract in plain Python, in memory.

Tests compare the other stores with this one, so it is written to be obviously right: rows are
frozen values in dicts, methods scan all of them, and one lock serializes the calls.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Self
from weakref import WeakSet

from tickwork._domain.run import NewRun
from tickwork._kernel.clock import Clock, SystemClock
from tickwork.errors import WrongConnection
from tickwork.stores._sql.migrate import SCHEMA_VERSION
from tickwork.stores.contract import AsyncRuns, Enqueued
from tickwork.stores.memory.audit import MemoryAudit
from tickwork.stores.memory.control import MemoryControl
from tickwork.stores.memory.reads import MemoryReads
from tickwork.stores.memory.runs import MemoryRuns
from tickwork.stores.memory.schedules import MemorySchedules
from tickwork.stores.memory.wakeup import MemoryListener


class MemoryStore(MemoryRuns, MemorySchedules, MemoryControl, MemoryAudit, MemoryReads):
    """A store in memory, for tests. It is lost when the process ends.

    Threads may share it. ``clock`` is the clock of this "database".
    """

    caller_transaction: object = None

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._listeners: WeakSet[MemoryListener] = WeakSet()

    @property
    def connections_max(self) -> int:
        return 1

    @property
    def clock_seconds(self) -> float:
        return 1.0  # it is the clock of this machine, which costs nothing to read

    @property
    def pumps_max(self) -> int:
        return 1

    def install(self) -> int:
        return SCHEMA_VERSION

    def schema_version(self) -> int:
        return SCHEMA_VERSION

    def check_schema(self) -> None:
        """The schema always fits."""

    def database_time(self) -> datetime:
        return self._clock.now()

    def enqueue(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        added = super().enqueue(runs, may_be_stored=may_be_stored)
        for listener in list(self._listeners):
            listener.call()
        return added

    def listen(self) -> MemoryListener:
        listener = MemoryListener()
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        """Nothing to close: the rows stay."""

    def using(self, connection: object) -> Self:  # noqa: ARG002  # of the contract
        raise WrongConnection(
            "memory://",
            "It keeps its rows in the memory of this process.",
            takes="no connection, or use a store on SQLite, PostgreSQL or MySQL",
        )

    def using_async(self, connection: object) -> AsyncRuns:
        raise AssertionError(self.using(connection))  # it raises its own error
