"""Whatever value a column gets, the worker goes on with other rows, and every reader answers.

To repeat one round: ``Rounds(url, editor, seed=0).play("0/17")``; ``only={3}`` applies one edit.
"""

import os
from collections.abc import Iterator

import pytest

from application.conftest import DATABASES
from properties.edited_rows import (
    Editor,
    MariadbEditor,
    PostgresEditor,
    Rounds,
    SqliteEditor,
    closing_editor,
)
from tickwork import Tickwork

EDITS = 700
"""For each database, in every run of the tests."""

EDITS_LONG = 17_000


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    """A database of its own."""
    if request.param == "sqlite":
        found = f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db?synchronous=NORMAL"
    else:
        found = request.getfixturevalue(f"{request.param}_url")
    with Tickwork(found) as app:
        app.install()
    return found


@pytest.fixture
def editor(url: str) -> Iterator[Editor]:
    made: Editor
    if url.startswith("sqlite"):
        made = SqliteEditor(url.removeprefix("sqlite:///").partition("?")[0])
    elif url.startswith("postgres"):
        made = PostgresEditor(url)
    else:
        made = MariadbEditor(url)
    with closing_editor(made):
        yield made


def seed() -> int:
    return int(os.environ.get("TICKWORK_SEED", "0"))


@pytest.mark.timeout(400)  # on a busy machine
def test_the_rest_goes_on(url, editor):
    rounds = Rounds(url, editor, seed=seed())

    rounds.run(EDITS)

    assert rounds.applied >= EDITS


@pytest.mark.long
def test_the_rest_goes_on_for_long(url, editor):
    rounds = Rounds(url, editor, seed=seed() + 1)

    rounds.run(EDITS_LONG)

    assert rounds.applied >= EDITS_LONG
