"""Runs operations on a caller's own connection, whatever its driver and its settings are.

The character set and the SQL mode of the session are replaced while an operation runs. The
isolation level stays the caller's. A deadlock rolls back the caller's whole transaction, and the
caller must handle that.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from pymysql.constants import ER

from tickwork._stores._sql.caller_connection import TRIES_MAX, type_name
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.sessions import driver_connection, reporting_errors
from tickwork._stores._sql.statement import (
    Operation,
    Rows,
    Statement,
    StatementResult,
    WriteConflict,
)
from tickwork._stores._sql.store import drive
from tickwork._stores.mysql.caller_drivers import CallerDriver, driver_of
from tickwork._stores.mysql.connection import (
    LOSSES,
    SQL_MODE,
    TOO_LONG,
    TOO_LONG_FIX,
    code_of,
    too_long,
)
from tickwork._stores.mysql.statement_runner import run_statement
from tickwork._stores.mysql.values import encoded
from tickwork.errors import OutcomeUnknown, SchemaDamaged, StoreBusy, ValueRejected, WrongConnection

T = TypeVar("T")

TAKES: Final = (
    "a pymysql.Connection or a connection of mysqlclient to its database, or a Connection or"
    " Session of SQLAlchemy, or a connection of Django, over one"
)

_READ_SETTINGS: Final = (
    "SELECT @@sql_mode, @@character_set_client, @@character_set_results, @@collation_connection,"
    " @@max_allowed_packet, /*M!110602 @@innodb_snapshot_isolation OR */ 0"
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


class MysqlCallerConnection:
    """A caller's connection. Only the caller ends an open transaction."""

    def __init__(self, connection: object, *, url: str) -> None:
        self._caller_connection = connection
        self._url = url
        self._driver = self._resolve()
        self._answer = StatementResult(None, 0)
        self._packet_max = self._packet_bytes = sys.maxsize  # until it is read

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction; a failed one is rolled back."""
        with reporting_errors(self._caller_connection):
            return self._run(begin)

    def _run(self, begin: Callable[[], Operation[T]]) -> T:
        self._driver = self._resolve()
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
                        return drive(begin(), self)
                except WriteConflict as error:
                    if tries == TRIES_MAX:
                        raise StoreBusy(self._url, waited=timedelta(0)) from error
                except self._driver.errors as error:
                    if tries == TRIES_MAX or code_of(error) not in repeatable:
                        raise self._translate_error(error) from error

    def execute(self, statement: Statement) -> Rows:
        return run_statement(statement, self)

    def _resolve(self) -> CallerDriver:
        """The driver's connection. A session may have another one in each transaction."""
        inner = driver_connection(self._caller_connection)
        driver = driver_of(inner)
        if driver is not None:
            return driver
        raise WrongConnection(
            self._url, f"It is a {type_name(self._caller_connection, inner)}.", takes=TAKES
        )

    # ------------------------------------------------------------ texts and results

    @property
    def packet_max(self) -> int:
        return self._packet_max

    def send(self, text: str) -> None:
        """Send one statement: not every connection accepts several at once."""
        packet = encoded(text)
        if len(packet) >= self._packet_bytes:
            # The server would close the caller's connection.
            reason = too_long(len(packet), self._packet_bytes)
            raise ValueRejected(reason, state=TOO_LONG, fix=TOO_LONG_FIX)
        self._answer = self._driver.execute(packet)

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
            self._close(frame)
        except BaseException:
            # After a deadlock the transaction is rolled back, and the savepoint is gone.
            with suppress(*self._driver.errors):
                for text in frame.undoing:
                    self.send(text)
            raise

    def _close(self, frame: _Frame) -> None:
        try:
            for text in frame.closing:
                self.send(text)
        except self._driver.errors as error:
            if frame is _OWN_TRANSACTION and code_of(error) in LOSSES:
                raise OutcomeUnknown(self._url, str(error)) from error
            raise

    def _commits_at_once(self) -> bool:
        """Whether no transaction is open and autocommit is on."""
        return self._driver.commits_at_once()

    @contextmanager
    def _our_settings(self) -> Iterator[None]:
        """Set what our statements need, and restore it: character set, SQL mode, isolation.

        From MariaDB 11.6 on, a locking read of a row that was changed after the snapshot of a
        REPEATABLE READ transaction is an error. A heartbeat changes the row of a run, so a handler
        could not complete it in such a transaction. Our statements check what they lock.
        """
        self.send(_READ_SETTINGS)
        [(mode, client, results, collation, packet_max, is_snapshot)] = self._answer.rows or ()
        self._packet_max = packet_max // 4
        self._packet_bytes = packet_max
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
        if is_snapshot:
            name = "SET innodb_snapshot_isolation"
            changes.append((f"{name} = OFF", f"{name} = ON"))
        for new, _ in changes:
            self.send(new)
        try:
            yield
        finally:
            if self._driver.is_open:
                for _, old in changes:
                    self.send(old)

    # ------------------------------------------------------------ errors

    def _reject_unread_rows(self) -> None:
        if self._driver.has_unread_rows():
            reason = "An unbuffered cursor has not read all rows of its query."
            raise WrongConnection(self._url, reason, takes=f"{TAKES}, without unread rows")

    def _translate_error(self, error: Exception) -> Exception:
        if code_of(error) == ER.NO_SUCH_TABLE:
            self.send("SELECT database()")
            [(database,)] = self._answer.rows or ()
            reason = f"It is connected to the database {database!r}, which has no tickwork tables."
            return WrongConnection(self._url, reason, takes=TAKES)
        if code_of(error) == ER.BAD_FIELD_ERROR:
            reason = str(error.args[-1])
            return SchemaDamaged(self._url, version=SCHEMA_VERSION, reason=reason)
        if code_of(error) == ER.LOCK_WAIT_TIMEOUT:
            self.send("SELECT @@innodb_lock_wait_timeout")
            [(seconds,)] = self._answer.rows or ()
            return StoreBusy(self._url, waited=timedelta(seconds=seconds))
        return error
