"""Requests to workers that run in other processes: they reach them through the database."""

import os
import socket
from datetime import timedelta
from typing import Final

from tickwork._domain.identity import drain_lock_of
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import LockRow, Store, WorkerRow
from tickwork.errors import WorkerNotFound

REQUEST_TIME: Final = timedelta(days=1)
"""How long a request holds. The worker that it is for removes it; a dead one leaves it behind."""

OWNER: Final = "drain"


class WorkerRequests:
    """Asks workers to drain."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def drain(self, worker: str) -> WorkerRow:
        """Ask a worker to claim no more runs, to finish those it has, and to exit.

        Raises:
            WorkerNotFound: There is no such worker, or there are several.
        """
        row, now = self._find(worker), self._clock.now()
        until = now + REQUEST_TIME
        name = drain_lock_of(row.id)
        # The owner is always the same: a second request is like the first.
        lock = LockRow(name, OWNER, socket.gethostname(), os.getpid(), now, until)
        self._store.acquire_lock(lock, now=now)
        return row

    def _find(self, worker: str) -> WorkerRow:
        known = [row for row in self._store.list_workers() if not row.is_remote]
        rows = [row for row in known if worker in {row.id, f"{row.host}:{row.pid}"}]
        rows = rows or [row for row in known if worker and row.id.startswith(worker.lower())]
        if len(rows) != 1:
            raise WorkerNotFound(worker, known=[f"{row.host}:{row.pid}" for row in rows or known])
        return rows[0]
