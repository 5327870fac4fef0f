"""Makes ids that sort by the time they were made. Called at the edges, never by the domain.

UUIDs of version 7, as text. Ordered ids keep inserts at one end of an index, and let age
break ties between runs that are due together. Layout (RFC 9562, method 3)::

    milliseconds since 1970 (48) | 7 | part of the millisecond (12) | 1000 | random (60)
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_id(now: datetime) -> str:
    """Make one id. Of two ids made a microsecond apart, the later one is greater.

    >>> from datetime import UTC, datetime
    >>> new_id(datetime(2026, 1, 1, tzinfo=UTC))[:20]
    '019b76da-a800-7000-8'
    """
    # os.urandom and not `random`: a forked child shares the parent's generator, and
    # would hand out the parent's next ids.
    noise = os.urandom(8).hex()
    return f"{_head(now)}-8{noise[:3]}-{noise[4:]}"


def new_ids(now: datetime, count: int) -> Sequence[str]:
    """Make many ids at once, in ascending order, at a seventh of the price.

    They share one random head. The last 48 bits count up from a random start, which lies
    in the lower half so that no count can run over.
    """
    noise = os.urandom(8).hex()
    start = int(noise[4:], 16) >> 1
    form = f"{_head(now)}-8{noise[:3]}-%012x"
    return list(map(form.__mod__, range(start, start + count)))


def _head(now: datetime) -> str:
    age = now - _EPOCH
    milli, micro = divmod(age.microseconds, 1000)
    text = f"{(age.days * 86_400 + age.seconds) * 1000 + milli:012x}"
    return f"{text[:8]}-{text[8:]}-7{micro * 4096 // 1000:03x}"
