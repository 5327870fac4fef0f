"""Runs operations on a caller's own SQLite connection, whatever its settings are.

Rows come from a cursor of our own, so that the caller's row factory is not used. The text factory
belongs to the connection, so it is replaced while a statement runs. Queries return no declared
types, so that the caller's converters are not used.
"""

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Final

from tickwork._stores._sql.caller_connection import type_name
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.sessions import (
    SESSIONS,
    driver_connection,
    is_async_session,
    is_instance_of,
    is_session,
    reporting_errors,
)
from tickwork._stores._sql.statement import Rows, Statement
from tickwork._stores.sqlite.connection import (
    check_links,
    is_about_tables,
    is_busy,
    is_shared_memory,
    is_table_missing,
    is_unknown_commit,
    run_statement,
)
from tickwork.errors import (
    OutcomeUnknown,
    SchemaDamaged,
    SchemaMissing,
    StoreBusy,
    WrongConnection,
)

TAKES: Final = (
    "an sqlite3.Connection or an aiosqlite.Connection that was opened on the store's own file, or"
    f" {SESSIONS}"
)
_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 does not have
_TOKEN: Final = re.compile(r"[(),]|\bSELECT(?: DISTINCT)?\b|\bFROM\b")
_COLUMN: Final = re.compile(r"\s*((?:\w+\.)?[a-z]\w*)\s*")


class SqliteCallerConnection:
    """A caller's connection. Only the caller ends an open transaction."""

    def __init__(self, connection: object, *, path: str, url: str, write_lock: Statement) -> None:
        self._caller_connection = connection
        self._path = path
        self._url = url
        self._write_lock = write_lock
        self._checked: sqlite3.Connection | None = None
        self._connection = self._resolve()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A savepoint in the open transaction, or else a new transaction.

        A new transaction takes the write lock at once, as the first INSERT would. It stays open if
        Python would have begun it implicitly; in autocommit mode it is committed.
        """
        with reporting_errors(self._caller_connection), self._translate_errors():
            self._connection = self._resolve()
            is_inside = self._connection.in_transaction
            if is_inside:
                beginning, ending = "SAVEPOINT tickwork", ["RELEASE tickwork"]
                undoing = ["ROLLBACK TO tickwork", "RELEASE tickwork"]
            else:
                is_exclusive = self._connection.isolation_level == "EXCLUSIVE"
                beginning = "BEGIN EXCLUSIVE" if is_exclusive else "BEGIN IMMEDIATE"
                ending = ["COMMIT"] if self._commits_at_once() else []
                undoing = ["ROLLBACK"]
            self._command(beginning)
            try:
                if is_inside:
                    self._take_write_lock()
                yield
                self._end(ending)
            except BaseException:
                # After some errors (a full disk, an interrupt) SQLite has rolled back already.
                if self._connection.in_transaction:
                    self.execute_script(undoing)
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The open transaction, or else a snapshot for this read only."""
        with reporting_errors(self._caller_connection), self._translate_errors():
            self._connection = self._resolve()
            is_ours = not self._connection.in_transaction
            if is_ours:
                self._command("BEGIN")
            try:
                yield
            finally:
                if is_ours and self._connection.in_transaction:
                    self._command("COMMIT")

    def execute(self, statement: Statement) -> Rows:
        return _execute(statement, self._connection)

    def execute_script(self, statements: Sequence[str]) -> None:
        for text in statements:
            self._command(text)

    def close(self) -> None:
        """Nothing to do: the connection is the caller's."""

    def _command(self, text: str) -> None:
        sqlite3.Cursor(self._connection).execute(text)

    def _end(self, statements: Sequence[str]) -> None:
        try:
            self.execute_script(statements)
        except sqlite3.OperationalError as error:
            if is_unknown_commit(error):
                raise OutcomeUnknown(self._url, str(error)) from error
            raise

    def _take_write_lock(self) -> None:
        """Take the write lock before the first read, so that no writer gets in between."""
        try:
            self.execute(self._write_lock)
        except sqlite3.OperationalError as error:
            # During an installation there are no tables; otherwise the next statement fails.
            if not is_table_missing(error):
                raise

    def _commits_at_once(self) -> bool:
        mode: object = getattr(self._connection, "autocommit", _LEGACY)
        return self._connection.isolation_level is None if mode == _LEGACY else bool(mode)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into ours."""
        began_at = time.monotonic()
        try:
            yield
        except sqlite3.OperationalError as error:
            if is_busy(error):
                waited = timedelta(seconds=time.monotonic() - began_at)
                raise StoreBusy(self._url, waited=waited) from error
            if is_table_missing(error):
                raise SchemaMissing(self._url) from error
            if is_about_tables(error):
                reason = f"{error}."
                raise SchemaDamaged(self._url, version=SCHEMA_VERSION, reason=reason) from error
            raise

    def _resolve(self) -> sqlite3.Connection:
        """The driver's connection. A session may have another one in each transaction."""
        inner = driver_connection(self._caller_connection)
        if not isinstance(inner, sqlite3.Connection):
            raise wrong_connection_error(self._caller_connection, inner, self._url)
        if inner is not self._checked:
            self._refuse_other_files(inner)
            self._checked = inner
        return inner

    def _refuse_other_files(self, connection: sqlite3.Connection) -> None:
        path = self._path
        if path == ":memory:":
            raise WrongConnection(
                self._url,
                "A store in memory has one connection of its own.",
                takes="no connection, or use a store in a file",
            )
        is_shared = is_shared_memory(path)
        databases = _execute(Statement("databases", ("PRAGMA database_list",), {}), connection)
        path_by_name: dict[str, str] = {row[1]: row[2] for row in databases}
        main = path_by_name.pop("main")
        if is_shared and not main:
            return
        if _is_same(main, path):
            check_links(main)  # the connection may have another name of the file
            return
        where = f"It was opened on {main or 'a database in memory'}."
        for name, attached in path_by_name.items():
            if _is_same(attached, path):
                where += (
                    f" The store's file is attached to it as {name!r}, which is not safe:"
                    " after a crash, a transaction may be committed in only one of the two files."
                )
        raise WrongConnection(self._url, where, takes=TAKES)


