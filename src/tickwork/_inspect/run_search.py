"""Pages of runs for people: by filter, by text and by argument, within a bounded number of rows."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from tickwork._define.secret_mask import MASK
from tickwork._domain.run import Run
from tickwork._inspect.runs import RunView
from tickwork._kernel.ids import time_of_id
from tickwork._kernel.json_form import as_json
from tickwork.errors import InvalidOption
from tickwork.stores.contract import (
    CountPrecision,
    RunCount,
    RunFilter,
    RunSummary,
    Store,
)

SCAN_MAX: Final = 50_000
"""The most rows of each table that one page reads to find those that match a filter."""

SEARCHED_MAX: Final = 5_000
"""The most runs in which one page searches for a text or an argument."""

COUNTED_MAX: Final = 10_000
PAGE: Final = 1_000
_WORD: Final = re.compile("[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    """One page of runs, newest first."""

    runs: list[RunView]
    cursor: str | None  # of the next page; null: this is the last one
    searched: int | None = None  # with a text or an argument: in how many runs it was searched
    searched_since: datetime | None = None  # set if the search ended here, at a limit
    total: RunCount | None = None  # how many match; null unless it was requested


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


class RunSearch(NamedTuple):
    """What is searched in the runs that match a filter."""

    text: str = ""
    args: Sequence[ArgumentTerm] = ()

    def fits(self, run: RunSummary, read_args: Callable[[str, str], dict[str, Any]]) -> bool:
        """Whether a run fits; ``read_args`` decodes the arguments of a job and masks secrets."""
        text = self.text.casefold()
        if not self.args and any(
            text in part.casefold() for part in (run.id, run.job, run.reason, run.target or "")
        ):
            return True
        if not self._may_fit(run.args.casefold()):
            return False
        args = as_json(read_args(run.job, run.args))
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
    view: Callable[[Run], RunView],
    read_args: Callable[[str, str], dict[str, Any]],
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
    has_total: bool,
) -> FoundRuns:
    if search.text or search.args:
        return _search(store, view, read_args, where, search=search, cursor=cursor, limit=limit)
    page = store.list_runs(where, cursor=cursor, limit=limit, scan_max=SCAN_MAX)
    total = None
    if has_total and (cursor is not None or (page.cursor and not page.searched_to)):
        total = store.count_matches(where, cap=COUNTED_MAX, scan_max=SCAN_MAX)
    elif has_total:  # the page has all of them that a count could find
        is_exact = page.searched_to is None
        precision = CountPrecision.EXACT if is_exact else CountPrecision.AT_LEAST
        total = RunCount(len(page.runs), precision)
    return FoundRuns(
        runs=[view(run) for run in page.runs],
        cursor=page.cursor,
        searched_since=time_of_id(page.searched_to or ""),
        total=total,
    )


def _search(  # as above
    store: Store,
    view: Callable[[Run], RunView],
    read_args: Callable[[str, str], dict[str, Any]],
    where: RunFilter,
    *,
    search: RunSearch,
    cursor: str | None,
    limit: int,
) -> FoundRuns:
    found: list[RunSummary] = []
    searched = 0
    while searched < SEARCHED_MAX and len(found) < limit:
        page = store.list_summaries(where, cursor=cursor, limit=PAGE, scan_max=SCAN_MAX)
        cursor = page.cursor
        for number, run in enumerate(page.runs, start=1):
            if search.fits(run, read_args):
                found.append(run)
                if len(found) == limit:
                    has_more = number < len(page.runs) or cursor is not None
                    cursor, searched = run.id if has_more else None, searched + number
                    break
        else:
            searched += len(page.runs)
        if cursor is None or page.searched_to is not None:
            break
    by_id = {run.id: run for run in store.get_runs([run.id for run in found])}
    return FoundRuns(
        runs=[view(by_id[run.id]) for run in found if run.id in by_id],
        cursor=cursor,
        searched=searched,
        searched_since=time_of_id(cursor or ""),
    )


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
