"""The threat model names the test that holds each line, and each of these tests exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "guide" / "threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"`((?:\w+/)+test_\w+\.py)((?:::\w+)*)`")


def names_in(file: str) -> set[str]:
    """The classes and functions of a file, as pytest names them; an empty one is the file."""
    found = {""}
    nodes: list[tuple[str, ast.AST]] = [("", ast.parse((TESTS / file).read_text("utf-8")))]
    for within, node in nodes:  # which grows
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(f"{within}::{each.name}")
                nodes.append((f"{within}::{each.name}", each))
    return found


def test_each_line_names_a_test():
    tables = re.findall(r"^\|(?:---\|)+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]

    assert len(lines) > 30
    assert [line for line in lines if not TEST.search(line.rpartition(" | ")[2])] == []


def test_each_test_exists():
    missing = [
        f"{file}{name}"
        for file, name in TEST.findall(PAGE)
        if not (TESTS / file).exists() or name not in names_in(file)
    ]

    assert missing == []
