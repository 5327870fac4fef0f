"""Runs whose lease ended, taken back; and those of workers that are known to be dead."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.transitions import Transition
from tickwork._domain.transitions import reap as decide
from tickwork._kernel.clock import Clock
from tickwork._kernel.processes import ThisProcess, has_ended
from tickwork.stores.contract import Expired, Store, WorkerRow

REAP_MAX: Final = 500
FROZEN_AFTER: Final = 30.0
"""Seconds between two looks after which this process must have been frozen, or its machine."""

FORGET_AFTER: Final = 3.0
"""Seconds after which a dead worker's row is removed: by then its last words have come."""
_log: Final = logging.getLogger("tickwork.upkeep")


class Reaper:
    """Takes back what dead workers held.

    After the database was away, or this process was frozen, it waits for one heartbeat, so that
    whoever was cut off too, and be it ourselves, can say that it still lives. ``patience`` is how
    many seconds that are.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        crashes_max: Callable[[str], int],
        patience: Callable[[], float],
        me: ThisProcess,
    ) -> None:
        self._store = store
        self._clock = clock
        self._crashes_max = crashes_max
        self._patience = patience
        self._me = me
        self._waits_until = 0.0
        self._looked_at: float | None = None
        self._released: dict[WorkerId, float] = {}  # the dead, and when that was first seen

    def was_away(self) -> None:
        """The database could not be reached: what others have done meanwhile is not known."""
        self._waits_until = self._clock.monotonic() + self._patience()

    def reap(self) -> list[Transition]:
        """Take back runs whose lease has ended."""
        monotonic, looked_at = self._clock.monotonic(), self._looked_at
        self._looked_at = monotonic
        if looked_at is not None and monotonic - looked_at >= FROZEN_AFTER:
            self.was_away()
        if monotonic < self._waits_until:
            return []
        now = self._clock.now()

        def verdict(expired: Expired) -> Transition:
            return decide(
                expired.claim,
                has_started=expired.has_started,
                now=now,
                crashes_max=self._crashes_max(expired.claim.job),
                is_cancel_requested=expired.is_cancel_requested,
            )

        return self._store.reap(now=now, limit=REAP_MAX, verdict=verdict)

    def release_dead(self, *, but: Collection[WorkerId] = ()) -> int:
        """End the leases of workers of this machine whose process is gone."""
        return sum(
            self.release(worker)
            for worker in self._store.list_workers()
            if worker.id not in but and self._is_dead(worker)
        )

    def release_process(self, pid: int) -> int:
        """The same for a process of this machine that somebody saw die."""
        return sum(
            self.release(worker)
            for worker in self._store.list_workers()
            if worker.pid == pid and self._is_here(worker)
        )

    def release(self, worker: WorkerRow) -> int:
        """End the leases of a worker that is known to be dead.

        A claim that it sent with its last breath may be committed after this. So its row
        stays for a moment, and whoever comes by then ends its leases once more.
        """
        now = self._clock.monotonic()
        seen_at = self._released.setdefault(worker.id, now)
        count = self._store.release_worker(worker.id, now=self._clock.now())
        if seen_at == now or count:
            _log.warning(
                "The worker %d on %s is gone; %d of its runs go on elsewhere.",
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
