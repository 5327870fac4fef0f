"""``runs --follow``: polls for new runs and for runs whose status or progress changed."""

from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import RunFilter
from tickwork.app.tickwork import Tickwork

_State: TypeAlias = tuple[RunStatus, int, str | None]

PAGE: Final = 200
UNFINISHED_MAX: Final = 1_000
"""Unfinished runs that are polled by id, besides the newest page."""

SEEN_MAX: Final = 10 * UNFINISHED_MAX


LATE_COMMIT: Final = timedelta(seconds=10)
"""A run that was created this long before the first read may have been committed after it."""


class RunFollower:
    """Finds the runs that are new or changed since the last poll.

    ``newest`` are the newest runs at the start, at most ``limit``, in the order of their last
    change. Older ones are history, even if a later poll reads them for the first time.
    """

    def __init__(self, app: Tickwork, where: RunFilter, *, limit: int) -> None:
        self._app = app
        self._where = where
        self._since = app.clock.now() - LATE_COMMIT
        self._seen: dict[str, _State] = {}
        self._unfinished: dict[RunId, Run] = {}
        seen = app.runs.page(where, limit=max(limit, PAGE)).runs
        for run in seen:
            self._remember(run)
        self.newest = sorted(seen[:limit], key=_changed_at)

    def poll(self) -> list[Run]:
        """The runs that changed, the oldest first."""
        page = self._app.runs.page(self._where, limit=PAGE).runs
        run_by_id = {run.id: run for run in page}
        # Unfinished runs that dropped out of the newest page are read by id.
        missing = [run_id for run_id in self._unfinished if run_id not in run_by_id]
        run_by_id |= {run.id: run for run in self._app.runs.get_many(missing)}
        changed = [
            run
            for run in run_by_id.values()
            if self._seen.get(run.id) != _state(run)
            and (run.id in self._seen or _changed_at(run) >= self._since)
        ]
        for run in run_by_id.values():
            self._remember(run)
        return sorted(changed, key=_changed_at)

    def _remember(self, run: Run) -> None:
        self._seen[run.id] = _state(run)
        if run.is_finished:
            self._unfinished.pop(run.id, None)
        else:
            self._unfinished[run.id] = run
        for old in list(self._unfinished)[: max(len(self._unfinished) - UNFINISHED_MAX, 0)]:
            del self._unfinished[old]
        for oldest in list(self._seen)[: max(len(self._seen) - SEEN_MAX, 0)]:
            del self._seen[oldest]


def _changed_at(run: Run) -> datetime:
    return run.ended_at or run.started_at or run.created_at


def _state(run: Run) -> _State:
    return run.status, run.token, run.progress
