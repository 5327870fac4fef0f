"""Waits for NOTIFY, as a hint that there may be new work."""

import logging
import secrets
import select
import time
from contextlib import closing, suppress
from typing import Final

import psycopg

from tickwork._kernel.fork import leave_to_parent

CHANNEL: Final = "tickwork"
RETRY_SECONDS: Final = 1.0

TEST_SECONDS: Final = 0.5
"""How long a test notification may take to arrive."""

TESTS_MAX: Final = 3
"""After this many lost test notifications, the listener gives up for a while."""

PAUSE_SECONDS: Final = 300.0
"""After this time it tries again."""

_log: Final = logging.getLogger("tickwork.worker")


class PostgresListener:
    """A connection that listens. Polling its socket costs almost nothing.

    When the connection is lost, it reports a notification once, and listens again when it has
    reconnected: a worker finds missed work when it polls the tables.

    A pooler in transaction mode uses another server connection for each transaction, so that
    LISTEN succeeds and no notification ever arrives. Behind a pooler the listener sends a test
    notification to itself: if that does not arrive, it logs a warning once, and the worker polls.
    """

    def __init__(self, conninfo: str, *, channel: str = CHANNEL) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._connection: psycopg.Connection[object] | None = None
        self._retry_at = 0.0
        self._tests_missed = 0

    def wait(self, seconds: float) -> bool:
        was_listening = self._connection is not None
        connection = self._connect()
        if connection is None:
            time.sleep(min(seconds, RETRY_SECONDS))
            return False
        if not was_listening:
            return True  # notifications before this moment were missed: poll once
        try:
            return _has_notification(connection, seconds)
        except psycopg.Error:
            self.close()
            return True

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None

    def _connect(self) -> "psycopg.Connection[object] | None":
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            with suppress(psycopg.Error):
                connection = psycopg.connect(self._conninfo, autocommit=True)
                try:
                    if self._can_receive(connection):
                        connection.execute(f"LISTEN {self._channel}".encode())
                        self._connection = connection
                        leave_to_parent(connection)
                finally:
                    if self._connection is None:
                        connection.close()
        return self._connection

    def _can_receive(self, connection: "psycopg.Connection[object]") -> bool:
        if not _is_pooled(connection) or self._receives_test(connection):
            self._tests_missed = 0
            return True
        self._tests_missed += 1
        if self._tests_missed == TESTS_MAX:
            _log.warning(
                "Notifications from %s:%s do not arrive, as behind a pooler in transaction mode. "
                "This worker polls for work instead (options poll and poll_idle). To be notified "
                "at once, connect workers to PostgreSQL directly, or use a pooler in session mode.",
                connection.info.host,
                connection.info.port,
            )
        if self._tests_missed >= TESTS_MAX:
            self._retry_at = time.monotonic() + PAUSE_SECONDS
        return False

    def _receives_test(self, connection: "psycopg.Connection[object]") -> bool:
        """Whether a notification of another connection arrives on this one.

        It uses a channel of its own, because LISTEN stays active on a pooled server connection.
        """
        channel = f"{self._channel}_{secrets.token_hex(8)}"
        connection.execute(f"LISTEN {channel}".encode())
        with closing(psycopg.connect(self._conninfo, autocommit=True)) as other:
            # Without reading the answer: a pooler in session mode may have no connection left.
            other.pgconn.send_query(f"NOTIFY {channel}".encode())
            other.pgconn.flush()
            has_arrived = _has_notification(connection, TEST_SECONDS)
        if has_arrived:
            connection.execute(f"UNLISTEN {channel}".encode())
        return has_arrived


def _is_pooled(connection: "psycopg.Connection[object]") -> bool:
    """Whether another server process answers than the one that accepted the connection."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row != (connection.info.backend_pid,)


def _has_notification(connection: "psycopg.Connection[object]", seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if not poll.poll(max(int(seconds * 1000), 0)):
        return False
    pgconn = connection.pgconn
    pgconn.consume_input()
    while pgconn.notifies() is not None:
        pass  # the content does not matter: each one means that there may be work
    return True
