"""Waiting that ends early when there is something to do."""

import random
from threading import Condition


class Wake:
    """A signal for threads that wait. One that comes while nobody waits is kept."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._count = 0
        self._waiting = 0
        self._news = 0
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether everybody shall leave."""
        return self._is_stopped

    def seen(self) -> int:
        """What to hand to :meth:`wait`: signals after this moment end the wait."""
        return self._count

    @property
    def news(self) -> int:
        """How often somebody said that there may be new work."""
        return self._news

    def call(self) -> None:
        """There is something to do with what is here."""
        # Called after most attempts while everybody is busy, and then it costs nothing. Whoever
        # starts to wait counts itself before it looks at the count, so one of us two sees the
        # other; and of two calls at once, one may well be lost.
        self._count += 1
        if self._waiting:
            with self._condition:
                self._condition.notify()  # one is enough: it calls for more when it needs them

    def tell(self) -> None:
        """There may be new work in the database."""
        self._news += 1  # one that is lost to another thread's is news all the same
        self.call()

    def stop(self) -> None:
        """Everybody leaves, and nobody waits any more."""
        with self._condition:
            self._is_stopped = True
            self._count += 1
            self._condition.notify_all()

    def wait(self, since: int, seconds: float) -> bool:
        """Wait for a signal after ``since``; False when the time was over first."""
        with self._condition:
            self._waiting += 1
            try:
                return self._condition.wait_for(
                    lambda: self._count != since or self._is_stopped, max(seconds, 0)
                )
            finally:
                self._waiting -= 1


class Backoff:
    """How long to wait before trying again: doubling, with jitter, up to a limit."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def seconds(self) -> float:
        """The next wait, between half and all of it."""
        length, self._next = self._next, min(self._next * 2, self._longest)
        return length * random.uniform(0.5, 1)  # noqa: S311  # not a secret

    def reset(self) -> None:
        """It went well: begin anew."""
        self._next = self._first
