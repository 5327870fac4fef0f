"""Failed runs, grouped by their error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from tickwork._domain.error_groups import group_of_error
from tickwork._domain.identity import RunId
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.run_reader import read_runs, read_summaries
from tickwork._inspect.run_search import SCAN_MAX, SEARCHED_MAX
from tickwork._inspect.runs import RunPresenter
from tickwork._kernel.ids import time_of_id
from tickwork._stores.contract import RunFilter, RunSummary, Store

GROUPS_MAX: Final = 50
FAILED: Final = frozenset({RunStatus.FAILED, RunStatus.FAILED_PERMANENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Runs with equal errors."""

    text: str  # what the errors share: numbers and quoted values are written as #
    count: int
    jobs: tuple[str, ...]
    first_at: datetime  # when the first of these runs failed
    last_at: datetime
    newest: RunId
    example: str  # the error of the newest run


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroups:
    """The largest groups of equal errors, and in how many failed runs they were found."""

    groups: list[ErrorGroup]
    searched: int
    searched_since: datetime | None  # set if older runs were not read


class _FailedRun(NamedTuple):
    """What is kept of a run: its arguments may be large."""

    id: RunId
    job: str
    at: datetime


def group_errors(store: Store, presenter: RunPresenter, where: RunFilter) -> ErrorGroups:
    """Group the newest failed runs that match, the largest group first."""
    failed = replace(where, statuses=(where.statuses & FAILED) or FAILED)
    groups: dict[str, list[_FailedRun]] = {}
    searched, cursor = 0, None
    for page in read_summaries(store, failed, limit=SEARCHED_MAX, scan_max=SCAN_MAX):
        for run in page.runs:
            groups.setdefault(group_of_error(run.reason), []).append(_shorten(run))
        searched, cursor = searched + len(page.runs), page.cursor
    largest = sorted(groups.values(), key=lambda group: (-len(group), group[0].id))[:GROUPS_MAX]
    _, runs = read_runs(store, [group[0].id for group in largest])
    newest = {run.id: run for run in runs}
    return ErrorGroups(
        groups=[
            _view(group, presenter.view(newest[group[0].id]).reason)
            for group in largest
            if group[0].id in newest
        ],
        searched=searched,
        searched_since=time_of_id(cursor or ""),
    )


def _shorten(run: RunSummary) -> _FailedRun:
    return _FailedRun(run.id, run.job, run.ended_at or run.started_at or run.created_at)


def _view(group: Sequence[_FailedRun], example: str) -> ErrorGroup:
    return ErrorGroup(
        text=group_of_error(example) or "no text",
        count=len(group),
        jobs=tuple(sorted({run.job for run in group})),
        first_at=min(run.at for run in group),
        last_at=max(run.at for run in group),
        newest=group[0].id,
        example=example,
    )
