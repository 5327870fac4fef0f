"""The inline engine: attempts in the thread that asks for them, one after the other."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Final

from tickwork._domain.runs.run import Claim
from tickwork._engines.contract import EngineHealth, EngineSetup, RunningAttempt
from tickwork._engines.durations import DurationEstimate
from tickwork._engines.local.thread_caller import ThreadCaller, WaitFor

WAIT_EVERY: Final = 0.05
"""Seconds between two calls of ``while_waiting``: an attempt that ends is noticed so much later."""


class InlineEngine:
    """Queues claims. The owner's thread makes one attempt with each call of :meth:`run_next`.

    A job without a timeout runs in the calling thread: nothing is cheaper, and the handler sees
    the caller's thread-local state. A job with a timeout runs in a thread of its own with a copy
    of the caller's context, because only then can the caller stop waiting for a function that
    ignores its timeout. ``while_waiting`` is called meanwhile; it has to watch for deadlines.
    Without ``while_waiting``, as in tests that move the clock themselves, every job runs in the
    calling thread: no other thread could notice that time passes.
    """

    def __init__(
        self,
        setup: EngineSetup,
        *,
        while_waiting: Callable[[], object] | None = None,
        find_wait: Callable[[], WaitFor | None] = lambda: None,
    ) -> None:
        self.durations = DurationEstimate()
        self._host = setup.host
        self._call = ThreadCaller(clock=setup.clock, construct=setup.construct, find_wait=find_wait)
        self._while_waiting = while_waiting
        self._ready: deque[Claim] = deque()
        self._running: Claim | None = None
        self._is_interrupted = False

    slots: int = 1

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return int(self._running is not None)

    def start(self) -> None:
        pass

    def health(self) -> EngineHealth:
        return EngineHealth()

    def submit(self, claims: Sequence[Claim]) -> None:
        self._ready.extend(claims)

    def run_next(self) -> bool:
        """Make the next attempt, in this thread; False when there is none to make.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed during the attempt. :meth:`take_back` returns the
                claim, because there is no outcome.
        """
        if self._is_interrupted or not self._ready:
            return False
        claim = self._running = self._ready.popleft()
        host = self._host
        try:
            attempt = host.begin(claim)
            if attempt is None:
                pass
            elif attempt.timeout is None or self._while_waiting is None:
                host.end(attempt, self._call.make_attempt(attempt, host))
            else:
                self._wait_for(attempt, self._while_waiting)
        except Exception as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
        except BaseException:
            self._ready.appendleft(claim)
            raise
        finally:
            self._running = None
        if not self._ready:
            host.notify()
        return True

    def take_back(self) -> list[Claim]:
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        pass

    def cancel(self, claim: Claim) -> None:
        """Do nothing: handlers poll ``ctx.is_canceled()``."""

    def interrupt(self) -> list[Claim]:
        self._is_interrupted = True
        return self.unfinished()

    def unfinished(self) -> list[Claim]:
        return [] if self._running is None else [self._running]

    def stop(self) -> None:
        self._call.close()

    def _wait_for(self, attempt: RunningAttempt, while_waiting: Callable[[], object]) -> None:
        is_done, context = threading.Event(), copy_context()

        def work() -> None:
            try:
                outcome = context.run(self._call.make_attempt, attempt, self._host)
                self._host.end(attempt, outcome)
            except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
                self._host.fail(attempt.claim, error)
            finally:
                self._call.close()
                is_done.set()

        name = f"tickwork-attempt-{attempt.claim.run_id}"
        threading.Thread(target=work, name=name, daemon=True).start()
        while not is_done.wait(WAIT_EVERY):  # ends with an outcome
            while_waiting()
            if self._host.is_settled(attempt):
                return
