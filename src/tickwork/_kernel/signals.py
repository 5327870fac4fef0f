"""SIGTERM and SIGINT, turned into one call, in a thread of its own."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
SAME_WITHIN: Final = 0.5
"""Seconds in which two signals of a kind mean the same."""

_TOLD: Final = b"t"
_OVER: Final = b"o"


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """In the block the first SIGTERM or SIGINT calls ``stop``; the next of its kind ends us.

    Unless it comes at the same moment: whoever tells a whole group of processes also tells those
    that are told by one of the group.

    A handler of signals runs between two lines of whatever the main thread does, and must
    not take a lock that this may hold. So it only writes a byte; a thread that reads it
    makes the call. Outside of the main thread nothing is done: signals go elsewhere.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    thread = threading.Thread(
        target=_wait, args=(reader, stop), name="tickwork-signals", daemon=True
    )
    thread.start()

    told_at: dict[int, float] = {}

    def told(number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if number not in told_at:
            told_at[number] = now
            os.write(writer, _TOLD)
        elif now - told_at[number] >= SAME_WITHIN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, told) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: somebody set it who does not speak Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.write(writer, _OVER)
        thread.join(timeout=5)
        os.close(reader)
        os.close(writer)


def _wait(reader: int, stop: Callable[[], None]) -> None:
    # It ends with the block.
    while os.read(reader, 1) == _TOLD:
        stop()
