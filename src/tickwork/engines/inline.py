"""Attempts in the thread that asks for them: one after the other."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._domain.outcome import Failed, Outcome, outcome_of_exception
from tickwork._kernel.clock import Clock
from tickwork.engines.invoke import Stopped, after_hooks, attempt, drive_attempt, simple_attempt
from tickwork.errors import AttemptTimeout

if TYPE_CHECKING:
    from tickwork.engines.awaiting import Waiter


class InlineEngine:
    """Calls handlers here and now. Coroutines run on a loop of its own.

    A coroutine that takes too long is cancelled. A function cannot be stopped from outside:
    that it took too long is known when it returns, and is a failed attempt all the same.
    """

    def __init__(self, *, clock: Clock, construct: Callable[[], Construct]) -> None:
        self._clock = clock
        self._construct = construct
        self._waiter: Waiter | None = None

    def __call__(
        self, definition: Definition, ctx: RunContext, timeout: timedelta | None
    ) -> Outcome:
        """Make one attempt."""
        if timeout is None and definition.is_simple:
            return simple_attempt(definition, ctx, wait=self._wait)
        begun = self._clock.monotonic()

        def left() -> float | None:
            if timeout is None:
                return None
            return timeout.total_seconds() - (self._clock.monotonic() - begun)

        steps = attempt(definition, ctx, construct=self._construct())
        try:
            outcome = drive_attempt(steps, ctx, wait=lambda what: self._wait(what, left()))
        except Stopped:
            assert timeout is not None, definition
            return self._timed_out(definition, ctx, timeout)
        is_late = timeout is not None and (left() or 0) < 0
        if is_late and not isinstance(outcome, Failed) and timeout is not None:
            return _too_late(ctx, timeout)
        return outcome

    def close(self) -> None:
        """End the loop, if there is one. The next coroutine gets a new one."""
        if self._waiter is not None:
            self._waiter.close()

    def _timed_out(self, definition: Definition, ctx: RunContext, timeout: timedelta) -> Outcome:
        outcome = _too_late(ctx, timeout)
        return drive_attempt(
            after_hooks(definition, ctx, outcome), ctx, wait=lambda what: self._wait(what, None)
        )

    def _wait(self, what: Awaitable[Any], seconds: float | None = None) -> Any:
        if self._waiter is None:
            # Whoever has no coroutines need not load what runs them.
            from tickwork.engines.awaiting import Waiter  # noqa: PLC0415

            self._waiter = Waiter()
        return self._waiter.wait(what, seconds)


def _too_late(ctx: RunContext, timeout: timedelta) -> Failed:
    failed = outcome_of_exception(AttemptTimeout(ctx.run_id, timeout=timeout))
    assert isinstance(failed, Failed), failed
    return failed
