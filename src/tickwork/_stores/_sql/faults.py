"""Finds the rows with which a statement fails, by splitting the batch, and logs each once."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from tickwork.errors import OutcomeUnknown, RowRejected, StoreError, ValueRejected

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
    """Whether a row may be the cause, not the database or this process."""
    if isinstance(error, ValueRejected | RowRejected):
        return True
    # Errors of other kinds come from reading the row, or from planning with it.
    return not isinstance(error, StoreError | MemoryError)


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
                more, more_faults = bisect_faults(half, act, failure)
                results += more
                faults += more_faults
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


Rejection: TypeAlias = ValueRejected | RowRejected


class RejectionTable(NamedTuple):
    """The errors of one dialect that concern a row: their codes, or classes of codes.

    ``triggers`` are errors that triggers of other programs raise. They concern one row, so the
    others of its batch can be written. But the trigger may dislike anything, also a status or the
    hour of the day: shortening an outcome would lose a result and need not help.
    """

    values: frozenset[str]
    triggers: frozenset[str]

    def find(self, codes: Sequence[str], reason: str, *, fix: str = "") -> Rejection | None:
        """Return the rejection for an error; None if it concerns no row.

        ``codes`` are the code of the error and the classes that contain it.
        """
        if not self.triggers.isdisjoint(codes):
            return RowRejected(reason, state=codes[0])
        if not self.values.isdisjoint(codes):
            return ValueRejected(reason, state=codes[0], fix=fix)
        return None


def reject_unencodable(error: UnicodeError | OverflowError) -> ValueRejected:
    """The rejection of a value that the driver cannot encode for the database."""
    return ValueRejected(str(error), state=type(error).__name__)
