"""Cleanup: prune finished runs, cancel runs of jobs that no program defines any more."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from tickwork._control.catalog import SEEN_EVERY
from tickwork._define.registry import Registry
from tickwork._domain.runs.status import CLAIMABLE
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ChangeResult, Pruned, RunFilter, Store
from tickwork.errors import InvalidOption

PRUNE_BATCH: Final = 1_000
PRUNE_ROUNDS_MAX: Final = 10_000
DAYS_MAX: Final = 36_500
UNSEEN_MIN: Final = timedelta(seconds=2 * SEEN_EVERY)
"""A live program may have marked its definitions as seen this long ago, one late mark included."""

PAGE_SIZE: Final = 500
AUDIT_DAYS_MIN: Final = 365
"""The audit log and ended alerts are kept for a year at least, however few days of runs are."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ORPHAN_REASON: Final = "orphan: no program has had its job for long"


class Cleanup:
    """Removes what is no longer needed."""

    def __init__(self, *, store: Store, clock: Clock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry

    def prune(
        self, days: float, *, batch: int, on_batch: Callable[[Pruned], object] | None
    ) -> Pruned:
        """Delete finished runs, and definitions that are no longer in use, in batches."""
        now = self._clock.now()
        before = now - _age(days)
        unseen_before = min(before, now - UNSEEN_MIN)
        total = Pruned(0, 0, 0)
        with_definitions = False  # they need a scan of all tables, so they come once, at the end
        for _ in range(PRUNE_ROUNDS_MAX):
            gone = self._store.prune(
                before=unseen_before if with_definitions else before,
                limit=batch,
                with_definitions=with_definitions,
            )
            total = Pruned(*(sum(pair) for pair in zip(total, gone, strict=True)))
            if on_batch is not None:
                on_batch(total)
            if not any(gone) and with_definitions:
                break
            with_definitions = with_definitions or not any(gone)
        self._prune_audit(_age(max(days, AUDIT_DAYS_MIN)), batch)
        self._prune_alerts(_age(max(days, AUDIT_DAYS_MIN)), batch)
        return total

    def _prune_audit(self, age: timedelta, batch: int) -> None:
        before = new_id(max(self._clock.now() - age, _EPOCH))
        for _ in range(PRUNE_ROUNDS_MAX):
            if not self._store.prune_audit(before=before, limit=batch):
                break

    def _prune_alerts(self, age: timedelta, batch: int) -> None:
        before = max(self._clock.now() - age, _EPOCH)
        for _ in range(PRUNE_ROUNDS_MAX):
            if not self._store.prune_alerts(before=before, limit=batch):
                break

    def cancel_orphans(self, days: float) -> int:
        """Cancel old waiting runs of jobs that were not defined since; return how many."""
        now = self._clock.now()
        before = now - _age(days)
        known = set(self._registry.definitions())
        known.update(job for worker in self._store.list_workers() for job in worker.jobs)
        jobs = self._store.list_jobs()
        known.update(row.name for row in jobs if row.seen_at and row.seen_at >= before)
        where = RunFilter(statuses=CLAIMABLE, before=before)
        canceled = 0
        cursor: str | None = None
        # It ends with the last page: canceled runs have left the pages before it.
        while True:
            page = self._store.list_runs(where, cursor=cursor, limit=PAGE_SIZE)
            for run in page.runs:
                if run.job not in known:
                    answer = self._store.cancel(run.id, now=now, reason=ORPHAN_REASON)
                    canceled += answer is ChangeResult.DONE
            cursor = page.cursor
            if cursor is None:
                return canceled


def _age(days: float) -> timedelta:
    if not 0 <= days <= DAYS_MAX:  # also False for NaN
        raise InvalidOption("days", days, f"must be between 0 and {DAYS_MAX}")
    return timedelta(days=days)
