"""Builds the site: `make docs` runs ``python -m docs.build_site build``.

The pages of docs/ are copied beside pages that are made here: the README as the first page, the
project's own papers, the examples, and the reference of the code. Then the site is
built from all of them, strictly: a link that leads nowhere is an error.
"""

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from docs.api import pages

ROOT: Final = Path(__file__).resolve().parents[1]
PAPERS: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
EXAMPLES: Final = "examples.md"
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".service": "ini", ".toml": "toml"}
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)]*)?(?=\))")


def stage(target: Path) -> None:
    """Write all pages of the site below ``target/docs``, linked as they are there."""
    shutil.rmtree(target / "docs", ignore_errors=True)
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PAPERS)]
    }
    written = {_home(name): _linked(name, text) for name, text in texts.items()}
    written |= pages()
    written[EXAMPLES] = _examples_page()
    for name, text in written.items():
        page = target / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "zensical.toml", target)


def build(target: Path) -> int:
    """Build the site below ``target/site``; return the exit status."""
    stage(target)
    program = str(Path(sys.executable).parent / "zensical")
    done = subprocess.run(  # noqa: S603  # our own command
        [program, "build", "--strict", "--clean", "-f", str(target / "zensical.toml")],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # It colours each letter; where a link leads nowhere, one wants to read which.
    told, _, _ = COLOUR.sub("", done.stdout).partition("Traceback")
    sys.stdout.write(told)
    if done.returncode == 0:
        sys.stdout.write(f"The site is there: {os.path.relpath(target)}/site/index.html\n")
    return done.returncode


def _home(name: str) -> str:
    """Where a file of the project is on the site."""
    if name in PAPERS:
        return PAPERS[name]
    if name.startswith("examples"):
        return EXAMPLES
    return name.removeprefix("docs/")


def _linked(name: str, text: str) -> str:
    """The text of a file, with its links as the site has them."""

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
        anchor = found[2] or ""
        if target.startswith("examples/"):
            anchor = f"#{_slug(target.removeprefix('examples/'))}"
        return posixpath.relpath(_home(target), posixpath.dirname(_home(name)) or ".") + anchor

    return LINK.sub(moved, text)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _examples_page() -> str:
    """The files of examples/, each with what it says of itself."""
    text = ["# Examples", "", "Each is a file of `examples/`, and each is run by the tests.", ""]
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        name = path.relative_to(ROOT / "examples").as_posix()
        language = LANGUAGES.get(path.suffix, "text")
        content = path.read_text(encoding="utf-8").rstrip()
        text += [f"## {name} {{ #{_slug(name)} }}", "", f"```{language}", content, "```", ""]
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve()))
