"""Makes attempts in the calling thread."""

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._domain.outcome import Outcome
from tickwork._kernel.clock import Clock
from tickwork.engines.attempt import (
    AfterCall,
    Stopped,
    after_hooks,
    attempt_steps,
    drive_attempt,
    simple_attempt,
    timeout_failure,
)

if TYPE_CHECKING:
    from tickwork.engines.event_loop import PrivateLoop


class ThreadCaller:
    """Calls handlers in the calling thread; coroutines run on an event loop of that thread.

    A coroutine that exceeds its timeout is cancelled. A function cannot be stopped from outside:
    the attempt is recorded as failed when the function returns.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        construct: Callable[[], Construct],
        after_call: AfterCall | None = None,
    ) -> None:
        self._clock = clock
        self._construct = construct
        self._after_call = after_call
        self._local = threading.local()

    def __call__(
        self, definition: Definition, ctx: RunContext, ends_at: float | None = None
    ) -> Outcome:
        """Make one attempt; its timeout passes at ``ends_at``, by the monotonic clock."""
        if ends_at is None and definition.is_simple:
            return simple_attempt(definition, ctx, wait=self._wait)
        if ends_at is None:
            steps = attempt_steps(definition, ctx, construct=self._construct())
            return drive_attempt(steps, ctx, wait=self._wait, after_call=self._after_call)

        def seconds_left() -> float:
            return ends_at - self._clock.monotonic()

        steps = attempt_steps(
            definition, ctx, construct=self._construct(), is_late=lambda: seconds_left() <= 0
        )
        try:
            return drive_attempt(
                steps, ctx, wait=lambda awaitable: self._wait(awaitable, seconds_left())
            )
        except Stopped:
            hooks = after_hooks(definition, ctx, timeout_failure(definition, ctx))
            return drive_attempt(hooks, ctx, wait=self._wait)

    def call_after_hooks(self, definition: Definition, ctx: RunContext, outcome: Outcome) -> None:
        """Call the hooks of an attempt that another process made."""
        drive_attempt(after_hooks(definition, ctx, outcome), ctx, wait=self._wait)

    def close(self) -> None:
        """Close the event loop of this thread. The next coroutine gets a new one."""
        loop: PrivateLoop | None = getattr(self._local, "loop", None)
        if loop is not None:
            loop.close()

    def _wait(self, awaitable: Awaitable[Any], seconds: float | None = None) -> Any:
        loop = getattr(self._local, "loop", None)
        if loop is None:
            # A process without coroutines does not load asyncio.
            from tickwork.engines.event_loop import PrivateLoop  # noqa: PLC0415

            loop = self._local.loop = PrivateLoop()
        return loop.wait(awaitable, seconds)
