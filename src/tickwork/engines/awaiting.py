"""Coroutines for whoever has no loop: one of its own, kept from one to the next."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Final
from weakref import finalize

from tickwork._kernel.fork import reset_after_fork
from tickwork.engines.invoke import Stopped

_left_to_parents: Final[list[asyncio.Runner]] = []


class Waiter:
    """Runs what is awaitable to its end, in this thread."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._in_use = threading.Lock()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Leave the loop to the parent: to close it here would tear at the parent's."""
        if self._runner is not None:
            _left_to_parents.append(self._runner)
        self._runner = None
        self._in_use = threading.Lock()

    def wait(self, what: Awaitable[Any], seconds: float | None) -> Any:
        """Its result.

        Raises:
            Stopped: It took longer than so many seconds, and was cancelled.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(what, seconds)
        # Somebody calls us from a coroutine: their loop cannot run ours.
        return _elsewhere(lambda: asyncio.run(_within(what, seconds)))

    def close(self) -> None:
        """End the loop. The next coroutine gets a new one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _run(self, what: Awaitable[Any], seconds: float | None) -> Any:
        if not self._in_use.acquire(blocking=False):
            return asyncio.run(_within(what, seconds))  # another thread has the loop
        try:
            if self._runner is None:
                self._runner = asyncio.Runner()
                # Whoever forgets to close us leaves no loop behind.
                finalize(self, _close, self._runner.get_loop(), os.getpid()).atexit = False
            return self._runner.run(_within(what, seconds), context=copy_context())
        finally:
            self._in_use.release()


def _close(loop: asyncio.AbstractEventLoop, pid: int) -> None:
    if os.getpid() == pid and not loop.is_running():
        loop.close()


async def _within(what: Awaitable[Any], seconds: float | None) -> Any:
    if seconds is None:
        return await what
    try:
        async with asyncio.timeout(max(seconds, 0)) as limit:
            return await what
    except TimeoutError:
        if limit.expired():
            raise Stopped from None
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
