"""A thread that does one thing again and again, at a pace, until there is nothing to do."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

_log: Final = logging.getLogger("tickwork.loop")
_JITTER: Final = 0.1


class Loop:
    """Calls ``step`` as often as ``pace`` says, in a thread of its own.

    ``pace`` is asked for the seconds between two steps. When ``is_idle`` says that there is
    nothing to do, the thread ends, and :meth:`start` begins another one. A step that fails is
    logged, and the next one is made all the same.

    Up to a tenth of each wait is left out at random, so that many processes that were started
    together do not stay together.
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
        """Whether there is a thread now."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Have it run; one that waits longer than the pace allows by now is woken."""
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
        """End it; returns when a step that is being made has been made."""
        with self._changed:
            thread = self._thread
            self._is_stopping = True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        # It ends when it is stopped, or has nothing to do.
        while self._is_time():
            self._stepped_at = time.monotonic()
            try:
                self._step()
            except Exception:  # noqa: BLE001  # whatever it is, the next one is due
                _log.exception("%s failed; it goes on.", self._name)

    def _is_time(self) -> bool:
        """Wait for the next step; False when there will be none."""
        share = 1 - random.uniform(0, _JITTER)  # noqa: S311  # not a secret
        with self._changed:
            # It ends with the pace, which may change while we wait.
            while True:
                if self._is_stopping or self._is_idle():
                    # Decided under the lock: whoever starts it from here on gets a new one.
                    self._thread = None
                    return False
                self._waits_until = self._stepped_at + self._pace() * share
                left = self._waits_until - time.monotonic()
                if left <= 0:
                    return True
                self._changed.wait(left)
