"""An event loop for code that runs in a thread without one."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Final
from weakref import finalize

from tickwork._engines.attempt import Stopped
from tickwork._kernel.fork import ForkCount, exit_if_forked, reset_after_fork

_loops_of_parents: Final[list[asyncio.Runner]] = []


class PrivateLoop:
    """Runs awaitables in the calling thread. The loop is kept from one to the next."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._in_use = threading.Lock()
        reset_after_fork(self)

    def after_fork(self) -> None:
        # The loop belongs to the parent: closing it here would break the parent's selector.
        if self._runner is not None:
            _loops_of_parents.append(self._runner)
        self._runner = None
        self._in_use = threading.Lock()

    def wait(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        """Return the result of an awaitable.

        Raises:
            Stopped: It took longer than ``seconds``, and was cancelled.
        """
        if _is_loop_running():
            # The caller is a coroutine: its thread cannot run a second loop.
            return _run_in_thread(lambda: asyncio.run(limit_time(awaitable, seconds)))
        return self._run(awaitable, seconds)

    def close(self) -> None:
        """Close the loop. The next awaitable gets a new one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _run(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        if not self._in_use.acquire(blocking=False):
            return asyncio.run(limit_time(awaitable, seconds))  # another thread uses the loop
        try:
            if self._runner is None:
                self._runner = asyncio.Runner()
                # Closes the loop when the owner forgot to.
                finalize(self, _close, self._runner.get_loop(), os.getpid()).atexit = False
            return self._runner.run(limit_time(awaitable, seconds), context=copy_context())
        finally:
            self._in_use.release()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _close(loop: asyncio.AbstractEventLoop, pid: int) -> None:
    if os.getpid() == pid and not loop.is_running():
        loop.close()


async def limit_time(awaitable: Awaitable[Any], seconds: float | None) -> Any:
    """Return the result of an awaitable.

    Raises:
        Stopped: It took longer than ``seconds``, and was cancelled.
    """
    forks, is_failed = ForkCount.value, True
    try:
        async with asyncio.timeout(None if seconds is None else max(seconds, 0)) as limit:
            value = await awaitable
    except TimeoutError:
        if limit.expired():
            raise Stopped from None
        raise
    else:
        is_failed = False
        return value
    finally:
        # The loop is the parent's: from Python 3.14 on it may not end in a forked process.
        exit_if_forked(forks, is_failed=is_failed)


def _run_in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    context = copy_context()

    def call() -> None:
        try:
            results.append((True, context.run(work)))
        except BaseException as raised:  # noqa: BLE001  # raised again in the calling thread
            results.append((False, raised))

    thread = threading.Thread(target=call, name="tickwork-event-loop")
    thread.start()
    thread.join()
    is_success, value = results[0]
    if is_success:
        return value
    raise value
