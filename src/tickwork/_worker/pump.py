"""One thread of a worker: writes outcomes, and claims as many runs as can start soon."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final, NamedTuple

from tickwork._domain.lease import LEASE_MIN, Lease
from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.claimer import Claimer
from tickwork._worker.held_runs import HeldRuns
from tickwork._worker.known_jobs import KnownJobs
from tickwork._worker.wakeup import Backoff, Wakeup
from tickwork._worker.writer import Writer, WriteResult
from tickwork.engines.contract import Engine
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores.contract import ClaimRequest

RETRY_FIRST: Final = 0.05
RETRY_LONGEST: Final = 2.0
"""Seconds between two tries while the database is unreachable."""

WAITING_BATCHES: Final = 2
"""Batches of claims that may wait for a slot: one is worked on while the other is claimed."""

HOLD_SECONDS: Final = 0.002
HOLD_MAX: Final = 48
"""Seconds for which runs with limits may wait for a slot of the engine, and how many may wait.

Meanwhile they occupy slots of their limits.
"""

BACKOFF_FACTOR: Final = 8
"""After a claim that found nothing, the next one waits for this many times its duration."""

TURN_SECONDS: Final = 0.05
"""Seconds for which a pump leaves the work to another before it continues anyway."""

LATE_SECONDS_MIN: Final = Lease(LEASE_MIN).stop_after.total_seconds()
"""No claim that took less time than this is late, even with the shortest lease."""

CLAIMED_TOO_LATE: Final = Interrupted("Claiming the run took longer than its lease.")
NOT_STARTED: Final = Interrupted("The worker stopped before the attempt started.")

_log: Final = logging.getLogger("tickwork.worker")


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


class Lane:
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
        (``are_others_busy``), this lane backs off before it polls again.
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
        """Let the lane poll without a notification: at once, or after the back-off."""
        empty = self._empty_poll
        if empty is not None:
            self._empty_poll = None if at_once else empty._replace(until=empty.not_before)


class PumpSerializer:
    """Lets pumps work concurrently, or one at a time while most runs have limits.

    Pumps that claim runs with the same limit wait for each other in the database, because both
    lock the row of that limit. One pump alone gets twice as much done.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._since = 0.0
        self.is_serial = False

    @contextmanager
    def turn(self, *, now: float, is_urgent: bool) -> Iterator[bool]:
        """Wrap one step of a pump; False while it is another pump's turn.

        That pump checks for notifications again before its turn ends. A pump does not
        wait when the other takes too long, or when its own work is urgent and only it can do it.
        """
        if is_urgent or not self.is_serial:
            yield True
            return
        is_ours = self._lock.acquire(blocking=False)
        if is_ours:
            self._since = now
        try:
            yield is_ours or now - self._since > TURN_SECONDS
        finally:
            if is_ours:
                self._lock.release()


