"""Runs whose lease ended, taken back; and those of workers that are known to be dead."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.transitions import Transition
from tickwork._domain.transitions import reap as decide
from tickwork._kernel.clock import Clock
from tickwork._kernel.processes import ThisProcess, is_gone
from tickwork.stores.contract import Expired, Store, WorkerRow

REAP_MAX: Final = 500
_log: Final = logging.getLogger("tickwork.upkeep")


class Reaper:
    """Takes back what dead workers held."""

    def __init__(
        self, *, store: Store, clock: Clock, crashes_max: Callable[[str], int], me: ThisProcess
    ) -> None:
        self._store = store
        self._clock = clock
        self._crashes_max = crashes_max
        self._me = me

    def reap(self) -> list[Transition]:
        """Take back runs whose lease has ended."""
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
        released = 0
        for worker in self._store.list_workers():
            if worker.id not in but and self._is_dead(worker):
                released += self.release(worker)
        return released

    def release_process(self, pid: int) -> int:
        """The same for a process of this machine that somebody saw die."""
        return sum(
            self.release(worker)
            for worker in self._store.list_workers()
            if worker.pid == pid and self._is_here(worker)
        )

    def release(self, worker: WorkerRow) -> int:
        """End the leases of a worker that is known to be dead."""
        count = self._store.release_worker(worker.id, now=self._clock.now())
        self._store.remove_worker(worker.id)
        _log.warning("The worker %d on %s is gone; %d runs go on.", worker.pid, worker.host, count)
        return count

    def _is_dead(self, worker: WorkerRow) -> bool:
        return self._is_here(worker) and is_gone(worker.pid, worker.process_started)

    def _is_here(self, worker: WorkerRow) -> bool:
        return (worker.host, worker.boot_id) == (self._me.host, self._me.boot_id)
