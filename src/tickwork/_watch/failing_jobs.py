"""Finds jobs that need an alert because they keep failing."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Final

from tickwork import events
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.watch import judge_failures
from tickwork._stores.contract import JobRow, RunFilter, RunSummary, Store
from tickwork._watch.incidents import Incidents, Raised
from tickwork.alerts.contract import FailingJobAlert, FailureWatch

SCANNED: Final = 20_000
"""The newest rows of a job that are read to find its finished runs: a check has a bound."""

_FAILED: Final = RunStatus.FAILED_PERMANENT
_COUNTED: Final = frozenset({RunStatus.COMPLETED, _FAILED})
"""Skipped and canceled runs are neither successes nor failures."""


class FailingJobs:
    """Checks the jobs that the program watches: see ``app.alerts.watch_failures``."""

    def __init__(
        self,
        *,
        store: Store,
        incidents: Incidents,
        watches: Callable[[], Mapping[str | None, FailureWatch]],
    ) -> None:
        self._store = store
        self._incidents = incidents
        self._watches = watches
        self._well: dict[tuple[str, str], JobRow] = {}  # jobs without an incident, as last read

    def check(self, now: datetime) -> None:
        """Open and close the incidents of all watched jobs."""
        watches = self._watches()
        if not watches:
            return
        for row in self._store.list_jobs():
            watch = watches.get(row.name, watches.get(None))
            key = (row.tenant, row.name)
            if watch is not None and self._well.get(key) != row:
                self._well.pop(key, None)
                if self._check(row, watch, now):
                    self._well[key] = row

    def _check(self, row: JobRow, watch: FailureWatch, now: datetime) -> bool:
        """Check one job; True if it has no incident."""
        where = RunFilter(tenant=row.tenant, job=row.name, statuses=_COUNTED)
        limit = watch.rule.runs_needed
        runs = self._store.list_summaries(where, limit=limit, scan_max=SCANNED).runs
        failed = [run.status is _FAILED for run in runs]
        name = f"job:{row.tenant}:{row.name}"
        is_open = self._incidents.is_open(name)
        reason = judge_failures(watch.rule, failed, is_alerted=is_open)
        if reason is not None:
            reason = f"{reason} {_describe_newest(runs)}"
            describe = partial(_begin, row, reason, now)
            self._incidents.open(name, now, describe, hooks=watch.hooks, now=now)
        elif runs or not is_open:  # if all its runs were pruned, nothing is known
            return self._incidents.close(name, partial(_end, row, now), now=now)
        return False


def _begin(row: JobRow, reason: str, now: datetime, began_at: datetime) -> Raised:
    event = events.JobFailing(at=now, job=row.name, tenant=row.tenant, reason=reason)
    return _alert(row, began_at, reason, now, is_over=False), event


def _end(row: JobRow, now: datetime, began_at: datetime) -> Raised:
    reason = "Its newest runs have completed."
    event = events.JobRecovered(at=now, job=row.name, tenant=row.tenant, reason=reason)
    return _alert(row, began_at, reason, now, is_over=True), event


def _alert(
    row: JobRow, began_at: datetime, reason: str, now: datetime, *, is_over: bool
) -> FailingJobAlert:
    # A hash: the id is a part of headers, and a name may have any characters.
    digest = blake2b(f"{row.tenant}\n{row.name}".encode(), digest_size=8).hexdigest()
    return FailingJobAlert(
        id=f"{digest}:{began_at:%Y%m%dT%H%M%S}:{'over' if is_over else 'failing'}",
        is_over=is_over,
        tenant=row.tenant,
        job=row.name,
        failing_at=began_at,
        at=now,
        reason=reason,
    )


def _describe_newest(runs: list[RunSummary]) -> str:
    newest = next(run for run in runs if run.status is _FAILED)
    return f"The newest failure is run {newest.id}: {newest.reason}"