class Pump:
    def __init__(
        self,
        *,
        name: str,
        clock: Clock,
        claimer: Claimer,
        queues: tuple[str, ...] | None,
        lanes: Sequence[Lane],
        held: HeldRuns,
        writer: Writer,
        serializer: PumpSerializer,
        known: KnownJobs,
        wakeup: Wakeup,
        batch: int,
        ahead: timedelta,
        poll: timedelta,
        unwritten_max: int,
        give_back: Callable[[Claim, Interrupted], None],
        on_reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._claimer = claimer
        self._queues = queues
        self._lanes = lanes
        self._held = held
        self._writer = writer
        self._serializer = serializer
        self._known = known
        self._wakeup = wakeup
        self._batch = batch
        self._ahead = ahead.total_seconds()
        self._poll = poll.total_seconds()
        self._unwritten_max = unwritten_max
        self._give_back = give_back
        self._on_reconnect = on_reconnect
        self._written_jobs: frozenset[str] = frozenset()  # of the last batch
        self._is_underfilled = True  # whether every lane got fewer runs than it reserved
        self._is_unavailable = False
        self._backoff = Backoff(RETRY_FIRST, RETRY_LONGEST)
        self.is_deferred = False  # because it is another pump's turn

    def step(self, *, may_claim: bool, is_polling: bool = False) -> bool:
        """Write one batch and claim one; True when there may be more to do at once.

        ``is_polling`` means that the last wait ended without a notification: claim anyway.
        """
        try:
            now, is_urgent = self._clock.monotonic(), self._claimer.has_lost_claims
            with self._serializer.turn(now=now, is_urgent=is_urgent) as may_go:
                self.is_deferred = not may_go
                if not may_go:
                    return False
                if is_polling:
                    self._poll_again(at_once=True)
                written, claimed = self._write_and_claim(may_claim=may_claim)
        except (StoreUnavailable, StoreBusy) as error:
            # Nothing is lost: outcomes wait in memory, and the heartbeat keeps the leases.
            if not self._is_unavailable:
                self._is_unavailable = True
                _log.warning("Claiming runs waits for the database: %s", error.what)
            self._wakeup.wait(self._wakeup.count, self._backoff.seconds())
            return True
        self._backoff.reset()
        if self._is_unavailable:
            self._is_unavailable = False
            _log.warning("The database answers again.")
            self._on_reconnect()
        # After a claim that got fewer runs than it could, wait for a notification. Meanwhile the
        # interpreter is free for the attempts.
        return bool(written.size or (claimed and not self._is_underfilled))

    def _write_and_claim(self, *, may_claim: bool) -> tuple[WriteResult, int]:
        written = self._writer.write()
        self._written_jobs = written.jobs
        self._is_underfilled = True
        if written.size:
            self._serializer.is_serial = written.is_limited
        if written.may_unblock:
            self._poll_again(at_once=False)
        claimed = self._recover_claims(may_claim=may_claim)
        # Each claim becomes an outcome. While outcomes cannot be written, they must not pile up.
        if may_claim and len(self._writer) < self._unwritten_max:
            claimed += sum(map(self._claim_for, self._lanes))
        return written, claimed

    @property
    def is_backing_off(self) -> bool:
        """Whether a notification came, and a lane has to back off before it polls."""
        count, now = self._wakeup.new_work_count, self._clock.monotonic()
        return any(lane.is_backing_off(count, now=now) for lane in self._lanes)

    def _poll_again(self, *, at_once: bool) -> None:
        for lane in self._lanes:
            lane.poll_again(at_once=at_once or not self._are_others_busy(lane))

    def _claim_for(self, lane: Lane) -> int:
        jobs = lane.jobs()
        count, sent_at = self._wakeup.new_work_count, self._clock.monotonic()
        if not jobs or lane.is_idle(
            count, now=sent_at, are_others_busy=self._are_others_busy(lane)
        ):
            return 0
        capacity = lane.reserve(self._ahead, batch=self._batch, now=sent_at)
        if not any(capacity):
            return 0
        # After an empty claim, start the first runs that are found. A complete claim follows.
        is_brief = lane.was_empty
        wanted = ClaimRequest(
            capacity.free,
            self._queues,
            jobs,
            capacity.ahead,
            is_starting=not lane.is_remote,
            hold=capacity.hold,
            may_wait=lane.engine.durations.similar_jobs(sent_at),
            is_brief=is_brief,
        )
        try:
            claims = self._claimer.claim(wanted, lane.engine.cancel)
            self._submit(lane, claims, sent_at)
        finally:
            lane.release(sum(capacity))
        now = self._clock.monotonic()
        lane.on_claimed(len(claims), capacity, took=now - sent_at, now=now)
        lane.was_empty = not claims
        is_complete = not (is_brief and claims)
        is_underfilled = is_complete and len(claims) < sum(capacity)
        self._is_underfilled = self._is_underfilled and is_underfilled
        # A claim that got only a few is not an empty poll: other workers may have locked the rest.
        if not claims:
            lane.on_empty(count, sent_at=sent_at, answered_at=now, poll=self._poll)
        return len(claims)

    def _are_others_busy(self, lane: Lane) -> bool:
        """Whether other lanes have work at the moment."""
        if self._written_jobs and self._written_jobs.isdisjoint(lane.jobs()):
            return True
        return any(other.engine.waiting for other in self._lanes if other is not lane)

    def _submit(self, lane: Lane, claims: Sequence[Claim], sent_at: float) -> None:
        if not claims:
            return
        waited = self._clock.monotonic() - sent_at
        if waited >= LATE_SECONDS_MIN:
            late = [claim for claim in claims if self._is_late(claim, waited)]
            for claim in late:
                self._give_back(claim, CLAIMED_TOO_LATE)
            claims = [claim for claim in claims if claim not in late]
        lane.engine.submit(claims)

    def _is_late(self, claim: Claim, waited: float) -> bool:
        """Whether its lease has nearly expired, because the claim itself took so long."""
        lease = Lease(self._known.lease_of(claim.job))
        return lease.must_stop(extended_at=0.0, monotonic=waited)

    def _recover_claims(self, *, may_claim: bool) -> int:
        """Submit claims whose answer was lost: no other worker can claim those runs."""
        total = 0
        while self._claimer.has_lost_claims:  # ends: each round finds one lost answer, or raises
            sent_at = self._clock.monotonic()
            claims = self._claimer.find_lost()
            total += len(claims)
            for lane in self._lanes:
                jobs = set(lane.jobs()) if may_claim else set[str]()
                own = [claim for claim in claims if claim.job in jobs]
                self._held.add(own, extended_at=sent_at, cancel_attempt=lane.engine.cancel)
                self._submit(lane, own, sent_at)
            for claim in claims:
                if self._held.of(claim) is None:
                    # No engine starts it: the worker stops, or no longer knows the job.
                    self._held.add([claim], extended_at=sent_at)
                    self._give_back(claim, NOT_STARTED)
        return total
