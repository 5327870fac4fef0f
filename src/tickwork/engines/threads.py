"""Attempts in threads of this process: the engine for plain functions."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tickwork._domain.run import Claim

_log: Final = logging.getLogger("tickwork.worker")


class ThreadEngine:
    """Threads that take claims from one shared deque, so that nothing sticks behind a slow one.

    ``make`` makes one attempt and hands over what came of it. ``call`` is told when the deque
    has run dry, or enough has been done to be worth a write. While ``is_quick``, one thread
    makes them all: several would pass the interpreter's lock around, and take it from whoever
    fetches the next. Should that one get stuck, :meth:`nudge` has the others help.
    """

    def __init__(
        self,
        *,
        slots: int,
        make: Callable[[Claim], None],
        call: Callable[[], None],
        done: Callable[[], int],
        write_at: int = 250,
        is_quick: Callable[[], bool] = lambda: False,
    ) -> None:
        self._slots = slots
        self._make = make
        self._call = call
        self._done = done
        self._write_at = write_at
        self._is_quick = is_quick
        self._first: Claim | None = None  # what was next when somebody looked
        self._ready: deque[Claim] = deque()
        self._condition = threading.Condition()
        self._idle = 0
        self._alive = 0
        self._names = 0
        self._is_stopped = False
        self._making: dict[int, Claim] = {}  # by thread

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
        return self._alive - self._idle

    def start(self) -> None:
        """Nothing yet: each thread starts when it is first needed."""

    def submit(self, claims: Sequence[Claim]) -> None:
        """Take these: they start in this order, as soon as there is room."""
        self._ready.extend(claims)
        if not self._is_quick():
            self._wake(len(self._ready))
        elif not self.running:
            self._wake(1)

    def nudge(self) -> None:
        """See that claims which wait are not stuck behind a slow one."""
        try:
            first = self._ready[0]
        except IndexError:
            return
        if first is self._first:
            self._wake(len(self._ready))
        self._first = first

    def _wake(self, wanted: int) -> None:
        with self._condition:
            missing = min(wanted, self._slots) - self._idle
            for _ in range(max(min(missing, self._slots - self._alive), 0)):
                if not self._add_thread():
                    break
            if self._idle:
                self._condition.notify(min(self._idle, wanted))

    def take_back(self) -> list[Claim]:
        """Give back what has not started."""
        taken: list[Claim] = []
        while True:  # ends when the deque is empty: whoever fills it has been stopped
            try:
                taken.append(self._ready.popleft())
            except IndexError:
                return taken

    def interrupt(self) -> list[Claim]:
        """Threads cannot be ended from outside: all that are being made go on."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        return self.unfinished()

    def unfinished(self) -> list[Claim]:
        """The claims whose attempts are being made now."""
        return list(self._making.values())

    def stop(self) -> None:
        """Let the threads leave as soon as they are idle."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def _add_thread(self) -> bool:
        # Daemons: a handler that never returns must not keep a process that shall end.
        name = f"tickwork-{self._names}"
        thread = threading.Thread(target=self._work, args=(self._names,), name=name, daemon=True)
        self._alive += 1  # first: what it takes at once must not seem to have vanished
        try:
            thread.start()
        except RuntimeError:
            self._alive -= 1
            if not self._alive:
                raise
            # The system has no more to give. Those that there are do the work.
            _log.warning("Only %d of %d threads can be had.", self._alive, self._slots)
            return False
        self._names += 1
        return True

    def _work(self, number: int) -> None:
        ready, make, making = self._ready, self._make, self._making
        # It ends when the engine is stopped.
        while not self._is_stopped:
            try:
                claim = ready.popleft()
            except IndexError:
                self._wait()
                continue
            making[number] = claim
            try:
                make(claim)
            except BaseException:  # noqa: BLE001  # a thread that dies would take its slot with it
                _log.exception("%s: run %s was not handed over.", claim.job, claim.run_id)
            del making[number]
            if not ready or self._done() >= self._write_at:
                self._call()
        with self._condition:
            self._alive -= 1

    def _wait(self) -> None:
        with self._condition:
            if self._ready or self._is_stopped:
                return
            self._idle += 1
            self._condition.wait_for(lambda: self._ready or self._is_stopped)
            self._idle -= 1
