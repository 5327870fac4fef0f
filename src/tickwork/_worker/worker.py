"""A worker: services that start in the order of a list and stop in reverse."""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from tickwork._domain.health import UnwrittenOutcomes, WorkerState
from tickwork._kernel.clock import Clock
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import Service, find_problems
from tickwork._worker.services.worker_stop import WorkerStop

SIGNALS_EVERY: Final = 1.0
"""Seconds after which a thread that waits for the end wakes up, because signals need it awake."""

_log: Final = logging.getLogger("tickwork.worker")


class Worker:
    """Claims and executes runs in the background, until it is stopped and joined."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        stop: WorkerStop,
        clock: Clock,
        stats: Stats,
        options: WorkerOptions,
        find_unwritten: Callable[[], UnwrittenOutcomes | None],
    ) -> None:
        self._services = services
        self._stop = stop
        self._clock = clock
        self._stats = stats
        self.options = options
        self.find_unwritten = find_unwritten  # outcomes that the database did not store
        self._started = clock.monotonic()
        self._has_started = False
        self._is_over = False
        self._join_lock = threading.Lock()

    @property
    def uptime(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._started)

    @property
    def is_stopping(self) -> bool:
        """Whether it claims nothing any more."""
        return self._stop.is_requested

    @property
    def state(self) -> WorkerState:
        """Whether it starts, runs, is stuck or stops. An unavailable database changes nothing."""
        if not self._has_started:
            return WorkerState.STARTING
        if self._is_over:
            return WorkerState.STOPPING
        if self._stats.is_stuck or self._stats.problem or find_problems(self._services):
            return WorkerState.STUCK
        return WorkerState.STOPPING if self.is_stopping else WorkerState.RUNNING

    @property
    def left_behind(self) -> int:
        """How many attempts still run though the worker has ended."""
        return self._stats.left_behind

    def start(self) -> None:
        """Start all services.

        Raises:
            WorkerStartFailed: A start hook raised an exception. Nothing goes on.
            StoreError: The database is unreachable. Nothing goes on.
        """
        started: list[Service] = []
        try:
            for service in self._services:
                started.append(service)
                service.start()
        except BaseException:
            self._stop.request()
            _stop_all(started)
            raise
        self._has_started = True

    def stop(self) -> None:
        """Claim nothing more; running attempts may finish. Returns at once."""
        self._stop.request()

    def join(self) -> None:
        """Wait for a request to stop, then stop all services."""
        # In short waits: a signal that arrives just as this thread falls asleep is handled by
        # Python only when the thread wakes up again.
        while not self._stop.wait(SIGNALS_EVERY):
            # The watch does the same, unless it is the service that cannot work.
            self._stop.fail_for(find_problems(self._services))
        with self._join_lock:
            if not self._is_over:
                _stop_all(self._services)
                self._is_over = True


def _stop_all(services: Sequence[Service]) -> None:
    for service in reversed(services):
        try:
            service.stop()
        except Exception:  # noqa: BLE001  # the other services must stop, too
            _log.exception("The service %s of the worker could not be stopped.", service.name)
