"""Attempts in threads of this process: the engine for plain functions."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from tickwork._domain.run import Claim


class ThreadEngine:
    """Threads that take claims from one shared deque, so that nothing sticks behind a slow one.

    ``make`` makes one attempt and hands over what came of it. ``call`` is told when the deque
    has run dry, or enough has been done to be worth a write.
    """

    def __init__(
        self,
        *,
        slots: int,
        make: Callable[[Claim], None],
        call: Callable[[], None],
        done: Callable[[], int],
        write_at: int = 250,
    ) -> None:
        self._slots = slots
        self._make = make
        self._call = call
        self._done = done
        self._write_at = write_at
        self._ready: deque[Claim] = deque()
        self._condition = threading.Condition()
        self._idle = 0
        self._is_stopped = False
        self._threads: list[threading.Thread] = []

    @property
    def slots(self) -> int:
        """How many attempts it makes at the same time."""
        return self._slots

    @property
    def waiting(self) -> int:
        """How many claims it has that have not started."""
        return len(self._ready)

    @property
    def running(self) -> int:
        """How many attempts it is making."""
        return len(self._threads) - self._idle

    def start(self) -> None:
        """Start the threads: at most as many as there are slots, each when first needed."""

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these: they start in this order, as soon as there is room."""
        self._ready.extend(claims)
        with self._condition:
            wanted = min(len(self._ready), self._slots) - self._idle
            for _ in range(max(min(wanted, self._slots - len(self._threads)), 0)):
                self._add_thread()
            if self._idle:
                self._condition.notify(min(self._idle, len(self._ready)))

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        taken: list[Claim] = []
        while True:  # ends when the deque is empty: nobody adds to it any more
            try:
                taken.append(self._ready.popleft())
            except IndexError:
                return taken

    def interrupt(self) -> list[Claim]:
        """Threads cannot be ended from outside: they were told, and go on or not."""
        return []

    def stop(self) -> None:
        """Let the threads leave as soon as they are idle."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def _add_thread(self) -> None:
        # Daemons: a handler that never returns must not keep a process that shall end.
        thread = threading.Thread(
            target=self._work, name=f"tickwork-{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        ready, make = self._ready, self._make
        # It ends when the engine is stopped.
        while True:
            try:
                claim = ready.popleft()
            except IndexError:
                if not self._wait():
                    return
                continue
            make(claim)
            if not ready or self._done() >= self._write_at:
                self._call()

    def _wait(self) -> bool:
        with self._condition:
            if self._ready:
                return True
            if self._is_stopped:
                return False
            self._idle += 1
            self._condition.wait_for(lambda: self._ready or self._is_stopped)
            self._idle -= 1
            return True
