"""The threads through which coroutines reach the store.

A call in a thread costs about 40 µs, so there is one call for each operation, not one for each
statement. The threads are tickwork's own; the default executor of the loop is not used.

When a task is cancelled while it waits, a call that has begun is completed as a whole, and
one that has not begun is dropped.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from tickwork._kernel.fork import reset_after_fork

if TYPE_CHECKING:
    import asyncio

Q = ParamSpec("Q")
T = TypeVar("T")

# The context is copied to the thread, and to whatever is called or awaited there.
_IS_IN_BRIDGE: Final[ContextVar[bool]] = ContextVar("tickwork_is_in_bridge", default=False)


class ThreadBridge:
    """A thread pool with as many threads as the store has connections.

    The pool is created at the first call, and again after :meth:`close` or in a forked child.
    Context variables of the caller are visible in the thread; changes made there are not
    visible to the caller.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Start without threads: those of the parent do not exist here."""
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def is_in_transaction(self) -> bool:
        """Whether calls in this thread take part in a transaction that the thread has begun."""
        return False

    async def call(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Call ``work`` in the pool, and await its result."""
        return await as_awaitable(self.submit(work, *args, **kwargs))

    async def call_in_new_thread(
        self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T:
        """Call ``work`` in a thread of its own, and await its result."""
        return await as_awaitable(self.submit_to_new_thread(work, *args, **kwargs))

    def submit(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Future[T]:
        """Call ``work`` in the pool.

        A call from inside the pool gets a thread of its own. Otherwise calls that wait for
        each other could occupy the whole pool and never end.
        """
        if _IS_IN_BRIDGE.get():
            return self.submit_to_new_thread(work, *args, **kwargs)
        context = copy_context()
        context.run(_IS_IN_BRIDGE.set, True)
        call = partial(context.run, work, *args, **kwargs)
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._size(), thread_name_prefix="tickwork-bridge")
            return self._pool.submit(call)

    def submit_to_new_thread(
        self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Future[T]:
        """Call ``work`` in a thread of its own, which ends with the call.

        This is for work that calls handlers: it takes as long as they do, and they may use
        the pool themselves.
        """
        call = partial(copy_context().run, work, *args, **kwargs)
        done: Future[T] = Future()
        threading.Thread(target=_complete, args=(call, done), name="tickwork-call").start()
        return done

    def close(self) -> None:
        """End the threads, after the calls that have begun."""
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def as_awaitable(future: Future[T]) -> "asyncio.Future[T]":
    """Make the future of a thread awaitable on the running event loop."""
    import asyncio  # noqa: PLC0415  # a program without coroutines does not load it

    return asyncio.wrap_future(future)


async def result_within(future: Future[T], limit: timedelta | None) -> T | None:
    """Wait for the future of a thread; return None if it is not done within ``limit``."""
    import asyncio  # noqa: PLC0415  # as above

    seconds = None if limit is None else limit.total_seconds()
    done, _ = await asyncio.wait([as_awaitable(future)], timeout=seconds)
    return done.pop().result() if done else None


def _complete(call: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001  # it is raised again where it is awaited
        done.set_exception(raised)
    else:
        done.set_result(result)
