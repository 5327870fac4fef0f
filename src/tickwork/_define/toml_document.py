"""A TOML file: what it says, at which lines, and everything that is wrong with it."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, Final, NoReturn

from tickwork._define.toml_lines import Path, line_by_path
from tickwork.errors import ConfigError, NaiveDatetime, TickworkError

SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a file. Somebody who has more jobs than that generates them: in code."""

_PLACE: Final = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")


class Document:
    """A file that was read. Faults are gathered, so that all of them can be told together."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self._faults: list[tuple[int, str]] = []
        try:
            self.content: Mapping[str, Any] = tomllib.loads(text)
            self._lines = line_by_path(text)
        except tomllib.TOMLDecodeError as error:
            self._refuse(str(error), text)
        except RecursionError:
            self._refuse("Its values lie too deep within each other.", text)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "Document":
        """Read a file.

        Raises:
            ConfigError: It cannot be read, or it is no TOML.
        """
        source = fspath(path)
        try:
            with open(source, "rb") as file:  # noqa: PTH123  # no Path is needed
                content = file.read(SIZE_MAX + 1)
            # Some editors begin a file with a mark that TOML does not know.
            text = content.decode("utf-8-sig")
        except OSError as error:
            raise ConfigError(source, [f"It cannot be read: {error.strerror}."]) from None
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ConfigError(source, [f"line {line}: It is not written in UTF-8."]) from None
        if len(content) > SIZE_MAX:
            raise ConfigError(source, [f"It has more than {SIZE_MAX:,} bytes."])
        return cls(source, text)

    # ------------------------------------------------------------ places

    def line(self, path: Path) -> int:
        """The line of a key, or of the table in which it would stand."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines[path] if path else 1

    def place(self, path: Path) -> str:
        """The same with the file's name: ``tickwork.toml:12``."""
        return f"{self.source}:{self.line(path)}"

    # ------------------------------------------------------------ faults

    @property
    def fault_count(self) -> int:
        """How much is wrong so far."""
        return len(self._faults)

    def fault(self, path: Path, text: str) -> None:
        """Note what is wrong with what stands there."""
        self._faults.append((self.line(path), text))

    @contextmanager
    def noting(self, path: Path) -> Iterator[None]:
        """An error inside is a fault of what stands there."""
        try:
            yield
        except TickworkError as error:
            self.note(path, error)

    def note(self, path: Path, error: TickworkError) -> None:
        """Note an error as a fault of what stands there, or of the option in it."""
        option = getattr(error, "option", "")
        if (*path, option) in self._lines:
            path = (*path, option)
        if isinstance(error, NaiveDatetime):
            self.fault(path, f"{error.what} Write it with one: 2026-01-01T09:00:00+01:00.")
        else:
            self.fault(path, " ".join(str(error).split("\n")))

    def raise_faults(self) -> None:
        """Tell everything that is wrong, if anything is.

        Raises:
            ConfigError: With all faults, each with its line.
        """
        if self._faults:
            # By line; what was found at the same one stays in the order in which it was.
            found = sorted(self._faults, key=lambda fault: fault[0])
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
        """Note keys that nobody knows, with the close one."""
        names = list(known)
        for key in table:
            if key not in names:
                self.fault((*path, key), f"There is no {key!r} here. {guess(key, names)}")

    def table(self, path: Path, value: object) -> Mapping[str, Any]:
        """A table; what is none is a fault, and an empty one instead."""
        if isinstance(value, dict):
            return value
        self.fault(path, f"{path[-1]} is a table, not {shown(value)}.")
        return {}


def guess(name: str, known: Iterable[str]) -> str:
    """The known name that is close, or all of them.

    >>> guess("hour", ["hours", "minutes"])
    "Did you mean 'hours'?"
    """
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"It takes {', '.join(names)}."


def shown(value: object) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
