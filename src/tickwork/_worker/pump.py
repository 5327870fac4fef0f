"""Finished transitions out, claims in: one thread, one connection."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from tickwork._domain.identity import WorkerId
from tickwork._domain.lease import LEASE_DEFAULT
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRuns
from tickwork._worker.known import KnownJobs
from tickwork._worker.wake import Backoff, Wake
from tickwork._worker.writer import Writer
from tickwork.engines.contract import Engine
from tickwork.errors import OutcomeUnknown, StoreBusy, StoreUnavailable
from tickwork.stores.contract import Store, Wanted

_log: Final = logging.getLogger("tickwork.worker")


class Lane(NamedTuple):
    """An engine, and the jobs that it takes."""

    engine: Engine
    jobs: Callable[[], tuple[str, ...]]
    mean: Callable[[], float]  # seconds that one attempt takes, lately


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
        self._claims = 0
        self._backoff = Backoff(0.05, 5.0)
        self._lost_tags: list[str] = []  # claims whose answer never came

    def step(self, *, may_claim: bool) -> bool:
        """Write one batch and claim one; whether there may be more to do at once."""
        try:
            wrote = self._writer.write()
            claimed = self._claim_all() if may_claim else 0
        except (StoreUnavailable, StoreBusy) as fault:
            # Nothing is lost: outcomes wait in memory, and leases are the heartbeat's.
            _log.warning("%s: %s", self._name, fault.what)
            since = self._wake.seen()
            self._wake.wait(since, self._backoff.seconds())
            return True
        self._backoff.reset()
        return bool(wrote or claimed)

    def _claim_all(self) -> int:
        total = 0
        for lane in self._lanes:
            jobs = lane.jobs()
            if jobs:
                total += self._claim_for(lane, jobs)
        return total

    def _claim_for(self, lane: Lane, jobs: tuple[str, ...]) -> int:
        engine = lane.engine
        free = engine.slots - engine.running - engine.waiting
        total = 0
        if free > 0:
            # Anything may start now, limited runs too.
            limit = min(free, self._batch)
            wanted = Wanted(limit, self._queues, jobs, is_starting=True)
            total += self._claim(engine, wanted)
            if total < free:
                return total
        ahead = self._ahead_of(lane) - engine.waiting
        if ahead > 0:
            wanted = Wanted(min(ahead, self._batch - total), self._queues, jobs, is_ahead=True)
            total += self._claim(engine, wanted)
        return total

    def _ahead_of(self, lane: Lane) -> int:
        """How many runs could start within the time that we look ahead."""
        mean = lane.mean()
        if mean <= 0:
            return 0
        return min(int(lane.engine.slots * self._ahead / mean), self._batch)

    def _claim(self, engine: Engine, wanted: Wanted) -> int:
        if wanted.limit <= 0:
            return 0
        self._recover()
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
        except OutcomeUnknown:
            self._lost_tags.append(tag)
            raise
        return self._take(engine, claims, asked)

    def _take(self, engine: Engine, claims: Sequence[Claim], asked: float) -> int:
        if not claims:
            return 0
        self._held.add(claims, extended_at=asked)
        engine.submit(claims)
        return len(claims)

    def _recover(self) -> None:
        """Find claims whose answer was lost: they are ours, and nobody else's."""
        while self._lost_tags:  # ends: each look takes one away, or raises
            tag = self._lost_tags[-1]
            asked = self._clock.monotonic()
            found = self._store.find_claims(worker=self._worker, tag=tag)
            self._lost_tags.pop()
            for lane in self._lanes:
                jobs = set(lane.jobs())
                self._take(lane.engine, [claim for claim in found if claim.job in jobs], asked)

    @property
    def _lease_by_job(self) -> Mapping[str, timedelta]:
        return self._known.lease_by_job()
