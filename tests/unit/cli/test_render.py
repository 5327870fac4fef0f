import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple

import pytest

from tickwork.cli.commands import CommandError
from tickwork.cli.formats import relative
from tickwork.cli.inspect import id_width
from tickwork.cli.output import Output, json_text
from tickwork.cli.render import (
    Cell,
    Column,
    FieldList,
    Part,
    TextLine,
    TextTable,
    column_widths,
    plain_lines,
)
from tickwork.cli.terminal import print_parts
from tickwork.errors import RunNotFound

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    one: int
    two: Colour


def test_json_of_every_type():
    value = {
        "at": NOON,
        "length": timedelta(minutes=1.5),
        "pair": Pair(1, Colour.RED),
        "many": (1, "ä", None, True),
        Colour.RED: frozenset({1}),
    }

    assert json.loads(json_text(value)) == {
        "at": "2026-03-01T12:00:00+00:00",
        "length": 90.0,
        "pair": {"one": 1, "two": "red"},
        "many": [1, "ä", None, True],
        "red": [1],
    }
    assert "\n" not in json_text(value, is_line=True)


def test_plain_lines_are_aligned_and_have_no_colours():
    parts: list[Part] = [
        FieldList([("a", "1"), ("longer", Cell("two\nlines", "red"))]),
        TextTable(
            [Column("name"), Column("n", is_right=True), Column("last")],
            [(Cell("x", "bold"), "1", "several\nlines"), ("yyyyyy", "100")],
            title="Things",
        ),
        TextTable([Column("name")], [], empty="None."),
        TextLine("done", "green"),
    ]

    assert list(plain_lines(parts)) == [
        "a:      1",
        "longer: two",
        "        lines",
        "",
        "Things",
        "NAME      N  LAST",
        "x         1  several lines",
        "yyyyyy  100",
        "None.",
        "done",
    ]


class TestWidths:
    """A table fits its terminal."""

    TABLE = TextTable(
        [
            Column("id"),
            Column("rare", drop=2),
            Column("odd", drop=1),
            Column("text", is_flexible=True),
            Column("more", is_flexible=True),
        ],
        [("x" * 10, "y" * 10, "z" * 10, "t" * 50, "m" * 20)],
    )

    def test_enough_room(self):
        assert column_widths(self.TABLE, 200) == {0: 10, 1: 10, 2: 10, 3: 50, 4: 20}

    @pytest.mark.parametrize("room", range(42, 130))
    def test_it_is_never_wider_than_the_terminal(self, room):
        widths = column_widths(self.TABLE, room)

        assert sum(widths.values()) + 2 * (len(widths) - 1) <= room

    def test_columns_are_dropped_before_flexible_ones_disappear(self):
        assert set(column_widths(self.TABLE, 70)) == {0, 2, 3, 4}
        assert set(column_widths(self.TABLE, 60)) == {0, 3, 4}


@pytest.mark.parametrize(
    ("ids", "width"),
    [
        ([], 13),
        (["01a1dfc0-f09a-7574-82aa-2a65d17b7f63"], 13),
        (["01a1dfc0-f09a-7574-82aa-000000000000", "01a1dfc0-f09a-7574-82aa-000000000001"], 36),
        (["01a1dfc0-f09a-7574-82aa-000000000000", "01a1dfc0-f09a-8574-82aa-000000000000"], 15),
    ],
)
def test_ids_are_shortened_to_what_distinguishes_them(ids, width):
    assert id_width(ids) == width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (0.4, "now"), (1.234, "in 1.23s"), (59.6, "in 1m"), (-3661, "1h 1m ago")],
)
def test_relative_times(seconds, text):
    assert relative(NOON + timedelta(seconds=seconds), NOON) == text


HOSTILE = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202etxt\u2066\r\x7f"
HARMLESS = r"\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202etxt\u2066\r\x7f"


class TestTextsFromRows:
    """No text of a row moves the cursor, reverses letters, or starts a line of its own."""

    PARTS: ClassVar[list[Part]] = [
        TextLine(HOSTILE),
        FieldList([(HOSTILE, Cell(f"first\n{HOSTILE}", "red"))], title=HOSTILE),
        TextTable([Column("name")], [[HOSTILE]]),
    ]

    def test_in_a_pipe(self):
        lines = list(plain_lines(self.PARTS))

        assert all(line.isprintable() for line in lines)
        assert sum(HARMLESS in line for line in lines) == 5

    def test_on_a_terminal(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "300")
        print_parts(self.PARTS)

        drawn = capsys.readouterr().out
        assert not set(drawn) & set("\x07\x9b\u202e\u2066\r\x7f")
        assert "\x1b]" not in drawn
        assert "\x1b[2J" not in drawn
        assert drawn.count(HARMLESS) == 5

    def test_in_one_line_and_in_a_note(self, capsys):
        Output().write_line([Cell(HOSTILE), Cell("two\nlines")])
        Output().note(HOSTILE)

        captured = capsys.readouterr()
        assert captured.out == f"{HARMLESS}  two\\nlines\n"
        assert captured.err == f"{HARMLESS}\n"

    def test_a_line_end_does_not_forge_a_line(self):
        parts: list[Part] = [TextLine("\nfailed: a\nHealthy."), FieldList([("error", "a\nb")])]

        assert list(plain_lines(parts)) == ["", r"failed: a\nHealthy.", "error: a", "       b"]

    def test_in_json_they_are_escaped(self):
        text = json_text({"error": HOSTILE, "name": "Jürgen"}, is_line=True)

        assert text.isprintable()
        assert "Jürgen" in text
        assert json.loads(text)["error"] == HOSTILE

    def test_in_an_error(self, capsys):
        CommandError(RunNotFound(HOSTILE), is_json=False).show()

        assert capsys.readouterr().err.replace("\n", "").isprintable()
