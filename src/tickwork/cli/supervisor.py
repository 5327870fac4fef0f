"""Runs several worker processes, and replaces those that die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Final

from tickwork._kernel.loggers import get_logger
from tickwork._kernel.signals import stopping_signals
from tickwork._kernel.systemd import READY, STOPPING, ServiceNotifier
from tickwork.app.tickwork import Tickwork
from tickwork.cli.commands import (
    EXIT_DRAINED,
    EXIT_INTERRUPTED,
    EXIT_STORE,
    EXIT_STUCK,
    EXIT_USED_UP,
)
from tickwork.cli.liveness import LivenessSocket, can_watch

RESTART_DELAY: Final = 0.2
RESTART_DELAY_MAX: Final = 30.0
STABLE_AFTER: Final = 60.0
"""A worker that ran this many seconds is replaced after the first, short delay again."""
EXIT_GRACE: Final = 20.0
"""Seconds that a worker has to exit after its drain time."""

HANG_SECONDS: Final = 30.0
"""A worker that works sends a sign of life every few seconds, also while it drains."""

FAILURES_MAX: Final = 10
"""How often in a row each worker may end soon after its start: about two minutes. Then the
supervisor ends, too, so that its service manager notices. A database that does not answer does not
count, nor does anything with ``--reload``."""

PATIENCE: Final = 180.0
"""The watchdog of systemd gets no sign of life from a supervisor that hangs for so many seconds.
Its longest wait is that for the database when it releases the runs of a dead worker."""

_HARMLESS: Final = frozenset({0, EXIT_DRAINED, EXIT_USED_UP, -signal.SIGTERM})
"""How a worker ends that was stopped and lost nothing. It may get the signal while it starts."""

_log: Final = get_logger("tickwork.supervisor")


class WorkerProcess:
    """A worker process, or the delay before its replacement starts."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None
        self._liveness: LivenessSocket | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay = RESTART_DELAY
        self.is_reloading = False
        self.is_drained = False  # by a request through the database: it is not replaced
        self.failures = 0  # how often in a row it ended soon after its start

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_failing(self) -> bool:
        return self.failures >= FAILURES_MAX

    def start(self) -> None:
        """Start the process, or plan the next try: the machine may have no resources now."""
        self.started_at = time.monotonic()
        env = self._env
        try:
            if can_watch():
                self._liveness = LivenessSocket()
                env = {**env, **self._liveness.variables}
            # In a process group of its own: Ctrl-C reaches it once, through the supervisor.
            self.process = subprocess.Popen(self._command, process_group=0, env=env)  # noqa: S603  # our own command
        except OSError as error:
            self._delay_start()
            text = "A worker could not be started; the next try is in %.1f s: %s"
            _log.warning(text, self.delay, error)

    @property
    def silent_seconds(self) -> float:
        """How long it has sent no sign of life, though it should."""
        return 0.0 if self._liveness is None else self._liveness.silent_seconds()

    def close(self) -> None:
        """Expect no sign of life any more."""
        if self._liveness is not None:
            self._liveness.close()
            self._liveness = None

    def plan_restart(self, *, is_expected: bool) -> int:
        """Plan the replacement of a process that ended; return its pid."""
        assert self.process is not None, self._command
        code, pid, self.process = self.process.returncode, self.process.pid, None
        self.is_reloading = False
        if is_expected:
            self.close()
            self.delay, self.failures, self.start_at = RESTART_DELAY, 0, time.monotonic()
        else:
            self._delay_start(is_counted=code != EXIT_STORE)
        return pid

    def _delay_start(self, *, is_counted: bool = True) -> None:
        self.close()
        is_stable = time.monotonic() - self.started_at >= STABLE_AFTER
        self.delay = RESTART_DELAY if is_stable else min(self.delay * 2, RESTART_DELAY_MAX)
        self.failures = 0 if is_stable else self.failures + is_counted
        self.start_at = time.monotonic() + self.delay

    def reload(self) -> None:
        """Stop the process after its drain time, to start another one."""
        self.start_at = 0.0
        if self.process is not None and self.is_running:
            self.is_reloading = True
            self.process.send_signal(signal.SIGTERM)


class _StopSignals:
    """Counts the signals that request a stop."""

    def __init__(self) -> None:
        self.count = 0
        for number in stopping_signals():
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _: FrameType | None) -> None:
        self.count += 1


