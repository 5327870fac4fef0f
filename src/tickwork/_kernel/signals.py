"""Calls a function on SIGTERM, SIGINT and SIGHUP, in a separate thread."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from tickwork._kernel.fork import reset_after_fork

STOPPING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
"""The signals that stop a worker. SIGHUP comes when a terminal is closed."""
SAME_WITHIN: Final = 0.5
"""Two signals of the same kind within this many seconds count as one."""


def stopping_signals() -> list[signal.Signals]:
    """The signals to handle. SIGHUP is ignored below ``nohup``, and then stays ignored."""
    return [
        number
        for number in STOPPING
        if number in {signal.SIGTERM, signal.SIGINT}
        or signal.getsignal(number) is not signal.SIG_IGN
    ]


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on the first signal of STOPPING in the block. A second one ends the process.

    A second signal within SAME_WITHIN does not count: a terminal signals the whole process
    group, and the parent process forwards the signal to its children, too.

    In other threads than the main thread this does nothing. Forked processes have the signal
    handlers that were set before the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _StopHandler(stop)
    handler.install()
    try:
        yield
    finally:
        handler.remove()


class _StopHandler:
    """Signal handlers that put a request into a queue, and a thread that takes it.

    A signal handler interrupts the main thread anywhere, so it must not take a lock: this kind of
    queue has none, and unlike a pipe it has no descriptors that a handler of a job could close.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._requests: SimpleQueue[bool] = SimpleQueue()  # True: stop; False: end the thread
        self._thread = threading.Thread(
            target=_wait, args=(self._requests, stop), name="tickwork-signals", daemon=True
        )
        self._received_at: dict[int, float] = {}
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        self._thread.start()
        reset_after_fork(self)
        for number in stopping_signals():
            self._before[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        if not self._before:
            return  # a forked process
        self._restore()
        self._requests.put(False)
        self._thread.join(timeout=5)

    def after_fork(self) -> None:
        """Do not stop the parent when a forked process gets a signal."""
        if self._before:
            self._restore()

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if number not in self._received_at:
            self._received_at[number] = now
            self._requests.put(True)
        elif now - self._received_at[number] >= SAME_WITHIN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        before, self._before = self._before, {}
        for number, handler in before.items():
            # None: the previous handler was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _wait(requests: "SimpleQueue[bool]", stop: Callable[[], None]) -> None:
    while requests.get():
        stop()
