"""Writes an INSERT of many rows so that it is short.

The server needs a third of a microsecond for each value that it parses. What all rows share is
written once, and NULL is not written; what differs is one JSON text.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tickwork._stores._sql.statement import Row, Rows
from tickwork._stores.mysql.literals import as_json, literal

BULK_MIN: Final = 16
"""From this many rows on, it is faster than a list of rows."""

_PLAIN: Final = re.compile(r"(INSERT INTO \w+) \(([^()]*)\) VALUES \[\[\(([^()]*)\)\]\]")


class PlainInsert(NamedTuple):
    """An INSERT of one row: its table, its columns, and for each a constant or ``?1``."""

    into: str
    columns: tuple[str, ...]
    values: tuple[str, ...]

    def text(self, rows: Rows) -> str:
        columns = list(zip(*rows, strict=True))
        named: dict[str, str] = {}
        own: list[Row] = []
        kinds: list[str] = []
        for name, value in zip(self.columns, self.values, strict=True):
            if not value.startswith("?"):
                named[name] = value
                continue
            column = columns[int(value[1:]) - 1]
            if column.count(column[0]) < len(column):
                named[name] = f"own.{name}"
                kinds.append(f"{name} {_type_of(column)} PATH '$[{len(own)}]'")
                own.append(column)
            elif column[0] is not None:  # the default of each column that may be NULL
                named[name] = literal(column[0])
        values = literal(as_json(list(zip(*own, strict=True))))
        source = f"JSON_TABLE({values}, '$[*]' COLUMNS ({', '.join(kinds)})) AS own"
        target, selected = ", ".join(named), ", ".join(named.values())
        return f"{self.into} ({target}) SELECT {selected} FROM {source}"  # noqa: S608  # our text


def parse_insert(part: str) -> PlainInsert | None:
    match = _PLAIN.fullmatch(part)
    if match is None:
        return None
    return PlainInsert(match[1], *(tuple(names.split(", ")) for names in match.groups()[1:]))


def _type_of(column: Sequence[Any]) -> str:
    some = next(value for value in column if value is not None)
    # Without a character set, a text would lose the characters that the database does not have.
    return "BIGINT" if isinstance(some, int) else "LONGTEXT CHARACTER SET utf8mb4"
