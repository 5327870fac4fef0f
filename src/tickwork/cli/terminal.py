"""Output on a terminal, drawn by Rich.

Imported only to print on a terminal: a worker and a pipe do not need Rich.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tickwork._kernel.plain_text import count_of
from tickwork.cli.render import (
    BOLD,
    DIM,
    Cell,
    FieldList,
    Part,
    TextLine,
    TextTable,
    cell_text,
    column_widths,
    one_line,
    prepare_parts,
    terminal_width,
)


def open_console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def print_parts(parts: Iterable[Part]) -> None:
    console = open_console()
    for renderable in _render(parts):
        console.print(renderable)


def print_line(cells: Sequence[Cell]) -> None:
    line = Text("  ").join(Text(cell.text, cell.style) for cell in cells)
    open_console().print(line, overflow="ellipsis", no_wrap=True)


@contextmanager
def live_view() -> Iterator[Callable[[Iterable[Part]], None]]:
    """Redraw parts in place."""
    console = open_console()
    with Live(console=console, auto_refresh=False, screen=False, vertical_overflow="crop") as live:
        yield lambda parts: live.update(_Cropped(Group(*_render(parts))), refresh=True)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on standard error while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _render(parts: Iterable[Part]) -> Iterator[RenderableType]:
    for part in prepare_parts(parts):
        match part:
            case TextLine(text=text, style=style):
                yield Text(text, style=style)
            case FieldList():
                yield _render_fields(part)
            case TextTable():
                yield _render_table(part) if part.rows else Text(part.empty, style=DIM)


def _render_fields(part: FieldList) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in part.pairs:
        grid.add_row(name, Text(cell_text(value), style=_style(value)))
    return grid


def _render_table(part: TextTable) -> Table:
    table = Table(box=None, pad_edge=False, header_style=f"{BOLD} {DIM}", padding=(0, 2, 0, 0))
    widths = column_widths(part, terminal_width())
    for index, width in widths.items():
        column = part.columns[index]
        table.add_column(
            column.name,
            justify="right" if column.is_right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in part.rows:
        cells = [row[index] if index < len(row) else "" for index in widths]
        table.add_row(*(Text(one_line(cell_text(cell)), style=_style(cell)) for cell in cells))
    return table


def _style(cell: Cell | str) -> str:
    return cell.style if isinstance(cell, Cell) else ""


class _Cropped:
    """Cuts a view to the height of the screen: Rich cannot redraw a taller one in place."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._inner, options, pad=False)
        room = max(options.size.height - 2, 1)
        for line in lines[:room]:
            yield from line
            yield Segment.line()
        if len(lines) > room:
            yield Segment(f"… {count_of(len(lines) - room, 'more line')}")
