"""The thread pool of engines that make each attempt in a thread, or wait for it in one."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tickwork._domain.runs.outcome import Interrupted
from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import OUTCOME_LOST, EngineHealth, EngineSetup
from tickwork._engines.durations import DurationEstimate
from tickwork.errors import EngineBroken

WRITE_AT: Final = 250
"""With this many outcomes, the worker is notified even if claims are waiting.

Waiting for a full batch would delay results that others wait for.
"""

_log: Final = logging.getLogger("tickwork.worker")


class ThreadPoolEngine(ABC):
    """Threads that take claims from one shared deque, so that no claim waits behind a slow one.

    Threads start when they are first needed. A thread that fails gives its slot back, and
    :meth:`rebalance` starts another one if claims wait.
    """

    _name = "thread"

    def __init__(self, setup: EngineSetup) -> None:
        self.durations = DurationEstimate()
        self._slots = setup.slots
        self._host = setup.host
        self._first: Claim | None = None  # the next claim when rebalance() was last called
        self._ready: deque[Claim] = deque()
        self._condition = threading.Condition()
        self._idle = 0
        self._alive = 0
        self._threads: set[threading.Thread] = set()  # those that count as alive
        self._begun = 0  # of these, those that run our code
        self._threads_started = 0
        self._threads_failed = 0
        self._start_error = ""  # why the last thread could not be started, or ended before it began
        self._broken = ""  # why no attempt can be started in any thread
        self._pump_threads = 0  # threads of pumps that make attempts now
        self._is_stopped = False
        self._claim_by_thread: dict[int, Claim] = {}

    @abstractmethod
    def _attempt(self, claim: Claim) -> bool:
        """Make one attempt and report its outcome; False if the handler was not called."""

    @property
    def slots(self) -> int:
        return 0 if self._broken else self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return self._alive - self._idle + self._pump_threads

    def start(self) -> None:  # noqa: B027  # threads start with the first claims
        pass

    def health(self) -> EngineHealth:
        reason = self._broken or ("" if self._begun else self._start_error)
        return EngineHealth(not reason, reason, restarts=self._threads_failed)

    def submit(self, claims: Sequence[Claim]) -> None:
        self._wake(claims)

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        """Wake more threads if the next claim is the same as at the last call."""
        self._forget_dead_threads()
        try:
            first = self._ready[0]
        except IndexError:
            return
        if first is self._first:
            self._try_wake()
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

    def _try_wake(self) -> None:
        with suppress(EngineBroken):  # health() reports it
            self._wake()

    def _wake(self, claims: Sequence[Claim] = ()) -> None:
        """Add these claims, and wake or start the threads for all claims that wait.

        Raises:
            EngineBroken: There is no thread, and none can be started. No claim was added.
        """
        with self._condition:
            if self._broken:
                raise EngineBroken(self._name, reason=self._broken)
            wanted = len(self._ready) + len(claims)
            missing = min(wanted, self._slots) - self._idle
            # The thread of a pump that makes attempts takes one of the slots.
            for _ in range(min(missing, self._slots - self._alive - self._pump_threads)):
                if not self._add_thread():
                    break
            self._ready.extend(claims)
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
        except (RuntimeError, MemoryError) as error:
            self._alive -= 1
            self._start_error = f"{type(error).__name__}: {error}"
            if not self._alive:
                raise EngineBroken(self._name, reason=self._start_error) from error
            _log.warning("Only %d of %d threads could be started.", self._alive, self._slots)
            return False
        self._threads.add(thread)
        self._threads_started += 1
        return True

    def _forget_dead_threads(self) -> None:
        """Give back the slots of threads that ended before they ran our code.

        A handler may have set a function with `threading.settrace` that fails in each of them.
        """
        with self._condition:
            for thread in [each for each in self._threads if not each.is_alive()]:
                self._threads.discard(thread)
                self._alive -= 1
                self._threads_failed += 1
                self._start_error = "A thread ended before its first attempt."

    def _work(self, number: int) -> None:
        with self._condition:
            self._begun += 1
            self._start_error = ""
        try:
            self._make_attempts_in_thread(number)
        except BaseException:  # noqa: BLE001  # another thread takes its place: see rebalance()
            self._threads_failed += 1
            if self._threads_failed.bit_count() == 1:  # 1, 2, 4, 8: it may fail all the time
                with suppress(BaseException):
                    text = "%d threads of the %s engine have failed between two attempts."
                    _log.exception(text, self._threads_failed, self._name)
        finally:
            with self._condition:
                self._alive -= 1
                self._begun -= 1
                self._threads.discard(threading.current_thread())

    def _make_attempts_in_thread(self, number: int) -> None:
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

    def _break(self, reason: str) -> None:
        """Start nothing more, and give back the claims that wait."""
        with self._condition:
            self._broken = reason
        _log.error("The %s engine of this process can start no attempt: %s", self._name, reason)
        for claim in self.take_back():
            self._host.give_back(claim, Interrupted(reason))
        self._host.notify()

    def _make_attempt(self, claim: Claim, number: int) -> bool:
        try:
            self._claim_by_thread[number] = claim
            return self._attempt(claim)
        except BaseException:  # noqa: BLE001  # each claim must get an outcome
            self._host.give_back(claim, OUTCOME_LOST)
            _log.exception("%s: the outcome of run %s was lost.", claim.job, claim.run_id)
            return False
        finally:
            self._claim_by_thread.pop(number, None)

    def _wait(self) -> None:
        with self._condition:
            if self._is_stopped or (self._ready and self.running <= self._slots):
                return
            self._idle += 1
            try:
                self._condition.wait_for(self._can_go_on)
            finally:
                self._idle -= 1

    def _can_go_on(self) -> bool:
        return self._is_stopped or (bool(self._ready) and self.running < self._slots)
