"""The thread pool of engines that make each attempt in a thread, or wait for it in one."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final

from tickwork._domain.run import Claim
from tickwork.engines.contract import EngineSetup
from tickwork.engines.durations import DurationEstimate

WRITE_AT: Final = 250
"""With this many outcomes, the worker is notified even if claims are waiting."""

_log: Final = logging.getLogger("tickwork.worker")


class ThreadPoolEngine(ABC):
    """Threads that take claims from one shared deque, so that no claim waits behind a slow one.

    Threads start when they are first needed.
    """

    def __init__(self, setup: EngineSetup) -> None:
        self.durations = DurationEstimate()
        self._slots = setup.slots
        self._host = setup.host
        self._first: Claim | None = None  # the next claim when rebalance() was last called
        self._ready: deque[Claim] = deque()
        self._condition = threading.Condition()
        self._idle = 0
        self._alive = 0
        self._threads_started = 0
        self._pump_threads = 0  # threads of pumps that make attempts now
        self._is_stopped = False
        self._claim_by_thread: dict[int, Claim] = {}

    @abstractmethod
    def _attempt(self, claim: Claim) -> bool:
        """Make one attempt and report its outcome; False if the handler was not called."""

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return self._alive - self._idle + self._pump_threads

    def start(self) -> None:  # noqa: B027  # threads start with the first claims
        pass

    def submit(self, claims: Sequence[Claim]) -> None:
        self._ready.extend(claims)
        self._wake(len(self._ready))

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        """Wake more threads if the next claim is the same as at the last call."""
        try:
            first = self._ready[0]
        except IndexError:
            return
        if first is self._first:
            self._wake(len(self._ready))
        self._first = first

    def take_back(self) -> list[Claim]:
        taken: list[Claim] = []
        while True:  # ends when the deque is empty: the worker submits nothing any more
            try:
                taken.append(self._ready.popleft())
            except IndexError:
                return taken

    def cancel(self, claim: Claim) -> None:  # noqa: B027
        """Do nothing: a thread cannot be ended. Handlers poll ``ctx.is_canceled()``."""

    def interrupt(self) -> list[Claim]:
        self.stop()
        return self.unfinished()

    def unfinished(self) -> list[Claim]:
        return list(self._claim_by_thread.values())

    def stop(self) -> None:
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def _wake(self, wanted: int) -> None:
        with self._condition:
            missing = min(wanted, self._slots) - self._idle
            # The thread of a pump that makes attempts takes one of the slots.
            for _ in range(min(missing, self._slots - self._alive - self._pump_threads)):
                if not self._add_thread():
                    break
            if self._idle:
                self._condition.notify(min(self._idle, wanted))

    def _add_thread(self) -> bool:
        # Daemons: a handler that never returns must not keep the process alive.
        number = self._threads_started
        thread = threading.Thread(
            target=self._work, args=(number,), name=f"tickwork-attempts-{number}", daemon=True
        )
        self._alive += 1  # before the start: a claim that it takes at once counts as running
        try:
            thread.start()
        except RuntimeError:
            self._alive -= 1
            if not self._alive:
                raise
            _log.warning("Only %d of %d threads could be started.", self._alive, self._slots)
            return False
        self._threads_started += 1
        return True

    def _work(self, number: int) -> None:
        ready, outbox, notify = self._ready, self._host.outbox, self._host.notify
        # It ends when the engine is stopped.
        while not self._is_stopped:
            try:
                claim = ready.popleft()
            except IndexError:
                self._wait()
                continue
            began_at = time.perf_counter()
            if self._make_attempt(claim, number):
                self.durations.add(claim.job, time.perf_counter() - began_at)
            if not ready or len(outbox) >= WRITE_AT:
                notify()
        with self._condition:
            self._alive -= 1

    def _make_attempt(self, claim: Claim, number: int) -> bool:
        self._claim_by_thread[number] = claim
        try:
            return self._attempt(claim)
        except BaseException:  # noqa: BLE001  # a thread that dies would take its slot with it
            _log.exception("%s: the outcome of run %s was lost.", claim.job, claim.run_id)
            return False
        finally:
            del self._claim_by_thread[number]

    def _wait(self) -> None:
        with self._condition:
            if self._is_stopped or (self._ready and self.running <= self._slots):
                return
            self._idle += 1
            self._condition.wait_for(self._can_go_on)
            self._idle -= 1

    def _can_go_on(self) -> bool:
        return self._is_stopped or (bool(self._ready) and self.running < self._slots)
