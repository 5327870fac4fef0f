"""Pages of runs for people: by filter, and by text within a bounded number of runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._domain.run import Run
from tickwork._inspect.runs import RunView
from tickwork._kernel.json_form import as_json
from tickwork.stores.contract import RunFilter, Store

SEARCHED_MAX: Final = 2_000
"""The most runs in which one page searches for a text."""

PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    """One page of runs, newest first."""

    runs: list[RunView]
    cursor: str | None  # of the next page; null: this is the last one
    searched: int | None = None  # with a text: in how many runs it was searched
    searched_since: datetime | None = None  # and when the oldest of them was created


def list_runs(
    store: Store,
    view: Callable[[Run], RunView],
    where: RunFilter,
    *,
    text: str,
    cursor: str | None,
    limit: int,
) -> FoundRuns:
    if not text:
        page = store.list_runs(where, cursor=cursor, limit=limit)
        return FoundRuns(runs=[view(run) for run in page.runs], cursor=page.cursor)
    found: list[RunView] = []
    searched, since = 0, None
    while searched < SEARCHED_MAX:
        page = store.list_runs(where, cursor=cursor, limit=PAGE)
        for run in page.runs:
            searched, since, shown = searched + 1, run.created_at, view(run)
            if _contains(shown, text.casefold()):
                found.append(shown)
                if len(found) == limit:
                    return FoundRuns(
                        runs=found, cursor=run.id, searched=searched, searched_since=since
                    )
        cursor = page.cursor
        if cursor is None:
            break
    return FoundRuns(runs=found, cursor=cursor, searched=searched, searched_since=since)


def _contains(run: RunView, text: str) -> bool:
    """Whether the text occurs in what people may see of a run: masked secrets are not searched."""
    shown = (run.id, run.job, run.reason, run.target or "", str(as_json(run.args)))
    return any(text in part.casefold() for part in shown)
