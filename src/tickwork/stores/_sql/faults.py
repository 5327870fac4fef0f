"""Finds the rows with which a statement fails, by splitting the batch, and logs each once."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from tickwork.errors import OutcomeUnknown, StoreError

_log: Final = logging.getLogger("tickwork.worker")

_REPORTED_MAX: Final = 10_000
_reported: set[tuple[str, str, str]] = set()

T = TypeVar("T")
R = TypeVar("R")


class Fault(NamedTuple, Generic[T]):
    """An item with which an operation fails, and the error."""

    item: T
    error: Exception


def may_be_fault_of_row(error: Exception) -> bool:
    """Whether a row may be the cause, not the connection or the schema."""
    return type(error) is StoreError or not isinstance(error, StoreError)


def bisect_faults(
    items: Sequence[T], act: Callable[[Sequence[T]], R], error: Exception
) -> tuple[list[R], list[Fault[T]]]:
    """Call ``act`` with each half of the items, and so on, until the items at fault are found.

    Returns the results of the successful calls, in order, and the items at fault.
    """
    if len(items) == 1:
        return [], [Fault(items[0], error)]
    results: list[R] = []
    faults: list[Fault[T]] = []
    middle = len(items) // 2
    for half in (items[:middle], items[middle:]):
        try:
            results.append(act(half))
        except Exception as failure:
            if may_be_fault_of_row(failure):
                more, found = bisect_faults(half, act, failure)
                results += more
                faults += found
            elif results and not isinstance(failure, OutcomeUnknown):
                break  # the caller needs the results; its next call fails as well
            else:
                raise
    return results, faults


def report_fault(table: str, key: object, reason: str) -> None:
    """Log that a row cannot be used: once, because a worker reads it again and again."""
    fact = (table, repr(key), reason)
    if fact not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(fact)
        _log.warning("A row of %s cannot be used (%s): %s", *fact)
