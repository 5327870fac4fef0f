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
from tickwork._stores._sql.faults import Rejection
from tickwork._stores._sql.migrate import COMPATIBLE_FROM, SCHEMA_VERSION, migrations
from tickwork._stores._sql.queries import TABLE_PREFIX, Queries, load_queries
from tickwork._stores._sql.statement import Operation, WriteConflict
from tickwork._stores._sql.store import SqlStore, drive
from tickwork._stores._sql.table_check import versions
from tickwork._stores.contract import AsyncRuns, Health, Listener
from tickwork._stores.sqlite.caller_connection import SqliteCallerConnection
from tickwork._stores.sqlite.connection import (
    MEMORY,
    OpenFile,
    SqliteConnection,
    find_rejection,
    is_in_memory,
    run_statement,
)
from tickwork.errors import InvalidOption, NetworkFileSystem, SchemaDamaged, StoreBusy

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE: Final = "tickwork._stores.sqlite"
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
        self._clock = clock or SystemClock()
        self.query = load_queries(_PACKAGE, prefix)
        if not is_memory:
            reject_network_path(self.path)
        self._file = OpenFile(self.path)
        self._own_writer = SqliteConnection(
            self.path, synchronous=synchronous, busy_timeout=busy_timeout, file=self._file
        )
        self._writer: SqliteConnection | SqliteCallerConnection = self._own_writer
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
            except SchemaDamaged:
                self.check_schema()  # the tables may be of another version, or gone
                raise
        raise StoreBusy(self.url, waited=timedelta(0))

    def _find_rejection(self, error: Exception) -> Rejection | None:
        # sqlite3 raises its own errors on a caller's connection.
        return find_rejection(error) or super()._find_rejection(error)

    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        limit = current_read_limit()
        try:
            if limit is not None and isinstance(self._limited_reader, SqliteConnection):
                with self._limited_reader.reading_within(limit):
                    return drive(operation(self.query, *args, **kwargs), self._limited_reader)
            with self._reader.reading():
                return drive(operation(self.query, *args, **kwargs), self._reader)
        except SchemaDamaged:
            self.check_schema()  # as above
            raise

    # ------------------------------------------------------------ a caller's connection

    def using(self, connection: object) -> Self:
        store = copy(self)
        caller_connection = SqliteCallerConnection(
            connection, path=self.path, url=self.url, write_lock=self.query("lock_meta")
        )
        store._writer = store._reader = store._limited_reader = caller_connection  # noqa: SLF001  # its own class
        return store

    def using_async(self, connection: object) -> AsyncRuns:
        from tickwork._stores.sqlite.aiosqlite_runs import AiosqliteRuns  # noqa: PLC0415  # for asyncio

        return AiosqliteRuns(connection, query=self.query, url=self.url, using=self.using)

    # ------------------------------------------------------------ schema

    def install(self) -> int:
        # Take no lock when the schema is current: the first dispatch of a program may be inside
        # the caller's transaction, which may hold the write lock until this call returns.
        version = self.schema_version()
        if version >= SCHEMA_VERSION:
            return version
        with self._writer.transaction():
            installed, _ = self._versions()
            for step in migrations(_PACKAGE, prefix=self.query.prefix):
                if step.version > installed:
                    self._writer.execute_script(step.statements)
            if installed < SCHEMA_VERSION:
                self._writer.execute(
                    self.query("set_version", version=SCHEMA_VERSION, compatible=COMPATIBLE_FROM)
                )
            return max(installed, SCHEMA_VERSION)

    def would_install_wait(self) -> bool:
        return self._writer is self._own_writer and not self._is_installed()

    def _is_installed(self) -> bool:
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
            return bool(version >= SCHEMA_VERSION)
        except (sqlite3.DatabaseError, ValueError, TypeError):
            # There is no database, another process locked it to create the tables, or its version
            # cannot be read.
            return False

    def check_schema(self) -> None:
        self._file.resolve()  # the file may have got a second name since it was opened
        super().check_schema()

    def _versions(self) -> tuple[int, int]:
        # On the connection for writing: during an installation it sees the open transaction.
        with self._writer.reading():
            return drive(versions(self.query, url=self.url), self._writer)

    def database_time(self) -> datetime:
        return self._clock.now()

    def health(self) -> Health:
        log = Path(f"{os.path.realpath(self.path)}-wal")
        return replace(super().health(), log_bytes=log.stat().st_size if log.exists() else 0)

    def listen(self) -> Listener | None:
        if is_in_memory(self.path):
            return None
        from tickwork._stores.sqlite.wakeup import SqliteListener  # noqa: PLC0415  # for workers

        return SqliteListener(os.path.realpath(self.path))

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
