"""Reads the ``.sql`` files of a dialect once, and makes statements by name.

A file is a list of ``-- name: claim_ready`` blocks; a block may hold several statements,
each ended by a semicolon at the end of a line. ``-- fragment: is_due`` names text that
``{is_due}`` stands for; the lists of columns (``{claim_columns}``) are in ``columns.py``, and
``{run.claim_columns}`` qualifies each of them. Values are written ``:name``.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tickwork.stores._sql.columns import COLUMN_LISTS
from tickwork.stores._sql.statement import Rows, Statement

TABLE_PREFIX: Final = "tickwork_"

_BLOCK: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_FRAGMENT: Final = re.compile(r"\{(?:(\w+)\.)?(\w+)\}")


class Queries:
    """The named queries of one dialect."""

    def __init__(self, package: str, *, prefix: str = TABLE_PREFIX) -> None:
        texts: dict[str, str] = {}
        fragments: dict[str, str] = dict(COLUMN_LISTS)
        for text in read_sql(package, "queries").values():
            for kind, name, body in _blocks(text):
                found = texts if kind == "name" else fragments
                assert name not in found, (package, name)
                found[name] = body
        self._fragments = fragments
        self._prefix = prefix
        self.parts_by_name: Mapping[str, tuple[str, ...]] = {
            name: tuple(split_statements(self._expand(body))) for name, body in texts.items()
        }
        self.can_notify: bool = "notify" in texts

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
        while _FRAGMENT.search(text):
            text = _FRAGMENT.sub(self._fragment, text)
        return text.replace(TABLE_PREFIX, self._prefix)

    def _fragment(self, found: re.Match[str]) -> str:
        table, name = found.groups()
        text = _COMMENT.sub("", self._fragments[name]).strip()
        if table is None:
            return text
        return ", ".join(f"{table}.{column}" for column in text.split(", "))

    def tables(self, *names: str) -> set[str]:
        """The names of tables, with the prefix of this store."""
        return {f"{self._prefix}{name}" for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self.parts_by_name

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.parts_by_name)


def read_sql(package: str, folder: str) -> dict[str, str]:
    """Return the texts of the ``.sql`` files in a folder of a package, by name.

    ``importlib.resources`` would load tempfile and zipfile: a tenth of the time of an import.
    """
    home = Path(import_module(package).__path__[0], folder)
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(home.glob("*.sql"))}


def split_statements(text: str) -> list[str]:
    """The statements of a script: a semicolon at the end of a line ends one."""
    bare = _COMMENT.sub("", text)
    return [part.strip() for part in re.split(r";[ \t]*(?:\n|\Z)", bare) if part.strip()]


def _blocks(text: str) -> list[tuple[str, str, str]]:
    found = list(_BLOCK.finditer(text))
    ends = [block.start() for block in found[1:]] + [len(text)]
    return [
        (block[1], block[2], text[block.end() : end])
        for block, end in zip(found, ends, strict=True)
    ]
