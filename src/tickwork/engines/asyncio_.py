"""Attempts on a loop of their own: the engine for coroutines.

The loop runs in one thread. A coroutine that blocks it costs other coroutines, never a lease.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.resolve import Construct
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import Outcome, outcome_of_exception
from tickwork._domain.run import Claim
from tickwork.engines.invoke import after_hooks, attempt, drive_attempt_async
from tickwork.errors import AttemptTimeout


class AsyncEngine:
    """A task for each attempt, so many at a time."""

    def __init__(
        self,
        *,
        slots: int,
        make: Callable[[Claim], Awaitable[None]],
        call: Callable[[], None],
        done: Callable[[], int],
        write_at: int = 250,
    ) -> None:
        self._slots = slots
        self._make = make
        self._call = call
        self._done = done
        self._write_at = write_at
        self._ready: list[Claim] = []
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        """How many attempts it makes at the same time."""
        return self._slots

    @property
    def waiting(self) -> int:
        """How many claims it has that have not started."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """How many attempts it is making."""
        return len(self._tasks)

    def start(self) -> None:
        """Nothing yet: the loop starts with the first coroutine."""

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these: they start in this order, as soon as there is room."""
        with self._lock:
            self._ready.extend(claims)
        self._running_loop().call_soon_threadsafe(self._begin)

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        with self._lock:
            taken, self._ready = self._ready, []
        return taken

    def cancel(self, run_id: RunId) -> None:
        """End one attempt: its coroutine gets a CancelledError."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run_id)

    def interrupt(self) -> list[Claim]:
        """Cancel every attempt; what they come to is handed over as usual."""
        for run_id in list(self._tasks):
            self.cancel(run_id)
        return []

    def stop(self) -> None:
        """End the loop."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
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
        finally:
            loop.close()

    def _begin(self) -> None:
        """Start what there is room for. Called on the loop."""
        loop = asyncio.get_running_loop()
        while self._ready and len(self._tasks) < self._slots:
            with self._lock:
                if not self._ready:
                    return
                claim = self._ready.pop(0)
            task = loop.create_task(self._attempt(claim))
            self._tasks[claim.run_id] = task

    async def _attempt(self, claim: Claim) -> None:
        try:
            await self._make(claim)
        finally:
            del self._tasks[claim.run_id]
            self._begin()
            if not self._tasks or self._done() >= self._write_at:
                self._call()

    def _cancel(self, run_id: RunId) -> None:
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()


async def attempt_on_loop(
    definition: Definition,
    ctx: RunContext,
    timeout: timedelta | None,  # noqa: ASYNC109  # as every engine has it
    *,
    construct: Construct,
) -> Outcome | None:
    """Make one attempt on this loop; None when it was cancelled from outside."""
    steps = attempt(definition, ctx, construct=construct)
    seconds = None if timeout is None else timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await drive_attempt_async(steps, ctx)
    except TimeoutError:
        if not limit.expired() or timeout is None:
            raise
        failed = outcome_of_exception(AttemptTimeout(ctx.run_id, timeout=timeout))
        return await drive_attempt_async(after_hooks(definition, ctx, failed), ctx)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None, ctx
        task.uncancel()  # it was meant for the handler, not for us
        return None
