"""A caller's own PyMySQL connection, whatever it was made like, as the store needs one.

Rows come from a cursor of our own, so that the caller's cursor class sees none of them. What
belongs to the connection, its converters and its encoding, is ours while a statement runs; what
belongs to the session, its character set and its mode, while a verb does. The isolation level
is the caller's, and so is what happens when a deadlock ends the whole transaction.
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
from tickwork.stores.mysql.connection import PACKET_MIN, SQL_MODE, answer_of, code_of
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
"""Modes in which our statements would mean something else, or give something else."""

_TAKEN: Final = frozenset({ER.DUP_ENTRY})
"""A key that was taken while we did not see it yet: we will, the next time."""
_CONFLICTS: Final = _TAKEN | {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD}


class _Frame(NamedTuple):
    """What stands before and after an operation, and instead of the latter when it failed."""

    opening: tuple[str, ...]
    closing: tuple[str, ...]
    undoing: tuple[str, ...]


# A savepoint of the same name, should the caller have one, would be gone: no other has this name.
_WITHIN: Final = _Frame(
    ("SAVEPOINT tickwork_verb",),
    ("RELEASE SAVEPOINT tickwork_verb",),
    ("ROLLBACK TO SAVEPOINT tickwork_verb", "RELEASE SAVEPOINT tickwork_verb"),
)
_ALONE: Final = _Frame(
    ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
    ("COMMIT",),
    ("ROLLBACK",),
)

_DECODERS: Final = {kind: decode for kind, decode in conversions.items() if type(kind) is int}


class MysqlCallerConnection:
    """A caller's connection. What the caller has open on it is the caller's to end."""

    def __init__(self, lent: object, *, url: str) -> None:
        self._lent = lent
        self._url = url
        self._connection = self._resolve()
        self._answer = StatementResult(None, 0)
        self._packet_max = PACKET_MIN

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction, as a whole or not at all."""
        self._connection = self._resolve()
        self._refuse_half_read()
        with self._our_settings():
            # Where nothing is open, what failed has left nothing: it can be begun anew.
            repeatable = _CONFLICTS if self._commits_at_once() else _TAKEN
            tries = 0
            # It ends: the tries are counted.
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
        """The driver's connection: a session has another one after each of its transactions."""
        found = driver_connection(self._lent)
        if isinstance(found, pymysql.Connection):
            return found
        raise WrongConnection(self._url, f"It is a {type_name(self._lent, found)}.", takes=TAKES)

    # ------------------------------------------------------------ what a statement is run on

    @property
    def packet_max(self) -> int:
        """How long one text should be at most."""
        return self._packet_max

    def send(self, text: str) -> None:
        """Send a text: by itself, since not every connection takes several at once."""
        connection = self._connection
        kept = connection.decoders, connection.encoding, connection.use_unicode
        connection.decoders, connection.encoding, connection.use_unicode = _DECODERS, "utf8", True
        cursor = pymysql.cursors.Cursor(connection)
        try:
            cursor.execute(encoded(text))
            self._answer = answer_of(cursor)
        finally:
            connection.decoders, connection.encoding, connection.use_unicode = kept

    def fetch(self) -> StatementResult:
        """What the last text gave."""
        return self._answer

    # ------------------------------------------------------------ transactions and settings

    @contextmanager
    def transaction(self) -> Iterator[None]:
        frame = _ALONE if self._commits_at_once() else _WITHIN
        for text in frame.opening:
            self.send(text)
        if frame is _WITHIN and self._commits_at_once():
            # A deadlock has ended the caller's transaction, of which PyMySQL hears by now.
            frame = _ALONE
            for text in frame.opening:
                self.send(text)
        try:
            yield
            for text in frame.closing:
                self.send(text)
        except BaseException:
            # A deadlock has ended the whole transaction, and our savepoint with it.
            with suppress(pymysql.err.Error):
                for text in frame.undoing:
                    self.send(text)
            raise

    def _commits_at_once(self) -> bool:
        """Whether nothing is open, and a statement is committed by itself."""
        status = self._connection.server_status
        is_open = status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return bool(status & SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT) and not is_open

    @contextmanager
    def _our_settings(self) -> Iterator[None]:
        """Speak UTF-8, in a mode that our statements are written for, and go back to the old."""
        self.send(_READ_SETTINGS)
        [(mode, client, results, collation, packet_max)] = self._answer.rows or ()
        self._packet_max = max(packet_max // 2, PACKET_MIN)
        changes: list[tuple[str, str]] = []
        if not all(said in _UTF8 for said in (client, results, collation.partition("_")[0])):
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

    # ------------------------------------------------------------ what can be said in our words

    def _refuse_half_read(self) -> None:
        result = self._connection._result  # noqa: SLF001  # there is no other way to it
        if result is not None and result.unbuffered_active:
            reason = "Rows of an earlier query are still on their way to an unbuffered cursor."
            raise WrongConnection(
                self._url, reason, takes=f"{TAKES} that has read all it asked for"
            )

    def _translate_error(self, error: Exception) -> Exception:
        if code_of(error) == ER.NO_SUCH_TABLE:
            self.send("SELECT database()")
            [(database,)] = self._answer.rows or ()
            reason = f"It finds no such tables in the database {database!r}."
            return WrongConnection(self._url, reason, takes=TAKES)
        if code_of(error) == ER.LOCK_WAIT_TIMEOUT:
            self.send("SELECT @@innodb_lock_wait_timeout")
            [(seconds,)] = self._answer.rows or ()
            return StoreBusy(self._url, waited=timedelta(seconds=seconds))
        return error
