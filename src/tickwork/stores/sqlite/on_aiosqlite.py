"""A caller's aiosqlite connection: a plain one, in a thread of its own.

A verb is one hop to that thread, and not one for each statement: nobody else's statement gets in
between, and what is called off is undone over there, whatever becomes of who waits for it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tickwork.stores._sql.borrowed import SqlAsyncRuns
from tickwork.stores._sql.sessions import is_async_session, underneath_async
from tickwork.stores._sql.statement import Operation
from tickwork.stores.sqlite.borrowed import is_aiosqlite, wrong

if TYPE_CHECKING:
    from tickwork.stores.sqlite.store import SqliteStore

T = TypeVar("T")


class AiosqliteRuns(SqlAsyncRuns):
    """The verbs that programs need, on a caller's async connection."""

    def __init__(self, lent: object, *, store: "SqliteStore") -> None:
        super().__init__(store.query)
        self._lent = lent
        self._store = store
        if not is_async_session(lent):
            self._check(lent)

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._check(await underneath_async(self._lent))
        called_off = threading.Event()

        def unless_called_off() -> Operation[T]:
            result = yield from begin()
            if called_off.is_set():
                raise _CalledOff
            return result

        def act() -> T:
            lent = self._store.using(connection._conn)  # noqa: SLF001  # as below
            return lent._write(unless_called_off)  # noqa: SLF001  # of this package

        # All that aiosqlite does goes this way; it has no other for more than one statement.
        acting: asyncio.Task[T] = asyncio.ensure_future(connection._execute(act))  # noqa: SLF001
        # An error over there need not be heard by whoever has called it off.
        acting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(acting)
        except asyncio.CancelledError:
            called_off.set()
            await asyncio.wait([acting])  # so that the connection is as it was
            raise

    def _check(self, found: object) -> Any:
        if is_aiosqlite(found):
            return found
        raise wrong(self._lent, found, self._store.url)


class _CalledOff(Exception):  # noqa: N818  # never leaves this module
    """Whoever asked for it does not want it any more: undo it."""
