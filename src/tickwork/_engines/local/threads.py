"""The thread engine: for plain functions."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import EngineSetup
from tickwork._engines.local.thread_caller import ThreadCaller
from tickwork._engines.local.thread_pool import ThreadPoolEngine

QUICK_ATTEMPTS_MAX: Final = 1_000
QUICK_ATTEMPTS_SECONDS: Final = 0.04
"""How many attempts the thread of a pump makes, and for how long. Then it writes outcomes.

It is less than ``WRITE_EVERY`` of the pumps, so that results are not seen later (ADR 17).
"""

BRIEF_SECONDS: Final = 0.00005
"""A shorter attempt waits for nothing: it only uses the interpreter."""

LOCK_SECONDS: Final = QUICK_ATTEMPTS_SECONDS + 0.01
"""Seconds for which a pump waits until another one has made its brief attempts: a little longer."""


class ThreadEngine(ThreadPoolEngine):
    """Makes attempts in threads, and lets the threads that claim runs make the quick ones.

    Several threads that make quick attempts compete for the interpreter's lock, and handing a
    claim over takes longer than the attempt. If the thread of a pump gets stuck in a handler,
    :meth:`rebalance` wakes the engine's own threads.
    """

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._clock = setup.clock
        self._brief_lock = threading.Lock()
        self._call = ThreadCaller(clock=setup.clock, construct=setup.construct)

    def submit(self, claims: Sequence[Claim]) -> None:
        now, is_quick = time.perf_counter(), self.durations.is_quick
        if all(is_quick(job, now=now) for job in {claim.job for claim in claims}):
            self._ready.extend(claims)
        else:
            super().submit(claims)

    def make_quick_attempts(self) -> bool:
        ready = self._ready
        if not ready:
            return False
        with self._locked_if_brief():
            with self._condition:
                if self.running >= self._slots:
                    return False
                self._pump_threads += 1
            try:
                made, needs_threads = self._make_attempts()
            finally:
                with self._condition:
                    self._pump_threads -= 1
        if needs_threads:
            self._try_wake()
        return made > 0

    @contextmanager
    def _locked_if_brief(self) -> Iterator[None]:
        """If the next attempt is brief, wait until no other pump makes brief attempts.

        Both at once would take longer than one after the other. While one pump makes attempts,
        the other one can wait for the database.
        """
        lock, is_locked = self._brief_lock, False
        if self._is_next_brief():
            is_locked = lock.acquire(timeout=LOCK_SECONDS)
            if not is_locked:
                self._brief_lock = threading.Lock()  # the holder is stuck: wait for it only once
        try:
            yield
        finally:
            if is_locked:
                lock.release()

    def _is_next_brief(self) -> bool:
        try:
            durations = self.durations.of(self._ready[0].job)
        except IndexError:  # another thread took it
            return False
        return durations is not None and durations.typical < BRIEF_SECONDS

    def _make_attempts(self) -> tuple[int, bool]:
        """Return how many were made, and whether the next claim needs a thread of its own.

        An attempt counts as started when the previous one ended: the clock is read once for both.
        """
        # This loop runs once for each run of a busy worker. What depends on the job only is looked
        # up when the job changes.
        ready, host, perf_counter = self._ready, self._host, time.perf_counter
        claim_by_thread, number = self._claim_by_thread, threading.get_ident()
        job, is_quick, durations, make_attempt = "", False, None, None
        made, needs_threads = 0, False
        now, ended_at = perf_counter(), self._clock.now()
        until = now + QUICK_ATTEMPTS_SECONDS
        while made < QUICK_ATTEMPTS_MAX and now < until:
            try:
                claim = ready.popleft()
            except IndexError:
                break
            if claim.job != job:
                try:
                    durations = self.durations.of(claim.job)
                    is_quick = durations is not None and durations.is_quick(now)
                    make_attempt = host.simple_attempt_of(claim.job, self._call.wait)
                except BaseException:
                    ready.appendleft(claim)
                    raise
                job = claim.job
            if self._is_stopped or durations is None or not is_quick:
                ready.appendleft(claim)
                needs_threads = True
                break
            made += 1
            claim_by_thread[number] = claim
            try:
                ended = None if make_attempt is None else make_attempt(claim, ended_at)
                if ended is not None:
                    ended_at, is_made = ended, True
                else:
                    is_made, ended_at = self._attempt(claim), self._clock.now()
            except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
                host.fail(claim, error)
                is_made = False
            finally:
                del claim_by_thread[number]
            began_at, now = now, perf_counter()
            if is_made:
                is_quick = durations.add_quick(now - began_at, now)
        return made, needs_threads

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
