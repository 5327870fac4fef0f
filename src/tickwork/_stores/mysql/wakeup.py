"""Detects new runs, as a hint that there may be new work.

MariaDB and MySQL have no notifications. But ids grow with time, so the listener polls the newest
id, which takes the server microseconds, however many runs there are. Rare changes, such as new
schedules, increment a counter.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.server_store import ConnectionLost, StatementRejected
from tickwork._stores.mysql.connection import MysqlConnection
from tickwork._stores.mysql.statement_runner import run_statement

POLL_MIN: Final = 0.003
POLL_MAX: Final = 0.2
"""The shortest and the longest polling interval, in seconds."""

POLL: Final = 0.04
POLL_SHARE: Final = 0.02
IDLE_AFTER: Final = 30.0
"""The interval is this share of the time since the last change, and usually at most ``POLL``. Only
after :data:`IDLE_AFTER` seconds without a change it is longer."""

RETRY: Final = 1.0


class MysqlListener:
    """Polls on a connection of its own.

    When the connection is lost, it reports a change once, and polls again when it has reconnected.
    """

    def __init__(self, connect: Callable[[], MysqlConnection], query: Queries) -> None:
        self._connect = connect
        self._query = query("read_changes")
        self._connection: MysqlConnection | None = None
        self._last: str | None = None
        self._changes: int | None = None
        self._changed_at = time.monotonic()
        self._polled_at = 0.0
        self._retry_at = 0.0

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        # While there is a change at every poll, it does not poll all the time.
        time.sleep(max(self._polled_at + POLL_MIN - time.monotonic(), 0))
        while not self._has_changed():
            now = time.monotonic()
            if now >= deadline:
                return False
            time.sleep(min(deadline - now, poll_interval(now - self._changed_at)))
        self._changed_at = self._polled_at = time.monotonic()
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _has_changed(self) -> bool:
        if self._connection is None:
            if time.monotonic() < self._retry_at:
                return False
            self._retry_at = time.monotonic() + RETRY
            with suppress(ConnectionLost):
                self._connection = self._connect()
            if self._connection is None:
                return False
        try:
            # Without a transaction: one round trip.
            [(last, changes)] = run_statement(self._query, self._connection)
        except (ConnectionLost, StatementRejected):
            self.close()
            return True
        # A smaller id means only that the newest run has ended.
        is_new = last is not None and (self._last is None or last > self._last)
        is_changed = changes != self._changes
        self._last, self._changes = last, changes
        return is_new or is_changed


def poll_interval(unchanged: float) -> float:
    """Return how long to wait before the next poll, so many seconds after the last change.

    A change often follows another, so polls are frequent at first. They are not regular: many
    workers would otherwise poll at the same moments.
    """
    if unchanged > IDLE_AFTER:
        seconds = POLL_MAX
    else:
        seconds = min(max(POLL_SHARE * unchanged, POLL_MIN), POLL)
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
