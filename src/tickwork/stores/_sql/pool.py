"""A few connections, lent to one thread at a time; and what becomes of them after a fork."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar


class Pooled(Protocol):
    """What a pool asks of a connection."""

    @property
    def is_whole(self) -> bool:
        """Whether the last round trip came to its end."""
        ...

    def is_alive(self) -> bool:
        """Whether the server is still there, as far as can be told without a round trip."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


C = TypeVar("C", bound=Pooled)

_left_to_parents: Final[list[Pooled]] = []
"""Connections that came with a fork. To close one would end the parent's session."""

_pools: Final["weakref.WeakSet[Pool[Any]]"] = weakref.WeakSet()


class Exhausted(Exception):  # noqa: N818  # never leaves this package
    """All connections were in use for longer than we were ready to wait."""


class Pool(Generic[C]):
    """At most ``size`` connections, opened when needed, the last one used lent first.

    What was lent last is warm, on both sides; and what nobody needs any more grows old
    together, at the bottom.
    """

    def __init__(self, connect: Callable[[], C], *, size: int, patience: timedelta) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._free: list[C] = []
        self._places = threading.BoundedSemaphore(self._size)
        self._epoch = 0

    @contextmanager
    def lent(self) -> Iterator[C]:
        """A connection for one operation. One that broke meanwhile is not lent again."""
        if not self._places.acquire(timeout=self._patience.total_seconds()):
            raise Exhausted
        try:
            epoch = self._epoch
            connection = self._taken() or self._connect()
            try:
                yield connection
            finally:
                if epoch == self._epoch and connection.is_whole:
                    self._free.append(connection)
                else:
                    connection.close()
        finally:
            self._places.release()

    def clear(self) -> None:
        """Close what nobody uses now, and what is lent as soon as it comes back."""
        self._epoch += 1
        # It ends when there is none left: none is put back any more.
        while (connection := self._popped()) is not None:
            connection.close()

    def _taken(self) -> C | None:
        # It ends at the bottom of the stack.
        while (connection := self._popped()) is not None:
            if connection.is_alive():
                return connection
            connection.close()
        return None

    def _popped(self) -> C | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _after_fork(self) -> None:
        _left_to_parents.extend(self._free)
        self._begin()


def _after_fork() -> None:
    for pool in _pools:
        pool._after_fork()  # noqa: SLF001  # of this very module


# In the child there is but one thread, and nothing else has run yet.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
