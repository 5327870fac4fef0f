"""The thread engine: for plain functions."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from tickwork._domain.run import Claim
from tickwork.engines.contract import EngineSetup
from tickwork.engines.thread_caller import ThreadCaller
from tickwork.engines.thread_pool import ThreadPoolEngine

ASSIST_MAX: Final = 500
ASSIST_SECONDS: Final = 0.02
"""How many attempts an assistant makes, and for how long. Then it has outcomes to write."""


class ThreadEngine(ThreadPoolEngine):
    """Makes attempts in threads, and lets the threads that claim runs make the quick ones.

    Several threads that make quick attempts compete for the interpreter's lock, and handing a
    claim over takes longer than the attempt. If an assistant gets stuck, :meth:`rebalance` wakes
    the engine's own threads.
    """

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._clock = setup.clock
        self._call = ThreadCaller(clock=setup.clock, construct=setup.construct)

    def submit(self, claims: Sequence[Claim]) -> None:
        now, is_quick = time.perf_counter(), self.durations.is_quick
        if all(is_quick(job, now=now) for job in {claim.job for claim in claims}):
            self._ready.extend(claims)
        else:
            super().submit(claims)

    def assist(self) -> bool:
        ready = self._ready
        if not ready:
            return False
        with self._condition:
            if self.running >= self._slots:
                return False
            self._assistants += 1
        try:
            made, needs_threads = self._make_quick_attempts()
        finally:
            with self._condition:
                self._assistants -= 1
        if needs_threads:
            self._wake(len(ready))
        return made > 0

    def _make_quick_attempts(self) -> tuple[int, bool]:
        """Return how many were made, and whether the next claim is for a thread."""
        ready, durations, host = self._ready, self.durations, self._host
        make_simple_attempt, wait = host.make_simple_attempt, self._call.wait
        claim_by_thread, number = self._claim_by_thread, threading.get_ident()
        made, now, ended_at = 0, time.perf_counter(), self._clock.now()
        until = now + ASSIST_SECONDS
        while made < ASSIST_MAX and now < until:
            try:
                claim = ready.popleft()
            except IndexError:
                break
            if self._is_stopped or not durations.is_quick(claim.job, now=now):
                ready.appendleft(claim)
                return made, True
            made += 1
            claim_by_thread[number] = claim
            try:
                ended = make_simple_attempt(claim, ended_at, wait)
                if ended is not None:
                    ended_at, is_made = ended, True
                else:
                    is_made, ended_at = self._attempt(claim), self._clock.now()
            except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
                host.fail(claim, error)
                is_made = False
            finally:
                del claim_by_thread[number]
            began_at, now = now, time.perf_counter()
            if is_made:
                durations.add_assisted(claim.job, now - began_at, now=now)
        return made, False

    def _attempt(self, claim: Claim) -> bool:
        host = self._host
        try:
            attempt = host.begin(claim)
            if attempt is None:
                return False
            host.end(attempt, self._call.make_attempt(attempt, host))
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
            return False
        return True
