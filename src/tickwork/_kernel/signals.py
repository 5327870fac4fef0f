"""Calls a function on SIGTERM and SIGINT, in a separate thread."""

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
"""Two signals of the same kind within this many seconds count as one."""

_STOP: Final = b"s"
_END: Final = b"e"


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on the first SIGTERM or SIGINT in the block. A second one ends the process.

    A second signal within SAME_WITHIN does not count: a terminal signals the whole process
    group, and the parent process forwards the signal to its children, too.

    A signal handler interrupts the main thread anywhere, so it must not take a lock. It only
    writes a byte to a pipe, and a thread that reads the pipe calls ``stop``. In other threads
    than the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    thread = threading.Thread(
        target=_wait, args=(reader, stop), name="tickwork-signals", daemon=True
    )
    thread.start()

    received_at: dict[int, float] = {}

    def handle(number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if number not in received_at:
            received_at[number] = now
            os.write(writer, _STOP)
        elif now - received_at[number] >= SAME_WITHIN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: the previous handler was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.write(writer, _END)
        thread.join(timeout=5)
        os.close(reader)
        os.close(writer)


def _wait(reader: int, stop: Callable[[], None]) -> None:
    while os.read(reader, 1) == _STOP:
        stop()
