"""Attempts on a loop of their own: the engine for coroutines.

The loop runs in one thread. A coroutine that blocks it costs other coroutines, never a lease.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._domain.outcome import Canceled, Failed, Outcome, outcome_of_exception
from tickwork._domain.run import Claim
from tickwork.engines.invoke import (
    after_hooks,
    attempt,
    drive_attempt_async,
    simple_attempt_async,
)
from tickwork.errors import AttemptTimeout

STOP_SECONDS: Final = 2.0
"""How long the end of the loop may take; a coroutine that blocks it is left behind."""

_log: Final = logging.getLogger("tickwork.worker")


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
        self._ready: deque[Claim] = deque()
        self._tasks: dict[asyncio.Task[None], Claim] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        self._is_interrupted = False

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
        self._ready.extend(claims)
        self._on_loop(self._begin)

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        with self._taking:
            taken = list(self._ready)
            self._ready.clear()
        return taken

    def cancel(self, claim: Claim) -> None:
        """End one attempt: its coroutine gets a CancelledError."""
        self._on_loop(lambda: self._cancel(claim))

    def interrupt(self) -> list[Claim]:
        """Cancel every attempt; what they come to is handed over as usual."""
        self._is_interrupted = True
        if self._loop is not None:
            self._on_loop(self._cancel_all)
        return []

    def unfinished(self) -> list[Claim]:
        """The claims whose attempts are being made now."""
        return list(self._tasks.values())

    def stop(self) -> None:
        """End the loop, unless a coroutine blocks it."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._is_interrupted = True
        with suppress(RuntimeError):  # it is closed already
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=STOP_SECONDS)

    # ------------------------------------------------------------ the loop

    def _on_loop(self, act: Callable[[], object]) -> None:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="tickwork-asyncio", daemon=True
                )
                self._thread.start()
        with suppress(RuntimeError):  # the loop has ended: there is nothing left to act on
            self._loop.call_soon_threadsafe(act)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            # What ignores its end is left behind, and says nothing about it.
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin(self) -> None:
        """Start what there is room for. Called on the loop."""
        loop = asyncio.get_running_loop()
        while len(self._tasks) < self._slots and not self._is_interrupted:
            with self._taking:
                if not self._ready:
                    return
                claim = self._ready[0]
                task = loop.create_task(self._attempt(claim))
                self._tasks[task] = claim
                self._ready.popleft()  # last: whoever counts must not miss it
            task.add_done_callback(self._ended)

    async def _attempt(self, claim: Claim) -> None:
        if self._is_interrupted:
            self._ready.append(claim)  # for whoever takes it back
            return
        task = asyncio.current_task()
        assert task is not None, claim
        self._begun.add(task)
        await self._make(claim)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claim = self._tasks.pop(task)
        self._begun.discard(task)
        if task.cancelled() or task.exception() is not None:
            _log.error("%s: run %s was not handed over.", claim.job, claim.run_id)
        self._begin()
        if not self._tasks or self._done() >= self._write_at:
            self._call()

    def _cancel(self, claim: Claim) -> None:
        for task in self._begun:
            if self._tasks[task] is claim:
                task.cancel()

    def _cancel_all(self) -> None:
        for task in self._begun:
            task.cancel()


async def attempt_on_loop(
    definition: Definition,
    ctx: RunContext,
    timeout: timedelta | None,  # noqa: ASYNC109  # as every engine has it
    ended_by: Callable[[BaseException], Outcome],
    *,
    construct: Construct,
) -> Outcome:
    """Make one attempt on this loop; ``ended_by`` says what it means that it was cancelled."""
    if timeout is None and definition.is_simple:
        # Nothing around it, so there is nobody to be told of its end.
        try:
            return await simple_attempt_async(definition, ctx)
        except asyncio.CancelledError as raised:
            return ended_by(raised)
    steps = attempt(definition, ctx, construct=construct)
    seconds = None if timeout is None else timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds) as limit:
            outcome = await drive_attempt_async(steps, ctx)
    except TimeoutError:
        return await _with_hooks(definition, ctx, _too_late(ctx, timeout))
    except asyncio.CancelledError as raised:
        outcome = ended_by(raised)
        if isinstance(outcome, Canceled | Failed):
            return await _with_hooks(definition, ctx, outcome)
        return outcome
    if limit.expired() and not isinstance(outcome, Failed):
        return _too_late(ctx, timeout)  # it was told, and went on all the same
    return outcome


async def _with_hooks(definition: Definition, ctx: RunContext, outcome: Outcome) -> Outcome:
    """Call the hooks of an attempt that was ended from outside: its outcome stands."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # it was meant for the handler, not for us
    with suppress(asyncio.CancelledError):  # told twice: the hooks have had their chance
        await drive_attempt_async(after_hooks(definition, ctx, outcome), ctx)
    return outcome


def _too_late(ctx: RunContext, timeout: timedelta | None) -> Outcome:
    assert timeout is not None, ctx
    return outcome_of_exception(AttemptTimeout(ctx.run_id, timeout=timeout))
