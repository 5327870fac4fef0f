"""Reads which schedules did not complete in time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from tickwork._domain.expectations import (
    MissedExpectation,
    covers,
    find_missed,
    is_watched,
    last_expected,
)
from tickwork._domain.job import ScheduleRow
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.status import RunStatus
from tickwork.errors import InvalidSchedule
from tickwork.stores.contract import RunFilter, RunPage

SCHEDULES_MAX: Final = 10_000
RUNS_MAX: Final = 200
"""The newest runs that are read to find out why a firing is late."""

_MARGIN: Final = timedelta(minutes=1)


class ExpectationStore(Protocol):
    """What reading needs of a store."""

    def list_expected_schedules(self, *, limit: int) -> list[ScheduleRow]:
        """Schedules that have an expectation."""

    def list_runs(self, where: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Runs, the newest first."""


def read_rule(row: ScheduleRow) -> Schedule | None:
    """The rule of a schedule; None if this version cannot read it."""
    try:
        return from_text(row.spec.rule)
    except InvalidSchedule:
        return None


def read_missed(
    store: ExpectationStore, row: ScheduleRow, due_at: datetime, *, now: datetime
) -> MissedExpectation | None:
    """Check one firing that should have completed by now."""
    spec = row.spec
    where = RunFilter(tenant=spec.tenant, job=spec.job, schedule=spec.name, since=due_at - _MARGIN)
    completed = replace(where, statuses=frozenset({RunStatus.COMPLETED}))
    if any(covers(run, due_at) for run in store.list_runs(completed, limit=RUNS_MAX).runs):
        return None
    runs = store.list_runs(where, limit=RUNS_MAX).runs
    return find_missed(row, due_at, runs, now=now)


def read_all_missed(
    store: ExpectationStore, *, now: datetime, seen_after: datetime
) -> list[MissedExpectation]:
    """Check all schedules that have an expectation. Nothing is written."""
    found = []
    for row in store.list_expected_schedules(limit=SCHEDULES_MAX):
        rule = read_rule(row) if is_watched(row, now=now, seen_after=seen_after) else None
        due_at = None if rule is None else last_expected(row, rule, now=now)
        missed = None if due_at is None else read_missed(store, row, due_at, now=now)
        if missed is not None:
            found.append(missed)
    return found
