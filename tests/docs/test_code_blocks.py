"""Runs every Python block of the README and the pages, and compares its output."""

import io
import re
import sqlite3
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
import sentry_sdk

from tickwork import Tickwork

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("code", list(blocks()))
def test_a_block_runs_and_prints_its_comments(code, monkeypatch):
    if "sentry_sdk" in code:
        # It would patch other libraries, such as Celery, for all tests that follow.
        only = partial(sentry_sdk.init, auto_enabling_integrations=False)
        monkeypatch.setattr(sentry_sdk, "init", only)
    printed = io.StringIO()

    with redirect_stdout(printed):
        exec(compile(code, "<block>", "exec"), {})

    expected = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
    if "print(" in code:
        assert printed.getvalue().splitlines() == expected


def test_queries_in_pages_run(tmp_path):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.install()
    queries = [found for page in PAGES for found in _blocks(page, "sql")]

    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        for query in queries:
            connection.execute(query)

    assert queries


def test_lines_shown_from_examples_exist():
    examples = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "examples").iterdir()
        if path.is_file() and path.suffix != ".whl"
    )
    page = ROOT / "docs" / "guide" / "deployment.md"

    shown = [
        line
        for kind in ("ini", "console")
        for text in _blocks(page, kind)
        for line in text.splitlines()
    ]
    assert len(shown) > 5
    assert [line for line in shown if line.strip() and line not in examples] == []


def _blocks(page: Path, kind: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_pages_link_to_files_that_exist():
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_paths_in_pages_exist():
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}

    missing = []
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"`((?:src|tests|docs|chaos|benchmarks|examples)/[\w./-]+)`", text):
            missing += [] if (ROOT / path).exists() else [f"{page.name}: {path}"]
        for name in re.findall(r"`(test_\w+\.py)`", text):
            missing += [] if name in names else [f"{page.name}: {name}"]

    assert missing == []


def test_the_readme_shows_the_five_lines_example():
    lines = (ROOT / "examples" / "five_lines.py").read_text(encoding="utf-8")

    assert f"```py\n{lines}```" in (ROOT / "README.md").read_text(encoding="utf-8")
