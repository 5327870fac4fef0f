"""Takes back the runs of dead workers: their leases expired, or their process is gone."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.transitions import Transition, reap
from tickwork._kernel.clock import Clock
from tickwork._kernel.plain_text import count_of
from tickwork._kernel.processes import ThisProcess, has_ended, is_running
from tickwork._stores.contract import Expired, Store, WorkerRow
from tickwork.errors import StoreError

REAP_MAX: Final = 500
SUSPENDED_AFTER: Final = 30.0
"""If two steps are this many seconds apart, the process or its machine was suspended."""

FORGET_AFTER: Final = 3.0
"""Seconds after which a dead worker's row is removed: by then its last claims have committed."""

ALIVE_GRACE: Final = 5.0
"""Seconds that a live worker on this machine has to extend a lease that has expired.

It may only be slow: taking the run from it would make the attempt twice.
"""

_SeenLease: TypeAlias = tuple[RunId, int, datetime]

_log: Final = logging.getLogger("tickwork.worker")


class Reaper:
    """Takes back the runs that dead workers held.

    After the database was unreachable, or this process was suspended, it waits for ``grace``
    seconds: the time of one heartbeat. Workers that could not reach the database either
    can then extend their leases first. It leaves alone the runs that this worker itself holds
    (``is_held``): the attempt learns that its lease is lost before another one can begin.
    ``on_reaped`` gets the transitions that were written.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        crashes_max: Callable[[str], int],
        grace: Callable[[], float],
        me: ThisProcess,
        is_held: Callable[[Claim], bool] = lambda _: False,
        on_reaped: Callable[[Sequence[Transition]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._crashes_max = crashes_max
        self._grace = grace
        self._me = me
        self._is_held = is_held
        self._on_reaped = on_reaped
        self._waits_until = 0.0
        self._stepped_at: float | None = None
        self._seen_at: dict[_SeenLease, float] = {}  # expired leases, and when each was first seen
        self._seen: set[_SeenLease] = set()  # those that the last pass found
        self._has_unseen = False
        self._alive: set[WorkerId] = set()
        self._released: dict[WorkerId, float] = {}  # dead workers, and when that was first seen

    def postpone(self, more: float = 0.0) -> None:
        """Wait before the next reap: the database was unreachable, maybe for other workers too."""
        self._waits_until = self._clock.monotonic() + self._grace() + more

    def step(self) -> int:
        """Take back runs whose lease expired, unless it is time to wait; return how many."""
        monotonic, stepped_at = self._clock.monotonic(), self._stepped_at
        self._stepped_at = monotonic
        if stepped_at is not None and monotonic - stepped_at >= SUSPENDED_AFTER:
            self.postpone()
        if monotonic < self._waits_until:
            return 0
        try:
            return self.reap()
        except StoreError:
            # Live workers could not extend their leases either.
            self.postpone()
            raise

    def reap(self) -> int:
        """Take back runs whose lease expired; return how many."""
        reaped = self._reap()
        if self._has_unseen:
            # The first pass found leases of workers that may be alive.
            self._alive = self._find_alive()
            self._has_unseen = False
            reaped += self._reap()
        self._seen_at = {lease: at for lease, at in self._seen_at.items() if lease in self._seen}
        return reaped

    def _reap(self) -> int:
        now = self._clock.now()
        self._seen = set()

        def decide(expired: Expired) -> Transition | None:
            if self._is_held(expired.claim) or self._keeps_lease(expired):
                return None
            return reap(
                expired.claim,
                has_started=expired.has_started,
                now=now,
                crashes_max=self._crashes_max(expired.claim.job),
                is_cancel_requested=expired.is_cancel_requested,
            )

        reaped = self._store.reap(now=now, limit=REAP_MAX, decide=decide)
        if reaped:
            self._on_reaped(reaped)
        return len(reaped)

    def _keeps_lease(self, expired: Expired) -> bool:
        """Whether its worker lives on this machine, and still has time to extend the lease.

        If the clock of the machine was set forward, the leases of live workers seem expired
        until their next heartbeat.
        """
        worker, claim = expired.worker, expired.claim
        if worker is None:
            return False
        lease = claim.run_id, claim.token, claim.lease_until
        monotonic = self._clock.monotonic()
        self._seen.add(lease)
        if lease not in self._seen_at:
            self._seen_at[lease] = monotonic
            self._has_unseen = True
            return True
        return worker in self._alive and monotonic < self._seen_at[lease] + ALIVE_GRACE

    def _find_alive(self) -> set[WorkerId]:
        return {
            row.id
            for row in self._store.list_workers()
            if self._is_here(row) and is_running(row.pid, row.process_started)
        }

    def release_dead(self, *, but: Collection[WorkerId] = ()) -> int:
        """End the leases of workers on this machine whose process is gone."""
        return sum(
            self.release(worker)
            for worker in self._store.list_workers()
            if worker.id not in but and self._is_dead(worker)
        )

    def release_process(self, pid: int) -> int:
        """End the leases of a process on this machine that is known to have ended."""
        return sum(
            self.release(worker)
            for worker in self._store.list_workers()
            if worker.pid == pid and self._is_here(worker)
        )

    def release(self, worker: WorkerRow) -> int:
        """End the leases of a worker that is known to be dead.

        A claim that it sent just before it died may be committed after this. So its row stays
        for a moment, and a later call ends its leases again.
        """
        now = self._clock.monotonic()
        seen_at = self._released.setdefault(worker.id, now)
        count = self._store.release_worker(worker.id, now=self._clock.now())
        if count:  # only one worker gets a count, and logs it
            _log.warning(
                "The worker %d on %s is gone; %s due again.",
                worker.pid,
                worker.host,
                f"{count_of(count, 'run')} {'is' if count == 1 else 'are'}",
            )
        if now - seen_at >= FORGET_AFTER:
            self._store.remove_worker(worker.id)
            del self._released[worker.id]
        return count

    def _is_dead(self, worker: WorkerRow) -> bool:
        return self._is_here(worker) and has_ended(worker.pid, worker.process_started)

    def _is_here(self, worker: WorkerRow) -> bool:
        return (worker.host, worker.boot_id) == (self._me.host, self._me.boot_id)
