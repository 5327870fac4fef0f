"""Notices that a worker process hangs as a whole, as the watchdog of systemd does."""

import os
import socket
import tempfile
import time
from pathlib import Path
from shutil import rmtree
from typing import Final

from tickwork._kernel.clock import ObservedTime
from tickwork._kernel.systemd import STOPPING

INTERVAL: Final = 10.0
"""Seconds within which a worker that works sends a sign of life. It sends them twice as often."""

MESSAGE_MAX: Final = 4_096


class LivenessSocket:
    """Receives the notifications that a worker process would send to systemd.

    The process sends none before it has started, nor while a part of it cannot work. When a
    signal has requested it to stop, they mean nothing: its drain time decides.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="tickwork-")
        self._path = Path(self._folder) / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.bind(str(self._path))
        self._socket.setblocking(False)
        self._silence = ObservedTime(time.monotonic)
        self._is_expected = self._is_closed = False

    @property
    def variables(self) -> dict[str, str]:
        """The environment with which the process notifies this socket."""
        microseconds = str(int(INTERVAL * 1_000_000))
        return {
            "NOTIFY_SOCKET": str(self._path),
            "WATCHDOG_USEC": microseconds,
            "WATCHDOG_PID": "",
        }

    def silent_seconds(self) -> float:
        """Return how long the process has sent no sign of life; 0 if none is expected."""
        is_silent = self._is_expected
        while not self._is_closed:  # ends: until there is no message left
            try:
                message = self._socket.recv(MESSAGE_MAX)
            except BlockingIOError:
                break
            self._is_expected, is_silent = True, False
            if STOPPING.encode() in message:
                self.close()
        return self._silence.look(is_same=is_silent)

    def close(self) -> None:
        """Expect nothing more."""
        self._is_closed, self._is_expected = True, False
        self._socket.close()
        rmtree(self._folder, ignore_errors=True)


def can_watch() -> bool:
    """Whether this system has the sockets for it."""
    return hasattr(socket, "AF_UNIX") and os.name == "posix"
