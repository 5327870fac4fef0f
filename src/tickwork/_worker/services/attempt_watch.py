"""Watches attempts and the worker itself: deadlines, what the options allow, stuck threads."""

import logging
from collections.abc import Sequence
from typing import Final

from tickwork._domain.runs.outcome import Interrupted
from tickwork._engines.contract import Engine, health_of
from tickwork._kernel.clock import Clock
from tickwork._kernel.descriptors import DescriptorGuard
from tickwork._kernel.processes import read_memory
from tickwork._worker.attempts.attempt_runner import AttemptRunner
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import RepeatedService, Service, find_problems
from tickwork._worker.services.pump_threads import PumpThread
from tickwork._worker.services.worker_stop import WorkerStop

WATCH_EVERY: Final = 0.1
"""Seconds between two checks. A timeout, or a thread that is stuck, is noticed so much later.

A check reads the claims that are held, in memory.
"""

ALIVE_SECONDS: Final = 10.0
"""A worker whose watch has not run for so long hangs: its handlers block the interpreter."""

CLOSED_DESCRIPTORS: Final = (
    "Code of a job has closed file descriptors of the worker, maybe those of its database."
)
ENGINE_BROKEN: Final = Interrupted("The engine of the worker could not start the attempt.")

_log: Final = logging.getLogger("tickwork.worker")


class AttemptWatch(RepeatedService):
    """Requests the end of late attempts, replaces stuck threads, and stops a worker that is done.

    A worker of which a service cannot work stops, too.
    """

    name = "watch"
    activity = "Watching attempts"
    first_wait = WATCH_EVERY
    patience = ALIVE_SECONDS

    def __init__(
        self,
        services: Sequence[Service],
        *,
        runner: AttemptRunner,
        engines: Sequence[Engine],
        pumps: Sequence[PumpThread],
        clock: Clock,
        stop: WorkerStop,
        stats: Stats,
        options: WorkerOptions,
    ) -> None:
        super().__init__(clock)
        self._services = services
        self._runner = runner
        self._engines = engines
        self._pumps = pumps
        self._stop = stop
        self._stats = stats
        self._options = options
        self._attempts_before = stats.attempts
        self._guard: DescriptorGuard | None = None

    def start(self) -> None:
        self._guard = DescriptorGuard()
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._guard is not None:
            self._guard.close()

    def find_problem(self) -> str:
        if not (self._guard is None or self.is_over or self._guard.is_intact()):
            return CLOSED_DESCRIPTORS
        return super().find_problem()

    def step(self) -> float:
        stats, options = self._stats, self._options
        stats.is_stuck = self._runner.watch_deadlines(options.timeout_grace) or stats.is_stuck
        stats.is_behind = stats.is_behind or 0 < options.missed_max <= stats.missed
        stats.is_used_up = stats.is_used_up or self._is_used_up()
        if stats.is_stuck or stats.is_behind or stats.is_used_up:
            self._stop.request()
        self._stop.fail_for(find_problems(self._services))
        for engine in self._engines:
            engine.rebalance()
            if not health_of(engine).is_alive:
                # It cannot start them. Another worker, or this one later, may be able to.
                for claim in engine.take_back():
                    self._runner.give_back(claim, ENGINE_BROKEN)
        for pump in self._pumps:
            pump.replace_if_stuck()
        return WATCH_EVERY

    def _is_used_up(self) -> bool:
        options, made = self._options, self._stats.attempts - self._attempts_before
        if 0 < options.runs_max <= made:
            _log.info("The worker has made %d attempts. It stops, to be replaced.", made)
            return True
        if 0 < options.memory_max < (used := read_memory()):
            _log.info("The worker uses %d MB of memory. It stops, to be replaced.", used // 2**20)
            return True
        return False
