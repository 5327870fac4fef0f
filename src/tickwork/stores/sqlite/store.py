"""The store in one SQLite file, for any number of processes on one machine."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from tickwork._kernel.clock import Clock, SystemClock
from tickwork._kernel.read_limit import current_read_limit
from tickwork.errors import InvalidOption, NetworkFileSystem, StoreBusy
from tickwork.stores._sql.migrate import (
    COMPATIBLE_FROM,
    SCHEMA_VERSION,
    check_version,
    migrations,
)
from tickwork.stores._sql.queries import TABLE_PREFIX, Queries
from tickwork.stores._sql.statement import Operation, WriteConflict
from tickwork.stores._sql.store import SqlStore, drive
from tickwork.stores.contract import AsyncRuns, Health, Listener
from tickwork.stores.sqlite.caller_connection import SqliteCallerConnection
from tickwork.stores.sqlite.connection import (
    MEMORY,
    OpenFile,
    SqliteConnection,
    is_in_memory,
    run_statement,
)

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE: Final = "tickwork.stores.sqlite"
_TRIES: Final = 5
BUSY_TIMEOUT: Final = timedelta(seconds=30)
"""How long a writer waits for the write lock before it gives up."""

MOUNTS: Final = Path("/proc/mounts")
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})


class SqliteStore(SqlStore):
    """A store in one SQLite file, or in memory for one process.

    A path such as ``file:tests?mode=memory&cache=shared`` is a database in memory that the process
    shares with connections of its own.

    ``synchronous="FULL"`` is the default: a committed run survives a power failure. NORMAL is
    faster; a power failure may undo the last transactions, but does not damage the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "FULL",
        busy_timeout: timedelta = BUSY_TIMEOUT,
        prefix: str = TABLE_PREFIX,
        clock: Clock | None = None,
    ) -> None:
        if synchronous not in {"FULL", "NORMAL"}:
            raise InvalidOption("synchronous", synchronous, "must be FULL or NORMAL")
        name = str(path) or MEMORY
        is_memory = is_in_memory(name)
        self.path: str = name if is_memory else os.fspath(Path(path).absolute())
        self.url: str = "sqlite://" if name == MEMORY else f"sqlite:///{self.path}"
        self._prefix = prefix
        self._clock = clock or SystemClock()
        self.query = Queries(_PACKAGE, prefix=prefix)
        if not is_memory:
            reject_network_path(self.path)
        self._file = OpenFile(self.path)
        self._writer: SqliteConnection | SqliteCallerConnection = SqliteConnection(
            self.path, synchronous=synchronous, busy_timeout=busy_timeout, file=self._file
        )
        # A store in memory has one connection; in a file, readers do not wait for the writer.
        self._reader: SqliteConnection | SqliteCallerConnection = self._writer
        # Pages have their own, so that a worker in this process does not wait for them either.
        self._limited_reader: SqliteConnection | SqliteCallerConnection = self._writer
        if not is_memory:
            self._reader, self._limited_reader = (
                SqliteConnection(
                    self.path, synchronous=synchronous, busy_timeout=busy_timeout, file=self._file
                )
                for _ in range(2)
            )

    @property
    def connections_max(self) -> int:
        return 1 if self._reader is self._writer else 2

    @property
    def clock_seconds(self) -> float:
        return 1.0  # it is the clock of this machine, which costs nothing to read

    @property
    def pumps_max(self) -> int:
        return 1

    def _write(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        for _ in range(_TRIES):
            try:
                with self._writer.transaction():
                    return drive(operation(self.query, *args, **kwargs), self._writer)
            except WriteConflict:
                continue
        raise StoreBusy(self.url, waited=timedelta(0))

    def _is_data_error(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | OverflowError)

    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        limit = current_read_limit()
        if limit is not None and isinstance(self._limited_reader, SqliteConnection):
            with self._limited_reader.reading_within(limit):
                return drive(operation(self.query, *args, **kwargs), self._limited_reader)
        with self._reader.reading():
            return drive(operation(self.query, *args, **kwargs), self._reader)

    # ------------------------------------------------------------ a caller's connection

    def using(self, connection: object) -> Self:
        store = copy(self)
        given = SqliteCallerConnection(
            connection, path=self.path, url=self.url, write_lock=self.query("lock_meta")
        )
        store._writer = store._reader = store._limited_reader = given  # noqa: SLF001  # its own class
        return store

    def using_async(self, connection: object) -> AsyncRuns:
        from tickwork.stores.sqlite.aiosqlite_runs import AiosqliteRuns  # noqa: PLC0415  # for asyncio

        return AiosqliteRuns(connection, query=self.query, url=self.url, using=self.using)

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        # Take no lock when the schema is current: the first dispatch of a program may be inside
        # the caller's transaction, which may hold the write lock until this call returns.
        found = self.schema_version()
        if found >= SCHEMA_VERSION:
            return found
        with self._writer.transaction():
            installed, _ = self._versions()
            for step in migrations(_PACKAGE, prefix=self._prefix):
                if step.version > installed:
                    self._writer.execute_script(step.statements)
            if installed < SCHEMA_VERSION:
                self._writer.execute(
                    self.query("set_version", version=SCHEMA_VERSION, compatible=COMPATIBLE_FROM)
                )
            return max(installed, SCHEMA_VERSION)

    def schema_version(self) -> int:
        return self._versions()[0]

    def is_installed(self) -> bool:
        """Whether the tables are installed and current. Does not wait for locks."""
        if is_in_memory(self.path):
            return self.schema_version() >= SCHEMA_VERSION
        file = f"{Path(self.path).as_uri()}?mode=rw"  # does not create the file
        try:
            with closing(sqlite3.connect(file, uri=True, timeout=0)) as connection:
                [[has_meta]] = run_statement(self.query("has_meta"), connection)
                if not has_meta:
                    return False
                [[version, _]] = run_statement(self.query("get_version"), connection)
        except sqlite3.DatabaseError:
            return False  # there is no database, or another process locked it to create the tables
        return bool(version >= SCHEMA_VERSION)

    def check_schema(self) -> None:
        installed, compatible_from = self._versions()
        check_version(self.url, installed=installed, compatible_from=compatible_from)

    def _versions(self) -> tuple[int, int]:
        with self._writer.reading():
            [[has_meta]] = self._writer.execute(self.query("has_meta"))
            if not has_meta:
                return 0, 0
            [[version, compatible_from]] = self._writer.execute(self.query("get_version"))
        return version, compatible_from

    def database_time(self) -> datetime:
        return self._clock.now()

    def health(self) -> Health:
        log = Path(f"{self.path}-wal")
        return replace(super().health(), log_bytes=log.stat().st_size if log.exists() else 0)

    def listen(self) -> Listener | None:
        if is_in_memory(self.path):
            return None
        from tickwork.stores.sqlite.wakeup import SqliteListener  # noqa: PLC0415  # for workers

        return SqliteListener(self.path)

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._limited_reader.close()
        self._file.forget()


def reject_network_path(path: str) -> None:
    """Raise for a path on a network file system, where SQLite's locks do not work."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # not Linux: best effort
    where = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        _, point, file_system, *_ = line.split(" ")
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) > len(best):
            best, kind = point, file_system
    if kind in _NETWORK:
        raise NetworkFileSystem(path, file_system=kind)