def _execute(statement: Statement, connection: sqlite3.Connection) -> Rows:
    kept, connection.text_factory = connection.text_factory, str
    try:
        return run_statement(
            statement._replace(parts=tuple(map(strip_declared_types, statement.parts))),
            sqlite3.Cursor(connection),
        )
    finally:
        connection.text_factory = kept


def wrong_connection_error(connection: object, inner: object, url: str) -> WrongConnection:
    cure = ""
    if is_aiosqlite(inner) or is_async_session(inner):
        cure = "; pass it to using_async()"
    elif isinstance(inner, sqlite3.Connection) or is_session(inner):
        cure = "; pass it to using()"
    return WrongConnection(url, f"It is a {type_name(connection, inner)}{cure}.", takes=TAKES)


def is_aiosqlite(thing: object) -> bool:
    return is_instance_of(thing, ("aiosqlite", "Connection"))


@lru_cache(maxsize=512)
def strip_declared_types(text: str) -> str:
    """The same query with expressions instead of columns, which have no declared type.

    With ``detect_types``, sqlite3 passes each column to the converter for its declared type, and
    the caller may have registered one for TEXT. In a UNION, the first SELECT counts.

    >>> strip_declared_types("SELECT id, max(run.token), 1 AS one FROM run ORDER BY id")
    'SELECT +id, max(run.token), 1 AS one FROM run ORDER BY id'
    """
    if not text.startswith(("SELECT", "WITH")):
        return text
    depth = 0
    starts: list[int] = []
    ends: list[int] = []
    for token in _TOKEN.finditer(text):
        if token[0] in "()":
            depth += 1 if token[0] == "(" else -1
        elif depth:
            continue
        elif token[0].startswith("SELECT"):
            starts.append(token.end())
        elif starts:
            ends.append(token.start())
            if token[0] == "FROM":
                break
            starts.append(token.end())
    # From the last to the first, so that an insertion does not move the places before it.
    for start, end in reversed(list(zip_longest(starts, ends, fillvalue=len(text)))):
        if column := _COLUMN.fullmatch(text, start, end):
            text = f"{text[: column.start(1)]}+{text[column.start(1) :]}"
    return text


def _is_same(one: str, other: str) -> bool:
    try:
        return bool(one) and Path(one).samefile(other)
    except OSError:  # one of them does not exist yet
        return Path(one).resolve() == Path(other).resolve()
