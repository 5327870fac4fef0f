"""The engines of a worker: their threads and processes, and the attempts that they make."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from tickwork._domain.runs.outcome import Interrupted
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import Engine, health_of
from tickwork._kernel.clock import Clock, ObservedTime
from tickwork._kernel.durations import human_duration
from tickwork._worker.attempts.attempt_runner import STOPPED, AttemptRunner
from tickwork._worker.attempts.held_runs import HeldRuns
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import FAILING_SECONDS
from tickwork._worker.services.pump import NOT_STARTED
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Wakeup

INTERRUPT_SECONDS: Final = 2.0
"""How long coroutines and processes that are ended may take to report their outcomes.

A child gets a second between SIGTERM and SIGKILL. Longer would only delay the exit.
"""

CHECK_EVERY: Final = 0.02
"""Seconds between two checks whether the attempts have ended, because each delays the stop."""

LOOP_SILENT: Final = 2.0
"""Seconds after which an event loop that does not answer counts as blocked.

Shorter, and a busy machine would look like it; the option ``drain`` is 30 seconds by default.
"""

LOOP_PATIENCE: Final = 300.0
"""An event loop that a coroutine blocks for so long counts as stuck: nothing else runs on it.

Shorter, and a long computation in a coroutine, a mistake that ends, would cost the worker.
"""

STOPPED_WHILE_RUNNING: Final = Interrupted(STOPPED)


class EngineResources:
    """The threads, the event loop and the child processes in which handlers are called.

    An engine that is dead for some seconds, or whose event loop is blocked for minutes, is a
    problem of the worker: no other worker can take the runs that it keeps.
    """

    name = "engines"

    def __init__(self, engine_by_name: Mapping[str, Engine], *, clock: Clock) -> None:
        self._engine_by_name = engine_by_name
        self._dead = {name: ObservedTime(clock.monotonic) for name in engine_by_name}
        self._blocked = {name: ObservedTime(clock.monotonic) for name in engine_by_name}

    def start(self) -> None:
        for engine in self._engine_by_name.values():
            engine.start()

    def stop(self) -> None:
        for engine in self._engine_by_name.values():
            engine.stop()

    def find_problem(self) -> str:
        problems = (self._find_problem(*each) for each in self._engine_by_name.items())
        return next(filter(None, problems), "")

    def _find_problem(self, name: str, engine: Engine) -> str:
        health = health_of(engine)
        blocked = self._blocked[name].look(is_same=health.silent_seconds >= LOOP_SILENT)
        # A machine without memory or threads may recover.
        dead = self._dead[name].look(is_same=not health.is_alive)
        if blocked >= LOOP_PATIENCE:
            took = human_duration(timedelta(seconds=blocked))
            return f"The event loop of the engine {name!r} has been blocked for {took}."
        if dead >= FAILING_SECONDS:
            return f"The engine {name!r} cannot make attempts any more: {health.reason}"
        return ""


class RunningAttempts:
    """The attempts of a worker. When it stops, they may finish within the drain time.

    Those that do not are interrupted and given back, and cost no attempt.
    """

    name = "attempts"

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        runner: AttemptRunner,
        held: HeldRuns,
        clock: Clock,
        stop: WorkerStop,
        stats: Stats,
        wakeup: Wakeup,
        options: WorkerOptions,
    ) -> None:
        self._engines = engines
        self._runner = runner
        self._held = held
        self._clock = clock
        self._stop = stop
        self._stats = stats
        self._wakeup = wakeup
        self._drain_seconds = options.drain.total_seconds()

    def start(self) -> None:
        """Do nothing: pumps submit the claims."""

    def stop(self) -> None:
        self._wait(self._drain_seconds)
        self._stop.is_drain_unlimited = False
        self._runner.begin_shutdown()
        for engine in self._engines:
            self._give_back(engine.interrupt(), STOPPED_WHILE_RUNNING)
        self._wakeup.notify()
        self._wait(INTERRUPT_SECONDS, is_interrupted=True)
        for engine in self._engines:
            left = engine.unfinished()
            self._stats.left_behind += len(left)
            self._give_back(left, STOPPED_WHILE_RUNNING)

    def find_problem(self) -> str:
        return ""

    def _wait(self, seconds: float, *, is_interrupted: bool = False) -> None:
        """Wait for attempts to end; give back claims that have not started.

        A pump may have been claiming when the worker was stopped. After a request to drain, it
        waits until all have ended, or until a stop sets the limit.
        """
        clock = self._clock
        deadline = clock.monotonic() + seconds
        # It ends at the deadline.
        while True:
            for engine in self._engines:
                self._give_back(engine.take_back(), NOT_STARTED)
            busy = [self._is_busy(each, is_interrupted=is_interrupted) for each in self._engines]
            if not any(busy):
                return
            if self._stop.is_drain_unlimited:
                deadline = clock.monotonic() + seconds
            elif clock.monotonic() >= deadline:
                return
            time.sleep(CHECK_EVERY)

    def _is_busy(self, engine: Engine, *, is_interrupted: bool) -> bool:
        if not is_interrupted:
            return bool(engine.running) and health_of(engine).is_alive
        # Attempts that were given back already need not be waited for.
        runs = map(self._held.of, engine.unfinished())
        return any(run is not None and not run.is_settled for run in runs)

    def _give_back(self, claims: Sequence[Claim], outcome: Interrupted) -> None:
        for claim in claims:
            self._runner.give_back(claim, outcome)
        if claims:
            self._wakeup.notify()
