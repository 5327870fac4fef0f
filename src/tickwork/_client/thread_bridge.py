"""Threads for those who must not block: coroutines reach the store through them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

from tickwork._kernel.fork import reset_after_fork

Q = ParamSpec("Q")
T = TypeVar("T")

# It travels with the context, to whatever is called or awaited over there.
_IS_IN_BRIDGE: Final[ContextVar[bool]] = ContextVar("tickwork_is_in_bridge", default=False)


class ThreadBridge:
    """A few threads, as many as the store has connections: more would only wait for one.

    Made when the first one is needed, and again after :meth:`close` or in a forked child.
    Context variables travel; what is set over there stays there.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Begin without threads: those of the parent are not here."""
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Future[T]:
        """Have this done in one of the threads.

        From inside of one of them it is done apart: whoever waits for a thread in all of
        them at once would wait for good.
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
        """Have this done in a thread of its own, which ends with it.

        For work that calls handlers: it takes as long as they do, and they may hop
        themselves. Were it done in the pool, those could wait for each other for good.
        """
        call = partial(copy_context().run, work, *args, **kwargs)
        done: Future[T] = Future()
        threading.Thread(target=_carry, args=(call, done), name="tickwork-call").start()
        return done

    def close(self) -> None:
        """End the threads, after what they have begun."""
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def _carry(call: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001  # it is raised again where it is awaited
        done.set_exception(raised)
    else:
        done.set_result(result)
