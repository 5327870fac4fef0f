"""Every Python block of the README and the guides runs, and prints what it says it prints."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

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
def test_a_block_runs_and_prints_what_it_says(code):
    printed = io.StringIO()

    with redirect_stdout(printed):
        exec(compile(code, "<block>", "exec"), {})  # that is the point

    said = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
    if "print(" in code:
        assert printed.getvalue().splitlines() == said


def test_pages_link_to_files_that_exist():
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
