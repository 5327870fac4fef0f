"""Waiting that ends early when there is something to do."""

import random
from threading import Condition, RLock


class Wakeup:
    """A signal for threads that wait. A signal that arrives while none waits is kept."""

    def __init__(self) -> None:
        lock = RLock()
        self._condition = Condition(lock)
        self._idle_condition = Condition(lock)
        self._waiting = 0
        self.count = 0
        """The number of signals. Passed to :meth:`wait`, it ends with the first signal after it."""
        self.new_work_count = 0
        """How often :meth:`notify_new_work` was called."""
        self.is_stopped = False

    def notify(self) -> None:
        """Wake one thread: outcomes can be written, or slots are free."""
        # Engines call this after most attempts, and it costs nothing while no thread waits. A
        # thread that starts to wait registers itself before it reads the count, so one of the
        # two sees the other. Of two concurrent calls one may be lost, which does no harm.
        self.count += 1
        if self._waiting:
            with self._condition:
                self._condition.notify()  # one is enough: it notifies others when it needs them

    def notify_new_work(self) -> None:
        """Wake one thread: the database may have new runs."""
        self.new_work_count += 1  # if two calls coincide, one may be lost; the count still changes
        self.notify()

    def stop(self) -> None:
        """Wake all threads. From now on no wait takes any time."""
        with self._condition:
            self.is_stopped = True
            self.count += 1
            self._condition.notify_all()
            self._idle_condition.notify_all()

    def wait_for_idle(self, seconds: float) -> bool:
        """Wait until a thread waits for a signal; False when the time was up first.

        While no thread waits, a signal changes nothing.
        """
        with self._idle_condition:
            return self._idle_condition.wait_for(
                lambda: self._waiting > 0 or self.is_stopped, seconds
            )

    def wait(self, since: int, seconds: float) -> bool:
        """Wait for a signal after the count was ``since``; False when the time was up first."""
        with self._condition:
            self._waiting += 1
            self._idle_condition.notify_all()
            try:
                return self._condition.wait_for(
                    lambda: self.count != since or self.is_stopped, max(seconds, 0)
                )
            finally:
                self._waiting -= 1


class Backoff:
    """Doubling waits with jitter, up to a limit."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def seconds(self) -> float:
        length, self._next = self._next, min(self._next * 2, self._longest)
        return length * random.uniform(0.5, 1)  # noqa: S311  # not a secret

    def reset(self) -> None:
        self._next = self._first
