"""Expectations: which firing of a schedule should have completed by now, and whether it did."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tickwork._domain.job import ScheduleRow
from tickwork._domain.run import Run
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.status import RunStatus

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedExpectation:
    """A firing that did not complete within the time that its schedule expects."""

    schedule: str
    tenant: str
    job: str
    due_at: datetime
    expected_by: datetime
    reason: str


def last_expected(row: ScheduleRow, rule: Schedule, *, now: datetime) -> datetime | None:
    """The last firing that should have completed by now; None if there is none."""
    if row.spec.expect_within is None:
        return None
    latest = now - row.spec.expect_within
    return rule.prev_before(latest + _SECOND) if latest > row.created_at else None


def next_deadline(row: ScheduleRow, rule: Schedule, *, now: datetime) -> datetime | None:
    """When the next firing after :func:`last_expected` should have completed."""
    within = row.spec.expect_within
    found = None if within is None else rule.next_after(now - within)
    return None if found is None or within is None else found + within


def is_watched(row: ScheduleRow, *, now: datetime, seen_after: datetime) -> bool:
    """Whether its firings are expected: not if it is paused or retired, or cannot be read."""
    return not (
        row.fault
        or row.spec.expect_within is None
        or row.is_paused_at(now)
        or row.is_retired(seen_after=seen_after)
    )


def covers(run: Run, due_at: datetime) -> bool:
    """Whether the run was made for this firing, or for a later one."""
    nominal_at = run.last_nominal_at or run.nominal_at or run.created_at
    return nominal_at >= due_at


def find_missed(
    row: ScheduleRow, due_at: datetime, runs: Iterable[Run], *, now: datetime
) -> MissedExpectation | None:
    """Judge a firing that should have completed by now, given the runs since then.

    A completed run for this firing, or for a later one, meets the expectation. Otherwise the
    firing is missed if a run was made for it, or if the schedule still waits to fire for it.
    A firing without either was never expected: the schedule was paused, or had another rule.
    """
    within = row.spec.expect_within
    assert within is not None, row
    found = [run for run in runs if covers(run, due_at)]
    if any(run.status is RunStatus.COMPLETED for run in found):
        return None
    late = [run for run in found if (run.nominal_at or run.created_at) + within <= now]
    if late:
        latest = max(late, key=lambda run: run.nominal_at or run.created_at)
        due_at = latest.nominal_at or latest.created_at
        reason = _describe(latest)
    elif row.next_due_at is not None and row.next_due_at <= due_at:
        reason = "No worker has fired it."
    else:
        return None
    return MissedExpectation(
        schedule=row.spec.name,
        tenant=row.spec.tenant,
        job=row.spec.job,
        due_at=due_at,
        expected_by=due_at + within,
        reason=reason,
    )


def _describe(run: Run) -> str:
    text = f"Its run {run.id} is {run.status.value}"
    return f"{text}: {run.reason}" if run.reason else f"{text}."
