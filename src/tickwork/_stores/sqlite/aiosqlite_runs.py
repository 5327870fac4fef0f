"""Runs operations on a caller's aiosqlite connection, which is a plain one in a thread of its own.

An operation is one call to that thread, not one for each statement. So no other statement of the
caller runs in between, and a canceled operation is rolled back in the thread, whatever happens to
the task that awaits it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tickwork._stores._sql.caller_connection import SqlAsyncRuns
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.sessions import async_driver_connection, is_async_session
from tickwork._stores._sql.statement import Operation
from tickwork._stores._sql.store import SqlStore
from tickwork._stores.sqlite.caller_connection import is_aiosqlite, wrong_connection_error

T = TypeVar("T")


class AiosqliteRuns(SqlAsyncRuns):
    def __init__(
        self, connection: object, *, query: Queries, url: str, using: Callable[[object], SqlStore]
    ) -> None:
        super().__init__(query)
        self._caller_connection = connection
        self._url = url
        self._using = using
        if not is_async_session(connection):
            self._check(connection)

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._check(await async_driver_connection(self._caller_connection))
        is_canceled = threading.Event()

        def operation(_: Queries) -> Operation[T]:
            result = yield from begin()
            if is_canceled.is_set():
                raise _OperationCanceled
            return result

        def run() -> T:
            store = self._using(connection._conn)  # noqa: SLF001  # as below
            return store._write(operation)  # noqa: SLF001  # of this package

        # aiosqlite has no public method that runs a function in its thread.
        running: asyncio.Task[T] = asyncio.ensure_future(connection._execute(run))  # noqa: SLF001
        # After a cancellation no task retrieves an error of the thread.
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            is_canceled.set()
            await asyncio.wait([running])  # until the operation is rolled back
            raise

    def _check(self, inner: object) -> Any:
        if is_aiosqlite(inner):
            return inner
        raise wrong_connection_error(self._caller_connection, inner, self._url)


class _OperationCanceled(Exception):  # noqa: N818  # internal
    """The awaiting task was canceled: roll back."""
