"""A thread that repeats a function until there is nothing to do."""

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from tickwork._kernel.loggers import get_logger

_log: Final = get_logger("tickwork.loop")
_JITTER: Final = 0.1


class Loop:
    """Calls ``step`` repeatedly in a thread. ``pace`` returns the seconds between two calls.

    The thread ends when ``is_idle`` returns True; :meth:`start` starts a new one. An error in
    a step is logged, and the loop continues.

    Each wait is shortened by a random part of up to a tenth, so that processes that were
    started together do not query the database together.
    """

    def __init__(
        self,
        step: Callable[[], object],
        *,
        pace: Callable[[], float],
        is_idle: Callable[[], bool],
        name: str,
    ) -> None:
        self._step = step
        self._pace = pace
        self._is_idle = is_idle
        self._name = name
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._stepped_at = 0.0
        self._waits_until = 0.0

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, or wake it if the pace has become faster meanwhile."""
        with self._changed:
            if not self.is_running:
                self._is_stopping = False
                self._stepped_at = time.monotonic()
                self._waits_until = float("inf")
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                return
            if self._stepped_at + self._pace() < self._waits_until:
                self._changed.notify()

    def stop(self) -> None:
        """Stop the thread and wait for the current step."""
        with self._changed:
            thread = self._thread
            self._is_stopping = True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while self._is_time():
            self._stepped_at = time.monotonic()
            try:
                self._step()
            except Exception:  # noqa: BLE001  # the loop must survive any error
                _log.exception("%s failed; retrying.", self._name)

    def _is_time(self) -> bool:
        """Wait for the next step. False when the thread must end."""
        share = 1 - random.uniform(0, _JITTER)  # noqa: S311  # not a secret
        with self._changed:
            # The pace may change during the wait.
            while True:
                if self._is_stopping or self._is_idle():
                    # Under the lock: a start() after this creates a new thread.
                    self._thread = None
                    return False
                self._waits_until = self._stepped_at + self._pace() * share
                left = self._waits_until - time.monotonic()
                if left <= 0:
                    return True
                self._changed.wait(left)
