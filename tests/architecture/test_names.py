"""Names and wording: one class name for one idea, modules named after things, plain English."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tickwork"

# Nouns that end in -ing.
NOUNS = {"string", "testing", "timing"}
# Phrases that hide the actor or stand for a term of the field. `_` counts as a space, so that
# names are found, too. The user "nobody" of a system stands in quotes.
PHRASES = (
    "whoever", '(?<!")nobody', "somebody", "said", "told", "asked", "stumbled?", "stumbles",
    "lets? out", "let go", "held back", "holds? back", "makes? way", "made way", "in hand",
    "be it", "came of", "comes of", "has the word", "looked at",
)  # fmt: skip
BANNED = re.compile(
    r"(?<![a-z])(?:" + "|".join(PHRASES).replace(" ", r"[\s_]+(?:[#*|-]+\s+)?") + r")(?![a-z])",
    re.IGNORECASE,
)
TEXTS = (".py", ".sql", ".md", ".toml", ".html")
FOLDERS = ["src", "conformance", "docs", "*.md", "tests", "chaos", "benchmarks", "examples"]


def texts(folder: str) -> list[Path]:
    if "*" in folder:
        return sorted(ROOT.glob(folder))
    found = (path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)
    return sorted(path for path in found if path != Path(__file__))


# Django finds these by their names.
OF_DJANGO = {"Command", "Meta", "Migration"}


def class_names() -> Counter[str]:
    return Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and not ("django" in path.parts and node.name in OF_DJANGO)
    )


def test_no_class_name_is_used_twice():
    twice = {name for name, count in class_names().items() if count > 1}

    assert not twice


def test_no_module_is_named_by_a_gerund():
    names = {path.stem for path in PACKAGE.rglob("*.py")} | {
        path.name for path in PACKAGE.rglob("*") if path.is_dir()
    }
    found = {name for name in names if name.endswith("ing")}

    assert not found - NOUNS


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_use_no_banned_phrase(folder):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts(folder)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for _ in BANNED.finditer(line)
    ]

    assert not found, "\n".join(found)
