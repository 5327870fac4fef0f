"""Finds the line of each key in a TOML document, which ``tomllib`` does not report.

The text was parsed by ``tomllib`` before, so nothing here checks for errors: the scanner
walks over keys and values, and counts lines.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions from the root: ``("jobs", 0, "run", "hours")``."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
# One-line strings: with escapes, and without.
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
# Up to two quotes may come right before the closing three.
_LONG_STRING: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{1,2}(?!"))?|' r"'''(?:[^']|'(?!''))*'''(?:'{1,2}(?!'))?",
    re.DOTALL,
)
# Numbers, dates and booleans; a date may have a space before its time.
_PLAIN: Final = re.compile(r"[^,\]}#\n]+")


def line_by_path(text: str) -> Mapping[Path, int]:
    r"""Return the line, counted from 1, of every table, key and element of valid TOML.

    >>> line_by_path("[[jobs]]\nname = 'digest'\nrun = { hours = 9 }\n")["jobs", 0, "run", "hours"]
    3
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._count_by_array: dict[Path, int] = {}  # elements of [[arrays]] so far

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):  # each iteration consumes at least one character
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._key_and_value(table)
            self._skip(_BLANK)

    def _header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        *parents, last = self._key()
        table: Path = ()
        for part in parents:
            table = self._last_element((*table, part))
            self.lines.setdefault(table, self._line)
        table = (*table, last)
        if is_array:
            position = self._count_by_array.get(table, 0)
            self._count_by_array[table] = position + 1
            self.lines.setdefault(table, self._line)
            table = (*table, position)
        else:
            table = self._last_element(table)
        self.lines[table] = self._line
        self._skip(_SPACE)
        self._at += 2 if is_array else 1
        return table

    def _last_element(self, path: Path) -> Path:
        """Return the table that a header refers to: of an array, its last element."""
        count = self._count_by_array.get(path)
        return path if count is None else (*path, count - 1)

    def _key_and_value(self, table: Path) -> None:
        path = table
        for part in self._key():
            path = (*path, part)
            self.lines.setdefault(path, self._line)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        """Read a key, possibly dotted, and the spaces around it."""
        parts = []
        while True:  # ends after the last part of the key
            self._skip(_SPACE)
            bare = _BARE_KEY.match(self._text, self._at)
            if bare is not None:
                self._at = bare.end()
                parts.append(bare[0])
            else:
                quoted = self._skip(_STRING)
                parts.append(str(tomllib.loads(f"key = {quoted}")["key"]))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        if self._text.startswith(('"""', "'''"), self._at):
            self._skip(_LONG_STRING)
        elif self._text[self._at] in "\"'":
            self._skip(_STRING)
        elif self._text[self._at] == "[":
            self._array(path)
        elif self._text[self._at] == "{":
            self._inline_table(path)
        else:
            self._skip(_PLAIN)

    def _array(self, path: Path) -> None:
        self._at += 1
        self._skip(_BLANK)
        position = 0
        while self._text[self._at] != "]":
            self.lines[*path, position] = self._line
            self._value((*path, position))
            position += 1
            self._next_element()
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._key_and_value(path)
            self._next_element()
        self._at += 1

    def _next_element(self) -> None:
        self._skip(_BLANK)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, (self._line, pattern.pattern)
        self._at = found.end()
        self._line += found[0].count("\n")
        return found[0]
