"""Extends the leases of all held claims, and stops attempts whose lease was lost."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.runs.lease import LEASE_DEFAULT, Lease
from tickwork._domain.runs.run import Claim, Run
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import HeldClaim, RunStore
from tickwork._worker.attempts.held_runs import HeldRun, HeldRuns
from tickwork._worker.service import RepeatedService
from tickwork.errors import RowRejected, StoreBusy, StoreError, ValueRejected

AGAIN_AFTER: Final = 0.2
"""The share of the pace after which a heartbeat that failed is repeated.

A lease lasts for more than one pace, so several tries fit before it expires.
"""

CHECKS_PER_BEAT: Final = 4
CHECK_LONGEST: Final = 1.0
"""How often a worker checks whether a beat is due, and the most seconds between two checks.

A check also stops attempts whose lease expires, so it comes more often than a beat.
"""

_log: Final = logging.getLogger("tickwork.worker")


class Heartbeat:
    """Sends one statement for all leases of one length."""

    def __init__(
        self,
        *,
        store: RunStore,
        held: HeldRuns,
        clock: Clock,
        lease_of: Callable[[str], timedelta],
    ) -> None:
        self._store = store
        self._held = held
        self._clock = clock
        self._lease_of = lease_of
        self._has_failed = False
        self._is_due_now = False

    def beat_soon(self) -> None:
        """Extend all leases at the next check: the clock was set, so they may seem expired."""
        self._is_due_now = True

    def beat(self) -> None:
        """Extend all leases; stop attempts that were lost or canceled.

        Raises:
            StoreError: Some leases were not extended; the next beat may succeed.
        """
        for length, runs in self._by_lease().items():
            self._extend(runs, length)

    def _extend(self, runs: Sequence[HeldRun], length: timedelta) -> None:
        sent_at = self._clock.monotonic()
        held = [HeldClaim(run.claim.run_id, run.claim.token, run.started_at) for run in runs]
        try:
            beat = self._store.extend_leases(held, until=self._clock.now() + length)
        except StoreBusy as error:
            if not error.is_for_everyone:
                raise
            # While no process gets the write lock, no process can take a lease either.
            _mark_extended(runs, at=sent_at)
            return
        except (RowRejected, ValueRejected):
            if len(runs) == 1:
                raise
            self._extend_halves(runs, length)
            return
        _mark_extended(runs, at=sent_at)
        lost = set(beat.lost)
        for run_id, token, _ in held if lost else ():
            # Another worker may be running it already. The attempt here is stopped; its
            # fencing token rejects what it still writes.
            if run_id in lost:
                self._held.revoke(run_id, token=token)
        for run_id in beat.cancel_requested:
            self._held.cancel(run_id)

    def _extend_halves(self, runs: Sequence[HeldRun], length: timedelta) -> None:
        """Extend the leases of all runs but those whose rows are rejected."""
        failure: StoreError | None = None
        middle = len(runs) // 2
        for half in (runs[:middle], runs[middle:]):
            try:
                self._extend(half, length)
            except (RowRejected, ValueRejected) as error:
                failure = error
        if failure is not None:
            raise failure

    def stop_expired(self) -> None:
        """Stop attempts that another worker may have by now: no heartbeat succeeded in time."""
        monotonic = self._clock.monotonic()
        for run in self._held.snapshot():
            lease = Lease(self._lease_of(run.claim.job))
            if lease.must_stop(extended_at=run.extended_at, monotonic=monotonic):
                self._held.revoke(run.claim.run_id, token=run.claim.token)

    def pace(self) -> float:
        """Return the seconds until the next beat."""
        lengths: Collection[timedelta] = self._by_lease() or {LEASE_DEFAULT.length: []}
        seconds = _pace(min(lengths))
        return seconds * AGAIN_AFTER if self._has_failed else seconds

    def step(self) -> None:
        """Beat, and stop attempts whose leases could not be extended in time."""
        try:
            self.beat()
            self._has_failed = False
        except StoreError as error:
            if not self._has_failed:
                _log.warning("A heartbeat failed: %s", error.what)
            self._has_failed = True
        self.stop_expired()

    def step_if_due(self) -> None:
        is_due_now, self._is_due_now = self._is_due_now, False
        if is_due_now or any(self.is_due(run) for run in self._held.snapshot() if not run.is_lost):
            self.step()

    def is_lost(self, run_id: RunId, *, row: Run | None = None) -> bool:
        """Whether an attempt shall stop, because another worker may have its run.

        ``row`` is the run in the store, if the caller has just read it. A heartbeat alone cannot
        tell a run that another worker finished from one that this worker finished.
        """
        self.step_if_due()
        run = self._held.get(run_id)
        if run is None:
            return False
        if row is not None and row.token != run.claim.token:
            self._held.revoke(run_id, token=run.claim.token)
        return run.is_lost

    def is_due(self, run: HeldRun) -> bool:
        """Whether it is time to extend its lease."""
        age = self._clock.monotonic() - run.extended_at
        return age >= _pace(self._lease_of(run.claim.job))

    def is_late(self, run: HeldRun) -> bool:
        """Whether its lease may have expired since it was last extended."""
        age = self._clock.monotonic() - run.extended_at
        return age >= self._lease_of(run.claim.job).total_seconds()

    def write_start(self, claim: Claim) -> None:
        """Record that its handler starts, in case it kills this process.

        Raises:
            StoreUnavailable: The database did not answer.
        """
        now = self._clock.now()
        held = HeldClaim(claim.run_id, claim.token, now)
        beat = self._store.extend_leases([held], until=now + self._lease_of(claim.job))
        for run_id in beat.lost:
            self._held.revoke(run_id, token=claim.token)

    def _by_lease(self) -> dict[timedelta, list[HeldRun]]:
        runs_by_lease: dict[timedelta, list[HeldRun]] = {}
        for run in self._held.snapshot():
            if not run.is_lost:
                runs_by_lease.setdefault(self._lease_of(run.claim.job), []).append(run)
        return runs_by_lease


class HeartbeatService(RepeatedService):
    """Repeats the heartbeat of a worker, until no claim is held and no attempt runs any more.

    Claims come at any time, so it checks a few times for each beat that the shortest of all leases
    would need (``pace``).
    """

    name = "heartbeat"
    activity = "Extending leases"

    def __init__(self, heartbeat: Heartbeat, *, clock: Clock, pace: Callable[[], float]) -> None:
        super().__init__(clock)
        self._heartbeat = heartbeat
        self._pace = pace

    def step(self) -> float:
        try:
            self._heartbeat.step_if_due()
        finally:
            self._heartbeat.stop_expired()
        return min(self._pace() / CHECKS_PER_BEAT, CHECK_LONGEST)


@lru_cache(maxsize=256)  # few jobs have a lease of their own
def _pace(length: timedelta) -> float:
    return Lease(length).beat_every.total_seconds()


def _mark_extended(runs: Sequence[HeldRun], *, at: float) -> None:
    for run in runs:
        run.extended_at = max(run.extended_at, at)
