"""One connection to MariaDB or MySQL, with few round trips, each with a timeout.

Several statements are sent in one packet. BEGIN is sent with the first statement, COMMIT with the
last, and a statement whose result is not read is sent with the next one: adding a run takes one
round trip, claiming and recording take two. After a failed statement the server skips the rest of
the packet.

Transactions are READ COMMITTED, except read-only ones: their statements share one snapshot.
"""

import re
import select
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT, COMMAND, CR, ER

from tickwork._kernel.fork import leave_to_parent
from tickwork._stores._sql.server_store import (
    ConnectionLost,
    StatementRejected,
    answer_timeout,
)
from tickwork._stores._sql.statement import Rows, Statement, StatementResult
from tickwork._stores.mysql.result_reader import read_results
from tickwork._stores.mysql.statement_runner import run_statement
from tickwork._stores.mysql.values import encoded
from tickwork.errors import ServerTooOld

CONNECT_TIMEOUT: Final = timedelta(seconds=10)
APPLICATION_NAME: Final = "tickwork"

SQL_MODE: Final = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""The mode that our statements need: values that do not fit are rejected, not truncated."""

_WRITING: Final = "START TRANSACTION"
_READING: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\nSTART TRANSACTION READ ONLY"
_COMMIT: Final = "COMMIT"
_ROLLBACK: Final = "ROLLBACK"

_STATEMENT_LIMIT: Final = (
    "SET SESSION /*M! max_statement_time = {seconds} */ /*!50708 max_execution_time = {ms} */"
)
# MariaDB executes the comment that starts with /*M!, MySQL the one that starts with /*!50708.
_SETTINGS: Final = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = '{sql_mode}', innodb_lock_wait_timeout = {lock_timeout}",
    "SET SESSION lock_wait_timeout = {lock_timeout}",
    _STATEMENT_LIMIT,
    "SELECT {version}, @@max_allowed_packet",
)
_VERSION: Final = "version()"
_MARIADB_MIN: Final = (10, 6)
_MYSQL_MIN: Final = (8, 0, 17)

_BUFFER: Final = 65_536
"""How many bytes are read at once: a claimed run has about 250."""

_PACKET_FIRST: Final = 1_000_000
"""The limit for the first statements, which read the limit of the server."""

TOO_LONG: Final = str(ER.NET_PACKET_TOO_LARGE)
TOO_LONG_FIX: Final = "Store the data elsewhere and pass its key, or raise max_allowed_packet."

LOSSES: Final = frozenset(
    {
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_COMMANDS_OUT_OF_SYNC,
        0,  # the connection was closed before
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
"""Error codes of a connection that is lost."""

_DENIALS: Final = frozenset(
    {
        ER.DBACCESS_DENIED_ERROR,
        ER.ACCESS_DENIED_ERROR,
        ER.BAD_DB_ERROR,
        ER.HOST_NOT_PRIVILEGED,
        1698,  # access denied, for a user without a password
    }
)
"""Error codes of a server that does not accept the user, the password or the database."""

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
"""Options in a URL, by their names in PyMySQL."""

_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _LeanConnection(pymysql.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """Reads in large pieces, and caches TLS contexts.

    PyMySQL reads 8 kB at a time, and loads all certificates for each connection, in 90 ms.
    """

    _context_by_options: Final[dict[tuple[Any, ...], ssl.SSLContext]] = {}

    def connect(self, sock: Any = None) -> None:
        super().connect(sock)
        self._rfile = self._sock.makefile("rb", _BUFFER)

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> ssl.SSLContext:
        options = tuple(sorted(sslp.items()))
        if options not in self._context_by_options:
            self._context_by_options[options] = super()._create_ssl_ctx(sslp)
        return self._context_by_options[options]


class MysqlConnection:
    """A connection of the pool, used by one thread at a time."""

    def __init__(
        self, settings: Mapping[str, Any], *, statement_timeout: timedelta, lock_timeout: timedelta
    ) -> None:
        timeout = answer_timeout(statement_timeout).total_seconds()
        try:
            self._connection = _open(
                {**settings, "read_timeout": timeout, "write_timeout": timeout}
            )
        except (pymysql.err.Error, RuntimeError) as error:
            is_denied = code_of(error) in _DENIALS
            raise ConnectionLost(_message(error), is_unopened=True, is_denied=is_denied) from error
        self._packet_max = self._packet_bytes = _PACKET_FIRST
        self._is_reading = self._is_begun = self._is_broken = self._is_commit_sent = False
        self._timeout = self._default_timeout = self._wanted_timeout = statement_timeout
        values = {
            "sql_mode": SQL_MODE,
            # In whole seconds; 0 would mean no wait.
            "lock_timeout": max(1, round(lock_timeout.total_seconds())),
            **_limit_values(statement_timeout),
            "version": _VERSION,
        }
        self._unsent = [text.format(**values) for text in _SETTINGS]
        try:
            [(version, packet_max)] = self._fetch_first()
            _check_server_version(version)
        except (StatementRejected, ConnectionLost) as error:
            self.close()
            raise ConnectionLost(str(error), is_unopened=True) from error
        except ServerTooOld:
            self.close()
            raise
        # The limit is in bytes, and a character may have four.
        self._packet_max = packet_max // 4
        self._packet_bytes = packet_max
        leave_to_parent(self)

    def fileno(self) -> int:
        socket = self._connection._sock  # noqa: SLF001  # PyMySQL has no public way
        return -1 if socket is None else socket.fileno()

    def _fetch_first(self) -> Rows:
        """Send the settings; an old server that rejects one of them is reported as too old."""
        try:
            return self.fetch().rows or ()
        except StatementRejected:
            self._unsent = [f"SELECT {_VERSION}"]
            [(version,)] = self.fetch().rows or ()
            _check_server_version(version)
            raise

    # ------------------------------------------------------------ transactions

    @contextmanager
    def transaction(
        self, *, is_reading: bool = False, statement_timeout: timedelta | None = None
    ) -> Iterator[None]:
        self._is_reading = is_reading
        self._wanted_timeout = statement_timeout or self._default_timeout
        self._is_begun = self._is_commit_sent = False
        self._unsent = []
        try:
            yield
            if self._is_begun:
                if len(self._unsent) == 2 and self._unsent[0] is _WRITING:
                    # A single statement is its own transaction, which saves two answers.
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
            if self._timeout != self._wanted_timeout:
                # It is one of the session: a later transaction may need the usual one again.
                self._timeout = self._wanted_timeout
                self._unsent.append(_STATEMENT_LIMIT.format(**_limit_values(self._timeout)))
            self._unsent.append(_READING if self._is_reading else _WRITING)
        return run_statement(statement, self)

    # ------------------------------------------------------------ texts and results

    @property
    def packet_max(self) -> int:
        return self._packet_max

    def send(self, text: str) -> None:
        """Add a statement to the next packet."""
        self._unsent.append(text)

    def fetch(self) -> StatementResult:
        """Send the packet, and return the result of its last statement."""
        return self._send()

    # ------------------------------------------------------------ for the pool

    @property
    def is_reusable(self) -> bool:
        return not self._is_broken

    def is_alive(self) -> bool:
        """Whether the connection seems to be open, checked without a round trip.

        Between transactions the server sends nothing, unless it closes the connection.
        """
        number = self.fileno()
        return number >= 0 and not _can_be_read(number)

    def close(self) -> None:
        with suppress(pymysql.err.Error):
            self._connection.close()

    # ------------------------------------------------------------ round trips

    def _send(self) -> StatementResult:
        """Send the pending statements, and return the result of the last."""
        sent, self._unsent = self._unsent, []
        packets = [encoded(packet) for packet in _packets(sent, self._packet_max)]
        for packet in packets:
            # The server would close the connection, and its error would be lost.
            if len(packet) >= self._packet_bytes:
                raise StatementRejected(TOO_LONG, too_long(len(packet), self._packet_bytes))
        connection = self._connection
        result = StatementResult(None, 0)
        # Until every answer is read, the connection cannot be used for anything else.
        self._is_broken = True
        try:
            for packet in packets:
                connection._execute_command(COMMAND.COM_QUERY, packet)  # noqa: SLF001  # as above
                result = read_results(connection)
        except pymysql.err.Error as error:
            failure = self._translate_error(error)
            self._is_broken = isinstance(failure, ConnectionLost)
            raise failure from error
        self._is_broken = False
        return result

    def _translate_error(self, error: Exception) -> ConnectionLost | StatementRejected:
        code = code_of(error)
        if code in LOSSES or not self._connection.open:
            has_timed_out = isinstance(error.__cause__ or error.__context__, TimeoutError)
            return ConnectionLost(
                _message(error), is_commit_sent=self._is_commit_sent, has_timed_out=has_timed_out
            )
        return StatementRejected(str(code), _message(error))


def _limit_values(timeout: timedelta) -> dict[str, float]:
    seconds = timeout.total_seconds()
    return {"seconds": seconds, "ms": max(1, round(seconds * 1000))}


def _check_server_version(version: str) -> None:
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    needed = _MARIADB_MIN if name == "MariaDB" else _MYSQL_MIN
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if numbers < needed:
        raise ServerTooOld(
            name, found=".".join(map(str, numbers)), needed=".".join(map(str, needed))
        )


def too_long(length: int, length_max: int) -> str:
    return (
        f"A run or its result needs a statement of {length:,} bytes. "
        f"The setting max_allowed_packet of the server allows {length_max:,}."
    )


def code_of(error: Exception) -> int:
    """The error code of PyMySQL; 0 when there is none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _message(error: Exception) -> str:
    return str(error.args[-1] if error.args else "") or "The connection is closed."


def _packets(texts: Iterable[str], length_max: int) -> Iterator[str]:
    """Join texts to packets of at most this length."""
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


# ---------------------------------------------------------------- the URL


def settings_of(url: str) -> dict[str, Any]:
    """The arguments for PyMySQL: the options of the URL, and our defaults.

    Raises:
        ValueError: The URL is invalid.
    """
    parts = urlsplit(url)
    database = unquote(parts.path[1:])
    if not database:
        raise ValueError("it names no database.")
    options = dict(parse_qsl(parts.query))
    unknown = options.keys() - _OPTIONS
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
    is_local = host in _LOOPBACK or "unix_socket" in options
    if is_local and not any(name.startswith("ssl_") for name in options):
        # Without TLS: the connection does not leave the machine.
        settings["ssl_disabled"] = True
    return settings | {name: _BOOLEANS.get(value.lower(), value) for name, value in options.items()}


def _open(settings: Mapping[str, Any]) -> Any:
    try:
        return _LeanConnection(**settings)
    except RuntimeError:
        # The default authentication of MySQL needs TLS, or one more package.
        if not settings.get("ssl_disabled"):
            raise
        return _LeanConnection(**{**settings, "ssl_disabled": None})
