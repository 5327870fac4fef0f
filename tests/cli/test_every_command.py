"""Checks of every command: help with examples, documentation, the shape of its JSON."""

import json
import re
import shlex
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import click
import pytest
from click.testing import CliRunner

from application.conftest import DATABASES
from cli.conftest import a_worker, claimed, newest
from tickwork import RunStatus
from tickwork.cli.commands import EXIT_CODES, DocumentedCommand
from tickwork.cli.main import MODULES, cli

PAGES = Path(__file__).resolve().parents[2] / "docs"


def command_named(name: str) -> DocumentedCommand:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, DocumentedCommand)
    return found


def options() -> list[tuple[str, str]]:
    """Every command with every spelling of every option."""
    return [
        (name, spelling)
        for name in MODULES
        for param in command_named(name).params
        if isinstance(param, click.Option)
        for spelling in param.opts
    ]


@pytest.fixture(params=DATABASES[:1])  # shapes do not depend on it
def database(request):
    return str(request.param)


class TestHelp:
    """`--help` has examples, and explains every option."""

    @pytest.mark.parametrize("name", MODULES)
    def test_it_has_examples_that_are_commands(self, name):
        text = CliRunner().invoke(cli, [name, "--help"], prog_name="tickwork").output

        assert "Examples:" in text
        assert any(f"tickwork {name}" in line or f" {name}" in line for line in text.splitlines())

    @pytest.mark.parametrize("name", MODULES)
    def test_every_option_has_a_help_text(self, name):
        undocumented = [
            param.name
            for param in command_named(name).params
            if isinstance(param, click.Option) and not param.help
        ]

        assert undocumented == []

    @pytest.mark.parametrize("name", MODULES)
    def test_the_options_of_examples_exist(self, name):
        command = command_named(name)
        known = {spelling for each in (command, cli) for p in each.params for spelling in p.opts}
        for line in command.examples.strip().splitlines():
            first = line.partition(f" {name}")[2].partition("|")[0].partition("&&")[0]
            used = [word for word in first.split() if word.startswith("-") and len(word) > 1]
            assert [word for word in used if word not in known] == []


class TestPages:
    """Every command and option is documented."""

    def test_every_command_has_a_section(self):
        page = (PAGES / "reference" / "commands.md").read_text(encoding="utf-8")

        assert [name for name in MODULES if f"\n## {name}\n" not in page] == []
        assert [code for code in EXIT_CODES if f"\n| {code} | " not in page] == []

    def test_every_option_has_a_line_in_it(self):
        page = (PAGES / "reference" / "commands.md").read_text(encoding="utf-8")
        sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])

        assert [
            (name, option) for name, option in options() if f"{option}" not in sections[name]
        ] == []

    def test_every_command_in_the_docs_is_valid(self):
        invalid = [
            f"{page.name}: {line}"
            for page in [PAGES.parent / "README.md", *sorted(PAGES.rglob("*.md"))]
            for line in commands_in(page.read_text(encoding="utf-8"))
            if not is_valid(line)
        ]

        assert invalid == []


def commands_in(text: str) -> list[str]:
    """The calls of tickwork in the code blocks and inline code of a page."""
    blocks = re.findall(r"^\$ (?:\w+=\S+ )*(tickwork .*)$", text, re.MULTILINE)
    inline = re.findall(r"`(tickwork [a-z-].*?)`", text.replace("\n", " "))
    return [line for line in (*blocks, *inline) if "[OPTIONS]" not in line]


def is_valid(line: str) -> bool:
    """Whether the command and its options exist."""
    line = re.split(r" (?:\||&&|\|\||#) ", line)[0]
    words = shlex.split(line)[1:]
    for option in ("-a", "--app"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    if not words or words[0] in {"--help", "--version", "-v", "COMMAND"}:
        return True
    name = words[0]
    if name not in MODULES:
        return False
    known = {spelling for param in command_named(name).params for spelling in param.opts} | {
        "--help"
    }
    used = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
    return set(used) <= known


# ---------------------------------------------------------------- JSON

# Arguments of the commands that need some.
ARGUMENTS = {
    "init": ["new"],
    "unlock": ["no-such-lock"],
    "inspect": ["ID"],
    "preview": ["0 9 * * *"],
    "simulate": ["--days", "1"],
    "dispatch": ["report"],
    "retry": ["FAILED"],
    "cancel": ["PENDING"],
    "emit": ["order.paid", "42"],
    "signal": ["PENDING", "approved"],
    "wake": ["PENDING"],
    "drain": ["--all"],
    "pause": ["--queue", "emails"],
    "resume": ["--queue", "emails"],
    "explain": ["report"],
    "import": ["crontab", "/dev/null"],
    "watch": ["--once"],
}
WITH_JSON = [name for name in MODULES if command_named(name).result_type is not None]


def mismatches(value: Any, hint: Any, path: str = "") -> list[str]:
    """Where a JSON value does not have the documented type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if origin in {Union, UnionType}:
        found = [mismatches(value, arg, path) for arg in args]
        return [] if [] in found else min(found, key=len)
    if hint is type(None):
        return [] if value is None else [f"{path} is not null"]
    if origin in {list, tuple}:
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [
            f for n, each in enumerate(value) for f in mismatches(each, args[0], f"{path}[{n}]")
        ]
    if origin is not None:
        return [
            f for key, each in value.items() for f in mismatches(each, args[1], f"{path}.{key}")
        ]
    if hasattr(hint, "__supertype__"):
        return mismatches(value, hint.__supertype__, path)
    if hint is datetime:
        is_aware = isinstance(value, str) and datetime.fromisoformat(value).utcoffset() is not None
        return [] if is_aware else [f"{path} is {value!r}, no time"]
    if hint is timedelta or hint is float:
        return [] if isinstance(value, int | float) else [f"{path} is no number"]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [] if value in {each.value for each in hint} else [f"{path}={value}"]
    if hint in {str, int, bool}:
        return [] if type(value) is hint else [f"{path} is {value!r}, no {hint.__name__}"]
    if not isinstance(value, dict):
        return [f"{path} is {value!r}, no object"]
    names = [f.name for f in fields(hint)] if is_dataclass(hint) else list(hint._fields)
    if list(value) != names:
        return [f"{path} has {sorted(value)}, not {sorted(names)}"]
    hints = get_type_hints(hint)
    return [f for name in names for f in mismatches(value[name], hints[name], f"{path}.{name}")]


class TestAnswers:
    """`--json` prints exactly what the page documents."""

    @pytest.mark.parametrize("name", WITH_JSON)
    def test_its_shape(self, seeded, cli, name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        seeded.pause(queue="emails")
        seeded.dispatch("report")
        claimed(seeded, a_worker(seeded))
        ids = {
            "ID": newest(seeded, RunStatus.FAILED),
            "FAILED": newest(seeded, RunStatus.FAILED_PERMANENT),
            "PENDING": newest(seeded, RunStatus.PENDING),
        }
        words = [str(ids.get(word, word)) for word in ARGUMENTS.get(name, [])]

        done = cli(name, *words, "--json", code=None)

        assert done.exit_code in {0, 1}, done.output
        assert mismatches(json.loads(done.stdout), command_named(name).result_type) == []
