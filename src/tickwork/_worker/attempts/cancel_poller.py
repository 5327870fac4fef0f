"""Notices requested cancellations sooner than the heartbeat does."""

from datetime import timedelta
from typing import Final

from tickwork._kernel.clock import Clock
from tickwork._stores.contract import Store
from tickwork._worker.attempts.held_runs import HeldRuns

AFTER: Final = timedelta(milliseconds=500)
"""Younger attempts most likely end before a cancellation matters: most runs are never polled."""

POLL_MAX: Final = 200
"""The most rows that one poll reads, so that 10,000 coroutines do not cost a large statement.

Of more attempts, each poll reads the next ones.
"""


class CancelPoller:
    """Reads the rows of long attempts: a read costs less than a heartbeat."""

    def __init__(self, *, store: Store, held: HeldRuns, clock: Clock) -> None:
        self._store = store
        self._held = held
        self._clock = clock
        self._from = 0

    def poll(self) -> None:
        """Stop attempts whose cancellation was requested. Of very many, read some each time."""
        before = self._clock.now() - AFTER
        long = [
            run
            for run in self._held.snapshot()
            if run.started_at is not None and run.started_at < before and not run.is_stop_requested
        ]
        if not long:
            return
        if len(long) > POLL_MAX:
            self._from = (self._from + POLL_MAX) % len(long)
            long = (long + long)[self._from : self._from + POLL_MAX]
        token_by_run = {run.claim.run_id: run.claim.token for run in long}
        for run in self._store.get_runs(list(token_by_run)):
            if run.token != token_by_run[run.id]:
                self._held.revoke(run.id, token=token_by_run[run.id])
            elif run.cancel_requested_at is not None and not run.is_finished:
                self._held.cancel(run.id)
