"""Makes attempts in the calling thread."""

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tickwork._define.definition import Definition
from tickwork._domain.runs.outcome import Outcome
from tickwork._engines.attempt import (
    AttemptEnd,
    Decide,
    Stopped,
    attempt_steps,
    conclude,
    drive_attempt,
    simple_attempt,
    timeout_failure,
)
from tickwork._engines.contract import EngineHost, RunningAttempt
from tickwork._handlers.context import RunContext
from tickwork._handlers.handlers import Construct
from tickwork._kernel.clock import Clock

if TYPE_CHECKING:
    from tickwork._engines.local.event_loop import PrivateLoop

CLEANUP_SECONDS: Final = 1.0
"""How long a coroutine of middleware may clean up after a timeout, because its thread waits."""


WaitFor: TypeAlias = Callable[[Awaitable[Any], float | None], Any]
"""Runs an awaitable to its end, for at most these seconds, and returns its result."""


class ThreadCaller:
    """Calls handlers in the calling thread; coroutines run on an event loop of that thread.

    ``find_wait`` may return another way to wait for coroutines, such as on the loop of a test.

    A coroutine that exceeds its timeout is cancelled. A function cannot be stopped from outside:
    the attempt is recorded as failed when the function returns.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        construct: Callable[[], Construct],
        find_wait: Callable[[], WaitFor | None] = lambda: None,
    ) -> None:
        self._find_wait = find_wait
        self._clock = clock
        self._construct = construct
        self._local = threading.local()

    def make_attempt(self, attempt: RunningAttempt, host: EngineHost) -> Outcome:
        """Make one attempt for a worker."""
        # It adds few frames to the stack: in tests, dispatches inside of handlers are nested.
        definition, ctx, ends_at = attempt.definition, attempt.ctx, attempt.ends_at
        if ends_at is None and definition.is_simple:
            return simple_attempt(definition, ctx, self._wait)
        end = self.call_handler(definition, ctx, ends_at=ends_at)
        return self._conclude(definition, ctx, end, lambda end: host.decide(attempt, end))

    def call_handler(
        self, definition: Definition, ctx: RunContext, *, ends_at: float | None = None
    ) -> AttemptEnd:
        """Make one attempt without its last hooks. A timeout passes at ``ends_at``."""
        if ends_at is not None:
            return self._call_until(definition, ctx, ends_at)
        steps = attempt_steps(definition, ctx, construct=self._construct())
        return drive_attempt(steps, ctx, wait=self._wait)

    def __call__(self, definition: Definition, ctx: RunContext, *, decide: Decide) -> Outcome:
        """Make one attempt that another process limits in time."""
        if definition.is_simple:
            return simple_attempt(definition, ctx, self._wait)
        return self._conclude(definition, ctx, self.call_handler(definition, ctx), decide)

    def _call_until(self, definition: Definition, ctx: RunContext, ends_at: float) -> AttemptEnd:
        def seconds_left() -> float:
            return ends_at - self._clock.monotonic()

        steps = attempt_steps(
            definition, ctx, construct=self._construct(), is_late=lambda: seconds_left() <= 0
        )

        def wait(awaitable: Awaitable[Any]) -> Any:
            left = seconds_left()
            return self._wait(awaitable, left if left > 0 else CLEANUP_SECONDS)

        try:
            return drive_attempt(steps, ctx, wait=wait)
        except Stopped:
            return AttemptEnd(timeout_failure(definition, ctx))

    def _conclude(
        self, definition: Definition, ctx: RunContext, end: AttemptEnd, decide: Decide
    ) -> Outcome:
        return drive_attempt(conclude(definition, ctx, end, decide), ctx, wait=self._wait)

    def call_hooks(
        self,
        definition: Definition,
        ctx: RunContext,
        outcome: Outcome,
        decide: Decide = lambda end: end,
        *,
        result: Any = None,
    ) -> Outcome:
        """Call the hooks of an attempt that another process made; return its outcome."""
        return self._conclude(definition, ctx, AttemptEnd(outcome, result), decide)

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Run an awaitable on the event loop of this thread, and return its result."""
        return self._wait(awaitable)

    def close(self) -> None:
        """Close the event loop of this thread. The next coroutine gets a new one."""
        loop: PrivateLoop | None = getattr(self._local, "loop", None)
        if loop is not None:
            loop.close()

    def _wait(self, awaitable: Awaitable[Any], seconds: float | None = None) -> Any:
        wait = self._find_wait()
        if wait is not None:
            return wait(awaitable, seconds)
        loop = getattr(self._local, "loop", None)
        if loop is None:
            # A process without coroutines does not load asyncio.
            from tickwork._engines.local.event_loop import PrivateLoop  # noqa: PLC0415

            loop = self._local.loop = PrivateLoop()
        return loop.wait(awaitable, seconds)
