"""Wakes the worker when other processes change something."""

from typing import Final

from tickwork._kernel.clock import Clock
from tickwork._stores.contract import Listener
from tickwork._worker.service import RepeatedService
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Wakeup

LISTEN_FOR: Final = 0.5
"""Seconds after which the listener checks whether the worker stops: longer delays each stop."""

LISTEN_AT_LEAST: Final = 0.05
"""How often it listens while the pumps are busy, because schedules may have changed.

A busy pump claims without notifications, and each one would wake a thread.
"""


class NotificationService(RepeatedService):
    """Waits for notifications of the database. Without them, polling goes on."""

    name = "listener"
    activity = "Listening for notifications"
    is_essential = False

    def __init__(
        self,
        *,
        listener: Listener,
        clock: Clock,
        stop: WorkerStop,
        wakeup: Wakeup,
        timer_wakeup: Wakeup,
    ) -> None:
        super().__init__(clock)
        self._listener = listener
        self._stop = stop
        self._wakeup = wakeup
        self._timer_wakeup = timer_wakeup

    @property
    def is_over(self) -> bool:
        return super().is_over or self._stop.is_requested

    def step(self) -> float:
        # Busy pumps claim runs anyway, and most changes are their own.
        self._wakeup.wait_for_idle(LISTEN_AT_LEAST)
        if self._listener.wait(LISTEN_FOR):
            self._wakeup.notify_new_work()
            self._timer_wakeup.notify()
        return 0.0

    def stop(self) -> None:
        """End, and close the connection."""
        super().stop()
        self._listener.close()
