"""Notices sooner than a heartbeat that somebody asked for a run to be stopped."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._kernel.clock import Clock
from tickwork._worker.held import HeldRuns

AFTER: Final = timedelta(milliseconds=500)
"""Attempts that are younger are most likely over before it matters."""

LOOKS_MAX: Final = 200


class RunsStore(Protocol):
    """Where runs can be read."""

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Several; what is unknown is left out."""
        ...


class Cancels:
    """Looks at the rows of attempts that take long: reading costs less than beating."""

    def __init__(self, *, store: RunsStore, held: HeldRuns, clock: Clock) -> None:
        self._store = store
        self._held = held
        self._clock = clock
        self._from = 0

    def look(self) -> None:
        """Tell those that shall stop. Of very many, some each time."""
        before = self._clock.now() - AFTER
        long = [
            run
            for run in self._held.snapshot()
            if run.started_at is not None and run.started_at < before and not run.is_told
        ]
        if not long:
            return
        if len(long) > LOOKS_MAX:
            self._from = (self._from + LOOKS_MAX) % len(long)
            long = (long + long)[self._from : self._from + LOOKS_MAX]
        token_by_run = {run.claim.run_id: run.claim.token for run in long}
        for found in self._store.get_runs(list(token_by_run)):
            if found.token != token_by_run[found.id]:
                self._held.revoke(found.id, token=token_by_run[found.id])
            elif found.cancel_requested_at is not None and not found.is_finished:
                self._held.cancel(found.id)
