"""What an operation says to a database, and what it hears."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Sequence[Row]


class Statement(NamedTuple):
    """A named query with its values.

    ``parts`` are run in order, with the same values; the rows are those of the last. With
    ``many``, each part is run once for every row of it, as one batch, and the answer is
    one row with the number of rows that the first part changed. What is not asked for its
    answer has none, and may travel with the next statement.
    """

    name: str
    parts: tuple[str, ...]
    params: Mapping[str, Any]
    many: Rows | None = None
    is_asked: bool = True


class Overtaken(Exception):  # noqa: N818  # never leaves the stores
    """Somebody else wrote what this operation had read. It is begun anew, with nothing kept."""


# An operation yields statements, is sent rows, and returns a domain value. It never
# touches a connection, so it has no colour: anything that can run SQL can drive it.
Operation: TypeAlias = Generator[Statement, Rows, T]
