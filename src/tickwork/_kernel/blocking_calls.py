"""Calls that block, for coroutines: in threads of their own, not in those of the event loop."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tickwork._kernel.fork import reset_after_fork

THREADS_MAX: Final = 4
"""More calls than this wait for each other: each takes a connection of the store."""

T = TypeVar("T")


class BlockingCalls:
    """A small thread pool, which is created at the first call, and again in a forked child."""

    def __init__(self) -> None:
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without threads: those of the parent do not exist here."""
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Call ``work`` in the pool, and await its result."""
        import asyncio  # noqa: PLC0415  # a program without coroutines does not load it

        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="tickwork-save")
            future = self._pool.submit(work)
        return await asyncio.wrap_future(future)


def blocks_event_loop() -> bool:
    """Whether this thread runs an event loop now, so that a call that blocks stops it."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