def supervise(
    app: Tickwork,
    arguments: Sequence[list[str]],
    *,
    drain: timedelta,
    variables: Mapping[str, str],
    has_changed: Callable[[], bool] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run ``tickwork`` in a process for each of these arguments; return the exit code.

    The first signal stops the workers after their drain time, the second one kills them. When
    ``has_changed`` returns True, all of them are replaced. ``is_stopped`` returns whether a signal
    came before this call.
    """
    service = ServiceNotifier()
    command = [sys.executable, "-m", "tickwork"]
    env = {**os.environ, **variables}
    workers = [WorkerProcess([*command, *each], env) for each in arguments]
    signals = _StopSignals()
    if is_stopped():
        return 0
    # A worker that cannot work stops by itself, and may drain before it does.
    hang_seconds = HANG_SECONDS + drain.total_seconds() + EXIT_GRACE
    for worker in workers:
        worker.start()
    progress_at = time.monotonic()
    service.send(READY)
    service.start_watchdog(lambda: time.monotonic() - progress_at < PATIENCE)
    is_failing = False
    while not (signals.count or is_failing):
        time.sleep(0.1)
        progress_at = time.monotonic()
        if all(worker.is_drained for worker in workers):
            _log.info("All workers are drained.")
            return 0
        if has_changed is not None and has_changed():
            _log.warning("The code has changed; the workers are replaced.")
            for worker in workers:
                worker.reload()
        for worker in workers:
            _check(app, worker, hang_seconds=hang_seconds)
        if os.getpid() == 1:
            _collect_orphans(workers)
        rest = [worker for worker in workers if not worker.is_drained]
        is_failing = has_changed is None and any(rest) and all(each.is_failing for each in rest)
    if is_failing:
        _log.critical(
            "The supervisor stops: each worker has ended soon after its start, %d times in a row.",
            FAILURES_MAX,
        )
    service.send(STOPPING)
    code = _stop(app, workers, signals, drain=drain)
    return EXIT_STUCK if is_failing else code


def _stop(
    app: Tickwork, workers: list[WorkerProcess], signals: _StopSignals, *, drain: timedelta
) -> int:
    """Stop the workers after their drain time, or at once after another signal."""
    for worker in workers:
        worker.close()
    count = signals.count
    _send(workers, signal.SIGTERM)
    deadline = time.monotonic() + drain.total_seconds() + EXIT_GRACE
    while any(worker.is_running for worker in workers):
        if time.monotonic() >= deadline or signals.count != count:
            break
        time.sleep(0.05)
    is_interrupted = signals.count != count and any(worker.is_running for worker in workers)
    _send(workers, signal.SIGKILL)
    for worker in workers:
        if worker.process is not None and worker.process.wait() == -signal.SIGKILL:
            _release(app, worker.process.pid)
    return EXIT_INTERRUPTED if is_interrupted else _find_exit_code(workers)


def _find_exit_code(workers: list[WorkerProcess]) -> int:
    """Return the code of the worker that ended worst, so that no loss is hidden."""
    codes = {worker.process.returncode for worker in workers if worker.process is not None}
    codes -= _HARMLESS
    if EXIT_STUCK in codes or min(codes, default=0) < 0:  # a signal ended it
        return EXIT_STUCK
    return EXIT_STORE if EXIT_STORE in codes else max(codes, default=0)


def _collect_orphans(workers: list[WorkerProcess]) -> None:
    """Collect processes that jobs left behind, as process 1 of a container has to."""
    ours = {worker.process.pid for worker in workers if worker.process is not None}
    with suppress(ChildProcessError):
        # It ends with the first one that is ours, or that is still running.
        while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if child.si_pid in ours:
                return
            os.waitpid(child.si_pid, 0)


def _send(workers: list[WorkerProcess], number: signal.Signals) -> None:
    for worker in workers:
        if worker.process is not None and worker.is_running:
            worker.process.send_signal(number)


def _check(app: Tickwork, worker: WorkerProcess, *, hang_seconds: float) -> None:
    if worker.is_drained:
        return
    if worker.process is None:
        if time.monotonic() >= worker.start_at:
            worker.start()
        return
    code = worker.process.poll()
    if code is None:
        if worker.silent_seconds >= hang_seconds:
            _log.error("Worker %d hangs; it is killed.", worker.process.pid)
            worker.process.kill()
        return
    if code == EXIT_DRAINED:
        worker.is_drained = True
        worker.close()
        _log.info("Worker %d is drained.", worker.process.pid)
        return
    if worker.is_reloading or code == EXIT_USED_UP:
        pid = worker.plan_restart(is_expected=True)
        _log.info("Worker %d has ended, and is replaced.", pid)
        return
    pid = worker.plan_restart(is_expected=False)
    _log.warning("Worker %d exited with code %d; restarting in %.1f s.", pid, code, worker.delay)
    _release(app, pid)


def _release(app: Tickwork, pid: int) -> None:
    """Release the runs of a dead worker now, instead of when their leases expire."""
    try:
        app.release_dead(pid)
    except Exception:  # noqa: BLE001  # without a database, the leases expire by themselves
        _log.warning("The runs of worker %d could not be released.", pid, exc_info=True)
