"""A TOML file: its content, the line of each key, and all problems found in it."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Final, NoReturn

from tickwork._define.toml_lines import Path, line_by_path
from tickwork.errors import ConfigError, NaiveDatetime, TickworkError, suggest

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
            found = sorted(self._problems, key=lambda problem: problem[0])
            raise ConfigError(self.source, [f"line {line}: {text}" for line, text in found])

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
