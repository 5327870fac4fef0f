"""Takes back the runs of dead workers: their leases expired, or their process is gone."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.transitions import Transition
from tickwork._domain.transitions import reap as decide
from tickwork._kernel.clock import Clock
from tickwork._kernel.processes import ThisProcess, has_ended
from tickwork.stores.contract import Expired, Store, WorkerRow

REAP_MAX: Final = 500
FROZEN_AFTER: Final = 30.0
"""Seconds between two steps after which this process, or its machine, was suspended."""

FORGET_AFTER: Final = 3.0
"""Seconds after which a dead worker's row is removed: by then its last claims have committed."""

_log: Final = logging.getLogger("tickwork.worker")


class Reaper:
    """Takes back what dead workers held.

    After the database was unreachable, or this process was suspended, it waits for ``patience``
    seconds: the time of one heartbeat. Workers that were cut off as well can then extend their
    leases first. ``on_reaped`` gets the transitions that were written.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        crashes_max: Callable[[str], int],
        patience: Callable[[], float],
        me: ThisProcess,
        on_reaped: Callable[[Sequence[Transition]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._crashes_max = crashes_max
        self._patience = patience
        self._me = me
        self._on_reaped = on_reaped
        self._waits_until = 0.0
        self._stepped_at: float | None = None
        self._released: dict[WorkerId, float] = {}  # dead workers, and when that was first seen

    def was_away(self) -> None:
        """Wait before the next reap: the database was unreachable, maybe for other workers too."""
        self._waits_until = self._clock.monotonic() + self._patience()

    def step(self) -> int:
        """Take back runs whose lease expired, unless it is time to wait; return how many."""
        monotonic, stepped_at = self._clock.monotonic(), self._stepped_at
        self._stepped_at = monotonic
        if stepped_at is not None and monotonic - stepped_at >= FROZEN_AFTER:
            self.was_away()
        return self.reap() if monotonic >= self._waits_until else 0

    def reap(self) -> int:
        """Take back runs whose lease expired; return how many."""
        now = self._clock.now()

        def verdict(expired: Expired) -> Transition:
            return decide(
                expired.claim,
                has_started=expired.has_started,
                now=now,
                crashes_max=self._crashes_max(expired.claim.job),
                is_cancel_requested=expired.is_cancel_requested,
            )

        reaped = self._store.reap(now=now, limit=REAP_MAX, verdict=verdict)
        if reaped:
            self._on_reaped(reaped)
        return len(reaped)

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
        if seen_at == now or count:
            _log.warning(
                "The worker %d on %s is gone; %d of its runs are due again.",
                worker.pid,
                worker.host,
                count,
            )
        if now - seen_at >= FORGET_AFTER:
            self._store.remove_worker(worker.id)
            del self._released[worker.id]
        return count

    def _is_dead(self, worker: WorkerRow) -> bool:
        return self._is_here(worker) and has_ended(worker.pid, worker.process_started)

    def _is_here(self, worker: WorkerRow) -> bool:
        return (worker.host, worker.boot_id) == (self._me.host, self._me.boot_id)
