"""Extends every lease this worker holds, and lets go of those it lost."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.lease import LEASE_DEFAULT, Lease
from tickwork._domain.run import Claim, Run
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRun, HeldRuns
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.stores.contract import Beat, Held

AGAIN_AFTER: Final = 0.2
"""The share of the pace after which a heartbeat that did not arrive is repeated."""

_log: Final = logging.getLogger("tickwork.worker")


class LeaseStore(Protocol):
    """All that a heartbeat needs of a store."""

    def extend_leases(self, held: Sequence[Held], *, until: datetime) -> Beat:
        """Extend these leases, and note which handlers have started."""
        ...


class LeaseOf(Protocol):
    """How long the leases of a job's runs are."""

    def __call__(self, job: str) -> timedelta:
        """The length."""
        ...


class Heartbeat:
    """One statement for all leases of one length."""

    def __init__(
        self, *, store: LeaseStore, held: HeldRuns, clock: Clock, lease_of: LeaseOf
    ) -> None:
        self._store = store
        self._held = held
        self._clock = clock
        self._lease_of = lease_of
        self._has_failed = False

    def beat(self) -> None:
        """Extend all leases; stop what was lost or shall be stopped.

        Raises:
            StoreUnavailable: Nobody answered; the next beat may get through.
            StoreBusy: The same: others may get through meanwhile.
        """
        for length, runs in self._by_lease().items():
            asked = self._clock.monotonic()
            held = [Held(run.claim.run_id, run.claim.token, run.started_at) for run in runs]
            try:
                beat = self._store.extend_leases(held, until=self._clock.now() + length)
            except StoreBusy as fault:
                if not fault.is_for_everyone:
                    raise
                # While the write lock is refused to everyone nobody can take a lease either.
                _extended(runs, at=asked)
                continue
            _extended(runs, at=asked)
            lost = set(beat.lost)
            for run_id, token, _ in held if lost else ():
                # Someone else may already be running it. Stopping our attempt is all we can
                # do; the token guard keeps whatever it still writes from landing.
                if run_id in lost:
                    self._held.revoke(run_id, token=token)
            for run_id in beat.cancel_requested:
                self._held.cancel(run_id)

    def let_go(self) -> None:
        """Stop what could be another's by now, because no heartbeat has landed for too long."""
        monotonic = self._clock.monotonic()
        for run in self._held.snapshot():
            lease = Lease(self._lease_of(run.claim.job))
            if lease.must_stop(extended_at=run.extended_at, monotonic=monotonic):
                self._held.revoke(run.claim.run_id, token=run.claim.token)

    def pace(self) -> float:
        """Seconds until the next beat."""
        lengths: Collection[timedelta] = self._by_lease() or {LEASE_DEFAULT.length: []}
        seconds = _pace(min(lengths))
        return seconds * AGAIN_AFTER if self._has_failed else seconds

    def step(self) -> None:
        """Beat, and let go of what it was too late for."""
        try:
            self.beat()
            self._has_failed = False
        except (StoreUnavailable, StoreBusy) as fault:
            self._has_failed = True
            _log.warning("No heartbeat: %s", fault.what)
        self.let_go()

    def keep(self) -> None:
        """Beat if it is time to: for whoever comes by between two attempts."""
        if any(self.is_due(run) for run in self._held.snapshot() if not run.is_lost):
            self.step()

    def is_lost(self, run_id: RunId, *, found: Run | None = None) -> bool:
        """Whether an attempt shall stop, because another worker may have its run.

        ``found`` is the run as the store shows it, for whoever has just looked: a run that
        others have finished is gone, which a heartbeat cannot tell from one that we have.
        """
        self.keep()
        run = self._held.get(run_id)
        if run is None:
            return False
        if found is not None and found.token != run.claim.token:
            self._held.revoke(run_id, token=run.claim.token)
        return run.is_lost

    def is_due(self, run: HeldRun) -> bool:
        """Whether it is time to extend its lease."""
        age = self._clock.monotonic() - run.extended_at
        return age >= _pace(self._lease_of(run.claim.job))

    def is_late(self, run: HeldRun) -> bool:
        """Whether its lease may have ended since it was last extended."""
        age = self._clock.monotonic() - run.extended_at
        return age >= self._lease_of(run.claim.job).total_seconds()

    def write_start(self, claim: Claim) -> None:
        """Write down that its handler is about to be called: should it take us with it.

        Raises:
            StoreUnavailable: Nobody answered.
        """
        now = self._clock.now()
        held = Held(claim.run_id, claim.token, now)
        beat = self._store.extend_leases([held], until=now + self._lease_of(claim.job))
        for run_id in beat.lost:
            self._held.revoke(run_id, token=claim.token)

    def _by_lease(self) -> dict[timedelta, list[HeldRun]]:
        found: dict[timedelta, list[HeldRun]] = {}
        for run in self._held.snapshot():
            if not run.is_lost:
                found.setdefault(self._lease_of(run.claim.job), []).append(run)
        return found


@lru_cache(maxsize=256)
def _pace(length: timedelta) -> float:
    return Lease(length).beat_every.total_seconds()


def _extended(runs: Sequence[HeldRun], *, at: float) -> None:
    for run in runs:
        run.extended_at = max(run.extended_at, at)
