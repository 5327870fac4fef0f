"""Finds alerts once a minute: their history has what happened while no page was open."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.processes import ThisProcess
from tickwork._kernel.read_limit import limit_reads
from tickwork._stores.contract import LockRow, Store
from tickwork._worker.service import RepeatedService
from tickwork.errors import StoreError

RECORD_EVERY: Final = 60.0
"""Seconds between two rounds: the begin and the end of most alerts are known from their rows."""

LOCK: Final = "alerts:history"
LOCK_TTL: Final = timedelta(seconds=2 * RECORD_EVERY)
"""How long one process finds alerts alone. If it dies, another one goes on."""

READ_LIMIT: Final = timedelta(seconds=30)

_log: Final = get_logger("tickwork.watch")


class AlertRecorder(RepeatedService):
    """Finds alerts beside a worker or a watcher, in one process of a database at a time."""

    name = "alert-history"
    activity = "Finding alerts"
    is_essential = False
    first_wait = 5.0

    def __init__(self, *, store: Store, clock: Clock, find: Callable[[], object]) -> None:
        super().__init__(clock)
        self._store = store
        self._find = find
        self._owner = new_id(clock.now())

    def step(self) -> float:
        try:
            if self._acquire():
                with limit_reads(READ_LIMIT):
                    self._find()
        except StoreError as error:
            _log.warning("Alerts cannot be found for their history: %s", error.what)
        return RECORD_EVERY

    def _acquire(self) -> bool:
        now, me = self._clock.now(), ThisProcess.current()
        lock = LockRow(LOCK, self._owner, me.host, me.pid, now, now + LOCK_TTL)
        return self._store.acquire_lock(lock, now=now) is None
