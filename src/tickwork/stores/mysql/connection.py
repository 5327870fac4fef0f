"""One connection to MariaDB or MySQL: whole round trips, each with a deadline.

Several statements go out in one packet. BEGIN travels with the first of them, COMMIT with the
last, and one whose answer nobody reads waits for the next that is sent: adding a run takes one
round trip, claiming and recording take two. After one that fails the server does none of those
behind it.

Everything is READ COMMITTED, except for what only reads: several statements see one moment there.
"""

import select
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
import pymysql.cursors
from pymysql.constants import CLIENT, CR, ER

from tickwork.stores._sql.server_store import ConnectionLost, StatementRejected
from tickwork.stores._sql.statement import Rows, Statement, StatementResult
from tickwork.stores.mysql.statement_runner import run_statement
from tickwork.stores.mysql.values import encoded

CONNECT_TIMEOUT: Final = timedelta(seconds=10)
APPLICATION_NAME: Final = "tickwork"

SQL_MODE: Final = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""What our statements are written for: what does not fit is refused in it, and not cut off."""

_WRITING: Final = "START TRANSACTION"
_READING: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\nSTART TRANSACTION READ ONLY"
_COMMIT: Final = "COMMIT"
_ROLLBACK: Final = "ROLLBACK"

# Each server reads the comment that is meant for it. No setting but the first is one that a
# transaction's outcome depends on.
_SETTINGS: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = '{sql_mode}', innodb_lock_wait_timeout = {lock_timeout}",
    "SET SESSION lock_wait_timeout = {lock_timeout}",
    "SET SESSION /*M! max_statement_time = {seconds} */ /*!50708 max_execution_time = {ms} */",
    "SELECT version(), @@max_allowed_packet",
)

_ANSWER_GRACE: Final = timedelta(seconds=5)
"""How much longer than a statement may take we wait for its answer."""

PACKET_MIN: Final = 500_000

_LOSSES: Final = frozenset(
    {
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_COMMANDS_OUT_OF_SYNC,
        0,  # it was closed before
        ER.SERVER_SHUTDOWN,
        ER.FORCING_CLOSE,
        ER.NET_READ_ERROR,
        ER.NET_READ_INTERRUPTED,
        ER.NET_ERROR_ON_WRITE,
        ER.NET_WRITE_INTERRUPTED,
        ER.NEW_ABORTING_CONNECTION,
        1927,  # MariaDB: the connection was killed
        3169,  # MySQL: the session was killed
        4031,  # MySQL: it was idle for too long
    }
)
"""What is said when the connection is gone, or goes."""

_OPTIONS: Final = frozenset(
    {
        "unix_socket",
        "ssl_ca",
        "ssl_cert",
        "ssl_key",
        "ssl_disabled",
        "ssl_verify_cert",
        "ssl_verify_identity",
    }
)
"""What a URL may say besides where the database is: as PyMySQL calls it."""

_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _TlsCachingConnection(pymysql.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """PyMySQL reads all certificates of the machine for each connection, which takes 90 ms."""

    _context_by_options: Final[dict[tuple[Any, ...], ssl.SSLContext]] = {}

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> ssl.SSLContext:
        options = tuple(sorted(sslp.items()))
        if options not in self._context_by_options:
            self._context_by_options[options] = super()._create_ssl_ctx(sslp)
        return self._context_by_options[options]


class MysqlConnection:
    """A connection of our own, used by one thread at a time."""

    def __init__(
        self, settings: Mapping[str, Any], *, statement_timeout: timedelta, lock_timeout: timedelta
    ) -> None:
        patience = (statement_timeout + _ANSWER_GRACE).total_seconds()
        try:
            self._connection = _opened(
                {**settings, "read_timeout": patience, "write_timeout": patience}
            )
        except (pymysql.err.Error, RuntimeError) as error:
            raise ConnectionLost(_message(error), is_unopened=True) from error
        self._cursor = pymysql.cursors.Cursor(self._connection)
        self._packet_max = PACKET_MIN
        self._is_reading = self._is_begun = self._is_broken = self._is_commit_sent = False
        said = {
            "sql_mode": SQL_MODE,
            # In whole seconds, and 0 would be "at once".
            "lock_timeout": max(1, round(lock_timeout.total_seconds())),
            "seconds": statement_timeout.total_seconds(),
            "ms": max(1, round(statement_timeout.total_seconds() * 1000)),
        }
        self._unsent = [text.format(**said) for text in _SETTINGS]
        try:
            [(version, packet_max)] = self.fetch().rows or ()
        except (StatementRejected, ConnectionLost) as error:
            self.close()
            raise ConnectionLost(str(error), is_unopened=True) from error
        self.version: str = version
        # A text has more bytes than characters.
        self._packet_max = max(packet_max // 2, PACKET_MIN)

    # ------------------------------------------------------------ what drives an operation

    @contextmanager
    def transaction(self, *, is_reading: bool = False) -> Iterator[None]:
        self._is_reading = is_reading
        self._is_begun = self._is_commit_sent = False
        self._unsent = []
        try:
            yield
            if self._is_begun:
                if len(self._unsent) == 2 and self._unsent[0] is _WRITING:
                    # One statement is a transaction of its own, and two answers less to read.
                    del self._unsent[0]
                else:
                    self._unsent.append(_COMMIT)
                self._is_commit_sent = True
                self._send()
        except BaseException:
            if self._is_begun and not self._is_broken:
                self._unsent = [_ROLLBACK]
                with suppress(ConnectionLost, StatementRejected):
                    self._send()
            raise

    def execute(self, statement: Statement) -> Rows:
        if not self._is_begun:
            self._is_begun = True
            self._unsent.append(_READING if self._is_reading else _WRITING)
        return run_statement(statement, self)

    # ------------------------------------------------------------ what a statement is run on

    @property
    def packet_max(self) -> int:
        """How long one text should be at most."""
        return self._packet_max

    def send(self, text: str) -> None:
        """Send a text with the next that is asked."""
        self._unsent.append(text)

    def fetch(self) -> StatementResult:
        """What the last text gave."""
        return self._send()

    # ------------------------------------------------------------ what a pool asks

    @property
    def is_reusable(self) -> bool:
        return not self._is_broken

    def is_alive(self) -> bool:
        """Whether the server is still there, as far as can be told without a round trip.

        Between two transactions it has nothing to say, except that it goes.
        """
        socket = self._connection._sock  # noqa: SLF001  # there is no other way to it
        return socket is not None and not _can_be_read(socket.fileno())

    def close(self) -> None:
        with suppress(pymysql.err.Error):
            self._connection.close()

    # ------------------------------------------------------------ round trips

    def _send(self) -> StatementResult:
        """Send what has not been sent, and return the answer to the last of it."""
        sent, self._unsent = self._unsent, []
        cursor = self._cursor
        # Until every answer is read, nobody can use it for anything else.
        self._is_broken = True
        try:
            for packet in _packets(sent, self._packet_max):
                cursor.execute(encoded(packet))
                # It ends with the last answer to this packet.
                while cursor.nextset():
                    pass
        except pymysql.err.Error as error:
            failure = self._failure(error)
            self._is_broken = isinstance(failure, ConnectionLost)
            raise failure from error
        self._is_broken = False
        return answer_of(cursor)

    def _failure(self, error: Exception) -> ConnectionLost | StatementRejected:
        code = code_of(error)
        if code in _LOSSES or not self._connection.open:
            return ConnectionLost(_message(error), is_commit_sent=self._is_commit_sent)
        return StatementRejected(str(code), _message(error))


def answer_of(cursor: Any) -> StatementResult:
    """What a cursor of PyMySQL's has."""
    rows = None if cursor.description is None else cursor.fetchall()
    return StatementResult(rows, cursor.rowcount)


