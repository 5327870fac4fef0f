"""Finished transitions out, claims in: one thread, one connection."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.lease import LEASE_DEFAULT
from tickwork._domain.outcome import Interrupted
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRuns
from tickwork._worker.known import KnownJobs
from tickwork._worker.wake import Backoff, Wake
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.stores.contract import Store, Wanted

AWAY_FIRST: Final = 0.05
AWAY_LONGEST: Final = 2.0
"""Seconds between two looks for a database that is away."""

NOT_BEGUN: Final = Interrupted("The worker was stopped before it began.")

_log: Final = logging.getLogger("tickwork.worker")


class Lane:
    """An engine, the jobs that it takes, and how many claims are on their way to it.

    Several pumps claim for the same engine: what one of them has asked for is not free for
    another.
    """

    def __init__(
        self, engine: Engine, jobs: Callable[[], tuple[str, ...]], mean: Callable[[], float]
    ) -> None:
        self.engine = engine
        self.jobs = jobs
        self._mean = mean  # seconds that one attempt takes, lately
        self._lock = Lock()
        self._coming = 0

    def take_now(self, limit: int) -> int:
        """Reserve what can start at once, at most ``limit``; return how many that are."""
        with self._lock:
            return self._reserved(min(self.engine.slots - self._busy(), limit))

    def take_ahead(self, seconds: float, limit: int) -> int:
        """Reserve what can start within this time, at most ``limit``.

        Nothing before it is known how long attempts take.
        """
        engine, mean = self.engine, self._mean()
        if mean <= 0:
            return 0
        soon = min(int(engine.slots * seconds / mean), limit)
        with self._lock:
            coming = self._coming
            return self._reserved(soon - coming - engine.waiting)

    def give(self, reserved: int) -> None:
        """They have come, or will not."""
        with self._lock:
            self._coming -= reserved

    def _busy(self) -> int:
        # A claim goes from coming to waiting to running while we look. Read in this order, it
        # may be counted twice; in any other it may not be counted at all.
        coming = self._coming
        waiting = self.engine.waiting
        return coming + waiting + self.engine.running

    def _reserved(self, count: int) -> int:
        count = max(count, 0)
        self._coming += count
        return count


class Pump:
    """Writes what was done, and claims as many runs as can start soon."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        clock: Clock,
        worker: WorkerId,
        queues: tuple[str, ...] | None,
        lanes: Sequence[Lane],
        held: HeldRuns,
        writer: Writer,
        known: KnownJobs,
        wake: Wake,
        batch: int,
        ahead: timedelta,
        unwritten_max: int,
        give_back: Callable[[Claim, Interrupted], None],
        came_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._worker = worker
        self._queues = queues
        self._lanes = lanes
        self._held = held
        self._writer = writer
        self._known = known
        self._wake = wake
        self._batch = batch
        self._ahead = ahead.total_seconds()
        self._unwritten_max = unwritten_max
        self._give_back = give_back
        self._came_back = came_back
        self._claims = 0
        self._is_away = False
        self._backoff = Backoff(AWAY_FIRST, AWAY_LONGEST)
        self._lost_tags: list[str] = []  # claims whose answer never came

    def step(self, *, may_claim: bool) -> bool:
        """Write one batch and claim one; whether there may be more to do at once."""
        try:
            wrote = self._writer.write()
            claimed = self._recovered(may_claim=may_claim)
            # Whatever cannot be written must not pile up: each of them was a claim once.
            if may_claim and len(self._writer) < self._unwritten_max:
                claimed += sum(map(self._claim_for, self._lanes))
        except (StoreUnavailable, StoreBusy) as fault:
            # Nothing is lost: outcomes wait in memory, and leases are the heartbeat's.
            self._is_away = True
            _log.warning("%s: %s", self._name, fault.what)
            self._wake.wait(self._wake.seen(), self._backoff.seconds())
            return True
        self._backoff.reset()
        if self._is_away:
            self._is_away = False
            self._came_back()
        return bool(wrote or claimed)

    # ------------------------------------------------------------ claiming

    def _claim_for(self, lane: Lane) -> int:
        jobs = lane.jobs()
        if not jobs:
            return 0
        free = lane.take_now(self._batch)
        # Anything may start now, limited runs too.
        claimed = self._claim(lane, Wanted(free, self._queues, jobs, is_starting=True))
        if claimed < free:
            return claimed  # there are no more
        ahead = lane.take_ahead(self._ahead, self._batch - claimed)
        return claimed + self._claim(lane, Wanted(ahead, self._queues, jobs, is_ahead=True))

    def _claim(self, lane: Lane, wanted: Wanted) -> int:
        if wanted.limit <= 0:
            return 0
        self._claims += 1
        tag = f"{self._name}-{self._claims}"
        asked = self._clock.monotonic()
        try:
            claims = self._store.claim(
                wanted,
                worker=self._worker,
                tag=tag,
                now=self._clock.now(),
                lease=LEASE_DEFAULT.length,
                lease_by_job=self._lease_by_job,
            )
            self._take(lane, claims, asked)
        except OutcomeUnknown:
            self._lost_tags.append(tag)
            raise
        finally:
            lane.give(wanted.limit)
        return len(claims)

    def _take(self, lane: Lane, claims: Sequence[Claim], asked: float) -> None:
        if claims:
            # Held before anything else: from here on somebody beats for them.
            self._held.add(claims, extended_at=asked)
            lane.engine.submit(claims)

    def _recovered(self, *, may_claim: bool) -> int:
        """Find claims whose answer was lost: they are ours, and nobody else's."""
        total = 0
        while self._lost_tags:  # ends: each look takes one away, or raises
            asked = self._clock.monotonic()
            found = self._store.find_claims(worker=self._worker, tag=self._lost_tags[-1])
            self._lost_tags.pop()
            total += len(found)
            for lane in self._lanes:
                jobs = set(lane.jobs()) if may_claim else set[str]()
                self._take(lane, [claim for claim in found if claim.job in jobs], asked)
            for claim in found:
                if self._held.of(claim) is None:
                    # Nobody starts it any more.
                    self._held.add([claim], extended_at=asked)
                    self._give_back(claim, NOT_BEGUN)
        return total

    @property
    def _lease_by_job(self) -> Mapping[str, timedelta]:
        return self._known.lease_by_job()
