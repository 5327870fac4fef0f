"""Waits for NOTIFY: a hint that there is something to do."""

import logging
import secrets
import select
import time
from contextlib import closing, suppress
from typing import Final

import psycopg

CHANNEL: Final = "tickwork"
RETRY_SECONDS: Final = 1.0

ECHO_SECONDS: Final = 0.5
"""How long our own word may take to come back."""

ECHOES_MAX: Final = 3
"""How often it is waited for in vain before others' words are no longer expected."""

DEAF_SECONDS: Final = 300.0
"""After how long it is tried again then."""

_log: Final = logging.getLogger("tickwork.worker")


class PostgresListener:
    """A connection that listens. Polling its socket costs next to nothing.

    When the server goes, it says so once, as if it had heard something, and listens again
    as soon as it can: a hint that was missed is found by the next poll of the tables.

    A pooler in transaction mode lends each transaction another of its server connections, so
    that LISTEN is carried out, and nothing is ever heard. Where there is a pooler at all, a word of
    our own tells: if that does not come back, polling is all there is, which is said once.
    """

    def __init__(self, conninfo: str, *, channel: str = CHANNEL) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._connection: psycopg.Connection[object] | None = None
        self._retry_at = 0.0
        self._echoes_missed = 0

    def wait(self, seconds: float) -> bool:
        was_listening = self._connection is not None
        connection = self._listening()
        if connection is None:
            time.sleep(min(seconds, RETRY_SECONDS))
            return False
        if not was_listening:
            return True  # what was said before nobody heard: look once
        try:
            return _hears(connection, seconds)
        except psycopg.Error:
            self.close()
            return True

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None

    def _listening(self) -> "psycopg.Connection[object] | None":
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            with suppress(psycopg.Error):
                connection = psycopg.connect(self._conninfo, autocommit=True)
                try:
                    if self._can_hear(connection):
                        connection.execute(f"LISTEN {self._channel}".encode())
                        self._connection = connection
                finally:
                    if self._connection is None:
                        connection.close()
        return self._connection

    def _can_hear(self, connection: "psycopg.Connection[object]") -> bool:
        if not _is_pooled(connection) or self._echoes(connection):
            self._echoes_missed = 0
            return True
        self._echoes_missed += 1
        if self._echoes_missed == ECHOES_MAX:
            _log.warning(
                "No NOTIFY comes through from %s:%s, as behind a pooler in transaction mode: this "
                "worker looks for work every now and then instead (poll, poll_idle). To be woken "
                "at once, let workers connect to PostgreSQL itself, or pool sessions.",
                connection.info.host,
                connection.info.port,
            )
        if self._echoes_missed >= ECHOES_MAX:
            self._retry_at = time.monotonic() + DEAF_SECONDS
        return False

    def _echoes(self, connection: "psycopg.Connection[object]") -> bool:
        """Whether we hear what is said on another connection, now that this one has no statement.

        On a channel of its own: to a server connection that goes back into a pool it sticks.
        """
        channel = f"{self._channel}_{secrets.token_hex(8)}"
        connection.execute(f"LISTEN {channel}".encode())
        with closing(psycopg.connect(self._conninfo, autocommit=True)) as other:
            # Nobody waits for the answer: where sessions are pooled there may be none left.
            other.pgconn.send_query(f"NOTIFY {channel}".encode())
            other.pgconn.flush()
            is_heard = _hears(connection, ECHO_SECONDS)
        if is_heard:
            connection.execute(f"UNLISTEN {channel}".encode())
        return is_heard


def _is_pooled(connection: "psycopg.Connection[object]") -> bool:
    """Whether the server that answers is not the process that we were told at the beginning."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row != (connection.info.backend_pid,)


def _hears(connection: "psycopg.Connection[object]", seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    if not poll.poll(max(int(seconds * 1000), 0)):
        return False
    pgconn = connection.pgconn
    pgconn.consume_input()
    while pgconn.notifies() is not None:
        pass  # what it says is of no matter: all of them mean "look"
    return True
