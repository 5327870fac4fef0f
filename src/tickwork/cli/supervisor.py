"""Runs several worker processes, and replaces those that die."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from types import FrameType
from typing import Final

from tickwork.app import Tickwork

RESTART_DELAY: Final = 0.2
RESTART_DELAY_MAX: Final = 30.0
STABLE_AFTER: Final = 60.0
"""A worker that ran this many seconds is replaced after the first, short delay again."""
EXIT_GRACE: Final = 20.0
"""Seconds that a worker has to exit after its drain time."""

_log: Final = logging.getLogger("tickwork.supervisor")


class WorkerProcess:
    """A worker process, or the delay before its replacement starts."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay = RESTART_DELAY

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        # In a process group of its own: Ctrl-C reaches it once, through the supervisor.
        self.process = subprocess.Popen(self._command, process_group=0, env=self._env)  # noqa: S603  # our own command
        self.started_at = time.monotonic()

    def plan_restart(self) -> int:
        """Plan the replacement of a process that ended; return its pid."""
        assert self.process is not None, self._command
        pid, self.process = self.process.pid, None
        is_stable = time.monotonic() - self.started_at >= STABLE_AFTER
        self.delay = RESTART_DELAY if is_stable else min(self.delay * 2, RESTART_DELAY_MAX)
        self.start_at = time.monotonic() + self.delay
        return pid


class _StopSignals:
    """Counts the signals that request a stop."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGTERM, signal.SIGINT):
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
) -> int:
    """Run ``tickwork`` with these arguments in several processes; return the exit code.

    The first signal stops the workers after their drain time, the second one kills them.
    """
    command = [sys.executable, "-m", "tickwork", *arguments]
    env = {**os.environ, **variables}
    workers = [WorkerProcess(command, env) for _ in range(processes)]
    signals = _StopSignals()
    for worker in workers:
        worker.start()
    while not signals.count:
        time.sleep(0.1)
        for worker in workers:
            _check(app, worker)
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


def _send(workers: list[WorkerProcess], number: signal.Signals) -> None:
    for worker in workers:
        if worker.process is not None and worker.is_running:
            worker.process.send_signal(number)


def _check(app: Tickwork, worker: WorkerProcess) -> None:
    if worker.process is None:
        if time.monotonic() >= worker.start_at:
            worker.start()
        return
    code = worker.process.poll()
    if code is None:
        return
    pid = worker.plan_restart()
    _log.warning("Worker %d exited with code %d; restarting in %.1f s.", pid, code, worker.delay)
    _release(app, pid)


def _release(app: Tickwork, pid: int) -> None:
    """Release the runs of a dead worker now, instead of when their leases expire."""
    try:
        app.release_dead(pid)
    except Exception:  # noqa: BLE001  # without a database, the leases expire by themselves
        _log.warning("The runs of worker %d could not be released.", pid, exc_info=True)
