"""What people and programs see: JSON, plain lines when piped, colours on a terminal.

A command gathers a value and hands it over; here it becomes text. Rich is loaded only to
print on a terminal: a worker never needs it, and a pipe neither.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import click

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.status import RunStatus

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable

T = TypeVar("T")

GOOD: Final = "green"
BAD: Final = "red"
WARN: Final = "yellow"
BUSY: Final = "cyan"
DIM: Final = "dim"
FLEXIBLE_MIN: Final = 12
"""Characters that even a column that gives way has."""
BOLD: Final = "bold"

STYLE_BY_WORD: Final[Mapping[str, str]] = {
    RunStatus.COMPLETED: GOOD,
    RunStatus.RUNNING: BUSY,
    RunStatus.PENDING: "",
    RunStatus.FAILED: WARN,
    RunStatus.FAILED_PERMANENT: BAD,
    RunStatus.SKIPPED: DIM,
    RunStatus.CANCELED: DIM,
    OutcomeKind.SUCCEEDED: GOOD,
    OutcomeKind.CRASHED: BAD,
}


class Cell(NamedTuple):
    """A text and how it looks; the style is lost in a pipe, the text never is."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """One column. Where a terminal is narrow, what is ``is_flexible`` gives way.

    What has a ``drop`` is left out before that hurts, the highest first.
    """

    name: str
    is_right: bool = False
    is_flexible: bool = False
    drop: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head. A row may be shorter than the head."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    empty: str = "Nothing."


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values below each other."""

    pairs: Sequence[tuple[str, Cell | str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, or several."""

    text: str = ""
    style: str = ""


Part = Table | Facts | Line


class Progress(Protocol):
    """How far long work has come."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """So much of so much."""
        ...


# ---------------------------------------------------------------- JSON


def as_json(value: Any) -> Any:
    """A value as JSON has it: instants as ISO text in UTC, lengths in seconds."""
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
    """The same as text: for a person to read, or in one line."""
    return json.dumps(as_json(value), indent=None if is_line else 2, ensure_ascii=False)


# ---------------------------------------------------------------- output


class Output:
    """Where a command's answer goes, and how it looks there."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        self._console: Console | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it as it comes."""
        return not self.is_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, value: Any, parts: Callable[[], Iterable[Part]]) -> None:
        """The whole answer: as JSON if asked for, otherwise in words and tables."""
        if self.is_json:
            click.echo(json_text(value))
        else:
            self.write(parts())

    def write(self, parts: Iterable[Part]) -> None:
        """Parts of an answer, for people."""
        if not self.is_terminal:
            for line in plain_lines(parts):
                click.echo(line)
            return
        for renderable in rich_parts(parts):
            self.console.print(renderable)

    def words(self, words: Sequence[Cell]) -> None:
        """One line of words, each in its style."""
        if not self.is_terminal:
            click.echo("  ".join(word.text for word in words if word.text))
            return
        from rich.text import Text  # noqa: PLC0415  # as above

        line = Text("  ").join(Text(word.text, word.style) for word in words if word.text)
        self.console.print(line, overflow="ellipsis", no_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """A word beside the answer; it goes where errors go, so that pipes stay clean."""
        click.echo(
            click.style(text, fg=style or None) if _has_color(sys.stderr) else text, err=True
        )

    @property
    def console(self) -> "Console":
        """The terminal, as Rich sees it."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415  # only a terminal needs it

            self._console = Console(highlight=False, soft_wrap=False)
        return self._console

    @contextmanager
    def live(self) -> Iterator[Callable[[Iterable[Part]], None]]:
        """A view that is drawn again and again in its place; in a pipe, below each other."""
        if not self.is_terminal:
            yield self.write
            return
        from rich.console import Group  # noqa: PLC0415  # as above
        from rich.live import Live  # noqa: PLC0415

        with Live(
            console=self.console, auto_refresh=False, screen=False, vertical_overflow="crop"
        ) as live:

            def draw(parts: Iterable[Part]) -> None:
                live.update(_Cropped(Group(*rich_parts(parts))), refresh=True)

            yield draw

    @contextmanager
    def progress(self, label: str) -> Iterator[Progress]:
        """A bar for long work, beside the answer; nothing where nobody would see it."""
        if self.is_json or not sys.stderr.isatty():
            yield _unseen
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


def _unseen(done: int, total: int | None = None) -> None:
    """Progress where nobody would see it."""


def _has_color(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


# ---------------------------------------------------------------- plain


def plain_lines(parts: Iterable[Part]) -> Iterator[str]:
    """Parts as lines without colours, columns aligned."""
    is_first = True
    for part in parts:
        match part:
            case Line(text=text):
                yield text
            case Facts():
                if part.title:
                    yield from _headed(part.title, is_first=is_first)
                width = max((len(name) for name, _ in part.pairs), default=0)
                for name, value in part.pairs:
                    first, *more = _text(value).splitlines() or [""]
                    yield f"{name + ':':<{width + 2}}{first}".rstrip()
                    yield from (" " * (width + 2) + line for line in more)
            case Table():
                if part.title:
                    yield from _headed(part.title, is_first=is_first)
                yield from _plain_table(part)
        is_first = False


def _headed(title: str, *, is_first: bool) -> Iterator[str]:
    if not is_first:
        yield ""
    yield title


def _plain_table(table: Table) -> Iterator[str]:
    if not table.rows:
        if table.empty:
            yield table.empty
        return
    heads = [column.name.upper() for column in table.columns]
    rows = [
        [_one_line(_text(cell)) for cell in row] + [""] * (len(heads) - len(row))
        for row in table.rows
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, *rows]:
        cells = [
            text.rjust(width) if column.is_right else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ---------------------------------------------------------------- rich


def rich_parts(parts: Iterable[Part]) -> Iterator["RenderableType"]:
    """Parts as Rich draws them."""
    from rich.text import Text  # noqa: PLC0415  # as above

    is_first = True
    for part in parts:
        match part:
            case Line(text=text, style=style):
                yield Text(text, style=style)
            case Facts():
                if part.title:
                    yield Text(("" if is_first else "\n") + part.title, style=BOLD)
                yield _rich_facts(part)
            case Table():
                if part.title:
                    yield Text(("" if is_first else "\n") + part.title, style=BOLD)
                if part.rows:
                    yield _rich_table(part)
                elif part.empty:
                    yield Text(part.empty, style=DIM)
        is_first = False


def _rich_facts(part: Facts) -> "RichTable":
    from rich.table import Table as RichTable  # noqa: PLC0415  # as above

    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in part.pairs:
        grid.add_row(name, _rich_text(value))
    return grid


def _rich_table(part: Table) -> "RichTable":
    from rich.table import Table as RichTable  # noqa: PLC0415  # as above

    table = RichTable(box=None, pad_edge=False, header_style=f"{BOLD} {DIM}", padding=(0, 2, 0, 0))
    widths = column_widths(part, terminal_width())
    for place, width in widths.items():
        column = part.columns[place]
        table.add_column(
            column.name,
            justify="right" if column.is_right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in part.rows:
        cells = [row[place] if place < len(row) else "" for place in widths]
        table.add_row(*(_rich_text(cell, is_one_line=True) for cell in cells))
    return table


def column_widths(part: Table, room: int) -> dict[int, int]:
    """The columns that are shown, by place, each with its width.

    Those that can be done without go first when there is not enough room; then those that
    are flexible share what the others leave.
    """
    wanted = {
        place: max(
            len(column.name),
            *(len(_one_line(_text(row[place]))) for row in part.rows if place < len(row)),
            0,
        )
        for place, column in enumerate(part.columns)
    }

    def least(place: int) -> int:
        return (
            min(wanted[place], FLEXIBLE_MIN) if part.columns[place].is_flexible else wanted[place]
        )

    def spare() -> int:
        return room - sum(map(least, wanted)) - 2 * (len(wanted) - 1)

    spares = sorted((place for place in wanted if part.columns[place].drop), key=_drop_of(part))
    while spare() < 0 and spares:
        del wanted[spares.pop()]
    widths = {place: least(place) for place in wanted}
    left = max(spare(), 0)
    hungry = sorted(
        (place for place in wanted if widths[place] < wanted[place]), key=wanted.__getitem__
    )
    for number, place in enumerate(hungry):
        given = min(left // (len(hungry) - number), wanted[place] - widths[place])
        widths[place] += given
        left -= given
    return widths


def _drop_of(part: Table) -> Callable[[int], int]:
    return lambda place: part.columns[place].drop


def _rich_text(cell: Cell | str, *, is_one_line: bool = False) -> Any:
    from rich.text import Text  # noqa: PLC0415  # as above

    text = _one_line(_text(cell)) if is_one_line else _text(cell)
    return Text(text, style=cell.style if isinstance(cell, Cell) else "")


class _Cropped:
    """No higher than the screen: what is redrawn in its place must fit there."""

    def __init__(self, inner: "RenderableType") -> None:
        self._inner = inner

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment  # noqa: PLC0415  # as above

        lines = console.render_lines(self._inner, options, pad=False)
        room = max(options.size.height - 2, 1)
        for line in lines[:room]:
            yield from line
            yield Segment.line()
        if len(lines) > room:
            yield Segment(f"… {len(lines) - room} more lines")


def terminal_width() -> int:
    """How many characters a line has."""
    return shutil.get_terminal_size((100, 30)).columns


def styled(word: str) -> Cell:
    """A status, an outcome, in its colour."""
    return Cell(str(word), STYLE_BY_WORD.get(str(word), ""))
