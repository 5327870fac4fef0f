"""Where the result of a command goes: JSON, a pipe, or a terminal.

Rich is imported only to print on a terminal: a worker and a pipe do not need it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import click

from tickwork.cli.render import Cell, Cropped, Part, plain_lines, rich_parts

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    """Reports how much of a long task is done."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


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
        self._console: Console | None = None

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
        if not self.is_terminal:
            for line in plain_lines(parts):
                click.echo(line)
            return
        for renderable in rich_parts(parts):
            self.console.print(renderable)

    def write_line(self, cells: Sequence[Cell]) -> None:
        """Print the cells that have a text in one line."""
        if not self.is_terminal:
            click.echo("  ".join(cell.text for cell in cells if cell.text))
            return
        from rich.text import Text  # noqa: PLC0415  # only a terminal needs it

        line = Text("  ").join(Text(cell.text, cell.style) for cell in cells if cell.text)
        self.console.print(line, overflow="ellipsis", no_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """Print to standard error, so that a pipe receives only the result."""
        click.echo(
            click.style(text, fg=style or None) if _has_color(sys.stderr) else text, err=True
        )

    @property
    def console(self) -> "Console":
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415  # as above

            self._console = Console(highlight=False, soft_wrap=False)
        return self._console

    @contextmanager
    def live(self) -> Iterator[Callable[[Iterable[Part]], None]]:
        """Redraw parts in place; in a pipe, print them one after the other."""
        if not self.is_terminal:
            yield self.write
            return
        from rich.console import Group  # noqa: PLC0415  # as above
        from rich.live import Live  # noqa: PLC0415

        with Live(
            console=self.console, auto_refresh=False, screen=False, vertical_overflow="crop"
        ) as live:

            def draw(parts: Iterable[Part]) -> None:
                live.update(Cropped(Group(*rich_parts(parts))), refresh=True)

            yield draw

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        """Show a progress bar on standard error, if that is a terminal."""
        if self.is_json or not sys.stderr.isatty():
            yield lambda *_, **__: None
            return
        from rich.console import Console  # noqa: PLC0415  # as above
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bars  # noqa: PLC0415

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(label, total=None)

            def update(done: int, total: int | None = None) -> None:
                bars.update(task, completed=done, total=total)

            yield update


def _has_color(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")
