"""A connection pool that survives a fork."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar


class PooledConnection(Protocol):
    @property
    def is_reusable(self) -> bool: ...

    def is_alive(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=PooledConnection)

_inherited: Final[list[PooledConnection]] = []
"""Connections inherited by a fork. Closing one would end the session of the parent process."""

_pools: Final["weakref.WeakSet[Pool[Any]]"] = weakref.WeakSet()


class PoolExhausted(Exception):  # noqa: N818  # internal
    """All connections were in use until the timeout."""


class Pool(Generic[C]):
    """At most ``size`` connections, opened on demand. The one used last is reused first.

    Its caches are warm, on the client and on the server; connections that are no longer needed
    stay at the bottom of the stack.
    """

    def __init__(self, connect: Callable[[], C], *, size: int, timeout: timedelta) -> None:
        self._connect = connect
        self._size = size
        self._timeout = timeout
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._free: list[C] = []
        self._places = threading.BoundedSemaphore(self._size)
        self._epoch = 0

    @contextmanager
    def acquire(self, *, timeout: timedelta | None = None) -> Iterator[C]:
        """A connection for one operation. A broken one is closed and not used again."""
        if not self._places.acquire(timeout=(timeout or self._timeout).total_seconds()):
            raise PoolExhausted
        try:
            epoch = self._epoch
            connection = self._take_alive() or self._connect()
            try:
                yield connection
            finally:
                if epoch == self._epoch and connection.is_reusable:
                    self._free.append(connection)
                else:
                    connection.close()
        finally:
            self._places.release()

    def clear(self) -> None:
        """Close the free connections now, and those in use when they are returned."""
        self._epoch += 1
        # Ends: connections of an older epoch are not returned to the pool.
        while (connection := self._pop()) is not None:
            connection.close()

    def _take_alive(self) -> C | None:
        while (connection := self._pop()) is not None:
            if connection.is_alive():
                return connection
            connection.close()
        return None

    def _pop(self) -> C | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _after_fork(self) -> None:
        _inherited.extend(self._free)
        self._reset()


def _after_fork() -> None:
    for pool in _pools:
        pool._after_fork()  # noqa: SLF001  # of this very module


# The child process has a single thread, and nothing else has run in it yet.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
