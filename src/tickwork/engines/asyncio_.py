"""The asyncio engine: for coroutines, on an event loop of its own.

The loop runs in one thread. A coroutine that blocks it delays other coroutines, but no heartbeat.
"""

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from tickwork._define.context import RunContext
from tickwork._domain.outcome import Failed, Outcome
from tickwork._domain.run import Claim
from tickwork._kernel.fork import exit_forked, reset_after_fork
from tickwork.engines.attempt import (
    AttemptEnd,
    AttemptSteps,
    attempt_steps,
    conclude,
    drive_attempt_async,
    simple_attempt_async,
    timeout_failure,
)
from tickwork.engines.contract import EngineSetup, RunningAttempt
from tickwork.engines.durations import DurationEstimate

STOP_SECONDS: Final = 2.0
"""How long the loop may take to stop. A coroutine that blocks it longer is left behind."""

WRITE_AT: Final = 250
"""With this many outcomes, the worker is notified even if claims are waiting."""

ATTEMPTS_IN_A_ROW: Final = 20
"""After this many attempts, a task yields to other tasks of the loop."""

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
        self._loop: asyncio.AbstractEventLoop | None = setup.loop
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ready_lock = threading.Lock()
        self._is_interrupted = False
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Have a process that a coroutine forked end at its next ``await``.

        Otherwise its loop would go on with the coroutines of the parent.
        """
        loop = self._loop
        if loop is not None and self._thread is threading.current_thread():
            loop.call_soon(exit_forked)
            ready = getattr(loop, "_ready", None)  # other coroutines that would come before it
            if isinstance(ready, deque):
                ready.rotate(1)

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._claim_by_task)

    def start(self) -> None:
        pass

    def submit(self, claims: Sequence[Claim]) -> None:
        self._ready.extend(claims)
        self._call_on_loop(self._start_tasks)

    def take_back(self) -> list[Claim]:
        with self._ready_lock:
            taken = list(self._ready)
            self._ready.clear()
        return taken

    def make_quick_attempts(self) -> bool:
        return False

    def rebalance(self) -> None:
        pass

    def cancel(self, claim: Claim) -> None:
        """Raise CancelledError in the coroutine of this attempt."""
        if self._loop is not None:
            self._call_on_loop(lambda: self._cancel_tasks(claim))

    def interrupt(self) -> list[Claim]:
        self._is_interrupted = True
        if self._loop is not None:
            self._call_on_loop(self._cancel_tasks)
        return []

    def unfinished(self) -> list[Claim]:
        return list(self._claim_by_task.values())

    def wait(self, awaitable: Awaitable[T], seconds: float | None = None) -> T:
        """Run an awaitable on the loop, and return its result. Not from the loop itself.

        Raises:
            TimeoutError: It took longer than ``seconds``, and was cancelled.
        """

        async def run() -> T:
            return await awaitable

        # Not both: if it is cancelled before it begins, the inner one would never be awaited.
        wanted: Coroutine[Any, Any, T] = awaitable if inspect.iscoroutine(awaitable) else run()
        future = asyncio.run_coroutine_threadsafe(wanted, self._ensure_loop())
        try:
            return future.result(seconds)  # by this thread's time: the loop may be blocked
        finally:
            future.cancel()

    def stop(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._is_interrupted = True
        with suppress(RuntimeError):  # it is closed already
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=STOP_SECONDS)

    def _call_on_loop(self, callback: Callable[[], object]) -> None:
        loop = self._ensure_loop()
        with suppress(RuntimeError):  # the loop was closed: no task is left
            loop.call_soon_threadsafe(callback)

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="tickwork-asyncio", daemon=True
                )
                self._thread.start()
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            # Tasks that ignore their cancellation are left behind, without a warning.
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _start_tasks(self) -> None:
        """Start a task for each claim, as far as there are slots. Runs on the loop."""
        loop = asyncio.get_running_loop()
        for _ in range(min(len(self._ready), self._slots - len(self._tasks))):
            task = loop.create_task(self._work())
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
            finally:
                del self._claim_by_task[task]
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
            if claim is None or self._claim_by_task[task] is claim:
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
