"""Creates ids that sort by their time of creation. The domain never calls this.

UUIDs of version 7, as text. Ordered ids keep inserts at one end of an index, and let age
break ties between runs that are due together. Layout (RFC 9562, method 3)::

    milliseconds since 1970 (48) | 7 | part of the millisecond (12) | 1000 | random (60)
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOW: Final = 48
_LOW_MASK: Final = (1 << _LOW) - 1


class _Tails:
    """The last 60 bits of ids: random at first, then counting up within one microsecond.

    So the ids of one process sort by creation, also when a test has stopped the clock.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._head = ""
        self._next = 0

    def take(self, head: str, count: int) -> int:
        """Reserve ``count`` consecutive tails and return the first one."""
        with self._lock:
            if head != self._head:
                self._head = head
                # Not `random`: a forked child shares its state with the parent. The top bit
                # stays free, so that counting up cannot overflow.
                self._next = int.from_bytes(os.urandom(8)) >> 5
            first = self._next
            self._next += count
            return first

    def forget(self) -> None:
        """Start again: a forked child must not continue the sequence of its parent."""
        self._lock = Lock()
        self._head = ""


_tails = _Tails()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tails.forget)


def new_id(now: datetime) -> str:
    """Create one id. It is greater than all earlier ids of this process and moment.

    >>> from datetime import UTC, datetime
    >>> new_id(datetime(2026, 1, 1, tzinfo=UTC))[:20]
    '019b76da-a800-7000-8'
    """
    head = _head(now)
    tail = f"{_tails.take(head, 1):015x}"
    return f"{head}-8{tail[:3]}-{tail[3:]}"


def new_ids(now: datetime, count: int) -> Sequence[str]:
    """Create many ids at once, in ascending order. This is faster than one by one."""
    head = _head(now)
    first = _tails.take(head, count)
    last = first + count - 1
    if first >> _LOW == last >> _LOW:
        form = f"{head}-8{first >> _LOW:03x}-%012x"
        low = first & _LOW_MASK
        return list(map(form.__mod__, range(low, low + count)))
    return [f"{head}-8{n >> _LOW:03x}-{n & _LOW_MASK:012x}" for n in range(first, last + 1)]


def first_id(moment: datetime) -> str:
    """The smallest id that can be created at this moment.

    >>> from datetime import UTC, datetime
    >>> first_id(datetime(2026, 1, 1, tzinfo=UTC))
    '019b76da-a800-7000-8000-000000000000'
    """
    return f"{_head(max(moment, _EPOCH))}-8000-000000000000"


def time_of_id(text: str) -> datetime | None:
    """The millisecond in an id; None if the text is no id.

    >>> time_of_id("019b76da-a800-7000-8000-000000000000").isoformat()
    '2026-01-01T00:00:00+00:00'
    """
    try:
        return _EPOCH + timedelta(milliseconds=int(text[:8] + text[9:13], 16))
    except (ValueError, OverflowError):
        return None


def _head(now: datetime) -> str:
    age = now - _EPOCH
    milli, micro = divmod(age.microseconds, 1000)
    text = f"{(age.days * 86_400 + age.seconds) * 1000 + milli:012x}"
    return f"{text[:8]}-{text[8:]}-7{micro * 4096 // 1000:03x}"
