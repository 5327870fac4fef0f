"""Statements that operations yield, and what a database returns for them."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Sequence[Row]


class Statement(NamedTuple):
    """A named query with its values.

    ``parts`` run in order, with the same values; the result is the rows of the last. With
    ``many``, each part runs once for each of its rows, as one batch, and the result is one row
    with the number of rows that the first part changed. A statement that needs no result may be
    sent together with the next one. The commit may be sent together with a statement that
    ``is_last`` in its transaction.
    """

    name: str
    parts: tuple[str, ...]
    params: Mapping[str, Any]
    many: Rows | None = None
    needs_result: bool = True
    is_last: bool = False


class StatementResult(NamedTuple):
    """The result of one statement: its rows, or None and how many rows it changed."""

    rows: Rows | None
    changed: int


class WriteConflict(Exception):  # noqa: N818  # never leaves the stores
    """Another transaction changed what this operation had read. The store starts it again."""


# An operation yields statements, receives their rows, and returns a domain value. It never
# touches a connection, so sync and async drivers run the same code.
Operation: TypeAlias = Generator[Statement, Rows, T]
