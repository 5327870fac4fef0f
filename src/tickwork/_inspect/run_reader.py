"""Reads runs in steps: the arguments and results of a thousand runs may not fit into the memory.

A first statement reads a few rows. How many the next one reads depends on their size.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._stores.contract import RunFilter, RunPage, RunSummary, Store, SummaryPage

PAGE_CHARACTERS: Final = 2**20
"""The most characters in the arguments, results and reasons of one page. A page whose runs have
more ends early, so that readers cannot fill the memory of the server."""

STEP_FIRST: Final = 25
STEP_MIN: Final = 5
STEP_MAX: Final = 1_000
"""Rows that one statement reads."""


class StepSize:
    """How many rows the next statement reads."""

    def __init__(self) -> None:
        self._rows = STEP_FIRST
        self.characters = 0  # of all rows until now

    def of(self, wanted: int) -> int:
        return min(self._rows, wanted)

    @property
    def is_page_full(self) -> bool:
        return self.characters >= PAGE_CHARACTERS

    def learn(self, sizes: Iterable[int]) -> None:
        """Note the sizes of the rows of one statement."""
        known = list(sizes)
        total = sum(known)
        self.characters += total
        fitting = PAGE_CHARACTERS * len(known) // max(total, 1)
        self._rows = max(min(fitting, 4 * self._rows, STEP_MAX), STEP_MIN)


def read_page(
    store: Store, where: RunFilter, *, cursor: str | None, limit: int, scan_max: int | None = None
) -> RunPage:
    """Read runs until the page is full or too large, or the search ends."""
    runs: list[Run] = []
    step = StepSize()
    while True:  # ends: each statement reads at least one run, or is the last one
        wanted = step.of(limit - len(runs))
        page = store.list_runs(where, cursor=cursor, limit=wanted, scan_max=scan_max)
        runs += page.runs
        step.learn(map(_size_of, page.runs))
        cursor = page.cursor
        has_ended = cursor is None or page.searched_to is not None
        if has_ended or len(runs) >= limit or step.is_page_full:
            return page._replace(runs=runs)


def read_matching(store: Store, where: RunFilter, *, limit: int) -> Iterator[Run]:
    """Read runs, newest first, with one page in memory at a time."""
    cursor, left = None, limit
    while left:
        page = read_page(store, where, cursor=cursor, limit=left)
        yield from page.runs
        cursor, left = page.cursor, left - len(page.runs)
        if cursor is None:
            return


def list_without_payloads(store: Store, where: RunFilter, *, limit: int) -> list[Run]:
    """List runs, newest first, as if they had no arguments, result and progress."""
    page = read_matching(store, where, limit=limit)
    return [replace(run, args="{}", result=None, progress=None) for run in page]


def read_runs(store: Store, run_ids: Sequence[RunId]) -> tuple[int, list[Run]]:
    """Read the first of these runs, until the page is too large.

    Returns how many ids were read, and their runs: some may be deleted.
    """
    runs: list[Run] = []
    step, read = StepSize(), 0
    while read < len(run_ids) and not step.is_page_full:
        part = run_ids[read : read + step.of(len(run_ids))]
        readable = store.get_runs(part)
        step.learn(map(_size_of, readable))
        runs += readable
        read += len(part)
    return read, runs


def read_summaries(
    store: Store,
    where: RunFilter,
    *,
    cursor: str | None = None,
    limit: int,
    scan_max: int | None = None,
) -> Iterator[SummaryPage]:
    """Read summaries, newest first, in pages of a bounded size."""
    left, step = limit, StepSize()
    while left:
        wanted = step.of(left)
        page = store.list_summaries(where, cursor=cursor, limit=wanted, scan_max=scan_max)
        yield page
        step.learn(map(size_of_summary, page.runs))
        cursor, left = page.cursor, left - len(page.runs)
        if cursor is None or page.searched_to is not None:
            return


def size_of_summary(run: RunSummary) -> int:
    return len(run.args) + len(run.reason)


def _size_of(run: Run) -> int:
    return len(run.args) + len(run.result or "") + len(run.progress or "") + len(run.reason)
