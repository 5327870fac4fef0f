"""Reads the ``.sql`` files of a dialect, once, and hands out statements by name.

A file is a list of ``-- name: claim_ready`` blocks; a block may hold several statements,
each ended by a semicolon at the end of a line. ``-- fragment: run_columns`` names text that
``{run_columns}`` stands for. Values are written ``:name``.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from tickwork.stores._sql.statement import Rows, Statement

TABLE_PREFIX: Final = "tickwork_"

_BLOCK: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"(?<![:\w]):([a-z][a-z_0-9]*)\b")
_COMMENT: Final = re.compile(r"^\s*--.*$\n?", re.MULTILINE)
_FRAGMENT: Final = re.compile(r"\{(\w+)\}")


class Queries:
    """The named queries of one dialect."""

    def __init__(
        self, package: str, *, paramstyle: str = "named", prefix: str = TABLE_PREFIX
    ) -> None:
        texts: dict[str, str] = {}
        fragments: dict[str, str] = {}
        for file in sorted(files(package).joinpath("queries").iterdir(), key=lambda f: f.name):
            if not file.name.endswith(".sql"):
                continue
            for kind, name, body in _blocks(file.read_text(encoding="utf-8")):
                found = texts if kind == "name" else fragments
                assert name not in found, (package, name)
                found[name] = body
        self._paramstyle = paramstyle
        self._parts_by_name: Mapping[str, tuple[str, ...]] = {
            name: tuple(_parts(body, fragments, paramstyle, prefix)) for name, body in texts.items()
        }

    def __call__(self, name: str, /, *, many: Rows | None = None, **params: Any) -> Statement:
        return Statement(name, self._parts_by_name[name], params, many)

    def composed(self, name: str, ending: str, params: Mapping[str, Any]) -> Statement:
        """A named query with an ending that was put together at run time."""
        [select] = self._parts_by_name[name]
        return Statement(name, (f"{select}\n{_styled(ending, self._paramstyle)}",), params)

    def __contains__(self, name: str) -> bool:
        return name in self._parts_by_name

    @property
    def names(self) -> frozenset[str]:
        """Every name there is: each dialect has the same ones."""
        return frozenset(self._parts_by_name)


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


def _parts(body: str, fragments: Mapping[str, str], paramstyle: str, prefix: str) -> list[str]:
    while _FRAGMENT.search(body):
        body = _FRAGMENT.sub(lambda found: _COMMENT.sub("", fragments[found[1]]).strip(), body)
    if prefix != TABLE_PREFIX:
        body = body.replace(TABLE_PREFIX, prefix)
    return [_styled(part, paramstyle) for part in split_statements(body)]


def _styled(text: str, paramstyle: str) -> str:
    if paramstyle == "named":
        return text
    return _PLACEHOLDER.sub(r"%(\1)s", text.replace("%", "%%"))
