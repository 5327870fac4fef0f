"""Encodes values for PostgreSQL: everything is sent as text.

Lists are sent as array literals that are built here: the driver needs 1.5 microseconds for each
element, this code some nanoseconds.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from tickwork._stores._sql.statement import Row, Statement

_PLACEHOLDER: Final = re.compile(r"(?<![:\w]):([a-z][a-z_0-9]*)\b")
_OF_ONE: Final = re.compile(r"(?<![:\w]):v\d+\b")
_UNNEST: Final = re.compile(r"unnest\(((?:\s*:c\d+::\w+\[\],?)+\s*)\)(?!\s*WITH ORDINALITY)")
_ELEMENT: Final = re.compile(r":e(\d+)::(\w+)")
_COLUMN: Final = re.compile(r":c(\d+)::(\w+)\[\]")
_NUL: Final = "\x00"


SHAPES_MAX: Final = 16
"""For how many sets of shared columns a statement has texts: each may be prepared."""


class Message(NamedTuple):
    """One statement, ready to be sent."""

    text: bytes
    values: Sequence[bytes | None] | None = None


class _Numbered(NamedTuple):
    """A query with numbered parameters, and their names."""

    text: bytes
    names: tuple[str, ...]


class _Batch(NamedTuple):
    """The same for a batch: each parameter is an array of a column, or a value of a single row."""

    text: bytes
    places: tuple[tuple[bool, int], ...]


def messages(statement: Statement) -> list[Message]:
    """The messages of a statement, in order.

    In a batch, ``:c1`` is the first column of its rows, as an array. A part with ``:v1`` is used
    for a batch of one row, instead of the other parts. ``:e1`` selects the element of each row; if
    all rows share it, it is sent once.
    """
    rows = statement.many
    params = statement.params
    if statement.name == "notify":
        rows = [(queue,) for queue in params["queues"]]
    if rows is None:
        return [
            Message(text, _encode_all([params[name] for name in names]) or None)
            for text, names in map(_numbered, statement.parts)
        ]
    if len(rows) == 1:
        [row] = rows
        return [
            Message(
                text,
                _encode_all(
                    [[row[column]] if is_array else row[column] for is_array, column in places]
                ),
            )
            for text, places in _for_one(statement.parts)
        ]
    columns = list(zip(*rows, strict=True))
    return [
        Message(
            text,
            [
                _as_bytes(array_literal(columns[column]))
                if is_array
                else encoded(columns[column][0])
                for is_array, column in places
            ],
        )
        for text, places in _for_columns(statement.parts, columns)
    ]


@lru_cache(maxsize=512)
def _numbered(part: str) -> _Numbered:
    """From ``:name`` to ``$1``; a name that occurs twice is one parameter."""
    places: dict[str, int] = {}
    text = _PLACEHOLDER.sub(lambda match: f"${places.setdefault(match[1], len(places) + 1)}", part)
    return _Numbered(text.encode(), tuple(places))


@lru_cache(maxsize=512)
def _for_many(parts: tuple[str, ...], shared: frozenset[int] = frozenset()) -> list[_Batch]:
    def element(match: re.Match[str]) -> str:
        number, kind = match.groups()
        return f":v{number}::{kind}" if int(number) in shared else f"unnest(:c{number}::{kind}[])"

    return [_batch(_ELEMENT.sub(element, part)) for part in parts if not _OF_ONE.search(part)]


def _for_columns(parts: tuple[str, ...], columns: Sequence[Row]) -> list[_Batch]:
    if not any(_ELEMENT.search(part) for part in parts):
        return _for_many(parts)
    shared = frozenset(
        number
        for number, column in enumerate(columns[1:], 2)  # there must be one element of each row
        if column.count(column[0]) == len(column)
    )
    shapes = _shapes(parts)
    if shared not in shapes:
        if len(shapes) >= SHAPES_MAX:
            shared = frozenset()
        shapes[shared] = _for_many(parts, shared)
    return shapes[shared]


@lru_cache(maxsize=512)
def _shapes(_: tuple[str, ...]) -> dict[frozenset[int], list[_Batch]]:
    """The texts of a statement, by the numbers of the columns that all rows share."""
    return {}


@lru_cache(maxsize=512)
def _for_one(parts: tuple[str, ...]) -> list[_Batch]:
    """A batch of one row needs no arrays, and gets a better plan without them."""

    def values(match: re.Match[str]) -> str:
        return "(VALUES (" + _COLUMN.sub(r":v\1::\2", match[1]) + "))"

    for_one = [part for part in parts if _OF_ONE.search(part)]
    return [_batch(_UNNEST.sub(values, part)) for part in for_one or parts]


def _batch(part: str) -> _Batch:
    text, names = _numbered(part)
    return _Batch(text, tuple((name[0] == "c", int(name[1:]) - 1) for name in names))


def _encode_all(values: Sequence[Any]) -> list[bytes | None]:
    """Encode values; most of them without a call for each."""
    return [
        None
        if value is None
        else b"%d" % value
        if type(value) is int
        else value.encode()
        if type(value) is str and value.isascii() and _NUL not in value
        else encoded(value)
        for value in values
    ]


def encoded(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _as_bytes(value)
    if isinstance(value, list):
        if value and isinstance(value[0], list):
            return _as_bytes(json.dumps(value, ensure_ascii=False))
        return _as_bytes(array_literal(value))
    assert type(value) is int, value
    return b"%d" % value


def array_literal(values: Sequence[Any]) -> str:
    r"""An array of texts or of numbers.

    >>> array_literal([3, None])
    '{3, NULL}'
    >>> print(array_literal(["a", 'say "b"', None]))
    {"a","say \"b\"",NULL}
    """
    if not values:
        return "{}"
    first = values[0]
    if values.count(first) == len(values):
        if first is None:
            # unnest() fills up a shorter array with NULL.
            return "{}"
        element = _element(first)
        return "{" + f"{element}," * (len(values) - 1) + element + "}"
    some = next(value for value in values if value is not None)
    if isinstance(some, int):
        return "{" + str(list(values))[1:-1].replace("None", "NULL") + "}"
    try:
        body = _NUL.join(values)
    except TypeError:  # there is a None in it
        return "{" + ",".join(["NULL" if text is None else _element(text) for text in values]) + "}"
    if body.count(_NUL) > len(values) - 1:
        return array_literal([text.replace(_NUL, "\N{REPLACEMENT CHARACTER}") for text in values])
    return '{"' + _escaped(body).replace(_NUL, '","') + '"}'


def _element(value: str | int) -> str:
    return f'"{_escaped(value)}"' if isinstance(value, str) else str(value)


def _escaped(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    return text.replace('"', '\\"') if '"' in text else text


def _as_bytes(text: str) -> bytes:
    """Encode a text; characters that PostgreSQL cannot store are replaced."""
    if _NUL in text:
        text = text.replace(_NUL, "\N{REPLACEMENT CHARACTER}")
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return text.encode(errors="replace")
