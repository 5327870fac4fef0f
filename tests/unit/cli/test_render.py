import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import pytest

from tickwork.cli.formats import relative
from tickwork.cli.inspect import id_width
from tickwork.cli.output import json_text
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
