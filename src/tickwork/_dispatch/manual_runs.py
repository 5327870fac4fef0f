"""Adds runs of a schedule on request: now, or for instants that have passed."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Final

from tickwork._define.registry import Registry
from tickwork._dispatch.dispatch import RunInserter
from tickwork._dispatch.runs import RunHandle, Runs
from tickwork._domain.identity import RunId, ScheduleId, firing_id
from tickwork._domain.job import JobSpec, Overlap, ScheduleRow
from tickwork._domain.runs.run import NewRun
from tickwork._domain.runs.status import FINAL, RunStatus
from tickwork._domain.schedules.contract import Rule, walk
from tickwork._domain.schedules.interval import whole_second
from tickwork._domain.tick import new_manual_run
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import RunFilter, Store
from tickwork.errors import InvalidOption

BACKFILL_MAX: Final = 10_000
"""The most runs that one backfill adds. They are added in one transaction."""

TRIES_MAX: Final = 5
"""How often a skipped instant can be backfilled: each time under another id."""

PAGE: Final = 1_000

_SECOND: Final = timedelta(seconds=1)
_INSTANT: Final = timedelta(microseconds=1)


class ManualRuns:
    """Adds runs beside the firings of a schedule. The next firing stays the same."""

    def __init__(
        self, *, store: Store, registry: Registry, inserter: RunInserter, runs: Runs
    ) -> None:
        self._store = store
        self._registry = registry
        self._inserter = inserter
        self._runs = runs

    def now(self, row: ScheduleRow, *, now: datetime) -> RunHandle[Any]:
        run = new_manual_run(row, self._job(row), RunId(new_id(now)), nominal_at=now, now=now)
        [handle] = self._add([run])
        if row.spec.overlap is Overlap.CANCEL_RUNNING and handle.is_new:
            self._stop_others(row, handle.id, now=now)
        return handle

    def past(
        self,
        row: ScheduleRow,
        rule: Rule,
        *,
        since: datetime,
        until: datetime,
        limit: int,
        now: datetime,
    ) -> list[RunHandle[Any]]:
        """Add a run for each instant from ``since`` to ``until`` without one; return those."""
        job = self._job(row)
        if until < since:
            return []
        count = rule.count_between(since, until)
        if count > limit:
            raise InvalidOption(
                "limit",
                limit,
                f"must be at least {count:,}, the number of firings between since and until",
                fix="Raise limit, or choose a shorter span.",
            )
        runs = [
            new_manual_run(row, job, run_id, nominal_at=instant, now=now, is_queued=True)
            for instant, run_id in sorted(self._find_missing(row.id, _instants(rule, since, until)))
        ]
        # Another process may have added the same runs meanwhile.
        return [handle for handle in self._add(runs, may_be_stored=True) if handle.is_new]

    def _add(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[RunHandle[Any]]:
        answers = self._inserter.add(runs, may_be_stored=may_be_stored) if runs else []
        return [self._runs.handle(answer.run_id, is_new=answer.is_new) for answer in answers]

    def _job(self, row: ScheduleRow) -> JobSpec:
        # The queue, limits and retries of a run come from the definition of its job.
        return self._registry.get(row.spec.job).spec

    def _find_missing(
        self, schedule: ScheduleId, instants: Sequence[datetime]
    ) -> Iterator[tuple[datetime, RunId]]:
        """Yield the instants without a run, each with the id of the run to add.

        The row of a skipped instant already has the id of its run. So the new run gets
        another derived id, and a repeated backfill finds it.
        """
        left = list(instants)
        for attempt in range(TRIES_MAX):
            source = schedule if attempt == 0 else ScheduleId(f"{schedule} {attempt}")
            ids = {firing_id(source, instant): instant for instant in left}
            status_by_id = {run.id: run.status for run in self._store.get_runs(list(ids))}
            yield from ((at, run_id) for run_id, at in ids.items() if run_id not in status_by_id)
            left = [ids[key] for key, status in status_by_id.items() if status is RunStatus.SKIPPED]
            if not left:
                return

    def _stop_others(self, row: ScheduleRow, but: RunId, *, now: datetime) -> None:
        unfinished = RunFilter(
            tenant=row.spec.tenant, schedule=row.spec.name, statuses=frozenset(RunStatus) - FINAL
        )
        cursor = None
        while True:  # ends at the last page
            page = self._store.list_runs(unfinished, cursor=cursor, limit=PAGE)
            for run in page.runs:
                if run.id != but:
                    self._store.cancel(run.id, now=now, reason="Another run was requested.")
            cursor = page.cursor
            if cursor is None:
                return


def last_decided(row: ScheduleRow, *, now: datetime, seen_after: datetime) -> datetime:
    """Return the last instant that the scheduler will not fire any more."""
    fires = not row.is_paused_at(now) and not row.is_retired(seen_after=seen_after)
    ends = [now]
    if fires and row.next_due_at is not None:
        ends.append(row.next_due_at - _INSTANT)
    if row.spec.until is not None:
        ends.append(row.spec.until)
    return min(ends)


def _instants(rule: Rule, since: datetime, until: datetime) -> list[datetime]:
    # In UTC: Python compares two datetimes of one zone by their wall clocks, which is wrong
    # in the hour that clocks go back.
    instants = (instant.astimezone(UTC) for instant in walk(rule, whole_second(since) - _SECOND))
    return list(takewhile(lambda instant: instant <= until, instants))
