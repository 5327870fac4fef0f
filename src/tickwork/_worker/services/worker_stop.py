"""Whether a worker stops, how, and why."""

import logging
from collections.abc import Sequence
from threading import Event
from typing import Final

from tickwork._worker.attempts.stats import Stats
from tickwork._worker.wakeup import Wakeup
from tickwork.errors import StoreUnavailable

_log: Final = logging.getLogger("tickwork.worker")


class WorkerStop:
    """A request to stop, which any service, another thread or a signal handler can make.

    From then on the worker claims nothing, and fires no schedules.
    """

    def __init__(self, *, stats: Stats, wakeup: Wakeup, timer_wakeup: Wakeup) -> None:
        self._stats = stats
        self._wakeup = wakeup
        self._timer_wakeup = timer_wakeup
        self._requested = Event()
        self.is_drain_unlimited = False
        """Whether running attempts may take as long as they want: until :meth:`request`."""

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a request; False when the time was up first."""
        return self._requested.wait(seconds)

    def request(self) -> None:
        """Claim nothing more; running attempts may finish within their time."""
        self.is_drain_unlimited = False
        self._stop_claiming()

    def drain(self) -> None:
        """Claim nothing more, and wait for running attempts until :meth:`request`."""
        if self.is_requested:
            return
        _log.info("A drain was requested: the worker finishes its runs, and claims no others.")
        self._stats.is_drained = True
        self.is_drain_unlimited = True
        self._stop_claiming()

    def fail_for(self, problems: Sequence[str]) -> None:
        """Stop if a part of the worker cannot work: a new process is needed."""
        if problems:
            if not self._stats.problem:
                self._stats.problem = problems[0]
                _log.critical("The worker stops: %s", problems[0])
            self.request()

    def fail_store(self, error: StoreUnavailable) -> None:
        """Stop: a new process can open the store that is there now, or report what is wrong."""
        if self._stats.fault is None:
            self._stats.fault = error
            _log.error("The worker stops: %s %s", error.what, error.why)
            self.request()

    def _stop_claiming(self) -> None:
        self._requested.set()
        self._wakeup.notify()
        self._timer_wakeup.stop()
