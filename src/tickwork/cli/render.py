"""The parts of a result: tables, fields and lines; and how a pipe receives them.

``terminal`` draws the same parts on a terminal.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus
from tickwork._kernel.plain_text import escape_line, escape_lines

GOOD: Final = "green"
BAD: Final = "red"
WARN: Final = "yellow"
BUSY: Final = "cyan"
DIM: Final = "dim"
BOLD: Final = "bold"
FLEXIBLE_MIN: Final = 12
"""Least width of a flexible column."""
FLEXIBLE_GOOD: Final = 20
"""Other columns are dropped before a flexible column gets narrower than this."""

STYLES: Final[Mapping[str, str]] = {
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
    """A text with its style on a terminal."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column of a table.

    On a narrow terminal flexible columns shrink to ``FLEXIBLE_GOOD``. If that is not enough,
    columns with a ``drop`` are left out, the highest number first. If that is not enough
    either, flexible columns shrink to ``FLEXIBLE_MIN``.
    """

    name: str
    is_right: bool = False
    is_flexible: bool = False
    drop: int = 0


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table. A row may have fewer cells than there are columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    empty: str = "None."


@dataclass(frozen=True, slots=True)
class FieldList:
    """Names with their values, one pair on each line."""

    pairs: Sequence[tuple[str, Cell | str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class TextLine:
    text: str = ""
    style: str = ""


Part = TextTable | FieldList | TextLine


def plain_lines(parts: Iterable[Part]) -> Iterator[str]:
    for part in prepare_parts(parts):
        match part:
            case TextLine(text=text):
                yield from text.split("\n")
            case FieldList():
                width = max((len(name) for name, _ in part.pairs), default=0)
                for name, value in part.pairs:
                    first, *more = cell_text(value).splitlines() or [""]
                    yield f"{name + ':':<{width + 2}}{first}".rstrip()
                    yield from (" " * (width + 2) + line for line in more)
            case TextTable():
                yield from _plain_table(part)


def prepare_parts(parts: Iterable[Part]) -> Iterator[Part]:
    """Escape the texts of all parts, and put titles on lines of their own, after an empty line.

    Texts come from rows, and a row may contain what controls a terminal or forges a line.
    """
    is_first = True
    for part in map(_escape_part, parts):
        if not isinstance(part, TextLine) and part.title:
            yield TextLine(part.title if is_first else f"\n{part.title}", BOLD)
        yield part
        is_first = False


def _escape_part(part: Part) -> Part:
    match part:
        case TextLine(text=text):
            rest = text.lstrip("\n")  # empty lines before it
            return replace(part, text=text[: len(text) - len(rest)] + escape_line(rest))
        case FieldList():
            pairs = [(escape_line(name), _escape_cell(value)) for name, value in part.pairs]
            return replace(part, pairs=pairs, title=escape_line(part.title))
        case TextTable():
            rows = [[_escape_cell(cell) for cell in row] for row in part.rows]
            return replace(part, rows=rows, title=escape_line(part.title))


def _escape_cell(cell: Cell | str) -> Cell | str:
    if isinstance(cell, Cell):
        return cell._replace(text=escape_lines(cell.text))
    return escape_lines(cell)


def _plain_table(table: TextTable) -> Iterator[str]:
    if not table.rows:
        yield table.empty
        return
    heads = [column.name.upper() for column in table.columns]
    rows = [
        [one_line(cell_text(cell)) for cell in row] + [""] * (len(heads) - len(row))
        for row in table.rows
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, *rows]:
        cells = [
            text.rjust(width) if column.is_right else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def cell_text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def one_line(text: str) -> str:
    return " ".join(text.split())


def column_widths(part: TextTable, room: int) -> dict[int, int]:
    """Choose the columns that fit, by index, with their widths. See :class:`Column`."""
    wanted = {
        index: max(
            len(column.name),
            *(len(one_line(cell_text(row[index]))) for row in part.rows if index < len(row)),
            0,
        )
        for index, column in enumerate(part.columns)
    }

    def least_widths(flexible: int) -> dict[int, int]:
        return {
            index: min(width, flexible) if part.columns[index].is_flexible else width
            for index, width in wanted.items()
        }

    def spare_room(flexible: int) -> int:
        return room - sum(least_widths(flexible).values()) - 2 * (len(wanted) - 1)

    droppable = sorted(
        (index for index in wanted if part.columns[index].drop),
        key=lambda index: part.columns[index].drop,
    )
    while spare_room(FLEXIBLE_GOOD) < 0 and droppable:
        del wanted[droppable.pop()]
    widths = least_widths(FLEXIBLE_MIN)
    left = max(spare_room(FLEXIBLE_MIN), 0)
    narrow = sorted(
        (index for index in wanted if widths[index] < wanted[index]), key=wanted.__getitem__
    )
    for number, index in enumerate(narrow):
        extra = min(left // (len(narrow) - number), wanted[index] - widths[index])
        widths[index] += extra
        left -= extra
    return widths


def terminal_width() -> int:
    return shutil.get_terminal_size((100, 30)).columns


def styled(text: str) -> Cell:
    """A status or an outcome in its color."""
    return Cell(str(text), STYLES.get(str(text), ""))
