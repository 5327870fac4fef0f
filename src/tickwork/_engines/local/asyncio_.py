"""The asyncio engine: for coroutines, on an event loop of its own.

The loop runs in one thread. A coroutine that blocks it delays other coroutines, but no heartbeat.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from tickwork._domain.runs.outcome import Crashed, Failed, Interrupted, Outcome
from tickwork._domain.runs.run import Claim
from tickwork._engines.attempt import (
    AttemptEnd,
    AttemptSteps,
    attempt_steps,
    conclude,
    drive_attempt_async,
    simple_attempt_async,
    timeout_failure,
)
from tickwork._engines.contract import OUTCOME_LOST, EngineHealth, EngineSetup, RunningAttempt
from tickwork._engines.durations import DurationEstimate
from tickwork._engines.local.shared_loop import SharedLoop
from tickwork._handlers.context import RunContext
from tickwork.errors import EngineBroken

WRITE_AT: Final = 250
"""With this many outcomes, the worker is notified even if claims are waiting.

Waiting for a full batch would delay results that others wait for.
"""

ATTEMPTS_IN_A_ROW: Final = 20
"""After this many attempts, a task yields to other tasks of the loop.

A task of its own for each attempt takes 20 µs, and 14 µs in a row (ADR 17).
"""

_log: Final = logging.getLogger("tickwork.worker")

T = TypeVar("T")


class AsyncEngine:
    """Runs as many tasks as there are slots. Each makes attempts until no claim is left.

    A task for each attempt would take longer than a quick attempt. Each attempt has a context of
    its own, so that the context variables of one handler do not reach the next.

    The loop starts with the first coroutine.

    With a loop of the caller, it has no thread, and leaves the loop running.
    """

    def __init__(self, setup: EngineSetup) -> None:
        self.durations = DurationEstimate()
        self._slots = setup.slots
        self._host = setup.host
        self._construct = setup.construct
        self._ready: deque[Claim] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._claim_by_task: dict[asyncio.Task[None], Claim] = {}
        self._begun: set[asyncio.Task[None]] = set()  # those that a cancel may end
        self._loop = SharedLoop(
            setup.loop,
            clock=setup.clock,
            on_stopped=self._on_loop_stopped,
            on_broken=self._on_loop_broken,
        )
        self._ready_lock = threading.Lock()
        self._is_interrupted = False

    @property
    def slots(self) -> int:
        return 0 if self._loop.is_broken else self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._claim_by_task)

    def start(self) -> None:
        pass

    def health(self) -> EngineHealth:
        return self._loop.health()

    def submit(self, claims: Sequence[Claim]) -> None:
        with self._ready_lock:  # the loop waits for it before it counts the claims
            if not self._is_interrupted:
                self._loop.call(self._start_tasks)
            self._ready.extend(claims)

    def take_back(self) -> list[Claim]:
        with self._ready_lock:
            taken = list(self._ready)
            self._ready.clear()
        return taken

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        """Start the tasks that could not be started before."""
        if self._ready and len(self._tasks) < self._slots:
            self._try_call(self._start_tasks)

    def cancel(self, claim: Claim) -> None:
        """Raise CancelledError in the coroutine of this attempt."""
        self._try_call(lambda: self._cancel_tasks(claim))

    def interrupt(self) -> list[Claim]:
        self._is_interrupted = True
        self._try_call(self._cancel_tasks)
        return []

    def unfinished(self) -> list[Claim]:
        return list(self._claim_by_task.values())

    def wait(self, awaitable: Awaitable[T], seconds: float | None = None) -> T:
        """Run an awaitable on the loop, and return its result. Not from the loop itself.

        Raises:
            TimeoutError: It took longer than ``seconds``, and was cancelled.
            EngineBroken: The loop does not run any more.
        """
        return self._loop.wait(awaitable, seconds)

    def stop(self) -> None:
        self._is_interrupted = True
        self._loop.stop()

    def _try_call(self, callback: Callable[[], object]) -> None:
        if self._loop.is_started:
            with suppress(EngineBroken):  # health() reports it
                self._loop.call(callback)

    def _on_loop_stopped(self, error: BaseException | None, ctx: RunContext | None) -> bool:
        """Fail the attempt whose code stopped the loop; False if it does not run any more."""
        who = "Code" if ctx is None else f"{ctx.job}: code of run {ctx.run_id}"
        _log.error("%s stopped the event loop, which runs on: %s", who, repr(error))
        for task, claim in list(self._claim_by_task.items()):
            if ctx is not None and (claim.run_id, claim.token) == (ctx.run_id, ctx.token):
                text = f"A callback or a task of the run stopped the event loop: {error!r}"
                self._host.fail(claim, RuntimeError(text))
                task.cancel()
                return True
        return False

    def _on_loop_broken(self, reason: str) -> None:
        """Give back all claims. An attempt that runs may itself have broken the loop."""
        for claim in self.take_back():
            self._host.give_back(claim, Interrupted(reason))
        for claim in self.unfinished():
            self._host.give_back(claim, Crashed(reason))
        self._claim_by_task.clear()
        self._host.notify()

    def _start_tasks(self) -> None:
        """Start a task for each claim, as far as there are slots. Runs on the loop."""
        loop = asyncio.get_running_loop()
        with self._ready_lock:
            count = min(len(self._ready), self._slots - len(self._tasks))
        for _ in range(count):
            task = loop.create_task(self._work())
            # One that ignores its cancellation is left behind, without a warning.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    async def _work(self) -> None:
        """Make attempts until no claim is left."""
        task = asyncio.current_task()
        assert task is not None
        made = 0
        while not self._is_interrupted:
            with self._ready_lock:
                if not self._ready:
                    return
                claim = self._claim_by_task[task] = self._ready[0]
                self._ready.popleft()  # last: a thread that counts claims must not miss this one
            try:
                self._begun.add(task)  # before the checks: a cancel() after them finds the task
                await self._attempt(claim)
            except BaseException:
                self._host.give_back(claim, OUTCOME_LOST)
                raise
            finally:
                self._claim_by_task.pop(task, None)
                self._begun.discard(task)
            while task.cancelling():
                task.uncancel()  # it was for this attempt
            if not self._ready or len(self._host.outbox) >= WRITE_AT:
                self._host.notify()
            made += 1
            if made % ATTEMPTS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _attempt(self, claim: Claim) -> None:
        host, began_at = self._host, time.perf_counter()
        try:
            attempt = host.begin(claim)
            if attempt is None:
                return
            host.end(attempt, await InOwnContext(self._call(attempt)))
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
        else:
            self.durations.add(claim.job, time.perf_counter() - began_at)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            _log.error("A task that makes attempts failed.", exc_info=task.exception())
        self._start_tasks()

    def _cancel_tasks(self, claim: Claim | None = None) -> None:
        for task in self._begun:
            if claim is None or self._claim_by_task.get(task) is claim:
                task.cancel()

    async def _call(self, attempt: RunningAttempt) -> Outcome:
        definition, ctx, timeout = attempt.definition, attempt.ctx, attempt.timeout
        if timeout is None and definition.is_simple:
            try:
                outcome = await simple_attempt_async(definition, ctx)
            except asyncio.CancelledError as raised:
                return self._host.outcome_of_stop(attempt, raised)
            return self._outcome_of_failure(attempt, outcome)
        limit = asyncio.timeout(None if timeout is None else timeout.total_seconds())
        steps = attempt_steps(
            definition,
            ctx,
            construct=self._construct(),
            is_late=limit.expired,
            is_on_loop=True,
        )
        try:
            async with limit:
                end = await _drive(steps, ctx)
            outcome = self._outcome_of_failure(attempt, end.outcome)
            end = end._replace(outcome=outcome)
        except TimeoutError:
            end = AttemptEnd(timeout_failure(definition, ctx))
        except asyncio.CancelledError as raised:
            end = AttemptEnd(self._host.outcome_of_stop(attempt, raised))
        return await self._conclude(attempt, end)

    def _outcome_of_failure(self, attempt: RunningAttempt, outcome: Outcome) -> Outcome:
        """A coroutine that was stopped may raise another exception than CancelledError."""
        if not isinstance(outcome, Failed) or outcome.exception is None:
            return outcome
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return outcome
        stopped = self._host.outcome_of_stop(attempt, outcome.exception)
        return outcome if isinstance(stopped, Failed) else stopped

    async def _conclude(self, attempt: RunningAttempt, end: AttemptEnd) -> Outcome:
        """Call the hooks. They may take as long again as the handler."""
        task = asyncio.current_task()
        assert task is not None, attempt
        self._begun.discard(task)  # a cancel comes too late
        while task.cancelling():
            task.uncancel()  # the cancellation was for the handler, not for its hooks
        definition, ctx, timeout = attempt.definition, attempt.ctx, attempt.timeout

        def decide(ended: AttemptEnd) -> AttemptEnd:
            nonlocal end
            end = self._host.decide(attempt, ended)
            return end

        limit = None if timeout is None else timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                return await _drive(conclude(definition, ctx, end, decide), ctx)
        except (TimeoutError, asyncio.CancelledError):
            _log.error("%s: a hook of run %s was cancelled.", ctx.job, ctx.run_id)
            return end.outcome


class InOwnContext(Generic[T]):
    """Awaits a coroutine in a copy of the current context, without a task of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, run = self._coroutine, copy_context().run
        step: Callable[[Any], Any] = coroutine.send
        value: Any = None
        # It ends when the coroutine ends.
        while True:
            try:
                waits_for = run(step, value)
            except StopIteration as end:
                returned: T = end.value
                return returned
            try:
                step, value = coroutine.send, (yield waits_for)
            except BaseException as raised:  # noqa: BLE001  # the coroutine decides
                step, value = coroutine.throw, raised


async def _drive(steps: AttemptSteps[T], ctx: RunContext) -> T:
    task = asyncio.current_task()
    return await drive_attempt_async(steps, ctx, is_closed=lambda: _find_task() is not task)


def _find_task() -> asyncio.Task[None] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None
