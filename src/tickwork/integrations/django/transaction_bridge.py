"""Calls of coroutines, in the transaction in which the ORM's async methods take part.

Django executes the synchronous code of a coroutine in one thread. If that thread has begun a
transaction, as that of a ``TestCase`` has, calls of tickwork belong there, too.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async

from tickwork._dispatch.thread_bridge import ThreadBridge, as_awaitable
from tickwork.integrations.django.store import DjangoStore

Q = ParamSpec("Q")
T = TypeVar("T")

_OUTSIDE: Final = object()


class TransactionBridge(ThreadBridge):
    """Makes calls in the thread of Django's transaction; without one, in threads of its own."""

    def __init__(self, store: DjangoStore) -> None:
        super().__init__(lambda: store.connections_max)
        self._store = store

    async def call(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Call ``work`` in the thread of the transaction, or else in the pool."""
        done = await self._call_inside(work, *args, **kwargs)
        if done is _OUTSIDE:
            return await as_awaitable(super().submit(work, *args, **kwargs))
        return cast("T", done)

    async def call_in_new_thread(
        self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T:
        """Call ``work`` in the thread of the transaction, or else in one of its own."""
        done = await self._call_inside(work, *args, **kwargs)
        if done is _OUTSIDE:
            return await super().call_in_new_thread(work, *args, **kwargs)
        return cast("T", done)

    def submit(self, work: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> Future[T]:
        """Begin :meth:`call`, for a coroutine."""
        call = self.call(work, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(call, asyncio.get_running_loop())

    @property
    def is_in_transaction(self) -> bool:
        """Whether this thread has begun a transaction with Django."""
        return self._store.caller_transaction is not None

    async def _call_inside(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
        def call() -> Any:
            self._store.check_access()
            return work(*args, **kwargs) if self.is_in_transaction else _OUTSIDE

        return await sync_to_async(call)()
