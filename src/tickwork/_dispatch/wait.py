"""Waits for runs to finish: one polling thread for all waits of an application."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._kernel.fork import reset_after_fork
from tickwork.errors import RunNotFound

PAUSE_MIN: Final = 0.005
PAUSE_MAX: Final = 0.25
"""Seconds between two polls for one run: a third of the time waited so far, between these two."""

POLL_MAX: Final = 500
"""Runs that one query reads."""


class _Wait:
    __slots__ = ("finished", "poll_at", "run_id", "since")

    def __init__(self, run_id: RunId, *, now: float) -> None:
        self.run_id = run_id
        self.finished: Future[Run] = Future()
        self.since = now
        self.poll_at = now + PAUSE_MIN

    def postpone(self, *, now: float) -> None:
        pause = max((now - self.since) / 3, PAUSE_MIN)
        if pause < PAUSE_MAX:
            self.poll_at = now + pause
        else:
            # On a common grid, so that one query serves all long waits.
            self.poll_at = (now // PAUSE_MAX + 1) * PAUSE_MAX


class RunWaiter:
    """Polls the runs that callers wait for, in a thread that ends with the last wait.

    A thread waits with ``future.result()``, an event loop by wrapping the future.
    """

    def __init__(self, read_runs: Callable[[Sequence[RunId]], list[Run]]) -> None:
        self._read_runs = read_runs
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without waits: those of the parent have no thread here."""
        self._changed = threading.Condition()
        self._waits: set[_Wait] = set()
        self._poller: threading.Thread | None = None

    @contextmanager
    def watch(self, run_id: RunId) -> Iterator[Future[Run]]:
        """Poll this run while the block runs. The future is done when the run has finished.

        The future fails with the error of the query, and with RunNotFound if there is no
        such run any more.
        """
        wait = _Wait(run_id, now=time.monotonic())
        with self._changed:
            self._waits.add(wait)
            if self._poller is None:
                self._poller = threading.Thread(
                    target=self._poll, name="tickwork-waits", daemon=True
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

    def _poll(self) -> None:
        # It ends with the last wait.
        while due := self._next_due():
            for start in range(0, len(due), POLL_MAX):
                self._check(due[start : start + POLL_MAX])

    def _next_due(self) -> list[_Wait]:
        """Sleep until waits are due for a poll; empty when none is left."""
        with self._changed:
            while self._waits:
                now = time.monotonic()
                poll_at = min(wait.poll_at for wait in self._waits)
                if poll_at <= now:
                    # Slightly early ones are included: one query is cheaper than two.
                    return [wait for wait in self._waits if wait.poll_at <= now + PAUSE_MIN / 2]
                self._changed.wait(poll_at - now)
            self._poller = None
            return []

    def _check(self, waits: Sequence[_Wait]) -> None:
        try:
            run_by_id = {
                run.id: run for run in self._read_runs(list({wait.run_id for wait in waits}))
            }
        except Exception as error:  # noqa: BLE001  # the waiting callers raise it
            for wait in waits:
                self._end(wait, error)
            return
        now = time.monotonic()
        for wait in waits:
            run = run_by_id.get(wait.run_id)
            if run is None:
                self._end(wait, RunNotFound(wait.run_id))
            elif run.is_finished:
                self._end(wait, run)
            else:
                wait.postpone(now=now)

    def _end(self, wait: _Wait, answer: Run | Exception) -> None:
        with self._changed:
            self._waits.discard(wait)
        if not wait.finished.set_running_or_notify_cancel():
            return  # the caller has stopped waiting
        if isinstance(answer, Run):
            wait.finished.set_result(answer)
        else:
            wait.finished.set_exception(answer)
