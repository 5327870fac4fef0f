"""A store on an SQLite database in memory, for tests and examples."""

import atexit
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from threading import Event
from typing import Self
from weakref import WeakSet, finalize

from tickwork._domain.runs.run import NewRun
from tickwork._kernel.clock import Clock
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.queries import TABLE_PREFIX
from tickwork._stores.contract import AddedRun, AsyncRuns
from tickwork._stores.sqlite.connection import MEMORY, SqliteConnection
from tickwork._stores.sqlite.store import BUSY_TIMEOUT, SqliteStore
from tickwork.errors import WrongConnection


class MemoryStore(SqliteStore):
    """A store in the memory of this process. Threads may share it.

    Its tables exist from the beginning, and its rows until nothing refers to the store any more:
    ``close()`` does not remove them.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        synchronous: str = "FULL",
        busy_timeout: timedelta = BUSY_TIMEOUT,
        prefix: str = TABLE_PREFIX,
    ) -> None:
        super().__init__(
            MEMORY, synchronous=synchronous, busy_timeout=busy_timeout, prefix=prefix, clock=clock
        )
        self.url = "memory://"
        self._listeners: WeakSet[MemoryListener] = WeakSet()
        self._own_writer.copy_from(_empty_database(prefix))
        finalize(self, self._own_writer.close)

    def install(self) -> int:
        return SCHEMA_VERSION

    def would_install_wait(self) -> bool:
        return False

    def add_runs(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        added = super().add_runs(runs, may_be_stored=may_be_stored)
        for listener in list(self._listeners):
            listener.notify()
        return added

    def listen(self) -> "MemoryListener":
        listener = MemoryListener()
        self._listeners.add(listener)
        return listener

    def using(self, connection: object) -> Self:  # noqa: ARG002  # of the contract
        raise WrongConnection(
            self.url,
            "It keeps its rows in the memory of this process.",
            takes="no connection, or use a store on SQLite, PostgreSQL or MySQL",
        )

    def using_async(self, connection: object) -> AsyncRuns:
        raise AssertionError(self.using(connection))  # it raises its own error

    def close(self) -> None:
        """Keep the rows: handles of runs stay usable after the application was closed."""


class MemoryListener:
    """Is notified of new runs in the same process."""

    def __init__(self) -> None:
        self._has_changed = Event()

    def notify(self) -> None:
        self._has_changed.set()

    def wait(self, seconds: float) -> bool:
        is_notified = self._has_changed.wait(seconds)
        self._has_changed.clear()
        return is_notified

    def close(self) -> None:
        """Nothing to close."""


@lru_cache(maxsize=4)
def _empty_database(prefix: str) -> SqliteConnection:
    """A database with empty tables. To copy it takes a tenth of the time of creating them."""
    store = SqliteStore(MEMORY, prefix=prefix)
    store.install()
    atexit.register(store.close)
    return store._own_writer  # noqa: SLF001  # its base class
