"""Reads the ``.sql`` files of a dialect once, and makes statements by name.

A file is a list of ``-- name: claim_ready`` blocks; a block may hold several statements,
each ended by a semicolon at the end of a line. ``-- fragment: is_due`` names text that
``{is_due}`` stands for; the lists of columns (``{claim_columns}``) are in ``columns.py``, and
``{run.claim_columns}`` qualifies each of them. Values are written ``:name``.

The queries in ``common_queries`` are for all dialects. They have the casts of PostgreSQL
(``:now::bigint``) and the index hints of MySQL, which other dialects leave out; the other
differences are fragments in ``words.sql`` of each dialect. A query of a dialect replaces a common
one of the same name.
"""

import re
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tickwork._dialects import DIALECT_BY_PACKAGE, OptionalStatements
from tickwork._stores._sql.columns import COLUMN_LISTS
from tickwork._stores._sql.era_memory import EraMemory
from tickwork._stores._sql.rows import PLAIN_MAPPERS, RowMappers
from tickwork._stores._sql.statement import Rows, Statement
from tickwork._stores.cipher import Cipher
from tickwork.errors import InvalidOption

TABLE_PREFIX: Final = "tickwork_"
ERAS_MAX: Final = 12
"""How many eras a statement merges: there is a text for each number of ``{era_heads}``."""

COMMON_PACKAGE: Final = "tickwork._stores._sql"
"""The package of the texts for all dialects."""

_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")
_BLOCK: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^[ \t]*--(?! (?:name|fragment): \w+$).*\n?", re.MULTILINE)
_END: Final = re.compile(r";[ \t]*(?:\n|\Z)")
_FRAGMENT: Final = re.compile(r"\{(?:(\w+)\.)?(\w+)\}")
_CAST: Final = re.compile(r"::\w+")
_INDEX_HINT: Final = re.compile(r" FORCE INDEX \(\w+\)")
_ERA_HEADS: Final = "{era_heads}"


def check_prefix(prefix: object) -> str:
    """Check the prefix of the tables: it becomes part of every statement.

    Raises:
        InvalidOption: It is not an identifier.
    """
    if not isinstance(prefix, str) or _PREFIX.fullmatch(prefix) is None:
        raise InvalidOption("prefix", prefix, f"must be an identifier ({_PREFIX.pattern})")
    return prefix


class Queries:
    """The named queries of one dialect."""

    def __init__(self, package: str, *, prefix: str = TABLE_PREFIX) -> None:
        texts, fragments = _read_queries(package)
        self._fragments = fragments
        self._parts_by_eras: dict[str, list[tuple[str, ...]]] = {}
        self.eras: EraMemory | None = None  # None: each claim looks where ready runs are
        self.package = package
        self.prefix: str = check_prefix(prefix)
        for name, body in texts.items():
            if _ERA_HEADS in body:
                self._parts_by_eras[name] = [
                    tuple(_split(self._expand(_with_heads(body, fragments, count))))
                    for count in range(1, ERAS_MAX + 1)
                ]
        self.parts_by_name: Mapping[str, tuple[str, ...]] = {
            name: tuple(_split(self._expand(body)))
            for name, body in texts.items()
            if _ERA_HEADS not in body
        } | {name: parts[0] for name, parts in self._parts_by_eras.items()}
        self.optional: OptionalStatements = DIALECT_BY_PACKAGE[package].optional
        for name, is_declared in self.optional._asdict().items():
            assert (name in texts) == is_declared, (package, name)
        self.mappers: RowMappers = PLAIN_MAPPERS

    def with_cipher(self, cipher: Cipher) -> "Queries":
        """The same queries for a store that encrypts payloads."""
        queries = copy(self)
        queries.mappers = RowMappers(cipher)
        return queries

    def with_eras(self, eras: EraMemory | None) -> "Queries":
        """The same queries for a store that remembers where ready runs are."""
        queries = copy(self)
        queries.eras = eras
        return queries

    def for_eras(self, name: str, count: int, /, **params: Any) -> Statement:
        """A statement that merges the heads of so many eras."""
        parts = self._parts_by_eras[name][count - 1] if count else self.parts_by_name[name]
        return Statement(name, parts, params)

    def __call__(self, name: str, /, *, many: Rows | None = None, **params: Any) -> Statement:
        return Statement(name, self.parts_by_name[name], params, many)

    def command(self, name: str, /, *, many: Rows | None = None, **params: Any) -> Statement:
        """A statement whose result is not read: it may be sent together with the next one."""
        return Statement(name, self.parts_by_name[name], params, many, needs_result=False)

    def final(self, name: str, /, **params: Any) -> Statement:
        """A statement after which its transaction ends: the commit may be sent with it."""
        return Statement(name, self.parts_by_name[name], params, is_last=True)

    def compose(self, name: str, ending: str, params: Mapping[str, Any]) -> Statement:
        """A named query with an ending that was composed at run time."""
        [select] = self.parts_by_name[name]
        return Statement(name, (f"{select}\n{self._expand(ending)}",), params)

    def _expand(self, text: str) -> str:
        """The text with its fragments and the prefix of the tables."""
        while "{" in text:
            text = _FRAGMENT.sub(self._fragment, text)
        return text.replace(TABLE_PREFIX, self.prefix)

    def _fragment(self, match: re.Match[str]) -> str:
        table, name = match.groups()
        text = self._fragments[name]
        if table is None:
            return text
        return ", ".join(f"{table}.{column}" for column in text.split(", "))

    def tables(self, *names: str) -> set[str]:
        """The names of tables, with the prefix of this store."""
        return {f"{self.prefix}{name}" for name in names}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.parts_by_name)


