"""Pages of runs for people: by filter, by text and by argument, within a bounded number of rows."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tickwork._domain.error_groups import group_of_error
from tickwork._domain.identity import RunId
from tickwork._inspect.run_reader import (
    PAGE_CHARACTERS,
    read_matching,
    read_page,
    read_runs,
    read_summaries,
    size_of_summary,
)
from tickwork._inspect.runs import RunPresenter, RunView
from tickwork._kernel.ids import time_of_id
from tickwork._kernel.json_form import as_json
from tickwork._masks.text import MASK
from tickwork._stores.contract import (
    CountPrecision,
    RunCount,
    RunFilter,
    RunSummary,
    Store,
)
from tickwork.errors import InvalidOption

SCAN_MAX: Final = 50_000
"""The most rows of each table that one page reads to find those that match a filter."""

SEARCHED_MAX: Final = 5_000
"""The most runs in which one page searches for a text or an argument."""

COUNTED_MAX: Final = 10_000
_WORD: Final = re.compile("[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """One page of runs, newest first."""

    runs: list[RunView]
    cursor: str | None  # of the next page; null: this is the last one
    searched: int | None = None  # with a search or another order: how many runs were read
    searched_since: datetime | None = None  # set if the search ended here, at a limit
    total: RunCount | None = None  # how many match; null unless it was requested


class RunMatches(NamedTuple):
    """The ids of the runs in which a search found something, newest first."""

    ids: list[RunId]
    searched: int
    searched_since: datetime | None  # set if the search ended here, at a limit


class ArgumentTerm(NamedTuple):
    """A condition on an argument: ``customer=42``, or ``address.city=Bern`` for a part of it."""

    path: tuple[str, ...]
    value: str

    @property
    def names(self) -> list[str]:
        """The parts of the path that are names: a number may be a place in a list."""
        return [part for part in self.path if not part.isdecimal()]


def parse_argument(text: str) -> ArgumentTerm:
    """Read a condition on an argument.

    Raises:
        InvalidOption: It has no name or no equals sign.
    """
    name, sign, value = text.partition("=")
    path = tuple(name.split("."))
    if not sign or not all(path):
        raise InvalidOption("arg", text, "must be a name and a value, such as customer=42")
    return ArgumentTerm(path, value)


class RunOrder(StrEnum):
    """The order of a list of runs."""

    NEWEST = "newest"
    OLDEST = "oldest"
    RUNTIME = "runtime"  # the longest first
    WAIT = "wait"  # the longest first
    ENDED = "ended"  # the latest first


_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NO_TIME: Final = timedelta(-1)


def _runtime(run: RunSummary) -> timedelta:
    """How long the last attempt took; less than zero if it has not ended."""
    return run.ended_at - run.started_at if run.started_at and run.ended_at else _NO_TIME


def _wait(run: RunSummary) -> timedelta:
    return run.started_at - run.due_at if run.started_at else _NO_TIME


_ORDER_KEYS: Final[Mapping[RunOrder, Callable[[RunSummary], Any]]] = {
    RunOrder.OLDEST: lambda run: run.id,
    RunOrder.RUNTIME: _runtime,
    RunOrder.WAIT: _wait,
    RunOrder.ENDED: lambda run: run.ended_at or _LONG_AGO,
}


class RunSearch(NamedTuple):
    """What is searched in the runs that match a filter, and their order."""

    text: str = ""
    args: Sequence[ArgumentTerm] = ()
    error: str = ""  # part of the text that equal errors share
    longer: timedelta | None = None  # the least runtime
    order: RunOrder = RunOrder.NEWEST

    @property
    def is_scan(self) -> bool:
        """Whether summaries of runs must be read to find the runs of a page."""
        return self != RunSearch()

    def fits(self, run: RunSummary, presenter: RunPresenter) -> bool:
        """Whether a run fits. Secret arguments are not searched."""
        if self.longer is not None and _runtime(run) < self.longer:
            return False
        if self.error and self.error not in group_of_error(run.reason).casefold():
            return False
        return self._contains(run, presenter) if self.text or self.args else True

    def _contains(self, run: RunSummary, presenter: RunPresenter) -> bool:
        text = self.text.casefold()
        if not self.args and any(
            text in part.casefold() for part in (run.id, run.job, run.reason, run.target or "")
        ):
            return True
        if not self._may_fit(run.args.casefold()):
            return False
        args = as_json(presenter.read_args(run.job, run.args))
        if not all(_has_value(args, term) for term in self.args):
            return False
        shown = (run.id, run.job, run.reason, run.target or "", str(args), *_texts_in(args))
        return any(text in part.casefold() for part in shown)

    def _may_fit(self, raw: str) -> bool:
        """Whether stored arguments can fit. Decoding takes ten times as long.

        Escapes and tagged types have another text when they are decoded.
        """
        if "$" in raw or "\\u" in raw:
            return True
        if self.args:
            return all(
                word in raw
                for term in self.args
                for part in (*term.names, term.value)
                for word in _WORD.findall(part.casefold())
            )
        return all(word in raw for word in _WORD.findall(self.text.casefold()))


def list_runs(  # the parameters of a page
    store: Store,
    presenter: RunPresenter,
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
    has_total: bool,
) -> RunList:
    if search.order is not RunOrder.NEWEST:
        return _list_in_order(
            store,
            presenter,
            where,
            search=search,
            cursor=cursor,
            limit=limit,
            has_total=has_total,
        )
    if search.is_scan:
        found = _search(store, presenter, where, search=search, cursor=cursor, limit=limit)
        if not has_total:
            return found
        if cursor is None and found.cursor is None:  # the page has all that match
            return replace(found, total=RunCount(len(found.runs), CountPrecision.EXACT))
        matches = find_matches(store, presenter, where, search=search, limit=COUNTED_MAX)
        return replace(found, total=_total_of(len(matches.ids), matches.searched_since))
    page = read_page(store, where, cursor=cursor, limit=limit, scan_max=SCAN_MAX)
    total = None
    if has_total and (cursor is not None or (page.cursor and not page.searched_to)):
        total = store.count_matches(where, cap=COUNTED_MAX, scan_max=SCAN_MAX)
    elif has_total:  # the page has all of them that a count could find
        is_exact = page.searched_to is None
        precision = CountPrecision.EXACT if is_exact else CountPrecision.AT_LEAST
        total = RunCount(len(page.runs), precision)
    return RunList(
        runs=[presenter.view(run) for run in page.runs],
        cursor=page.cursor,
        searched_since=time_of_id(page.searched_to or ""),
        total=total,
    )


def find_matches(
    store: Store, presenter: RunPresenter, where: RunFilter, *, search: RunSearch, limit: int
) -> RunMatches:
    matches = _find(
        store,
        presenter,
        where,
        search=search,
        cursor=None,
        limit=limit,
        characters_max=math.inf,
    )
    ids = [run_id for run_id, _ in matches.matches]
    return RunMatches(ids, matches.searched, time_of_id(matches.cursor or ""))


def list_newest(store: Store, presenter: RunPresenter, *, limit: int) -> list[RunView]:
    """List the newest runs without arguments, results and progress."""
    # The view comes first: arguments tell what to mask in the reason.
    views = map(presenter.view, read_matching(store, RunFilter(), limit=limit))
    return [replace(view, args={}, result=None, progress=None) for view in views]


class _Matches(NamedTuple):
    matches: list[tuple[RunId, int]]  # each with the number of runs that were searched until then
    cursor: str | None
    searched: int


def _find(  # as above
    store: Store,
    presenter: RunPresenter,
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
    characters_max: float = PAGE_CHARACTERS,
) -> _Matches:
    matches: list[tuple[RunId, int]] = []
    searched = characters = 0
    for page in read_summaries(store, where, cursor=cursor, limit=SEARCHED_MAX, scan_max=SCAN_MAX):
        for number, run in enumerate(page.runs, start=1):
            if search.fits(run, presenter):
                matches.append((run.id, searched + number))
                characters += size_of_summary(run)
                if len(matches) == limit or characters >= characters_max:
                    has_more = number < len(page.runs) or page.cursor is not None
                    return _Matches(matches, run.id if has_more else None, searched + number)
        searched += len(page.runs)
        cursor = page.cursor
    return _Matches(matches, cursor, searched)


def _search(  # as above
    store: Store,
    presenter: RunPresenter,
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
) -> RunList:
    matches, cursor, searched = _find(
        store, presenter, where, search=search, cursor=cursor, limit=limit
    )
    read, runs = read_runs(store, [run_id for run_id, _ in matches])
    if read < len(matches):  # their results are too large for one page
        cursor, searched = matches[read - 1]
    by_id = {run.id: run for run in runs}
    return RunList(
        runs=[presenter.view(by_id[run_id]) for run_id, _ in matches if run_id in by_id],
        cursor=cursor,
        searched=searched,
        searched_since=time_of_id(cursor or ""),
    )


def _list_in_order(  # as above
    store: Store,
    presenter: RunPresenter,
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
    has_total: bool,
) -> RunList:
    """A page of the newest runs that match, in another order. The cursor is its last run."""
    keys: list[tuple[Any, RunId]] = []
    searched, after = 0, None
    for page in read_summaries(store, where, limit=SEARCHED_MAX, scan_max=SCAN_MAX):
        keys += [
            (_ORDER_KEYS[search.order](run), run.id)
            for run in page.runs
            if search.fits(run, presenter)
        ]
        searched, after = searched + len(page.runs), page.cursor
    keys.sort(key=lambda key: key[0], reverse=search.order is not RunOrder.OLDEST)
    ids = [run_id for _, run_id in keys]
    begin = ids.index(RunId(cursor)) + 1 if cursor in ids else 0
    shown = ids[begin : begin + limit]
    read, runs = read_runs(store, shown)
    by_id = {run.id: run for run in runs}
    return RunList(
        runs=[presenter.view(by_id[run_id]) for run_id in shown if run_id in by_id],
        cursor=shown[read - 1] if begin + read < len(ids) else None,
        searched=searched,
        searched_since=time_of_id(after or ""),
        total=_total_of(len(ids), after) if has_total else None,
    )


def _total_of(number: int, cut: object) -> RunCount:
    """A count; ``cut`` is set if the search ended before the last run."""
    return RunCount(number, CountPrecision.AT_LEAST if cut else CountPrecision.EXACT)


def _texts_in(value: Any) -> Iterator[str]:
    """The texts in arguments as people read them: ``str`` escapes some characters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


def _has_value(args: Any, term: ArgumentTerm) -> bool:
    """Whether an argument, or a part of it, has this value. A masked one never has."""
    value = args
    for name in term.path:
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return False
    if isinstance(value, str):
        return value == term.value and value != MASK
    return json.dumps(value) == term.value
