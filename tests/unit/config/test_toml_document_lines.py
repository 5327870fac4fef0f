"""``line_by_path``: the line of each key in a TOML document."""

import re
import tomllib
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork._config.toml_document import Path, line_by_path


def paths_of(value: object, path: Path = ()) -> set[Path]:
    """Every path of a document, as ``tomllib`` reads it."""
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths_of(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            found |= paths_of(inner, (*path, position))
    return found


def leaves_of(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every value that contains no other, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves_of(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from leaves_of(inner, (*path, position))
    else:
        yield path, value


class TestLines:
    """Each key has the line on which it is written."""

    @pytest.mark.parametrize(
        ("text", "path", "line"),
        [
            ("a = 1\nb = 2\n", ("b",), 2),
            ("\n# b = 1\n\nb = 2 # c = 3\nc = 4", ("c",), 5),
            ("[one]\nx = 1\n[two]\nx = 1\n", ("two",), 3),
            ("[one]\nx = 1\n[two]\nx = 1\n", ("two", "x"), 4),
            ("[[jobs]]\nn = 1\n[[jobs]]\nn = 2\n", ("jobs", 1), 3),
            ("[[jobs]]\nn = 1\n[[jobs]]\nn = 2\n", ("jobs", 1, "n"), 4),
            ("[[jobs]]\n[jobs.run]\nhours = 9\n[[jobs]]\n[jobs.run]\n", ("jobs", 0, "run"), 2),
            ("[[jobs]]\n[jobs.run]\n[[jobs]]\n[jobs.run]\nx=1", ("jobs", 1, "run", "x"), 5),
            ("[[a]]\n[[a.b]]\n[[a.b]]\n[[a]]\n[[a.b]]\n", ("a", 1, "b", 0), 5),
            ("a.b.c = 1\na.b.d = 2\n", ("a", "b", "d"), 2),
            ("[ a . 'b' ]\nx = 1\n", ("a", "b", "x"), 2),
            ("t = { x = 1, y = { z = 2 } }\n", ("t", "y", "z"), 1),
            ("list = [\n  1,\n  # two\n  2,\n]\n", ("list", 1), 4),
            ("list = [\n  { a = 1 },\n  { a = 2 }\n]\nx = 1\n", ("list", 1, "a"), 3),
            ("list = [\n  { a = 1 },\n  { a = 2 }\n]\nx = 1\n", ("x",), 5),
            ('s = """\nx = 1\n# "quoted"\n"""\nx = 2\n', ("x",), 5),
            ('s = """a\\"""b\n""""\nx = 2\n', ("x",), 3),
            ("s = '''\n[x]\n'''''\nx = 2\n", ("x",), 4),
            ('s = "a # b"\nx = "\\"" # "\ny = 1\n', ("y",), 3),
            ("s = 'c:\\'\ny = 1\n", ("y",), 2),
            ("when = 1979-05-27 07:32:00Z # then\ny = 1\n", ("y",), 2),
            ('"a b"."\\u00e9" = 1\n', ("a b", "é"), 1),
            ('"""" = 1\n'.replace('""""', '""'), ("",), 1),
            ("a = 1\r\nb = '''x\r\n'''\r\nc = 1\r\n", ("c",), 4),
        ],
    )
    def test_of_a_key(self, text, path, line):
        assert set(line_by_path(text)) == paths_of(tomllib.loads(text))
        assert line_by_path(text)[path] == line

    def test_an_empty_document_has_none(self):
        assert line_by_path("") == line_by_path("# nothing\n\n") == {}


# ---------------------------------------------------------------- against tomllib

MARK = "0xfeedbeef"  # each occurrence is replaced by another number
MARKED_FROM = 8_254_000_000

BARE = st.text("abcXYZ019_-", min_size=1, max_size=4)
CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
QUOTED = st.text(CHARACTERS, max_size=4).map(
    lambda name: '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
)
LITERAL = st.text(CHARACTERS, max_size=4).map(lambda name: "'" + name.replace("'", "") + "'")
KEYS = BARE | QUOTED | LITERAL
TRICKY = st.text("ab\"'\\#=[]{},.\n\t ", max_size=12)
SPACES = st.sampled_from(["", " ", "\t "])
BREAKS = st.sampled_from(["", " ", "\n", " # a = [1\n", "\n# '''\n", '\n\n # "\n  '])


def _long_basic(text: str) -> str:
    return '"""' + text.replace("\\", "\\\\").replace('"""', '""\\"') + '\\n"""'


def _long_literal(text: str) -> str:
    kept = text.replace("'", "")
    return f"'''{kept}'''"


PLAIN = st.one_of(
    st.just(MARK),
    st.integers(-(2**62), 2**62).map(str),
    st.floats(allow_nan=False).map(repr),
    st.sampled_from(["true", "false", "nan", "0xFF", "1_000", "+5", '""', "''", '"""a"""""']),
    st.dates(date(1000, 1, 1)).map(str),
    st.times().map(time.isoformat),
    st.datetimes(datetime(1000, 1, 1), timezones=st.just(timezone(timedelta(hours=2)))).map(str),
    TRICKY.map(lambda text: '"' + repr_basic(text) + '"'),
    TRICKY.map(_long_basic),
    TRICKY.map(_long_literal),
)


def repr_basic(text: str) -> str:
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(raw, escaped)
    return text


@st.composite
def arrays(draw: Any, values: Any) -> str:
    parts = [f"{draw(BREAKS)}{value}{draw(BREAKS)}" for value in draw(st.lists(values, max_size=3))]
    tail = "," if parts and draw(st.booleans()) else ""
    return f"[{','.join(parts)}{tail}{draw(BREAKS)}]"


@st.composite
def inline_tables(draw: Any, values: Any) -> str:
    parts = [
        f"{draw(SPACES)}{draw(KEYS)}{draw(SPACES)}={draw(SPACES)}{value}{draw(SPACES)}"
        for value in draw(st.lists(values, max_size=3))
    ]
    return f"{{{','.join(parts)}}}"


VALUES = st.recursive(PLAIN, lambda values: arrays(values) | inline_tables(values), max_leaves=6)


@st.composite
def statements(draw: Any) -> str:
    key = f"{draw(SPACES)}.{draw(SPACES)}".join(draw(st.lists(KEYS, min_size=1, max_size=3)))
    comment: str = draw(st.sampled_from(["", " # x = 1", "#'''"]))
    match draw(st.sampled_from(["key", "key", "key", "table", "array", "comment"])):
        case "key":
            made = f"{draw(SPACES)}{key}{draw(SPACES)}={draw(SPACES)}{draw(VALUES)}"
        case "table":
            made = f"[{draw(SPACES)}{key}{draw(SPACES)}]"
        case "array":
            made = f"[[{draw(SPACES)}{key}{draw(SPACES)}]]"
        case _:
            made = ""
    return made + comment


def is_valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@st.composite
def documents(draw: Any) -> list[str]:
    """Statements that make a valid document together; repeated keys are left out."""
    kept: list[str] = []
    for statement in draw(st.lists(statements(), max_size=8)):
        if is_valid("\n".join([*kept, statement])):
            kept.append(statement)
    return kept


class TestAgainstTomllib:
    """The scanner and ``tomllib`` see the same keys in any valid document."""

    @given(documents(), st.sampled_from(["\n", "\r\n"]))
    def test_both_find_the_same_paths(self, statements, newline):
        text = "\n".join(statements).replace("\n", newline)

        assert set(line_by_path(text)) == paths_of(tomllib.loads(text))

    @given(documents())
    def test_each_value_has_the_line_of_its_text(self, statements):
        numbers = count(MARKED_FROM)
        text = re.sub(MARK, lambda _: str(next(numbers)), "\n".join(statements))
        line_by_number = {
            int(number): line
            for line, content in enumerate(text.split("\n"), start=1)
            for number in re.findall(rf"\b{str(MARKED_FROM)[:4]}\d+\b", content)
        }

        lines = line_by_path(text)

        for path, value in leaves_of(tomllib.loads(text)):
            if isinstance(value, int) and value in line_by_number:
                assert lines[path] == line_by_number[value]
