"""A caller's aiosqlite connection: a plain one, in a thread of its own.

A verb is one hop to that thread, and not one for each statement: nobody else's statement gets in
between, and what is called off is undone over there, whatever becomes of who waits for it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tickwork.stores._sql.caller_connection import SqlAsyncRuns
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.sessions import async_driver_connection, is_async_session
from tickwork.stores._sql.statement import Operation
from tickwork.stores._sql.store import SqlStore
from tickwork.stores.sqlite.caller_connection import is_aiosqlite, wrong

T = TypeVar("T")


class AiosqliteRuns(SqlAsyncRuns):
    """The verbs that programs need, on a caller's async connection."""

    def __init__(
        self, lent: object, *, query: Queries, url: str, using: Callable[[object], SqlStore]
    ) -> None:
        super().__init__(query)
        self._lent = lent
        self._url = url
        self._using = using  # gives a store on a plain connection
        if not is_async_session(lent):
            self._check(lent)

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._check(await async_driver_connection(self._lent))
        is_canceled = threading.Event()

        def operation() -> Operation[T]:
            result = yield from begin()
            if is_canceled.is_set():
                raise _OperationCanceled
            return result

        def act() -> T:
            lent = self._using(connection._conn)  # noqa: SLF001  # as below
            return lent._write(operation)  # noqa: SLF001  # of this package

        # All that aiosqlite does goes this way; it has no other for more than one statement.
        acting: asyncio.Task[T] = asyncio.ensure_future(connection._execute(act))  # noqa: SLF001
        # An error over there need not be heard by whoever has called it off.
        acting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(acting)
        except asyncio.CancelledError:
            is_canceled.set()
            await asyncio.wait([acting])  # so that the connection is as it was
            raise

    def _check(self, found: object) -> Any:
        if is_aiosqlite(found):
            return found
        raise wrong(self._lent, found, self._url)


class _OperationCanceled(Exception):  # noqa: N818  # never leaves this module
    """Whoever asked for it does not want it any more: undo it."""
