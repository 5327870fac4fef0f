"""A TOML file: its content, the line of each key, and all problems found in it."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Final, NoReturn, TypeAlias

from tickwork.errors import ConfigError, NaiveDatetime, TickworkError, suggest

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
        match = pattern.match(self._text, self._at)
        assert match is not None, (self._line, pattern.pattern)
        self._at = match.end()
        self._line += match[0].count("\n")
        return match[0]


SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes in a file."""

_PLACE: Final = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")


class Document:
    """Problems are collected, so that one error can report all of them."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self._problems: list[tuple[int, str]] = []
        try:
            self.content: Mapping[str, Any] = tomllib.loads(text)
            self._lines = line_by_path(text)
        except tomllib.TOMLDecodeError as error:
            self._refuse(str(error), text)
        except RecursionError:
            self._refuse("Its values are nested too deeply.", text)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "Document":
        source = fspath(path)
        try:
            with open(source, "rb") as file:  # noqa: PTH123  # no Path is needed
                content = file.read(SIZE_MAX + 1)
            # Some editors start a file with a byte order mark, which TOML does not allow.
            text = content.decode("utf-8-sig")
        except OSError as error:
            raise ConfigError(source, [f"The file cannot be read: {error.strerror}."]) from None
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ConfigError(
                source, [f"line {line}: The file must be encoded in UTF-8."]
            ) from None
        if len(content) > SIZE_MAX:
            raise ConfigError(source, [f"The file must have at most {SIZE_MAX:,} bytes."])
        return cls(source, text)

    # ------------------------------------------------------------ places

    def line(self, path: Path) -> int:
        """Return the line of a key; of a missing key, the line of its table."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines[path] if path else 1

    def place(self, path: Path) -> str:
        """Return file and line: ``tickwork.toml:12``."""
        return f"{self.source}:{self.line(path)}"

    # ------------------------------------------------------------ problems

    @property
    def problem_count(self) -> int:
        return len(self._problems)

    def report(self, path: Path, text: str) -> None:
        self._problems.append((self.line(path), text.rstrip()))

    @contextmanager
    def reporting(self, path: Path) -> Iterator[None]:
        """Report a TickworkError that is raised in the block."""
        try:
            yield
        except TickworkError as error:
            self.report_error(path, error)

    def report_error(self, path: Path, error: TickworkError) -> None:
        """Report an error at this key, or at the option below it that the error names."""
        option = getattr(error, "option", "")
        if (*path, option) in self._lines:
            path = (*path, option)
        if isinstance(error, NaiveDatetime):
            self.report(path, f"{error.what} Write it with one: 2026-01-01T09:00:00+01:00.")
        else:
            self.report(path, " ".join(str(error).split("\n")))

    def raise_problems(self) -> None:
        if self._problems:
            problems = sorted(self._problems, key=lambda problem: problem[0])
            raise ConfigError(self.source, [f"line {line}: {text}" for line, text in problems])

    def _refuse(self, reason: str, text: str) -> NoReturn:
        place = _PLACE.search(reason)
        line = text.count("\n") + 1
        if place is not None:
            reason = f"{reason[: place.start()]}."
            line = int(place[1] or line)
        raise ConfigError(self.source, [f"line {line}: {reason}"]) from None

    # ------------------------------------------------------------ shapes

    def check_keys(self, path: Path, table: Mapping[str, Any], known: Iterable[str]) -> None:
        """Report unknown keys, each with a close known one."""
        names = list(known)
        for key in table:
            if key not in names:
                self.report_unknown_key((*path, key), names)

    def report_unknown_key(self, path: Path, known: Iterable[str]) -> None:
        key = str(path[-1])
        self.report(path, f"Unknown key {key!r}. {suggest_or_list(key, known)}")

    def table(self, path: Path, value: object) -> Mapping[str, Any]:
        """Return a table; report any other value, and return an empty table."""
        if isinstance(value, dict):
            return value
        self.report(path, f"{path[-1]} must be a table, got {shown(value)}.")
        return {}


def suggest_or_list(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is close, or list all of them.

    >>> suggest_or_list("hour", ["hours", "minutes"])
    "Did you mean 'hours'?"
    """
    names = list(known)
    return suggest(name, names) or f"Choose from {', '.join(names)}."


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
