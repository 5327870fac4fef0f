"""The drivers of callers' connections: PyMySQL and mysqlclient.

Rows come from a cursor of our own, so that the caller's cursor class is not used. The converters
and the encoding of the connection are replaced while a statement runs.
"""

from contextlib import closing
from decimal import Decimal
from typing import Any, Final, Protocol

import pymysql
import pymysql.cursors
from pymysql.constants import CR, ER, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import conversions

from tickwork._stores._sql.sessions import is_instance_of
from tickwork._stores._sql.statement import StatementResult
from tickwork._stores.mysql.connection import code_of

_DECODERS: Final = {kind: decode for kind, decode in conversions.items() if type(kind) is int}


class CallerDriver(Protocol):
    """A caller's connection, whatever its driver is."""

    errors: tuple[type[Exception], ...]

    @property
    def is_open(self) -> bool: ...

    def execute(self, text: bytes) -> StatementResult:
        """Execute one statement, in UTF-8."""

    def commits_at_once(self) -> bool:
        """Whether no transaction is open and autocommit is on."""

    def has_unread_rows(self) -> bool:
        """Whether an unbuffered cursor has not read all rows of its query."""


def driver_of(connection: object) -> CallerDriver | None:
    if isinstance(connection, pymysql.Connection):
        return PyMysqlDriver(connection)
    if is_instance_of(connection, ("MySQLdb.connections", "Connection")):
        return MysqlclientDriver(connection)
    return None


def _result_of(cursor: Any) -> StatementResult:
    rows = None if cursor.description is None else cursor.fetchall()
    return StatementResult(rows, cursor.rowcount)


class PyMysqlDriver:
    errors: tuple[type[Exception], ...] = (pymysql.err.Error,)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return bool(self._connection.open)

    def execute(self, text: bytes) -> StatementResult:
        connection = self._connection
        kept = connection.decoders, connection.encoding, connection.use_unicode
        connection.decoders, connection.encoding, connection.use_unicode = _DECODERS, "utf8", True
        cursor = pymysql.cursors.Cursor(connection)
        try:
            cursor.execute(text)
            return _result_of(cursor)
        finally:
            connection.decoders, connection.encoding, connection.use_unicode = kept

    def commits_at_once(self) -> bool:
        status = self._connection.server_status
        is_begun = status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return bool(status & SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT) and not is_begun

    def has_unread_rows(self) -> bool:
        result = self._connection._result  # noqa: SLF001  # PyMySQL has no public way
        return result is not None and result.unbuffered_active


_INTEGERS: Final = (
    FIELD_TYPE.TINY,
    FIELD_TYPE.SHORT,
    FIELD_TYPE.LONG,
    FIELD_TYPE.LONGLONG,
    FIELD_TYPE.INT24,
)
_DECIMALS: Final = (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL)


def _decimal(text: bytes) -> Decimal:
    return Decimal(text.decode())


_CONVERTERS: Final[dict[int, Any]] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_DECIMALS, _decimal),
}
"""Other types are returned as bytes: the driver does not know about SET NAMES."""


class MysqlclientDriver:
    def __init__(self, connection: Any) -> None:
        import MySQLdb  # noqa: PLC0415  # the caller has imported it
        import MySQLdb.cursors  # noqa: PLC0415

        self.errors: tuple[type[Exception], ...] = (MySQLdb.Error,)
        self._cursor_type = MySQLdb.cursors.Cursor
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return bool(self._connection.open)

    def execute(self, text: bytes) -> StatementResult:
        connection = self._connection
        kept, connection.converter = connection.converter, _CONVERTERS
        try:
            with closing(self._cursor_type(connection)) as cursor:
                cursor.execute(text)
                result = _result_of(cursor)
        finally:
            connection.converter = kept
        if result.rows is None:
            return result
        rows = [
            tuple(value.decode() if type(value) is bytes else value for value in row)
            for row in result.rows
        ]
        return StatementResult(rows, result.changed)

    def commits_at_once(self) -> bool:
        if not self._connection.get_autocommit():
            return False
        # The driver does not tell whether a transaction is open. Without one, a savepoint ends
        # with its own statement.
        self.execute(b"SAVEPOINT tickwork_probe")
        try:
            self.execute(b"RELEASE SAVEPOINT tickwork_probe")
        except self.errors as error:
            if code_of(error) != ER.SP_DOES_NOT_EXIST:
                raise
            return True
        return False

    def has_unread_rows(self) -> bool:
        try:
            self.execute(b"DO 0")
        except self.errors as error:
            if code_of(error) != CR.CR_COMMANDS_OUT_OF_SYNC:
                raise
            return True
        return False
