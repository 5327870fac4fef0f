"""Notifies systemd of the state of a service, as ``sd_notify`` does."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"


class ServiceNotifier:
    """Sends notifications if systemd started this process; otherwise it does nothing.

    The variables are removed from the environment, so that processes that a job starts do not
    notify systemd in the name of the service.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        pid = os.environ.pop("WATCHDOG_PID", "")
        is_watched = microseconds.isdecimal() and pid in {"", str(os.getpid())}
        # Twice as often as necessary, as systemd recommends.
        self._interval = int(microseconds) / 2_000_000 if is_watched else 0.0
        self._is_over = threading.Event()

    def send(self, state: str) -> None:
        if not self._address:
            return
        # An abstract socket has a name that begins with a zero byte.
        address = self._address.replace("@", "\0", 1) if self._address[0] == "@" else self._address
        with (
            suppress(OSError),  # the service manager restarts, or does not exist
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.sendto(state.encode(), address)

    def start_watchdog(self, is_alive: Callable[[], bool] = lambda: True) -> None:
        """Start a thread that notifies systemd while the service is alive.

        When ``is_alive`` returns False, or the interpreter hangs, systemd starts a new process.
        """
        if self._address and self._interval:
            self.send(WATCHDOG)
            threading.Thread(
                target=self._report, args=(is_alive,), name="tickwork-watchdog", daemon=True
            ).start()

    def stop_watchdog(self) -> None:
        self._is_over.set()

    def _report(self, is_alive: Callable[[], bool]) -> None:
        while not self._is_over.wait(self._interval):
            if is_alive():
                self.send(WATCHDOG)
