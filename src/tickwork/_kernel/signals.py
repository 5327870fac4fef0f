"""SIGTERM and SIGINT, turned into one call, in a thread of its own."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_TOLD: Final = b"t"
_OVER: Final = b"o"


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """In the block the first SIGTERM or SIGINT calls ``stop``; the next of its kind ends us.

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

    def told(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.write(writer, _TOLD)

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
