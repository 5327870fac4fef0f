"""Small tasks that every worker repeats: none of them stops another."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from tickwork._kernel.clock import Clock
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores.contract import Store

SWEEP_MAX: Final = 500

_log: Final = logging.getLogger("tickwork.worker")


def maintain(tasks: Mapping[str, Callable[[], object]]) -> bool:
    """Do all tasks; True when one returned that runs may have become ready.

    A task that fails is logged, and the others are done.

    Raises:
        StoreUnavailable: The database is unreachable, so that the other tasks would fail too.
    """
    has_new_work = False
    for name, act in tasks.items():
        try:
            has_new_work = bool(act()) or has_new_work
        except (StoreUnavailable, StoreBusy):
            raise
        except Exception:  # noqa: BLE001  # a task must not stop the others
            _log.exception("%s failed; the other maintenance tasks go on.", name)
    return has_new_work


def sweep(store: Store, clock: Clock) -> int:
    """Unblock runs that wait for a limit which has room."""
    return store.sweep(now=clock.now(), limit=SWEEP_MAX)
