"""Waits for NOTIFY: a hint that there is something to do."""

import select
import time
from contextlib import suppress
from typing import Final

import psycopg

CHANNEL: Final = "tickwork"


class PostgresListener:
    """A connection that listens. Polling its socket costs next to nothing.

    When the server goes, it says so once, as if it had heard something, and listens again
    as soon as it can: a hint that was missed is found by the next poll of the tables.
    """

    def __init__(self, conninfo: str, *, channel: str = CHANNEL) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._connection: psycopg.Connection[object] | None = None
        self._retry_at = 0.0
        self._poll = select.poll()

    def wait(self, seconds: float) -> bool:
        """Whether something was heard within this time."""
        was_listening = self._connection is not None
        connection = self._listening()
        if connection is None:
            time.sleep(min(seconds, 1.0))
            return False
        if not was_listening:
            return True  # what was said before nobody heard: look once
        try:
            if not self._poll.poll(max(int(seconds * 1000), 0)):
                return False
            pgconn = connection.pgconn
            pgconn.consume_input()
            while pgconn.notifies() is not None:
                pass  # what it says is of no matter: all of them mean "look"
        except psycopg.Error:
            self._let_go()
        return True

    def close(self) -> None:
        """Let go of the connection."""
        self._let_go()

    def _listening(self) -> "psycopg.Connection[object] | None":
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + 1.0
            with suppress(psycopg.Error):
                connection = psycopg.connect(self._conninfo, autocommit=True)
                connection.execute(f"LISTEN {self._channel}".encode())
                self._poll = select.poll()
                self._poll.register(connection.pgconn.socket, select.POLLIN)
                self._connection = connection
        return self._connection

    def _let_go(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None
