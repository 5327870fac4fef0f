"""A limit on the time of reads: the database ends a read that takes longer.

Pages use it, so that they cannot slow down the workers.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Final


class ReadLimit:
    """How long the reads of one block may take together, counted from its beginning."""

    def __init__(self, length: timedelta) -> None:
        self.length = length
        self._until = time.monotonic() + length.total_seconds()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    @property
    def left(self) -> timedelta:
        """The rest, at least a millisecond: databases understand zero as no limit."""
        seconds = self._until - time.monotonic()
        return max(timedelta(seconds=seconds), timedelta(milliseconds=1))


_current: Final[ContextVar[ReadLimit | None]] = ContextVar("tickwork_read_limit", default=None)


@contextmanager
def limit_reads(length: timedelta) -> Iterator[None]:
    """Limit the reads of this thread or task until the end of the block."""
    token = _current.set(ReadLimit(length))
    try:
        yield
    finally:
        _current.reset(token)


def current_read_limit() -> ReadLimit | None:
    return _current.get()
