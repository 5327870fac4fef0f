"""Where the result of a command goes: JSON, a pipe, or a terminal."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click

from tickwork._kernel.json_form import as_json
from tickwork._kernel.plain_text import escape_json, escape_line, escape_lines
from tickwork.cli.render import Cell, Part, plain_lines

Draw = Callable[[Iterable[Part]], None]
Progress = Callable[[int, int | None], None]
"""Reports how much of a long task is done, and its total if that is known."""


def json_text(value: Any, *, is_line: bool = False) -> str:
    text = json.dumps(as_json(value), indent=None if is_line else 2, ensure_ascii=False)
    return escape_json(text)


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
        cells = [cell._replace(text=escape_line(cell.text)) for cell in cells if cell.text]
        if self.is_terminal:
            from tickwork.cli.terminal import print_line  # noqa: PLC0415  # as above

            print_line(cells)
        else:
            click.echo("  ".join(cell.text for cell in cells))

    def note(self, text: str, style: str = "") -> None:
        """Print to standard error, so that a pipe receives only the result."""
        text = escape_lines(text)
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
