"""How many runs a claim may take for an engine, and whether it is worth while to claim at all.

How many, and what changes it:

- *free*: slots that are idle now. Attempts start and end.
- *hold*: more runs, also with limits, that can start within ``HOLD_SECONDS``. It follows from how
  long attempts took.
- *ahead*: more runs without limits that can start within the option ``ahead``. As above; a claim
  that found none stops it for a while.

Whether to claim, and what changes it:

- *found*: claim again at once, until a claim finds nothing.
- *empty*: wait until a notification or the next poll.
- *backing off*: a notification came, but it may be about runs of other engines. It ends by time.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

from tickwork._engines.contract import Engine

WAITING_BATCHES: Final = 2
"""Batches of claims that may wait for a slot: one is worked on while the other is claimed.

More would wait in memory under their leases, while another worker may be idle.
"""

HOLD_SECONDS: Final = 0.002
HOLD_MAX: Final = 48
"""Seconds for which runs with limits may wait for a slot of the engine, and how many may wait.

Meanwhile they occupy slots of their limits, so both are small: 2 ms is about one transaction.
"""

BACKOFF_FACTOR: Final = 8
"""After a claim that found nothing, the next one waits for this many times its duration.

So empty claims take at most a ninth of a pump's time, however slow the database is.
"""


class EmptyPoll(NamedTuple):
    """The last claim found no runs. Poll again after a notification, or after the back-off."""

    new_work_count: int  # the notifications before that claim
    not_before: float  # the end of the back-off
    until: float  # from then on, poll without a notification


class Capacity(NamedTuple):
    """How many runs a claim may take."""

    free: int  # slots that are idle now
    hold: int  # more that can start within HOLD_SECONDS; they may have limits
    ahead: int  # more that can start within the option "ahead"; they have no limits


class EngineSlots:
    """An engine, the jobs that it runs, and the slots that are reserved for claims in flight.

    Several pumps claim for the same engine. A slot that one of them reserved is not free for
    another.
    """

    def __init__(
        self, engine: Engine, jobs: Callable[[], tuple[str, ...]], *, is_remote: bool = False
    ) -> None:
        self.engine = engine
        self.jobs = jobs
        self.is_remote = is_remote  # a claim starts when another process accepts it
        self._lock = Lock()
        self._reserved = 0
        self._empty_poll: EmptyPoll | None = None
        self.was_empty = False  # whether the last claim found nothing
        self._ahead_not_before = 0.0  # nothing is claimed in advance before this moment

    def reserve(self, seconds: float, *, batch: int, now: float) -> Capacity:
        """Reserve slots for runs that can start at once, or within ``seconds``.

        The total is at most a batch, and at most two batches wait. Nothing is claimed in advance
        before it is known how long attempts take.
        """
        engine, mean = self.engine, self.engine.durations.seconds
        hold_max = ahead_max = 0
        if mean > 0:
            hold_max = min(int(HOLD_SECONDS / mean), HOLD_MAX)
            if now >= self._ahead_not_before:
                ahead_max = min(int(engine.slots * seconds / mean), WAITING_BATCHES * batch)
        with self._lock:
            # A claim moves from reserved to waiting to running meanwhile. Read in this order, it
            # may be counted twice; in any other order it might not be counted at all.
            waiting = self._reserved + engine.waiting
            free = max(min(engine.slots - waiting - engine.running, batch), 0)
            hold = max(min(hold_max - waiting - free, batch - free), 0)
            ahead = max(min(ahead_max - waiting - free - hold, batch - free - hold), 0)
            self._reserved += free + hold + ahead
            return Capacity(free, hold, ahead)

    def release(self, count: int) -> None:
        """Release reserved slots: the claims have arrived, or will not."""
        with self._lock:
            self._reserved -= count

    def on_claimed(self, count: int, capacity: Capacity, *, took: float, now: float) -> None:
        """If this claim got no run in advance, claim nothing in advance for a while."""
        if capacity.ahead and count <= capacity.free + capacity.hold:
            self._ahead_not_before = now + BACKOFF_FACTOR * took

    def is_idle(self, new_work_count: int, *, now: float, are_others_busy: bool) -> bool:
        """Whether a claim would find no runs: the last one found none, and no notification came.

        A notification may be about runs of other engines. While those have work
        (``are_others_busy``), this one backs off before it polls again.
        """
        empty = self._empty_poll
        if empty is None or now >= empty.until:
            return False
        if new_work_count == empty.new_work_count:
            return True
        return are_others_busy and now < empty.not_before

    def on_empty(
        self, new_work_count: int, *, sent_at: float, answered_at: float, poll: float
    ) -> None:
        """Remember that a claim found nothing. After ``poll`` seconds it is worth another try."""
        if self._reserved:
            return  # another pump is claiming, and its open transaction may hide the runs
        backoff = min(BACKOFF_FACTOR * (answered_at - sent_at), poll)
        self._empty_poll = EmptyPoll(new_work_count, answered_at + backoff, answered_at + poll)

    def is_backing_off(self, new_work_count: int, *, now: float) -> bool:
        """Whether a notification came, but it is too early to poll."""
        empty = self._empty_poll
        return (
            empty is not None and new_work_count != empty.new_work_count and now < empty.not_before
        )

    def poll_again(self, *, at_once: bool) -> None:
        """Poll without a notification: at once, or after the back-off."""
        empty = self._empty_poll
        if empty is not None:
            self._empty_poll = None if at_once else empty._replace(until=empty.not_before)
