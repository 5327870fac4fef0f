"""The functions that a program runs when its worker starts and stops."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from tickwork._handlers.lifecycle import Lifecycle

STOP_HOOK_SECONDS: Final = 10.0
"""How long a coroutine of ``on_worker_stop`` may take, because a handler may block the loop."""


@runtime_checkable
class LoopEngine(Protocol):
    """The engine of coroutines."""

    def wait(self, awaitable: Awaitable[Any], seconds: float | None = None) -> Any:
        """Run an awaitable on the loop of the handlers, and return its result."""
        ...


class LifecycleHooks:
    """Calls ``on_worker_start`` before anything is claimed, ``on_worker_stop`` after the end."""

    name = "hooks"

    def __init__(self, lifecycle: Lifecycle, coroutines: LoopEngine) -> None:
        self._lifecycle = lifecycle
        self._wait = coroutines.wait
        self._has_started = False

    def start(self) -> None:
        """Call the start hooks.

        Raises:
            WorkerStartFailed: One of them raised an exception.
        """
        self._lifecycle.call_start(self._wait)
        self._has_started = True

    def stop(self) -> None:
        if self._has_started:
            self._lifecycle.call_stop(partial(self._wait, seconds=STOP_HOOK_SECONDS))

    def find_problem(self) -> str:
        return ""
