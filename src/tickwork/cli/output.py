"""Where the result of a command goes: JSON, a pipe, or a terminal."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

import click

from tickwork.cli.render import Cell, Part, plain_lines

Draw = Callable[[Iterable[Part]], None]
Progress = Callable[[int, int | None], None]
"""Reports how much of a long task is done, and its total if that is known."""


def as_json(value: Any) -> Any:
    """Convert a value: times become ISO 8601 text, durations seconds."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(as_json(key)): as_json(each) for key, each in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {name: as_json(getattr(value, name)) for name in value._fields}
        case list() | tuple() | set() | frozenset():
            return [as_json(each) for each in value]
        case _ if is_dataclass(value):
            return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
        case _:
            return str(value)


def json_text(value: Any, *, is_line: bool = False) -> str:
    return json.dumps(as_json(value), indent=None if is_line else 2, ensure_ascii=False)


class Output:
    """Prints the result of a command."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json

    @property
    def is_terminal(self) -> bool:
        return not self.is_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, value: Any, parts: Callable[[], Iterable[Part]]) -> None:
        """Print the whole result: ``value`` as JSON, or ``parts`` for people."""
        if self.is_json:
            click.echo(json_text(value))
        else:
            self.write(parts())

    def write(self, parts: Iterable[Part]) -> None:
        if self.is_terminal:
            from tickwork.cli.terminal import print_parts  # noqa: PLC0415  # it imports Rich

            print_parts(parts)
            return
        for line in plain_lines(parts):
            click.echo(line)

    def write_line(self, cells: Sequence[Cell]) -> None:
        """Print the cells that have a text in one line."""
        cells = [cell for cell in cells if cell.text]
        if self.is_terminal:
            from tickwork.cli.terminal import print_line  # noqa: PLC0415  # as above

            print_line(cells)
        else:
            click.echo("  ".join(cell.text for cell in cells))

    def note(self, text: str, style: str = "") -> None:
        """Print to standard error, so that a pipe receives only the result."""
        has_color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        click.echo(click.style(text, fg=style or None) if has_color else text, err=True)

    def live(self) -> AbstractContextManager[Draw]:
        """Redraw parts in place; in a pipe, print them one after the other."""
        if not self.is_terminal:
            return nullcontext(self.write)
        from tickwork.cli.terminal import live_view  # noqa: PLC0415  # as above

        return live_view()

    def progress(self, label: str) -> AbstractContextManager[Progress]:
        """Show a progress bar on standard error, if that is a terminal."""
        if self.is_json or not sys.stderr.isatty():
            return nullcontext(lambda _done, _total: None)
        from tickwork.cli.terminal import progress_bar  # noqa: PLC0415  # as above

        return progress_bar(label)