def code_of(error: Exception) -> int:
    """The number of an error of PyMySQL's; 0 when it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _message(error: Exception) -> str:
    return str(error.args[-1] if error.args else "") or "The connection is closed."


def _packets(texts: Iterable[str], length_max: int) -> Iterator[str]:
    """Texts, as many in one packet as may be."""
    packet: list[str] = []
    length = 0
    for text in texts:
        if packet and length + len(text) > length_max:
            yield ";\n".join(packet)
            packet, length = [], 0
        packet.append(text)
        length += len(text)
    if packet:
        yield ";\n".join(packet)


def _can_be_read(file: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([file], [], [], 0)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))


# ---------------------------------------------------------------- where it is


def settings_of(url: str) -> dict[str, Any]:
    """What PyMySQL is told: the URL, and what we say where it says nothing.

    Raises:
        ValueError: It cannot be read.
    """
    parts = urlsplit(url)
    database = unquote(parts.path[1:])
    if not database:
        raise ValueError("it names no database.")
    said = dict(parse_qsl(parts.query))
    unknown = said.keys() - _OPTIONS
    if unknown:
        raise ValueError(f"there is no option {min(unknown)!r}.")
    host = parts.hostname or "localhost"
    settings: dict[str, Any] = {
        "host": host,
        "port": parts.port or 3306,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password or ""),
        "database": database,
        "charset": "utf8mb4",
        "autocommit": True,
        "client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
        "connect_timeout": round(CONNECT_TIMEOUT.total_seconds()),
        "program_name": APPLICATION_NAME,
    }
    is_near = host in _LOOPBACK or "unix_socket" in said
    if is_near and not any(name.startswith("ssl_") for name in said):
        # What does not leave the machine need not be hidden from others.
        settings["ssl_disabled"] = True
    return settings | {name: _WORDS.get(value.lower(), value) for name, value in said.items()}


def _opened(settings: Mapping[str, Any]) -> Any:
    try:
        return _TlsCachingConnection(**settings)
    except RuntimeError:
        # MySQL's usual way to log in needs either a package more, or TLS.
        if not settings.get("ssl_disabled"):
            raise
        return _TlsCachingConnection(**{**settings, "ssl_disabled": None})
