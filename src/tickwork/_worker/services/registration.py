"""The row by which other processes know this worker."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from tickwork._define.registry import Registry
from tickwork._domain.health import UnwrittenOutcomes
from tickwork._domain.identity import WorkerId, drain_lock_of, problem_lock_of, unwritten_lock_of
from tickwork._domain.worker_version import WorkerVersion
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import human_duration
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.plain_text import count_of
from tickwork._kernel.processes import ThisProcess
from tickwork._masks.url import mask_url
from tickwork._stores.contract import LockRow, Store, WorkerRow
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.known_jobs import KnownJobs
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import RepeatedService
from tickwork._worker.services.deploys import note_deploy
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork.errors import StoreError

HOLDS_FOR: Final = timedelta(seconds=45)
"""How long a report holds: a worker counts as silent, and its report as old, after 30 seconds.

A worker repeats it while it is true.
"""

TEXT_MAX: Final = 255
"""The longest owner of a lock, because MySQL indexes a column of that length."""


class WorkerReport:
    """Keeps the row of a lock up to date; its owner is the text of the report.

    As the row of a lock, a report needs no table. ``find_text`` returns an empty text when there
    is nothing to report.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lock: str,
        me: ThisProcess,
        find_text: Callable[[], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._name = lock
        self._me = me
        self._find_text = find_text
        self._is_written = False

    def write(self) -> None:
        """Write the report; remove it when there is nothing to report any more.

        Raises:
            StoreError: It could not be written.
        """
        self.remove()
        text = self._find_text()
        if text:
            now = self._clock.now()
            lock = LockRow(
                self._name, text[:TEXT_MAX], self._me.host, self._me.pid, now, now + HOLDS_FOR
            )
            self._is_written = True
            self._store.acquire_lock(lock, now=now)

    def remove(self) -> None:
        if self._is_written:
            self._store.release_lock(self._name)
            self._is_written = False


REGISTER_EVERY: Final = 10.0
"""Seconds between two writes of the row, so a thousand workers write a hundred rows a second.

Another process takes a worker for silent after three of them.
"""

REQUESTS_EVERY: Final = 2.0
"""How often the worker reads whether it shall drain, because a person waits for that."""

_log: Final = get_logger("tickwork.worker")


class Registration(RepeatedService):
    """Writes the row of this worker, and reads requests to drain.

    The row appears before anything is claimed. It disappears when all outcomes are written:
    otherwise others see that the process is gone, and take back its runs at once.
    """

    name = "register"
    activity = "Writing the row of this worker"
    first_wait = REQUESTS_EVERY

    def __init__(
        self,
        *,
        worker_id: WorkerId,
        store: Store,
        clock: Clock,
        known: KnownJobs,
        held: HeldRuns,
        registry: Registry,
        options: WorkerOptions,
        stats: Stats,
        stop: WorkerStop,
        version: WorkerVersion,
        url: str,
        unwritten: Callable[[], UnwrittenOutcomes | None],
    ) -> None:
        super().__init__(clock)
        self._id = worker_id
        self._store = store
        self._known = known
        self._held = held
        self._registry = registry
        self._options = options
        self._stats = stats
        self._stop = stop
        self._version = version
        self._url = url
        self._me = ThisProcess.current()
        self._started_at = clock.now()
        self._started = self._registered = clock.monotonic()
        self._is_stop_known = False
        self._is_registered = False
        self._drain_lock = drain_lock_of(worker_id)
        self._reports = [
            WorkerReport(store=store, clock=clock, lock=lock, me=self._me, find_text=find_text)
            for lock, find_text in (
                (unwritten_lock_of(worker_id), lambda: str(unwritten() or "")),
                (problem_lock_of(worker_id), lambda: stats.problem),
            )
        ]

    def start(self) -> None:
        """Write the row for the first time.

        Raises:
            StoreError: The database is unreachable.
        """
        self._register(is_stopping=False)
        self._is_registered = True
        note_deploy(
            self._store, self._version.application, host=self._me.host, now=self._clock.now()
        )
        super().start()
        self._log_start()

    def step(self) -> float:
        is_stopping = self._stop.is_requested
        if not is_stopping:
            request = self._store.get_lock(self._drain_lock)
            if request is not None and request.until > self._clock.now():
                self._stop.drain()
        is_due = self._clock.monotonic() - self._registered >= REGISTER_EVERY
        if is_due or (is_stopping and not self._is_stop_known):
            self._register(is_stopping=is_stopping)
            self._is_stop_known = is_stopping
        return REQUESTS_EVERY

    def stop(self) -> None:
        """Remove the row, unless outcomes are left that this worker could not write."""
        super().stop()
        if self._is_registered:
            self._is_registered = False
            if not self._stats.unwritten:
                with suppress(StoreError):
                    self._unregister()
            self._log_stop()

    def _register(self, *, is_stopping: bool) -> None:
        me = self._me
        self._registered = self._clock.monotonic()
        self._store.beat_worker(
            WorkerRow(
                id=self._id,
                host=me.host,
                pid=me.pid,
                boot_id=me.boot_id,
                process_started=me.started,
                started_at=self._started_at,
                beat_at=self._clock.now(),
                queues=self._options.queues or None,
                jobs=self._known.names(),
                slots=0 if is_stopping else self._options.threads,
                running=len(self._held),
                version=self._version.text,
            )
        )
        for report in self._reports:
            report.write()

    def _unregister(self) -> None:
        for report in self._reports:
            report.remove()
        self._store.remove_worker(self._id)
        if self._stats.is_drained:
            self._store.release_lock(self._drain_lock)

    def _log_start(self) -> None:
        queues = self._options.queues
        _log.info(
            "The worker %d started on %s: %s, %s, %s.",
            os.getpid(),
            mask_url(self._url),
            count_of(len(self._registry.job_names()), "job"),
            count_of(len(self._registry.schedules()), "schedule"),
            f"queues {', '.join(queues)}" if queues else "all queues",
        )

    def _log_stop(self) -> None:
        stats = self._stats
        uptime = timedelta(seconds=self._clock.monotonic() - self._started)
        _log.info(
            "The worker %d stopped after %s: %s, %d failed, started at most %s late.",
            os.getpid(),
            human_duration(uptime),
            count_of(stats.attempts, "attempt"),
            stats.failures,
            human_duration(stats.lateness),
        )
