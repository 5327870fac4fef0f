"""``runs --follow``: polls for new runs and for runs whose status changed."""

from collections.abc import Iterable
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.status import RunStatus
from tickwork.app import Tickwork
from tickwork.stores.contract import RunFilter

PAGE: Final = 200
UNFINISHED_MAX: Final = 1_000
"""Unfinished runs that are polled by id, besides the newest page."""

SEEN_MAX: Final = 10 * UNFINISHED_MAX


class RunFollower:
    """Finds the runs that are new or changed since the last poll."""

    def __init__(self, app: Tickwork, where: RunFilter, seen: Iterable[Run]) -> None:
        self._app = app
        self._where = where
        self._seen: dict[str, tuple[RunStatus, int]] = {}
        self._unfinished: dict[RunId, Run] = {}
        for run in seen:
            self._remember(run)

    def poll(self) -> list[Run]:
        """The runs that changed, the oldest first."""
        page = self._app.runs.page(self._where, limit=PAGE).runs
        found = {run.id: run for run in page}
        # Unfinished runs that dropped out of the newest page are read by id.
        missing = [run_id for run_id in self._unfinished if run_id not in found]
        found |= {run.id: run for run in self._app.runs.get_many(missing)}
        changed = [run for run in found.values() if self._seen.get(run.id) != _state(run)]
        for run in found.values():
            self._remember(run)
        return sorted(changed, key=lambda run: run.ended_at or run.started_at or run.created_at)

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


def _state(run: Run) -> tuple[RunStatus, int]:
    return run.status, run.token
