"""The threads that claim runs and write outcomes, and what is left of both at the end."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tickwork._domain.runs.outcome import Interrupted
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import Engine
from tickwork._kernel.clock import Clock, StoreClock
from tickwork._kernel.plain_text import count_of
from tickwork._worker.attempts.stats import Stats
from tickwork._worker.attempts.writer import Writer
from tickwork._worker.options import WorkerOptions
from tickwork._worker.service import RepeatedService
from tickwork._worker.services.pump import NOT_STARTED, TURN_SECONDS, Pump
from tickwork._worker.services.worker_stop import WorkerStop
from tickwork._worker.wakeup import Backoff, Wakeup
from tickwork.errors import StoreError

WRITE_EVERY: Final = 0.05
"""Seconds after which outcomes are written while claims still wait for a slot.

Longer, and results are seen later; shorter, and batches are too small to be fast.
"""

BACKOFF_POLL: Final = 0.002
"""Seconds between two checks whether the back-off of an engine's claims is over.

The back-off is eight times an empty claim, so a few milliseconds.
"""

WRITE_SECONDS: Final = 10.0
"""How long the last outcomes may take to be written, because the database may not answer.

After that, the leases expire, and other workers repeat those runs.
"""

_log: Final = logging.getLogger("tickwork.worker")


class PumpThread(RepeatedService):
    """The thread that drives a pump, and makes quick attempts between its steps.

    A thread that gets stuck in a handler is replaced by another, so that outcomes are written and
    runs are claimed meanwhile. The replaced thread ends when its handler returns: exactly one
    thread drives a pump at any time, because only a thread that makes attempts is replaced, and it
    checks under the same lock whether it was replaced before it does anything else.
    """

    name = "pump"
    activity = "Claiming runs"

    def __init__(
        self,
        pump: Pump,
        *,
        engines: Sequence[Engine],
        writer: Writer,
        clock: Clock,
        stop: WorkerStop,
        wakeup: Wakeup,
        options: WorkerOptions,
    ) -> None:
        super().__init__(clock)
        self._pump = pump
        self._engines = engines
        self._writer = writer
        self._stop = stop
        self._wakeup = wakeup
        self._idle = Backoff(options.poll.total_seconds(), options.poll_idle.total_seconds())
        self._is_polling = True
        self._is_finishing = False
        self._lock = threading.Lock()
        self._is_attempting = False
        self._batches = 0
        self._batches_seen = 0

    def step(self) -> float:
        since = self._wakeup.count
        try:
            is_busy = self._pump.step(
                may_claim=not self._stop.is_requested, is_polling=self._is_polling
            )
        except StoreError:
            self._make_quick_attempts()  # of runs that were claimed before
            raise
        if self._is_finishing and len(self._writer) == 0:
            self._is_stopped.set()
            return 0.0
        is_busy = self._make_quick_attempts() or is_busy
        if self.is_replaced:
            return 0.0
        is_notified = is_busy or self._wakeup.wait(since, self._idle_seconds())
        self._is_polling = not is_notified
        if is_notified:
            self._idle.reset()
        return 0.0

    def wait(self, seconds: float) -> None:
        if seconds:
            self._wakeup.wait(self._wakeup.count, seconds)

    def on_available(self) -> None:
        _log.warning("The database answers again.")
        if isinstance(self._clock, StoreClock):
            # It may be another server, with another time. Measured here: an attempt that reads
            # the clock must not wait for the database.
            self._clock.forget()
            self._clock.refresh()

    def finish(self) -> None:
        """End when all outcomes are written. No attempt runs any more."""
        self._is_finishing = True

    def end(self) -> None:
        """End after the current step, without waiting for it."""
        self._is_stopped.set()

    def replace_if_stuck(self) -> None:
        """Start another thread if this one makes the same attempts as at the last call.

        Quick attempts would have ended.
        """
        with self._lock:
            seen, self._batches_seen = self._batches_seen, self._batches
            if self._is_attempting and seen == self._batches and not self.is_over:
                self.start()
                self._is_attempting = False

    def _make_quick_attempts(self) -> bool:
        with self._lock:
            self._batches += 1
            self._is_attempting = True
        try:
            return any(engine.make_quick_attempts() for engine in self._engines)
        finally:
            with self._lock:
                if not self.is_replaced:
                    self._is_attempting = False

    def _idle_seconds(self) -> float:
        if self._pump.is_deferred:
            return TURN_SECONDS
        if self._pump.is_backing_off:
            return BACKOFF_POLL
        if self._stop.is_requested or any(engine.waiting for engine in self._engines):
            # Engines do not notify the pumps while claims are waiting.
            return WRITE_EVERY
        return self._idle.seconds()


class Pumps:
    """All pumps of a worker. They stop after the last attempt, when its outcome is written."""

    name = "pumps"

    def __init__(
        self,
        threads: Sequence[PumpThread],
        *,
        engines: Sequence[Engine],
        writer: Writer,
        give_back: Callable[[Claim, Interrupted], None],
        clock: Clock,
        stats: Stats,
        wakeup: Wakeup,
    ) -> None:
        self._threads = threads
        self._engines = engines
        self._writer = writer
        self._give_back = give_back
        self._clock = clock
        self._stats = stats
        self._wakeup = wakeup

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Write what is left, and count what could not be written."""
        clock, can_write = self._clock, self._stats.fault is None
        deadline = clock.monotonic() + (WRITE_SECONDS if can_write else 0)
        for thread in self._threads:
            thread.finish()
        self._writer.hurry()
        self._wakeup.notify()
        for thread in self._threads:
            thread.join(deadline - clock.monotonic())
        # A pump that was claiming until now submitted its claims to a stopped engine.
        for engine in self._engines:
            for claim in engine.take_back():
                self._give_back(claim, NOT_STARTED)
        with suppress(StoreError):
            while self._writer.pending and clock.monotonic() < deadline:
                self._writer.write()
        with suppress(StoreError):
            self._writer.write_jobs(is_ending=True)
        for thread in self._threads:
            thread.end()
        self._wakeup.stop()
        self._stats.unwritten = len(self._writer)
        if self._stats.unwritten:
            count = count_of(self._stats.unwritten, "outcome")
            _log.error("%s could not be written. The attempts will be repeated.", count)

    def find_problem(self) -> str:
        return next(filter(None, (thread.find_problem() for thread in self._threads)), "")
