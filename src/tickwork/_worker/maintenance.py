"""Small tasks that every worker repeats: none of them delays or stops another."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tickwork._kernel.clock import Clock
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores.contract import Store

SWEEP_MAX: Final = 500

_log: Final = logging.getLogger("tickwork.upkeep")


class MaintenanceTask(NamedTuple):
    name: str
    act: Callable[[], object]  # returns whether runs may have become ready
    every: float = 0.0  # seconds between two calls; 0: in every step


class Maintenance:
    def __init__(self, tasks: Sequence[MaintenanceTask], *, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._due = dict.fromkeys((task.name for task in tasks), 0.0)

    def step(self) -> bool:
        """Do the tasks that are due; True when runs may have become ready.

        A task that fails is logged, and the others are done.

        Raises:
            StoreUnavailable: The database is unreachable, so that the other tasks would fail too.
        """
        is_moving = False
        for task in self._tasks:
            if self._clock.monotonic() < self._due[task.name]:
                continue
            try:
                is_moving = bool(task.act()) or is_moving
            except (StoreUnavailable, StoreBusy):
                raise
            except Exception:  # noqa: BLE001  # a task must not stop the others
                _log.exception("%s failed; the other maintenance tasks go on.", task.name)
            self._due[task.name] = self._clock.monotonic() + task.every
        return is_moving


def sweep(store: Store, clock: Clock) -> int:
    """Unblock runs that wait for a limit which has room."""
    return store.sweep(now=clock.now(), limit=SWEEP_MAX)
