"""Several worker processes under one that watches them."""

import logging
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from types import FrameType
from typing import Final

from tickwork.app import Tickwork

RESTART_FIRST: Final = 0.2
RESTART_MAX: Final = 30.0
STEADY_AFTER: Final = 60.0
"""A child that lived this long starts again at once."""
ENDING_MAX: Final = 20.0
"""Seconds that a worker has for its end after its drain."""

_log: Final = logging.getLogger("tickwork.supervisor")


class Child:
    """One seat: a process, or the wait for the next one."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.wait = RESTART_FIRST

    def start(self) -> None:
        """Start the process. Spawned, not forked: it shares nothing with us.

        In a group of its own, so that Ctrl-C reaches it once, by way of us.
        """
        self.process = subprocess.Popen(  # noqa: S603  # our own command
            self._command,
            process_group=0,
            env={**os.environ, "TICKWORK_SUPERVISOR": str(os.getpid())},
        )
        self.started_at = time.monotonic()

    def died(self) -> int:
        """Note that it is gone; return its pid."""
        assert self.process is not None, self._command
        pid, self.process = self.process.pid, None
        lived = time.monotonic() - self.started_at
        self.wait = RESTART_FIRST if lived >= STEADY_AFTER else min(self.wait * 2, RESTART_MAX)
        self.start_at = time.monotonic() + self.wait
        return pid


def supervise(app: Tickwork, arguments: list[str], *, processes: int, drain: timedelta) -> int:
    """Keep so many workers running until told to stop; return the exit code.

    ``arguments`` are those of the command that each of them is.
    """
    command = [sys.executable, "-m", "tickwork", *arguments]
    children = [Child(command) for _ in range(processes)]
    stop = _Stop()
    for child in children:
        child.start()
    # It ends when it is told to.
    while not stop.told:
        time.sleep(0.1)
        for child in children:
            _look_after(app, child)
    told = stop.told
    _tell(children, signal.SIGTERM)
    deadline = time.monotonic() + drain.total_seconds() + ENDING_MAX
    # It ends when all of them have, or at the deadline, or when it is told once more.
    while time.monotonic() < deadline and stop.told == told:
        if all(child.process is None or child.process.poll() is not None for child in children):
            return 0
        time.sleep(0.05)
    _tell(children, signal.SIGKILL)
    for child in children:
        if child.process is not None and child.process.wait() < 0:
            _release(app, child.process.pid)
    return 0


def _tell(children: list[Child], number: signal.Signals) -> None:
    for child in children:
        if child.process is not None and child.process.poll() is None:
            child.process.send_signal(number)


class _Stop:
    """Counts how often we were told to stop."""

    def __init__(self) -> None:
        self.told = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told)

    def _told(self, _number: int, _: FrameType | None) -> None:
        self.told += 1


def _look_after(app: Tickwork, child: Child) -> None:
    if child.process is None:
        if time.monotonic() >= child.start_at:
            child.start()
        return
    code = child.process.poll()
    if code is None:
        return
    pid = child.died()
    _log.warning("Worker %d ended with %d; another starts in %.1f s.", pid, code, child.wait)
    _release(app, pid)


def _release(app: Tickwork, pid: int) -> None:
    """What it held is free at once: we saw it die."""
    try:
        app.release_dead(pid)
    except Exception:  # noqa: BLE001  # the database may be away; leases end by themselves
        _log.warning("What worker %d held could not be released.", pid, exc_info=True)
