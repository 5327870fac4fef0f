r"""Writes statements with their values as text, because PyMySQL has no bound parameters.

``:name`` is a value; a list is its elements, for ``IN (:ids)``, and a list of lists is rows of
them. ``:limit*2`` is twice the value. ``:no_jobs`` is 1 when the list of that name is None, and
``:json_ids`` is the list as one JSON text. What the part before has found is ``:found``, and
``:found_1`` the first column of its first row.

In a batch, ``:rows`` is all of its rows as one JSON text, ``:sorted_rows`` the same by their
first column, and ``:v1`` the first column of the first row. ``[[(?1, ?2)]]`` is written for each
row, with commas in between; ``[[pairs BY UNION ALL (…)]]`` for each row of a value, with that. A
part with ``?1`` elsewhere is a text of its own for each row.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from tickwork._stores._sql.statement import Rows, Statement
from tickwork._stores.mysql.bulk_insert import BULK_MIN, PlainInsert, parse_insert
from tickwork._stores.mysql.literals import as_json, listed, literal, literals

_TOKEN: Final = re.compile(
    r"\[\[(?:(?P<of>[a-z_]+) BY (?P<joint>UNION ALL)\s)?(?P<body>.*?)\]\]"
    r"|(?<![:\w]):(?P<name>[a-z][a-z_0-9]*)(?:\*(?P<times>\d+))?",
    re.DOTALL,
)
_COLUMN: Final = re.compile(r"\?(\d+)")
_OF_ROWS: Final = frozenset({"rows", "sorted_rows"})

Escape: TypeAlias = Callable[[str], str]


class _Place(NamedTuple):
    name: str
    times: int


class _Each(NamedTuple):
    """A part that is written once for each row."""

    of: str
    joint: str
    body: "tuple[str | _Place, ...]"


Piece: TypeAlias = "str | _Place | _Each"


class Template(NamedTuple):
    """One part of a query, parsed."""

    pieces: tuple[Piece, ...]
    needs_found: bool
    is_for_each: bool
    insert: PlainInsert | None

    def texts(self, statement: Statement, rows: Rows = ()) -> list[str]:
        """The text with its values; or one for each row of a batch."""
        text = self.filled(statement, rows)
        if not self.is_for_each:
            return [text]
        return [
            _COLUMN.sub(lambda place, row=row: literal(row[int(place[1]) - 1]), text)  # type: ignore[misc]
            for row in statement.many or ()
        ]

    def filled(self, statement: Statement, rows: Rows = ()) -> str:
        """The text with its values, but for those of each row."""
        if self.insert is not None and len(statement.many or ()) >= BULK_MIN:
            return self.insert.text(statement.many or ())
        values = _Values(statement, rows)
        return "".join(
            [
                piece
                if isinstance(piece, str)
                else values.at(piece)
                if isinstance(piece, _Place)
                else values.each(piece)
                for piece in self.pieces
            ]
        )


@lru_cache(maxsize=512)
def template(part: str) -> Template:
    pieces = _pieces(part)
    return Template(
        pieces,
        any(isinstance(piece, _Place) and piece.name.startswith("found") for piece in pieces),
        any(isinstance(piece, str) and _COLUMN.search(piece) for piece in pieces),
        parse_insert(part),
    )


def _pieces(text: str) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    end = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[end : token.start()])
        end = token.end()
        if token["name"]:
            pieces.append(_Place(token["name"], int(token["times"] or 1)))
        else:
            body = tuple(piece for piece in _pieces(token["body"]) if not isinstance(piece, _Each))
            pieces.append(_Each(token["of"] or "rows", token["joint"] or ",", body))
    pieces.append(text[end:])
    return tuple(pieces)


class _Values:
    def __init__(self, statement: Statement, rows: Rows) -> None:
        self._statement = statement
        self._found = rows

    def at(self, place: _Place) -> str:
        name, times = place
        params, many = self._statement.params, self._statement.many
        if name == "found":
            return listed([row[0] if len(row) == 1 else row for row in self._found])
        if name.startswith("found_"):
            return literal(self._found[0][int(name[6:]) - 1])
        if many is not None:
            if name in _OF_ROWS:
                rows = sorted(many, key=itemgetter(0)) if name == "sorted_rows" else many
                return literal(as_json(rows))
            return literal(many[0][int(name[1:]) - 1])
        if name in params:
            value = params[name]
            if times > 1:
                value *= times
            return listed(value) if isinstance(value, list) else literal(value)
        if name.startswith("no_"):
            return str(int(params[name[3:]] is None))
        assert name.startswith("json_"), name
        return literal(as_json(params[name[5:]]))

    def each(self, each: _Each) -> str:
        rows = self._statement.many if each.of == "rows" else self._statement.params[each.of]
        assert rows, self._statement
        if isinstance(rows[0], str):
            rows = [(value,) for value in rows]
        body = "".join(
            piece.replace("%", "%%") if isinstance(piece, str) else self.at(piece)
            for piece in each.body
        )
        text, columns = _row_form(body)
        joint = each.joint if each.joint == "," else f" {each.joint} "
        if columns == tuple(range(len(rows[0]))):
            return joint.join([text % literals(row) for row in rows])
        return joint.join([text % literals([row[column] for column in columns]) for row in rows])


@lru_cache(maxsize=512)
def _row_form(body: str) -> tuple[str, tuple[int, ...]]:
    """A form for one row, and which of its columns are filled in."""
    columns = tuple(int(number) - 1 for number in _COLUMN.findall(body))
    return _COLUMN.sub("%s", body), columns


def encoded(text: str) -> bytes:
    """Encode a text; a lone surrogate is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace")
