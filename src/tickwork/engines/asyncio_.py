"""The asyncio engine: for coroutines, on an event loop of its own.

The loop runs in one thread. A coroutine that blocks it delays other coroutines, but no heartbeat.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tickwork._domain.outcome import Canceled, Failed, Outcome
from tickwork._domain.run import Claim
from tickwork.engines.attempt import (
    after_hooks,
    attempt_steps,
    drive_attempt_async,
    simple_attempt_async,
    timeout_failure,
)
from tickwork.engines.contract import EngineSetup, RunningAttempt
from tickwork.engines.durations import DurationEstimate

STOP_SECONDS: Final = 2.0
"""How long the loop may take to stop. A coroutine that blocks it longer is left behind."""

WRITE_AT: Final = 250
"""With this many outcomes, the worker is notified even if other attempts are running."""

_log: Final = logging.getLogger("tickwork.worker")


class AsyncEngine:
    """Runs one task for each attempt. The loop starts with the first coroutine."""

    def __init__(self, setup: EngineSetup) -> None:
        self.durations = DurationEstimate()
        self._slots = setup.slots
        self._host = setup.host
        self._construct = setup.construct
        self._ready: deque[Claim] = deque()
        self._tasks: dict[asyncio.Task[None], Claim] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ready_lock = threading.Lock()
        self._is_interrupted = False

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def waiting(self) -> int:
        return len(self._ready)

    @property
    def running(self) -> int:
        return len(self._tasks)

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
        return list(self._tasks.values())

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
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="tickwork-asyncio", daemon=True
                )
                self._thread.start()
        with suppress(RuntimeError):  # the loop was closed: no task is left
            self._loop.call_soon_threadsafe(callback)

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
        """Start as many claims as there are free slots. Runs on the loop."""
        loop = asyncio.get_running_loop()
        while len(self._tasks) < self._slots and not self._is_interrupted:
            with self._ready_lock:
                if not self._ready:
                    return
                claim = self._ready[0]
                task = loop.create_task(self._attempt(claim))
                self._tasks[task] = claim
                self._ready.popleft()  # last: a thread that counts claims must not miss this one
            task.add_done_callback(self._on_task_done)

    async def _attempt(self, claim: Claim) -> None:
        if self._is_interrupted:
            self._ready.append(claim)  # take_back() returns it
            return
        task = asyncio.current_task()
        assert task is not None, claim
        self._begun.add(task)  # before the checks: a cancel() after them finds the task
        host = self._host
        try:
            attempt = host.begin(claim)
            if attempt is None:
                return
            host.end(attempt, await self._call(attempt))
        except BaseException as error:  # noqa: BLE001  # each claim must get an outcome
            host.fail(claim, error)
        else:
            self.durations.add(claim.job, time.perf_counter() - attempt.begun_at)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        claim = self._tasks.pop(task)
        self._begun.discard(task)
        if task.cancelled() or task.exception() is not None:
            _log.error("%s: the outcome of run %s was lost.", claim.job, claim.run_id)
        self._start_tasks()
        if not self._tasks or len(self._host.outbox) >= WRITE_AT:
            self._host.notify()

    def _cancel_tasks(self, claim: Claim | None = None) -> None:
        for task in self._begun:
            if claim is None or self._tasks[task] is claim:
                task.cancel()

    async def _call(self, attempt: RunningAttempt) -> Outcome:
        definition, ctx, timeout = attempt.definition, attempt.ctx, attempt.timeout
        if timeout is None and definition.is_simple:
            try:
                return await simple_attempt_async(definition, ctx)
            except asyncio.CancelledError as raised:
                return self._host.outcome_of_stop(attempt, raised)
        limit = asyncio.timeout(None if timeout is None else timeout.total_seconds())
        steps = attempt_steps(definition, ctx, construct=self._construct(), is_late=limit.expired)
        try:
            async with limit:
                return await drive_attempt_async(steps, ctx)
        except TimeoutError:
            return await _call_hooks(attempt, timeout_failure(definition, ctx))
        except asyncio.CancelledError as raised:
            outcome = self._host.outcome_of_stop(attempt, raised)
            if isinstance(outcome, Canceled | Failed):
                return await _call_hooks(attempt, outcome)
            return outcome


async def _call_hooks(attempt: RunningAttempt, outcome: Outcome) -> Outcome:
    """Call the hooks of an attempt that was ended from outside. They cannot change its outcome."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # the cancellation was for the handler, not for its hooks
    with suppress(asyncio.CancelledError):  # a second cancellation ends the hooks
        await drive_attempt_async(
            after_hooks(attempt.definition, attempt.ctx, outcome), attempt.ctx
        )
    return outcome
