"""Builds the site, and checks that every command, event and public name is documented."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from tickwork import events
from tickwork._define.options import JOB_OPTIONS
from tickwork.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def api() -> ModuleType:
    """docs/api.py. This test folder is also called docs: both form one namespace package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return importlib.import_module("docs.api")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target: Path = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "docs.build_site", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


class TestTheSite:
    """`make docs` in strict mode: a broken link or anchor is an error."""

    def test_every_page_is_in_the_navigation_or_is_a_decision(self, site):
        nav = (site / "zensical.toml").read_text(encoding="utf-8")
        pages = {path.relative_to(site / "docs").as_posix() for path in site.glob("docs/**/*.md")}

        assert {page for page in pages if f'"{page}"' not in nav} == {
            page for page in pages if page.startswith("adr/")
        }

    def test_every_decision_is_in_the_index(self):
        index = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")

        pages = [path.name for path in (ROOT / "docs" / "adr").glob("*.md")]
        assert [page for page in pages if f"(adr/{page})" not in index] == []

    def test_every_page_was_built(self, site):
        pages = {path.relative_to(site / "docs") for path in site.glob("docs/**/*.md")}

        assert [
            page for page in pages if not (site / "site" / page).with_suffix(".html").exists()
        ] == []

    def test_no_requests_to_other_hosts(self, site):
        page = (site / "site" / "guide" / "install.html").read_text(encoding="utf-8")

        assert re.findall(r'(?:src|href)="(https?://[^"]+)"', page) in (
            [],
            ["https://zensical.org/"],
        )

    def test_examples_are_shown_unchanged(self, site):
        page = (site / "docs" / "examples.md").read_text(encoding="utf-8")

        for path in (ROOT / "examples").glob("*.py"):
            assert path.read_text(encoding="utf-8").strip() in page


class TestCoverage:
    """Every command, event and public name is documented (options: tests/cli)."""

    def test_every_command_is_in_a_guide(self):
        guide = "\n".join(
            path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "guide").glob("*.md")
        )
        # In a console block or in running text, possibly after options of the group.
        missing = [
            name
            for name, _ in commands()
            if not re.search(rf"tickwork (?:-a \S+ )?{name}\b", guide)
        ]

        assert missing == []

    def test_commands_in_pages_exist_and_have_the_options_that_are_shown(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        shown = [(page.name, line) for page in pages for line in _command_lines(page)]

        wrong = [f"{page}: {line}" for page, line in shown if not _is_valid(line)]

        assert len(shown) > 40
        assert wrong == []

    def test_every_event_has_a_section_and_is_in_the_guide(self, api):
        page = "\n".join(api.events_page())
        guide = (ROOT / "docs" / "guide" / "operating.md").read_text(encoding="utf-8")

        kinds = [
            name
            for name, value in vars(events).items()
            if isinstance(value, type) and issubclass(value, events.Event) and name[0] != "_"
        ]
        assert [name for name in kinds if f"\n## {name}\n" not in page] == []
        assert [name for name in kinds if f"`{name}`" not in guide] == []

    def test_every_job_option_is_in_the_guide(self):
        guide = (ROOT / "docs" / "guide" / "jobs.md").read_text(encoding="utf-8")
        table = guide.partition("## Job options")[2].partition("\n## ")[0]

        assert [name for name in JOB_OPTIONS if f"`{name}`" not in table] == []

    def test_every_public_name_has_a_section(self, api):
        for path, module in api.MODULES.items():
            page = api.pages()[path]
            for name in importlib.import_module(module).__all__:
                value = getattr(importlib.import_module(module), name)
                if callable(value) and name not in api.ERROR_NAMES and not name.startswith("__"):
                    assert f"\n## {name}\n" in page, f"{module}.{name}"


def _command_lines(page: Path) -> list[str]:
    """The tickwork commands of a page, in blocks and in running text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]
    return [
        found[1] for line in lines if (found := re.search(r"(?:^|[ /])(tickwork -?\w.*)", line))
    ]


def _is_valid(line: str) -> bool:
    """Whether the command and its options exist. Values are not checked."""
    parts = shlex.split(line, comments=True)[1:]
    known: dict[str, click.Command] = dict(commands())
    command: click.Command = cli
    while parts:
        part = parts.pop(0)
        if part in {"&&", "|", ";", "COMMAND", "…"}:
            return True
        if part.startswith("-") and part != "-":  # which is standard input
            option, _, value = part.partition("=")
            options = [one for one in command.params if option in one.opts]
            if not options and option not in {"-h", "--help"}:
                return False
            if any(not getattr(one, "is_flag", True) for one in options) and not value:
                parts = parts[1:]
        elif command is cli:
            if part not in known:
                return False
            command = known[part]
    return True


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    found = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]
