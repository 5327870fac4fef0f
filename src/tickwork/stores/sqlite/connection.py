"""SQLite connections: each process has one for writing and one for reading."""

import json
import os
import random
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores._sql.statement import Row, Rows, Statement

_PLACEHOLDER: Final = re.compile(r"\?(\d*)")
_PLAIN_INSERT: Final = re.compile(r"(INSERT INTO [^()]*\([^()]*\)\s*VALUES\s*)(\([^()]*\));?\s*")
PLACEHOLDERS_MAX: Final = 999
"""The number of parameters that every version of SQLite accepts in one statement."""

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOMEM,
    }
)
"""Errors of the disk or the machine, not of the statement: a later try may succeed."""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock."""
    return error.sqlite_errorcode & 0xFF in _BUSY


class SqliteConnection:
    """One connection, used by one thread at a time.

    SQLite's own busy handler can starve a late connection (9 s were seen). So it is disabled:
    we try again after a short random time, until a deadline.
    """

    def __init__(
        self, path: str, *, synchronous: str, busy_timeout: timedelta, is_uri: bool = False
    ) -> None:
        self._path = path
        self._is_uri = is_uri
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._pid = 0
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """A write transaction takes the write lock first: after a read, SQLite may refuse it."""
        with self._lock:
            connection = self._get_connection()
            self._with_retries(connection, begin)
            try:
                yield
                self._with_retries(connection, "COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A snapshot, or the open transaction. Writers do not wait for it."""
        with self._lock:
            if self._get_connection().in_transaction:
                yield
            else:
                with self.transaction("BEGIN"):
                    yield

    def execute(self, statement: Statement) -> Rows:
        """Run one statement, inside the transaction that is open.

        Raises:
            StoreUnavailable: The disk is full or fails.
            StoreBusy: Another process has locked the whole file.
        """
        try:
            return run_statement(statement, self._get_connection())
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise StoreBusy(f"sqlite:///{self._path}", waited=timedelta(0)) from error
            if error.sqlite_errorcode & 0xFF in _UNAVAILABLE:
                raise StoreUnavailable(f"sqlite:///{self._path}", str(error)) from error
            raise

    def execute_script(self, statements: list[str]) -> None:
        for text in statements:
            self._get_connection().execute(text)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def _get_connection(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            # A connection must not be used after a fork; the parent's is left alone.
            self._connection = self._open()
            self._pid = os.getpid()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self._path,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                uri=self._is_uri,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise StoreUnavailable(f"sqlite:///{self._path}", str(error)) from error
        try:
            self._with_retries(connection, "PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -16000")
        except BaseException:
            connection.close()
            raise
        return connection

    def _with_retries(self, connection: sqlite3.Connection, text: str) -> None:
        """Run a statement that needs a lock; try again while another connection holds it."""
        deadline: float | None = None
        while True:
            try:
                connection.execute(text)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise StoreUnavailable(f"sqlite:///{self._path}", str(error)) from error
            else:
                return
            now = time.monotonic()
            if deadline is None:
                deadline = now + self._busy_timeout.total_seconds()
            if now >= deadline:
                raise StoreBusy(f"sqlite:///{self._path}", waited=self._busy_timeout)
            time.sleep(random.uniform(0.0002, 0.0012))  # noqa: S311  # not a secret


def run_statement(statement: Statement, on: sqlite3.Connection | sqlite3.Cursor) -> Rows:
    """Run one statement in the open transaction."""
    rows: Rows = ()
    if statement.many is not None:
        rows = [(_run_many(statement.parts, statement.many, on),)]
    else:
        params = _bind(statement.params)
        for part in statement.parts:
            rows = on.execute(part, params).fetchall()
    return rows if statement.needs_result else ()


def _run_many(parts: tuple[str, ...], rows: Rows, on: sqlite3.Connection | sqlite3.Cursor) -> int:
    """Run all parts; return how many rows the first of them changed."""
    changed = [_run_part(part, rows, on) for part in parts]
    return changed[0]


def _run_part(part: str, rows: Rows, on: sqlite3.Connection | sqlite3.Cursor) -> int:
    if ":rows" in part:
        return on.execute(part, {"rows": json.dumps(rows)}).rowcount
    text, columns = _split_placeholders(part)
    many = _bulk_insert(text, columns)
    if many is not None and len(rows) >= many.rows:
        return _insert_many(many, rows, on)
    return on.executemany(text, _pick_columns(rows, columns)).rowcount


class _BulkInsert(NamedTuple):
    """An INSERT of ``rows`` rows at once, and the INSERT of a single row."""

    text: str
    rows: int
    for_one: str


@lru_cache(maxsize=512)
def _bulk_insert(text: str, columns: tuple[int, ...]) -> _BulkInsert | None:
    """Build the INSERT of many rows, if it is a plain one: a row takes a third less time."""
    found = _PLAIN_INSERT.fullmatch(text)
    if found is None or not columns or columns != tuple(range(len(columns))):
        return None
    rows = PLACEHOLDERS_MAX // len(columns)
    return _BulkInsert(found[1] + ", ".join([found[2]] * rows), rows, text)


def _insert_many(many: _BulkInsert, rows: Rows, on: sqlite3.Connection | sqlite3.Cursor) -> int:
    whole = len(rows) - len(rows) % many.rows
    for first in range(0, whole, many.rows):
        on.execute(many.text, list(chain.from_iterable(rows[first : first + many.rows])))
    on.executemany(many.for_one, rows[whole:])
    return len(rows)


@lru_cache(maxsize=512)
def _split_placeholders(part: str) -> tuple[str, tuple[int, ...]]:
    """Replace each placeholder by a plain ``?``; return also which column of a row it takes.

    Placeholders are written as ``?`` or ``?1``. From Python 3.14 on, sqlite3 rejects sequences for
    the latter.
    """
    columns = tuple(
        int(number) - 1 if number else index
        for index, number in enumerate(_PLACEHOLDER.findall(part))
    )
    return _PLACEHOLDER.sub("?", part), columns


def _pick_columns(rows: Rows, columns: tuple[int, ...]) -> Iterable[Row]:
    if columns == tuple(range(len(rows[0]))):
        return rows
    if len(columns) == 1:
        return [(row[columns[0]],) for row in rows]
    return map(itemgetter(*columns), rows)


def _bind(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in params.items()
    }
