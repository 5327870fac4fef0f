"""Waits for runs: one poller for all waits of an application, however many there are."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.fork import reset_after_fork
from tickwork.errors import RunNotFound

PAUSE_MIN: Final = 0.005
PAUSE_MAX: Final = 0.25
"""Seconds between two looks at one run: a third of the time waited so far, within these."""

LOOK_MAX: Final = 500
"""Runs that one look asks for."""


class _Wait:
    """One who waits."""

    __slots__ = ("finished", "look_at", "run_id", "since")

    def __init__(self, run_id: RunId, *, now: float) -> None:
        self.run_id = run_id
        self.finished: Future[Run] = Future()
        self.since = now
        self.look_at = now + PAUSE_MIN

    def put_off(self, *, now: float) -> None:
        pause = max((now - self.since) / 3, PAUSE_MIN)
        if pause < PAUSE_MAX:
            self.look_at = now + pause
        else:
            # On one grid, so that those who have waited for long are asked for together.
            self.look_at = (now // PAUSE_MAX + 1) * PAUSE_MAX


class Waits:
    """Looks at the runs that somebody waits for, in a thread that ends with the last wait.

    Both doors wait here: a thread by ``finished.result()``, a loop by wrapping the future.
    """

    def __init__(self, look: Callable[[Sequence[RunId]], list[Run]]) -> None:
        self._look = look
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Begin with nobody waiting: whoever did is in the parent."""
        self._changed = threading.Condition()
        self._waits: set[_Wait] = set()
        self._poller: threading.Thread | None = None

    @contextmanager
    def joined(self, run_id: RunId) -> Iterator[Future[Run]]:
        """Wait along, for as long as the block lasts: the future is done when the run is.

        It fails with what the look failed with, and with RunNotFound when the run is gone.
        """
        wait = _Wait(run_id, now=time.monotonic())
        with self._changed:
            self._waits.add(wait)
            if self._poller is None:
                self._poller = threading.Thread(
                    target=self._serve, name="tickwork-waits", daemon=True
                )
                self._poller.start()
            self._changed.notify()
        try:
            yield wait.finished
        finally:
            with self._changed:
                self._waits.discard(wait)
                self._changed.notify()
            wait.finished.cancel()

    def _serve(self) -> None:
        # It ends when nobody waits any more.
        while due := self._next():
            for start in range(0, len(due), LOOK_MAX):
                self._ask(due[start : start + LOOK_MAX])

    def _next(self) -> list[_Wait]:
        """Those whose time for a look has come; none when there is nobody left."""
        with self._changed:
            while self._waits:
                now = time.monotonic()
                look_at = min(wait.look_at for wait in self._waits)
                if look_at <= now:
                    # A little ahead of their time: one look is cheaper than two.
                    return [wait for wait in self._waits if wait.look_at <= now + PAUSE_MIN / 2]
                self._changed.wait(look_at - now)
            self._poller = None
            return []

    def _ask(self, waits: Sequence[_Wait]) -> None:
        try:
            found = {run.id: run for run in self._look(list({wait.run_id for wait in waits}))}
        except Exception as error:  # noqa: BLE001  # it belongs to those who wait
            for wait in waits:
                self._end(wait, error)
            return
        now = time.monotonic()
        for wait in waits:
            run = found.get(wait.run_id)
            if run is None:
                self._end(wait, RunNotFound(wait.run_id))
            elif run.is_finished:
                self._end(wait, run)
            else:
                wait.put_off(now=now)

    def _end(self, wait: _Wait, answer: Run | Exception) -> None:
        with self._changed:
            self._waits.discard(wait)
        if not wait.finished.set_running_or_notify_cancel():
            return  # it left meanwhile
        if isinstance(answer, Run):
            wait.finished.set_result(answer)
        else:
            wait.finished.set_exception(answer)
