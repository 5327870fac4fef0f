"""Runs operations on a caller's own PyMySQL connection, whatever its settings are.

Rows come from a cursor of our own, so that the caller's cursor class is not used. The converters
and the encoding of the connection are replaced while a statement runs; the character set and the
SQL mode of the session while an operation runs. The isolation level stays the caller's. A deadlock
rolls back the caller's whole transaction, and the caller must handle that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import pymysql
import pymysql.cursors
from pymysql.constants import ER, SERVER_STATUS
from pymysql.converters import conversions

from tickwork.errors import StoreBusy, WrongConnection
from tickwork.stores._sql.caller_connection import TRIES_MAX, type_name
from tickwork.stores._sql.drive import drive_within
from tickwork.stores._sql.sessions import driver_connection
from tickwork.stores._sql.statement import (
    Operation,
    Rows,
    Statement,
    StatementResult,
    WriteConflict,
)
from tickwork.stores.mysql.connection import PACKET_MIN, SQL_MODE, code_of, result_of
from tickwork.stores.mysql.statement_runner import run_statement
from tickwork.stores.mysql.values import encoded

T = TypeVar("T")

TAKES: Final = (
    "a pymysql.Connection to its database, or a Connection or Session of SQLAlchemy over one"
)

_READ_SETTINGS: Final = (
    "SELECT @@sql_mode, @@character_set_client, @@character_set_results, @@collation_connection,"
    " @@max_allowed_packet"
)
_UTF8: Final = frozenset({"utf8mb4"})
_STRICT: Final = frozenset({"STRICT_ALL_TABLES", "STRICT_TRANS_TABLES"})
_HARMFUL: Final = frozenset(
    {
        "EMPTY_STRING_IS_NULL",
        "HIGH_NOT_PRECEDENCE",
        "NO_BACKSLASH_ESCAPES",
        "ORACLE",
        "PAD_CHAR_TO_FULL_LENGTH",
        "SIMULTANEOUS_ASSIGNMENT",
    }
)
"""SQL modes in which our statements would have another meaning or result."""

_KEY_TAKEN: Final = frozenset({ER.DUP_ENTRY})
"""Another transaction took the key; the next try sees it."""
_CONFLICTS: Final = _KEY_TAKEN | {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD}


class _Frame(NamedTuple):
    """The statements before and after an operation, and those after a failed one."""

    opening: tuple[str, ...]
    closing: tuple[str, ...]
    undoing: tuple[str, ...]


# The name is our own: a savepoint of the caller with the same name would be lost.
_SAVEPOINT: Final = _Frame(
    ("SAVEPOINT tickwork_operation",),
    ("RELEASE SAVEPOINT tickwork_operation",),
    ("ROLLBACK TO SAVEPOINT tickwork_operation", "RELEASE SAVEPOINT tickwork_operation"),
)
_OWN_TRANSACTION: Final = _Frame(
    ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
    ("COMMIT",),
    ("ROLLBACK",),
)

_DECODERS: Final = {kind: decode for kind, decode in conversions.items() if type(kind) is int}


class MysqlCallerConnection:
    """A caller's connection. Only the caller ends an open transaction."""

    def __init__(self, connection: object, *, url: str) -> None:
        self._caller_connection = connection
        self._url = url
        self._connection = self._resolve()
        self._answer = StatementResult(None, 0)
        self._packet_max = PACKET_MIN

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction; a failed one is rolled back."""
        self._connection = self._resolve()
        self._reject_unread_rows()
        with self._our_settings():
            # Without an open transaction a failed operation left nothing, and can be retried.
            repeatable = _CONFLICTS if self._commits_at_once() else _KEY_TAKEN
            tries = 0
            # Ends after TRIES_MAX tries.
            while True:
                tries += 1
                try:
                    with self.transaction():
                        return drive_within(begin(), self)
                except WriteConflict as error:
                    if tries == TRIES_MAX:
                        raise StoreBusy(self._url, waited=timedelta(0)) from error
                except pymysql.err.Error as error:
                    if tries == TRIES_MAX or code_of(error) not in repeatable:
                        raise self._translate_error(error) from error

    def execute(self, statement: Statement) -> Rows:
        return run_statement(statement, self)

    def _resolve(self) -> Any:
        """The driver's connection. A session may have another one in each transaction."""
        found = driver_connection(self._caller_connection)
        if isinstance(found, pymysql.Connection):
            return found
        raise WrongConnection(
            self._url, f"It is a {type_name(self._caller_connection, found)}.", takes=TAKES
        )

    # ------------------------------------------------------------ texts and results

    @property
    def packet_max(self) -> int:
        return self._packet_max

    def send(self, text: str) -> None:
        """Send one statement: not every connection accepts several at once."""
        connection = self._connection
        kept = connection.decoders, connection.encoding, connection.use_unicode
        connection.decoders, connection.encoding, connection.use_unicode = _DECODERS, "utf8", True
        cursor = pymysql.cursors.Cursor(connection)
        try:
            cursor.execute(encoded(text))
            self._answer = result_of(cursor)
        finally:
            connection.decoders, connection.encoding, connection.use_unicode = kept

    def fetch(self) -> StatementResult:
        return self._answer

    # ------------------------------------------------------------ transactions and settings

    @contextmanager
    def transaction(self) -> Iterator[None]:
        frame = _OWN_TRANSACTION if self._commits_at_once() else _SAVEPOINT
        for text in frame.opening:
            self.send(text)
        if frame is _SAVEPOINT and self._commits_at_once():
            # A deadlock had rolled back the caller's transaction; PyMySQL notices it only now.
            frame = _OWN_TRANSACTION
            for text in frame.opening:
                self.send(text)
        try:
            yield
            for text in frame.closing:
                self.send(text)
        except BaseException:
            # After a deadlock the transaction is rolled back, and the savepoint is gone.
            with suppress(pymysql.err.Error):
                for text in frame.undoing:
                    self.send(text)
            raise

    def _commits_at_once(self) -> bool:
        """Whether no transaction is open and autocommit is on."""
        status = self._connection.server_status
        is_open = status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return bool(status & SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT) and not is_open

    @contextmanager
    def _our_settings(self) -> Iterator[None]:
        """Set the character set and the SQL mode for our statements, and restore them."""
        self.send(_READ_SETTINGS)
        [(mode, client, results, collation, packet_max)] = self._answer.rows or ()
        self._packet_max = max(packet_max // 2, PACKET_MIN)
        changes: list[tuple[str, str]] = []
        if not all(name in _UTF8 for name in (client, results, collation.partition("_")[0])):
            old = (
                f"SET character_set_client = {client}, character_set_results = {results or 'NULL'},"
                f" collation_connection = {collation}"
            )
            changes.append(("SET NAMES utf8mb4", old))
        modes = set(mode.split(","))
        if modes & _HARMFUL or not modes & _STRICT:
            changes.append((f"SET sql_mode = '{SQL_MODE}'", f"SET sql_mode = '{mode}'"))
        for new, _ in changes:
            self.send(new)
        try:
            yield
        finally:
            if self._connection.open:
                for _, old in changes:
                    self.send(old)

    # ------------------------------------------------------------ errors

    def _reject_unread_rows(self) -> None:
        result = self._connection._result  # noqa: SLF001  # PyMySQL has no public way
        if result is not None and result.unbuffered_active:
            reason = "An unbuffered cursor has not read all rows of its query."
            raise WrongConnection(self._url, reason, takes=f"{TAKES}, without unread rows")

    def _translate_error(self, error: Exception) -> Exception:
        if code_of(error) == ER.NO_SUCH_TABLE:
            self.send("SELECT database()")
            [(database,)] = self._answer.rows or ()
            reason = f"It is connected to the database {database!r}, which has no tickwork tables."
            return WrongConnection(self._url, reason, takes=TAKES)
        if code_of(error) == ER.LOCK_WAIT_TIMEOUT:
            self.send("SELECT @@innodb_lock_wait_timeout")
            [(seconds,)] = self._answer.rows or ()
            return StoreBusy(self._url, waited=timedelta(seconds=seconds))
        return error
