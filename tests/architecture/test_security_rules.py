"""Ruff's security rules are on; each exception has a reason."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXCEPTION = re.compile(r"# noqa: (?=[A-Z0-9, ]*\bS\d)[A-Z0-9, ]+?(?P<reason>  # \S.*)?$")
LISTED = re.compile(r'^\s*"S\d*",\s*(?P<reason># \S.*)?$')


def test_the_rules_are_on():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]

    assert lint["select"] == ["ALL"]
    assert [rule for rule in lint["ignore"] if rule.startswith("S")] == ["S101"]


@pytest.mark.parametrize("folder", ["src", "docs", "examples", "benchmarks", "chaos"])
def test_an_exception_in_the_code_has_a_reason(folder):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (exception := EXCEPTION.search(line)) and exception["reason"] is None
    ]

    assert not found, "\n".join(found)


def test_an_exception_for_a_folder_has_a_reason():
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    listed = [found for line in lines if (found := LISTED.match(line))]

    assert listed
    assert [found.string.strip() for found in listed if found["reason"] is None] == []
