"""Values as SQL text."""

import json
from collections.abc import Sequence
from typing import Any

from tickwork._stores._sql.statement import Row


def literal(value: Any) -> str:
    r"""One value.

    >>> literal("it's"), literal(None), literal(3)
    ("'it''s'", 'NULL', '3')
    >>> print(literal("a\\b"))
    'a\\b'
    """
    if value is None:
        return "NULL"
    if isinstance(value, str):
        if "\\" in value:
            value = value.replace("\\", "\\\\")
        if "'" in value:
            value = value.replace("'", "''")
        return f"'{value}'"
    assert type(value) is int, value
    return str(value)


def literals(values: Sequence[Any]) -> tuple[str, ...]:
    """Each value; numbers and NULL without a call for each.

    >>> literals(["a", None, 3])
    ("'a'", 'NULL', '3')
    """
    return tuple(
        [
            "NULL" if value is None else str(value) if type(value) is int else literal(value)
            for value in values
        ]
    )


def listed(values: Sequence[Any]) -> str:
    """Values with commas between them; for no values NULL, which equals nothing.

    >>> listed(["a", "b"]), listed([["a", 1], ["b", 2]]), listed([])
    ("'a','b'", "('a',1),('b',2)", 'NULL')
    """
    if not values:
        return "NULL"
    if isinstance(values[0], str | int):
        return ",".join(literals(values))
    return ",".join([f"({','.join(literals(row))})" for row in values])


def as_json(rows: Sequence[Row] | Sequence[str]) -> str:
    """Rows for JSON_TABLE."""
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
