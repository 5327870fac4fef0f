"""Reads which schedules did not complete in time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.job import ScheduleRow
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.watch import (
    MissedExpectation,
    covers,
    find_missed,
    is_watched,
    last_expected,
    next_deadline,
)
from tickwork._kernel.step_budget import step_budget
from tickwork._stores.contract import RunFilter, Store
from tickwork.errors import InvalidSchedule

SCHEDULES_MAX: Final = 10_000
"""The most schedules with an expectation that are read, so that a check has a bound."""

RUNS_MAX: Final = 200
"""The newest runs that are read to find out why a firing is late, so that a check has a bound."""

SCANNED: Final = 20_000
"""The rows in which the newest skip is searched, so that a backlog does not make a check slow.

Without the skip, the firing is late all the same.
"""

_MARGIN: Final = timedelta(minutes=1)
"""How much earlier than the firing its run may seem to be: clocks are set, and differ."""


@step_budget()
def read_expected(row: ScheduleRow, *, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The last firing that should have completed by now, and when the next one should.

    None for a rule that this version cannot read, or that takes too many steps.
    """
    try:
        rule = from_text(row.spec.rule)
        return last_expected(row, rule, now=now), next_deadline(row, rule, now=now)
    except InvalidSchedule:
        return None, None


def has_completed(store: Store, row: ScheduleRow, due_at: datetime) -> bool:
    """Whether a run for this firing of a schedule, or for a later one, has completed."""
    where = replace(
        _runs_of(row), since=due_at - _MARGIN, statuses=frozenset({RunStatus.COMPLETED})
    )
    return any(covers(run, due_at) for run in store.list_runs(where, limit=RUNS_MAX).runs)


def read_missed(
    store: Store, row: ScheduleRow, due_at: datetime, *, now: datetime
) -> MissedExpectation | None:
    """Check one firing that should have completed by now."""
    within = row.spec.expect_within
    assert within is not None, row
    if has_completed(store, row, due_at):
        return None
    where = replace(_runs_of(row), since=due_at - _MARGIN)
    runs = store.list_runs(where, limit=RUNS_MAX).runs
    if len(runs) == RUNS_MAX:
        # None of them may be late yet, and older ones are.
        before = now - within + timedelta.resolution
        runs += store.list_runs(replace(where, before=before), limit=RUNS_MAX).runs
    if row.next_due_at is None or row.next_due_at > due_at:
        # It has fired. A row that counts skips was created at the first of them, maybe long before.
        # So was the run because of which they were skipped.
        for status in (RunStatus.SKIPPED, RunStatus.COMPLETED):
            newest = replace(_runs_of(row), statuses=frozenset({status}))
            runs += store.list_runs(newest, limit=1, scan_max=SCANNED).runs
    return find_missed(row, due_at, runs, now=now)


def _runs_of(row: ScheduleRow) -> RunFilter:
    return RunFilter(tenant=row.spec.tenant, job=row.spec.job, schedule=row.spec.name)


def read_all_missed(
    store: Store, *, now: datetime, seen_after: datetime
) -> list[MissedExpectation]:
    """Check all schedules that have an expectation. Nothing is written."""
    all_missed = []
    for row in store.list_expected_schedules(limit=SCHEDULES_MAX):
        if not is_watched(row, now=now, seen_after=seen_after):
            continue
        due_at, _ = read_expected(row, now=now)
        missed = None if due_at is None else read_missed(store, row, due_at, now=now)
        if missed is not None:
            all_missed.append(missed)
    return all_missed
