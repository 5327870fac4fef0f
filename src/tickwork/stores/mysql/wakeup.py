"""Notices that somebody has added runs: a hint that there is something to do.

Neither MariaDB nor MySQL can tell. But ids grow with time, so a look at the last one does: it
takes the server some microseconds, however many runs there are. What changes seldom, such as
schedules, is announced in a row.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.server_store import ConnectionLost, StatementRejected
from tickwork.stores.mysql.connection import MysqlConnection
from tickwork.stores.mysql.statement_runner import run_statement

POLL: Final = 0.04
POLL_IDLE: Final = 0.2
"""How often it looks, in seconds, at first and after :data:`IDLE_AFTER`."""

IDLE_AFTER: Final = 30.0
RETRY: Final = 1.0


class MysqlListener:
    """Looks for itself, on a connection of its own.

    When the server goes, it says so once, as if it had heard something, and looks again as soon as
    it can.
    """

    def __init__(self, connect: Callable[[], MysqlConnection], query: Queries) -> None:
        self._connect = connect
        self._look = query("read_changes")
        self._connection: MysqlConnection | None = None
        self._last: str | None = None
        self._changes: int | None = None
        self._heard_at = time.monotonic()
        self._retry_at = 0.0

    def wait(self, seconds: float) -> bool:
        give_up_at = time.monotonic() + seconds
        # It ends at the deadline.
        while not self._has_news():
            left = give_up_at - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, self._pace()))
        self._heard_at = time.monotonic()
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pace(self) -> float:
        is_idle = time.monotonic() - self._heard_at > IDLE_AFTER
        return (POLL_IDLE if is_idle else POLL) * random.uniform(0.8, 1.2)  # noqa: S311

    def _has_news(self) -> bool:
        if self._connection is None:
            if time.monotonic() < self._retry_at:
                return False
            self._retry_at = time.monotonic() + RETRY
            with suppress(ConnectionLost):
                self._connection = self._connect()
            if self._connection is None:
                return False
        try:
            # By itself, without a transaction around it: one round trip.
            [(last, changes)] = run_statement(self._look, self._connection)
        except (ConnectionLost, StatementRejected):
            self.close()
            return True
        # One that has ended says nothing: whoever ended it looks for the next by itself.
        is_new = last is not None and (self._last is None or last > self._last)
        is_changed = changes != self._changes
        self._last, self._changes = last, changes
        return is_new or is_changed
