"""The names of commands in messages."""

import click
import pytest

from tickwork import Tickwork, _program
from tickwork._domain.explain import Cause, Why
from tickwork._domain.health import bad
from tickwork.errors import SchemaMissing


@pytest.fixture
def manage_py(monkeypatch):
    monkeypatch.setattr(_program, "_prefix", [])
    monkeypatch.setattr(_program, "_replacements", {})
    _program.set_program("manage.py tickwork", {"`tickwork install`": "`manage.py migrate`"})


def test_every_command_is_known():
    group = Tickwork("memory://").cli()

    assert list(_program.COMMANDS) == sorted(group.list_commands(click.Context(group)))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Start one: tickwork work", "Start one: manage.py tickwork work"),
        ("tickwork retry 7", "manage.py tickwork retry 7"),
        ("`tickwork -a MODULE:NAME work`", "`manage.py tickwork work`"),
        ("tickwork -a shop.jobs:app work -q emails", "manage.py tickwork work -q emails"),
        ("`tickwork COMMAND --help`", "`manage.py tickwork COMMAND --help`"),
        ("`tickwork install`, or wait.", "`manage.py migrate`, or wait."),
        ("tickwork uses the clock of the database.", "tickwork uses the clock of the database."),
        ("examples/tickwork work", "examples/tickwork work"),
    ],
)
@pytest.mark.usefixtures("manage_py")
def test_commands_are_named_as_they_are_called(text, named):
    assert _program.name_commands(text) == named
    assert _program.name_commands(named) == named


def test_without_another_program_texts_stay_as_they_are():
    assert _program.name_commands("tickwork work") == "tickwork work"


@pytest.mark.usefixtures("manage_py")
def test_messages_name_the_other_program():
    assert "`manage.py migrate`" in str(SchemaMissing("django://default"))
    assert bad("workers", "None.", "tickwork work").fix == "manage.py tickwork work"
    assert Cause(Why.NO_WORKER, "None.", "tickwork work").fix == "manage.py tickwork work"
