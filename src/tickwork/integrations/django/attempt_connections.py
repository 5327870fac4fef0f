"""Keeps Django's connections in order around every attempt.

A worker has no requests, at whose beginning and end Django closes connections that are broken or
too old. So each attempt does it. In a transaction of the caller, as in a ``TestCase``, a failed
statement of a handler must not spoil the transaction: the attempt gets a savepoint.
"""

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import connections

from tickwork._engines.local.event_loop import limit_time
from tickwork._handlers.context import RunContext

_ABORTED: Final = 3  # libpq's PQTRANS_INERROR


def use_connections(ctx: RunContext) -> Iterator[None]:  # noqa: ARG001  # a middleware
    """Check the connections of this thread before and after an attempt."""
    savepoints = _begin()
    try:
        yield
    finally:
        _end(savepoints)


async def use_connections_async(ctx: RunContext) -> AsyncIterator[None]:  # noqa: ARG001  # as above
    """Give the synchronous code of a coroutine a thread of its own, and close its connections.

    Without it, all coroutines of a worker share one thread and its connections.
    """
    async with ThreadSensitiveContext():
        try:
            yield
        finally:
            await sync_to_async(connections.close_all)()


def run_in_this_thread(awaitable: Awaitable[Any], seconds: float | None) -> Any:
    """Run a coroutine to its end. Its synchronous code runs in the calling thread.

    So it uses the connections of the calling thread, and takes part in its transaction.
    """
    return async_to_sync(_limit_time)(awaitable, seconds)


async def _limit_time(awaitable: Awaitable[Any], seconds: float | None) -> Any:
    # An async middleware stays open from one call to the next; the loop of one call would close
    # it at its end.
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
    return await limit_time(awaitable, seconds)


def _begin() -> list[tuple[Any, str]]:
    """Close what cannot be used; return a savepoint for each connection with a transaction."""
    savepoints = []
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            savepoints.append((connection, connection.savepoint()))
        else:
            _close_if_stale(connection)
    return savepoints


def _end(savepoints: list[tuple[Any, str]]) -> None:
    for connection, savepoint in savepoints:
        if connection.connection is None:
            continue  # it was closed in the transaction: Django reports that
        if connection.needs_rollback or _is_aborted(connection):
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)
        connection.savepoint_commit(savepoint)
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            _close_if_stale(connection)
            if connection.connection is not None:
                _this_thread.connections.add(connection)


class _ThreadConnections:
    """The connections that stay open between the attempts in one thread."""

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}

    def add(self, connection: Any) -> None:
        self._found[id(connection)] = connection

    def __del__(self) -> None:
        for connection in self._found.values():
            with suppress(Exception):
                connection.close()


class _ThreadEnd(threading.local):
    """Closes the connections of a thread when it ends. Only the thread itself can close them."""

    def __init__(self) -> None:
        self.connections = _ThreadConnections()


_this_thread: Final = _ThreadEnd()


def _close_if_stale(connection: Any) -> None:
    if connection.connection is not None and not connection.autocommit:
        connection.close()  # an open transaction of the attempt is rolled back
    else:
        connection.close_if_unusable_or_obsolete()


def _is_aborted(connection: Any) -> bool:
    if connection.vendor != "postgresql":
        return False
    return int(connection.connection.info.transaction_status) == _ABORTED