def _read_queries(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """The queries and the fragments of a dialect, by name."""
    dialect = DIALECT_BY_PACKAGE[package]
    common = list(read_sql(COMMON_PACKAGE, "common_queries").values())
    if not dialect.has_casts:
        common = [_CAST.sub("", text) for text in common]
    if not dialect.has_index_hints:
        common = [_INDEX_HINT.sub("", text) for text in common]
    texts: dict[str, str] = {}
    fragments: dict[str, str] = dict(COLUMN_LISTS)
    for files in (common, read_sql(package, "queries").values()):
        blocks = [block for file in files for block in _blocks(file)]
        assert len({name for _, name, _ in blocks}) == len(blocks), (package, "a name twice")
        for kind, name, body in blocks:
            (texts if kind == "name" else fragments)[name] = body
    return texts, fragments


@lru_cache(maxsize=16)
def load_queries(package: str, prefix: str) -> Queries:
    """The queries of one dialect, read once: tests open hundreds of stores in memory."""
    return Queries(package, prefix=prefix)


def read_sql(package: str, folder: str) -> dict[str, str]:
    """Return the texts of the ``.sql`` files in a folder of a package, by name.

    ``importlib.resources`` would load tempfile and zipfile: a tenth of the time of an import.
    """
    home = Path(import_module(package).__path__[0], folder)
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(home.glob("*.sql"))}


def split_statements(text: str) -> list[str]:
    """The statements of a script: a semicolon at the end of a line ends one."""
    return _split(_COMMENT.sub("", text))


def fragments_of(text: str) -> dict[str, str]:
    """The fragments of a file by name, without comments."""
    return {name: body for kind, name, body in _blocks(text) if kind == "fragment"}


def _with_heads(body: str, fragments: Mapping[str, str], count: int) -> str:
    """A query for so many eras: in the text for each, ``#`` is its number."""
    heads = [fragments["era_head"].replace("#", str(number + 1)) for number in range(count)]
    return body.replace(_ERA_HEADS, "\nUNION ALL\n".join(heads))


def _split(text: str) -> list[str]:
    return [part.strip() for part in _END.split(text) if part and not part.isspace()]


def _blocks(text: str) -> list[tuple[str, str, str]]:
    """The kind, the name and the text of each block, without comments."""
    _, *parts = _BLOCK.split(_COMMENT.sub("", text))
    bodies = [body.strip() for body in parts[2::3]]
    return list(zip(parts[::3], parts[1::3], bodies, strict=True))
