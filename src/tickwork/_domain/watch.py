"""Expectations: which firing of a schedule should have completed by now, and whether it did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from tickwork._domain.job import ScheduleRow
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.tick import PAUSED, RULE_CHANGED
from tickwork._kernel.plain_text import count_of
from tickwork.errors import InvalidOption

_MICROSECOND = timedelta(microseconds=1)

NOT_EXPECTED = (PAUSED, RULE_CHANGED)
"""Why firings were skipped that no one waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedExpectation:
    """A firing that did not complete within the time that its schedule expects."""

    schedule: str
    tenant: str
    job: str
    due_at: datetime
    expected_by: datetime
    reason: str


def last_expected(row: ScheduleRow, rule: Rule, *, now: datetime) -> datetime | None:
    """The last firing that should have completed by now; None if there is none."""
    if row.spec.expect_within is None:
        return None
    latest = now - row.spec.expect_within
    return rule.prev_before(latest + _MICROSECOND) if latest > row.created_at else None


def next_deadline(row: ScheduleRow, rule: Rule, *, now: datetime) -> datetime | None:
    """When the next firing after :func:`last_expected` should have completed."""
    within = row.spec.expect_within
    due_at = None if within is None else rule.next_after(now - within)
    return None if due_at is None or within is None else due_at + within


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
    firing is missed if a run was made for it that is late, if the schedule still waits to fire
    for it, or if the schedule has fired without a row that is left: that of the skip was pruned.
    Any other firing was never expected: the schedule was paused, or had another rule.

    A skipped firing has no run of its own, so any run that completed after it meets it: mostly
    the one because of which it was skipped.
    """
    runs = list(runs)
    within = row.spec.expect_within
    assert within is not None, row
    rows = [run for run in runs if covers(run, due_at)]
    of_firing = [run for run in rows if run.reason not in NOT_EXPECTED]
    if any(run.status is RunStatus.COMPLETED for run in of_firing):
        return None
    expected_at = due_at
    late = [run for run in of_firing if (run.nominal_at or run.created_at) + within <= now]
    if late:
        latest = max(late, key=lambda run: run.nominal_at or run.created_at)
        due_at = latest.nominal_at or latest.created_at
        reason = _describe(latest)
        is_skipped = latest.status is RunStatus.SKIPPED
    elif row.next_due_at is not None and row.next_due_at <= due_at:
        reason = "No worker has fired it."
        is_skipped = False
    elif not rows and row.last_fired_at is not None and row.last_fired_at >= due_at:
        reason = "It was skipped."
        is_skipped = True
    else:
        return None
    if is_skipped and any(_completed_after(run, expected_at) for run in runs):
        return None
    return MissedExpectation(
        schedule=row.spec.name,
        tenant=row.spec.tenant,
        job=row.spec.job,
        due_at=due_at,
        expected_by=due_at + within,
        reason=reason,
    )


def _completed_after(run: Run, due_at: datetime) -> bool:
    return run.status is RunStatus.COMPLETED and run.ended_at is not None and run.ended_at >= due_at


def _describe(run: Run) -> str:
    text = f"Its run {run.id} is {run.status.value}"
    return f"{text}: {run.reason}" if run.reason else f"{text}."


RUNS_DEFAULT: Final = 20
RUNS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """A job needs an alert if so many runs failed in a row, or such a share of the last ``runs``.

    Raises:
        InvalidOption: A value has an invalid type or is out of range, or there is no condition.
    """

    in_a_row: int | None = None
    share: float | None = None
    runs: int = RUNS_DEFAULT

    def __post_init__(self) -> None:
        if self.in_a_row is None and self.share is None:
            raise InvalidOption(
                "in_a_row", None, "must be a number if there is no share", fix="Use in_a_row=3."
            )
        if self.in_a_row is not None:
            _check_count("in_a_row", self.in_a_row)
        if self.share is not None and not _is_share(self.share):
            raise InvalidOption(
                "share", self.share, "must be greater than 0 and at most 1", fix="Use share=0.5."
            )
        _check_count("runs", self.runs)

    @property
    def runs_needed(self) -> int:
        """How many finished runs decide."""
        return max(self.in_a_row or 1, self.runs if self.share is not None else 1)


def judge_failures(
    rule: FailureRule, failed: Sequence[bool], *, is_alerted: bool = False
) -> str | None:
    """Return why a job needs an alert, or None. ``failed`` are its finished runs, newest first.

    An alert is over when the newest run has completed, and when at most half of ``share`` failed:
    a job near its share would otherwise raise one alert after the other.
    """
    in_a_row = sum(1 for _ in takewhile(bool, failed))
    last = failed[: rule.runs]
    failures = sum(last)
    if rule.in_a_row is not None and in_a_row >= (1 if is_alerted else rule.in_a_row):
        return f"{count_of(in_a_row, 'run')} failed in a row."
    if rule.share is not None and len(last) == rule.runs:
        share = failures / rule.runs
        if share > rule.share / 2 if is_alerted else share >= rule.share:
            return f"{failures:,} of the last {count_of(rule.runs, 'run')} failed."
    return None


def _check_count(option: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= RUNS_MAX:
        raise InvalidOption(option, value, f"must be an integer between 1 and {RUNS_MAX:,}")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
