"""A caller's own SQLite connection, whatever it was made like, as the store needs one.

Rows come from a cursor of our own, so that the caller's row factory sees none of them; the
text factory, which belongs to the connection, is ours while a statement runs; and converters
find no declared type to go by.
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

from tickwork.errors import SchemaMissing, StoreBusy, WrongConnection
from tickwork.stores._sql.caller_connection import type_name
from tickwork.stores._sql.sessions import (
    SESSIONS,
    driver_connection,
    is_async_session,
    is_instance_of,
    is_session,
)
from tickwork.stores._sql.statement import Rows, Statement
from tickwork.stores.sqlite.connection import is_busy, run_statement

TAKES: Final = (
    "an sqlite3.Connection or an aiosqlite.Connection that was opened on the store's own file, or"
    f" {SESSIONS}"
)
_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 knows by no name
_TOKEN: Final = re.compile(r"[(),]|\bSELECT(?: DISTINCT)?\b|\bFROM\b")
_COLUMN: Final = re.compile(r"\s*((?:\w+\.)?[a-z]\w*)\s*")


class SqliteCallerConnection:
    """A caller's connection. What the caller has open on it is the caller's to end."""

    def __init__(self, lent: object, *, path: str, url: str, write_lock: Statement) -> None:
        self._lent = lent
        self._path = path
        self._url = url
        self._write_lock = write_lock
        self._checked: sqlite3.Connection | None = None
        self._connection = self._resolve()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: a savepoint in what is open, or else a transaction.

        One that we begin takes the write lock at once, as the first INSERT would. It is left
        open where Python itself would have begun it; otherwise it is committed.
        """
        self._connection = self._resolve()
        with self._translate_errors():
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
                self.execute_script(ending)
            except BaseException:
                # After some errors (a full disk, an interrupt) SQLite itself has undone it all.
                if self._connection.in_transaction:
                    self.execute_script(undoing)
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What is open, or else a snapshot that ends with it: nothing is left open by a look."""
        self._connection = self._resolve()
        with self._translate_errors():
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
        """Leave it as it is: it is the caller's."""

    def _command(self, text: str) -> None:
        sqlite3.Cursor(self._connection).execute(text)

    def _take_write_lock(self) -> None:
        """Take the write lock before anything is read, so that nobody can get in between."""
        try:
            self.execute(self._write_lock)
        except sqlite3.OperationalError as error:
            # Whoever installs has no tables yet. Everybody else will hear of it.
            if not _is_table_missing(error):
                raise

    def _commits_at_once(self) -> bool:
        """Whether a statement outside of a transaction is committed by itself."""
        mode: object = getattr(self._connection, "autocommit", _LEGACY)
        return self._connection.isolation_level is None if mode == _LEGACY else bool(mode)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Say in our words what can be said in them."""
        began_at = time.monotonic()
        try:
            yield
        except sqlite3.OperationalError as error:
            if is_busy(error):
                waited = timedelta(seconds=time.monotonic() - began_at)
                raise StoreBusy(self._url, waited=waited) from error
            if _is_table_missing(error):
                raise SchemaMissing(self._url) from error
            raise

    def _resolve(self) -> sqlite3.Connection:
        """The driver's connection: a session has another one after each of its transactions."""
        found = driver_connection(self._lent)
        if not isinstance(found, sqlite3.Connection):
            raise wrong(self._lent, found, self._url)
        if found is not self._checked:
            self._refuse_other_files(found)
            self._checked = found
        return found

    def _refuse_other_files(self, connection: sqlite3.Connection) -> None:
        path = self._path
        if path == ":memory:":
            raise WrongConnection(
                self._url,
                "A store in memory has one connection of its own.",
                takes="no connection, or use a store in a file",
            )
        databases = _execute(Statement("databases", ("PRAGMA database_list",), {}), connection)
        path_by_name: dict[str, str] = {row[1]: row[2] for row in databases}
        main = path_by_name.pop("main")
        if _is_same(main, path):
            return
        found = f"It was opened on {main or 'a database in memory'}."
        for name, attached in path_by_name.items():
            if _is_same(attached, path):
                found += (
                    f" The store's file is attached to it as {name!r}, which does not do: what is"
                    " committed in two files may survive a crash in one of them."
                )
        raise WrongConnection(self._url, found, takes=TAKES)


def _execute(statement: Statement, connection: sqlite3.Connection) -> Rows:
    kept, connection.text_factory = connection.text_factory, str
    try:
        return run_statement(
            statement._replace(parts=tuple(map(strip_declared_types, statement.parts))),
            sqlite3.Cursor(connection),
        )
    finally:
        connection.text_factory = kept


def wrong(lent: object, found: object, url: str) -> WrongConnection:
    """Say what cannot be used, and what can."""
    door = ""
    if is_aiosqlite(found) or is_async_session(found):
        door = ", and using_async() is for those"
    elif isinstance(found, sqlite3.Connection) or is_session(found):
        door = ", and using() is for those"
    return WrongConnection(url, f"It is a {type_name(lent, found)}{door}.", takes=TAKES)


def is_aiosqlite(thing: object) -> bool:
    """Whether it is a connection of aiosqlite: a thread around a plain one."""
    return is_instance_of(thing, ("aiosqlite", "Connection"))


@lru_cache(maxsize=512)
def strip_declared_types(text: str) -> str:
    """A query that answers the same, without declared types.

    A caller's ``detect_types`` hands each column that has one to a converter of that name, and
    who knows what somebody made of TEXT. Only a column has a declared type, an expression has
    none; of several selects put together the first one counts.

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
    # From the last to the first: what is put in moves nothing that is still to be looked at.
    for start, end in reversed(list(zip_longest(starts, ends, fillvalue=len(text)))):
        if column := _COLUMN.fullmatch(text, start, end):
            text = f"{text[: column.start(1)]}+{text[column.start(1) :]}"
    return text


def _is_table_missing(error: sqlite3.OperationalError) -> bool:
    return str(error).startswith("no such table: ")


def _is_same(one: str, other: str) -> bool:
    try:
        return bool(one) and Path(one).samefile(other)
    except OSError:  # one of them is not there yet
        return Path(one).resolve() == Path(other).resolve()
