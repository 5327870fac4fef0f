"""Runs several worker processes, and replaces those that die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Final

from tickwork._kernel.loggers import get_logger
from tickwork._kernel.signals import stopping_signals
from tickwork._kernel.systemd import READY, STOPPING, ServiceNotifier
from tickwork.app import Tickwork
from tickwork.cli.commands import EXIT_DRAINED, EXIT_USED_UP

RESTART_DELAY: Final = 0.2
RESTART_DELAY_MAX: Final = 30.0
STABLE_AFTER: Final = 60.0
"""A worker that ran this many seconds is replaced after the first, short delay again."""
EXIT_GRACE: Final = 20.0
"""Seconds that a worker has to exit after its drain time."""

_log: Final = get_logger("tickwork.supervisor")


class WorkerProcess:
    """A worker process, or the delay before its replacement starts."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay = RESTART_DELAY
        self.is_reloading = False
        self.is_drained = False  # by a request through the database: it is not replaced

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        # In a process group of its own: Ctrl-C reaches it once, through the supervisor.
        self.process = subprocess.Popen(self._command, process_group=0, env=self._env)  # noqa: S603  # our own command
        self.started_at = time.monotonic()

    def plan_restart(self, *, is_expected: bool) -> int:
        """Plan the replacement of a process that ended; return its pid."""
        assert self.process is not None, self._command
        pid, self.process = self.process.pid, None
        self.is_reloading = False
        is_stable = is_expected or time.monotonic() - self.started_at >= STABLE_AFTER
        self.delay = RESTART_DELAY if is_stable else min(self.delay * 2, RESTART_DELAY_MAX)
        self.start_at = time.monotonic() + (0 if is_expected else self.delay)
        return pid

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
    arguments: list[str],
    *,
    processes: int,
    drain: timedelta,
    variables: Mapping[str, str],
    has_changed: Callable[[], bool] | None = None,
) -> int:
    """Run ``tickwork`` with these arguments in several processes; return the exit code.

    The first signal stops the workers after their drain time, the second one kills them. When
    ``has_changed`` returns True, all of them are replaced.
    """
    service = ServiceNotifier()
    command = [sys.executable, "-m", "tickwork", *arguments]
    env = {**os.environ, **variables}
    workers = [WorkerProcess(command, env) for _ in range(processes)]
    signals = _StopSignals()
    for worker in workers:
        worker.start()
    service.send(READY)
    service.start_watchdog()
    while not signals.count:
        time.sleep(0.1)
        if all(worker.is_drained for worker in workers):
            _log.info("All workers are drained.")
            return 0
        if has_changed is not None and has_changed():
            _log.warning("The code has changed; the workers are replaced.")
            for worker in workers:
                worker.reload()
        for worker in workers:
            _check(app, worker)
        if os.getpid() == 1:
            _collect_orphans(workers)
    service.send(STOPPING)
    count = signals.count
    _send(workers, signal.SIGTERM)
    deadline = time.monotonic() + drain.total_seconds() + EXIT_GRACE
    while time.monotonic() < deadline and signals.count == count:
        if not any(worker.is_running for worker in workers):
            return 0
        time.sleep(0.05)
    _send(workers, signal.SIGKILL)
    for worker in workers:
        if worker.process is not None and worker.process.wait() < 0:
            _release(app, worker.process.pid)
    return 0


def _collect_orphans(workers: list[WorkerProcess]) -> None:
    """Collect processes that jobs left behind, as process 1 of a container has to."""
    ours = {worker.process.pid for worker in workers if worker.process is not None}
    with suppress(ChildProcessError):
        # It ends with the first one that is ours, or that is still running.
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in ours:
                return
            os.waitpid(found.si_pid, 0)


def _send(workers: list[WorkerProcess], number: signal.Signals) -> None:
    for worker in workers:
        if worker.process is not None and worker.is_running:
            worker.process.send_signal(number)


def _check(app: Tickwork, worker: WorkerProcess) -> None:
    if worker.is_drained:
        return
    if worker.process is None:
        if time.monotonic() >= worker.start_at:
            worker.start()
        return
    code = worker.process.poll()
    if code is None:
        return
    if code == EXIT_DRAINED:
        worker.is_drained = True
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
