"""Attempts in the thread that asks for them: one after the other."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from datetime import timedelta
from typing import Any

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.resolve import Construct
from tickwork._domain.outcome import Failed, Outcome, outcome_of_exception
from tickwork._kernel.clock import Clock
from tickwork.engines.invoke import after_hooks, attempt, drive_attempt
from tickwork.errors import AttemptTimeout


class InlineEngine:
    """Calls handlers here and now. Coroutines run on a loop of its own.

    A coroutine that takes too long is cancelled. A function cannot be stopped from outside:
    that it took too long is known when it returns, and is a failed attempt all the same.
    """

    def __init__(self, *, clock: Clock, construct: Callable[[], Construct]) -> None:
        self._clock = clock
        self._construct = construct
        self._runner: asyncio.Runner | None = None

    def __call__(
        self, definition: Definition, ctx: RunContext, timeout: timedelta | None
    ) -> Outcome:
        """Make one attempt."""
        begun = self._clock.monotonic()

        def left() -> float | None:
            if timeout is None:
                return None
            return timeout.total_seconds() - (self._clock.monotonic() - begun)

        steps = attempt(definition, ctx, construct=self._construct())
        try:
            outcome = drive_attempt(steps, ctx, wait=lambda what: self._wait(what, left()))
        except _Stopped:
            assert timeout is not None, definition
            return self._timed_out(definition, ctx, timeout)
        is_late = timeout is not None and (left() or 0) < 0
        if is_late and not isinstance(outcome, Failed) and timeout is not None:
            return _too_late(ctx, timeout)
        return outcome

    def close(self) -> None:
        """End the loop. The next coroutine gets a new one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _timed_out(self, definition: Definition, ctx: RunContext, timeout: timedelta) -> Outcome:
        outcome = _too_late(ctx, timeout)
        return drive_attempt(
            after_hooks(definition, ctx, outcome), ctx, wait=lambda what: self._wait(what, None)
        )

    def _wait(self, what: Awaitable[Any], seconds: float | None) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(what, seconds)
        # Somebody calls us from a coroutine: their loop cannot run ours.
        return _elsewhere(lambda: asyncio.run(_within(what, seconds)))

    def _run(self, what: Awaitable[Any], seconds: float | None) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_within(what, seconds), context=copy_context())


class _Stopped(asyncio.CancelledError):  # never leaves this module
    """An attempt was cancelled because its time was over: it passes through the attempt."""


async def _within(what: Awaitable[Any], seconds: float | None) -> Any:
    if seconds is None:
        return await what
    try:
        async with asyncio.timeout(max(seconds, 0)) as limit:
            return await what
    except TimeoutError:
        if limit.expired():
            raise _Stopped from None
        raise


def _elsewhere(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    context = copy_context()

    def call() -> None:
        try:
            found.append((True, context.run(work)))
        except BaseException as raised:  # noqa: BLE001  # it is raised again where it belongs
            found.append((False, raised))

    thread = threading.Thread(target=call, name="tickwork-inline")
    thread.start()
    thread.join()
    is_good, value = found[0]
    if is_good:
        return value
    raise value


def _too_late(ctx: RunContext, timeout: timedelta) -> Failed:
    failed = outcome_of_exception(AttemptTimeout(ctx.run_id, timeout=timeout))
    assert isinstance(failed, Failed), failed
    return failed
