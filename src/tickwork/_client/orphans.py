"""Runs that nobody will ever take: of jobs that no program has any more."""

from datetime import datetime
from typing import Final

from tickwork._define.registry import Registry
from tickwork._domain.status import CLAIMABLE
from tickwork.stores.contract import Canceling, RunFilter, Store

PAGE: Final = 500
REASON: Final = "orphan: no program has had its job for long"


def cancel_orphans(store: Store, registry: Registry, *, before: datetime, now: datetime) -> int:
    """Cancel waiting runs, created before this, of jobs unseen since then; return how many."""
    known = set(registry.definitions())
    known.update(job for worker in store.list_workers() for job in worker.jobs)
    seen = (row for row in store.list_jobs() if row.seen_at is not None)
    known.update(row.name for row in seen if row.seen_at and row.seen_at >= before)
    canceled = 0
    cursor: str | None = None
    # It ends with the last page: what is canceled has left the pages before.
    while True:
        where = RunFilter(statuses=CLAIMABLE, before=before)
        page = store.list_runs(where, cursor=cursor, limit=PAGE)
        for run in page.runs:
            if run.job not in known:
                answer = store.cancel(run.id, now=now, reason=REASON)
                canceled += answer is Canceling.DONE
        cursor = page.cursor
        if cursor is None:
            return canceled
