"""Functions that a worker calls when it starts and when it stops."""

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable, signature
from typing import Any, Final, TypeAlias

from tickwork._handlers.handlers import path_of
from tickwork.errors import DefinitionError, WorkerStartFailed

_log: Final = logging.getLogger("tickwork.worker")

WaitForHook: TypeAlias = Callable[[Awaitable[Any]], Any]
"""Runs an awaitable on the loop of the coroutine handlers."""


class Lifecycle:
    """The start hooks in their order, and the stop hooks, which are called in reverse order."""

    def __init__(self) -> None:
        self._start: tuple[Callable[[], Any], ...] = ()
        self._stop: tuple[Callable[[], Any], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self._start and not self._stop

    def add_start(self, hook: Callable[[], Any]) -> None:
        _check("on_worker_start", hook)
        self._start = (*self._start, hook)

    def add_stop(self, hook: Callable[[], Any]) -> None:
        _check("on_worker_stop", hook)
        self._stop = (*self._stop, hook)

    def call_start(self, wait: WaitForHook) -> None:
        """Call the start hooks.

        Raises:
            WorkerStartFailed: One of them raised an exception. The others were not called.
        """
        for hook in self._start:
            try:
                _call(hook, wait)
            except Exception as error:
                raise WorkerStartFailed(
                    path_of(hook), f"{type(error).__name__}: {error}"
                ) from error

    def call_stop(self, wait: WaitForHook) -> None:
        """Call the stop hooks. Their exceptions are logged."""
        for hook in reversed(self._stop):
            try:
                _call(hook, wait)
            except Exception:  # noqa: BLE001  # the other hooks must be called
                _log.exception("The function %s failed while the worker stopped.", path_of(hook))


def _call(hook: Callable[[], Any], wait: WaitForHook) -> None:
    value = hook()
    if isawaitable(value):
        wait(value)


def _check(kind: str, hook: Any) -> None:
    if not callable(hook):
        raise DefinitionError(f"{kind} needs a function, got {type(hook)!r}.")
    try:
        signature(hook).bind()
    except TypeError:
        raise DefinitionError(
            f"{path_of(hook)} cannot be called by {kind}: it must take no arguments."
        ) from None
