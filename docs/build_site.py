"""Builds the site: `make docs` runs ``python -m docs.build_site build``.

The pages of docs/ are copied to a folder. The README becomes the first page, and the project's
other documents, the examples and the API reference are added. Zensical then builds the site in
strict mode: a broken link or anchor is an error.
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
DOCUMENTS: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
EXAMPLES: Final = "examples.md"
WIDE: Final = ("compared.md",)
"""Pages with wide tables. They are shown without the navigation and the table of contents."""
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".service": "ini", ".toml": "toml"}
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)]*)?(?=\))")


def stage(target: Path) -> None:
    """Write all pages of the site below ``target/docs``, with their links adapted."""
    shutil.rmtree(target / "docs", ignore_errors=True)
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in DOCUMENTS)]
    }
    adapted = {_site_path(name): _adapt_links(name, text) for name, text in texts.items()}
    adapted |= pages()
    adapted[EXAMPLES] = _examples_page()
    for name in WIDE:
        adapted[name] = f"---\nhide: [navigation, toc]\n---\n\n{adapted[name]}"
    for name, text in adapted.items():
        page = target / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs" / "zensical.toml", target)


def build(target: Path) -> int:
    """Build the site below ``target/site``; return the exit status."""
    stage(target)
    program = str(Path(sys.executable).parent / "zensical")
    done = subprocess.run(  # noqa: S603  # a fixed command
        [program, "build", "--strict", "--clean", "-f", str(target / "zensical.toml")],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # Zensical colors single letters, which makes its messages unreadable in logs.
    output, _, _ = COLOUR.sub("", done.stdout).partition("Traceback")
    sys.stdout.write(output)
    if done.returncode == 0:
        sys.stdout.write(f"Built {os.path.relpath(target)}/site/index.html\n")
    return done.returncode


def _site_path(name: str) -> str:
    """The path of a project file on the site."""
    if name in DOCUMENTS:
        return DOCUMENTS[name]
    if name.startswith("examples"):
        return EXAMPLES
    return name.removeprefix("docs/")


def _adapt_links(name: str, text: str) -> str:
    """The text of a file, with its links adapted to the site."""

    def adapt(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
        anchor = found[2] or ""
        if target.startswith("examples/"):
            anchor = f"#{_slug(target.removeprefix('examples/'))}"
        return (
            posixpath.relpath(_site_path(target), posixpath.dirname(_site_path(name)) or ".")
            + anchor
        )

    return LINK.sub(adapt, text)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _examples_page() -> str:
    """A page with the files of examples/."""
    text = ["# Examples", "", "These are the files of `examples/`. The tests run them.", ""]
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_dir() or path.suffix == ".whl" or "__pycache__" in path.parts:
            continue
        name = path.relative_to(ROOT / "examples").as_posix()
        language = LANGUAGES.get(path.suffix, "text")
        content = path.read_text(encoding="utf-8").rstrip()
        text += [f"## {name} {{ #{_slug(name)} }}", "", f"````{language}", content, "````", ""]
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve()))
