"""Small tasks that every worker repeats: none of them stops another."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from tickwork._kernel.clock import Clock
from tickwork._stores.contract import Store
from tickwork._worker.service import RepeatedService
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Wakeup
from tickwork.errors import StatementFailed, StoreBusy, StoreError, StoreUnavailable

SWEEP_MAX: Final = 500
"""The most runs that one statement unblocks, so that its locks are short."""

MAINTAIN_EVERY: Final = 1.0
"""Seconds between two rounds. A canceled attempt, and the runs of a dead worker, wait so long.

A round of an idle worker is a few reads: shorter costs each idle worker more of them.
"""

_log: Final = logging.getLogger("tickwork.worker")


class Maintenance(RepeatedService):
    """Repeats all tasks while attempts run: handlers write logs, and can be canceled."""

    name = "maintenance"
    activity = "Maintenance"
    is_essential = False  # one bad row could fail a task on every worker
    first_wait = MAINTAIN_EVERY

    def __init__(
        self,
        tasks: Mapping[str, Callable[[], object]],
        *,
        clock: Clock,
        stop: WorkerStop,
        wakeup: Wakeup,
        on_disconnect: Callable[[], None],
    ) -> None:
        super().__init__(clock)
        self._tasks = tasks
        self._stop = stop
        self._wakeup = wakeup
        self._on_disconnect = on_disconnect
        self._waiting: set[str] = set()

    def step(self) -> float:
        try:
            if maintain(self._tasks, self._waiting):
                self._wakeup.notify_new_work()
        except (StoreUnavailable, StoreBusy) as error:
            self._on_disconnect()
            if isinstance(error, StoreUnavailable) and error.is_permanent:
                self._stop.fail_store(error)
            raise
        return MAINTAIN_EVERY


def maintain(tasks: Mapping[str, Callable[[], object]], waiting: set[str]) -> bool:
    """Do all tasks; True when one returned that runs may have become ready.

    A task that fails is logged, and the others are done. ``waiting`` are tasks whose statements
    the database could not execute at the last try: each is logged once.

    Raises:
        StoreUnavailable: The database is unreachable, so that the other tasks would fail too.
    """
    has_new_work = False
    for name, act in tasks.items():
        try:
            has_new_work = bool(act()) or has_new_work
            waiting.discard(name)
        except StoreError as error:
            is_answered = isinstance(error, StatementFailed)
            if isinstance(error, StoreUnavailable | StoreBusy) and not is_answered:
                raise
            # The other tasks use other tables.
            if name not in waiting:
                _log.warning("%s waits for the database: %s %s", name, error.what, error.why)
            waiting.add(name)
        except Exception:  # noqa: BLE001  # a task must not stop the others
            _log.exception("%s failed; the other maintenance tasks go on.", name)
    return has_new_work


def sweep(store: Store, clock: Clock) -> int:
    """Unblock runs that wait for a limit which has room."""
    return store.sweep(now=clock.now(), limit=SWEEP_MAX)
