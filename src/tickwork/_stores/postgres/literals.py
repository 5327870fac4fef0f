"""Statements without parameters, and rows without types, for drivers that convert values.

Values are ASCII literals, which do not depend on settings. Rows are returned as JSON, so that the
caller's codecs and typecasters are not used.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final

from tickwork._stores._sql.statement import Row
from tickwork._stores.postgres.values import Message

_PLACE: Final = re.compile(r"\$(\d+)")
_VERB: Final = re.compile(rb"[()]|\b(?:SELECT|INSERT|UPDATE|DELETE)\b")


def row_of(line: bytes) -> Row:
    """A row that ``row_to_json`` returned."""
    # Columns without a name all have the same one.
    pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
    return tuple(value for _, value in pairs)


@lru_cache(maxsize=512)
def returns_rows(text: bytes) -> bool:
    """Whether a statement is a query, also after a WITH clause.

    >>> returns_rows(b"SELECT 1"), returns_rows(b"WITH a AS (SELECT 1) SELECT * FROM a")
    (True, True)
    >>> returns_rows(b"WITH a AS (SELECT 1) DELETE FROM b"), returns_rows(b"BEGIN")
    (False, False)
    """
    depth = 0
    for verb in _VERB.finditer(text):
        if verb[0] in b"()":
            depth += 1 if verb[0] == b"(" else -1
        elif depth == 0:
            return verb[0] == b"SELECT"
    return False


def inline_values(message: Message) -> str:
    r"""A statement with its values as literals.

    >>> print(inline_values(Message(b"SELECT $1, $2, $2", [b'it\'s "\\"', None])))
    SELECT E'it''s \"\\\"', NULL, NULL
    >>> print(inline_values(Message("SELECT $1".encode(), ["\n€😀".encode()])))
    SELECT E'\n\u20ac\ud83d\ude00'
    """
    text, values = message
    written = ["NULL" if value is None else _literal(value) for value in values or ()]
    return _PLACE.sub(lambda place: written[int(place[1]) - 1], text.decode())


def _literal(value: bytes) -> str:
    """An escape string: JSON escapes are valid in it, only the quotes differ."""
    return "E'" + json.dumps(value.decode())[1:-1].replace("'", "''") + "'"
