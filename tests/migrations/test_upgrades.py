"""From one version of the tables to the next, with rows in them.

There is one version so far. What is tested is the way there: a step is applied once, rows
stay, and code that was left behind is told so.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from contract.builders import a_run, add
from tickwork.errors import SchemaOutdated, SchemaTooNew
from tickwork.stores import Store, open_store
from tickwork.stores._sql import migrate
from tickwork.stores._sql.migrate import Migration, check_version
from tickwork.stores.postgres import store as postgres_store
from tickwork.stores.sqlite import store as sqlite_store

MODULES: dict[str, Any] = {"sqlite": sqlite_store, "postgres": postgres_store}
STEP = Migration(2, ["ALTER TABLE tickwork_job ADD COLUMN colour TEXT"])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.servers("postgres"))])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    if kind == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"
    else:
        url = request.getfixturevalue("postgres_url")
    opened = open_store(url)
    opened.install()
    yield opened
    opened.close()


@pytest.fixture
def next_release(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This code, one version on."""
    module, steps = MODULES[kind], migrate.migrations

    def more(package: str, *, prefix: str) -> list[Migration]:
        return [*steps(package, prefix=prefix), STEP]

    monkeypatch.setattr(module, "migrations", more)
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)


@pytest.mark.usefixtures("kind")
class TestUpgrading:
    """A step is applied once, and rows stay as they were."""

    def test_rows_stay(self, store, request):
        add(store, run := a_run())
        before = store.get_run(run.id)
        request.getfixturevalue("next_release")

        assert store.install() == 2

        assert store.schema_version() == 2
        assert store.get_run(run.id) == before

    def test_a_second_time_nothing_happens(self, store, request):
        request.getfixturevalue("next_release")
        store.install()

        # The step would fail if it were applied again: the column is there.
        assert store.install() == 2

    def test_the_release_before_goes_on_working(self, store, request, monkeypatch):
        with monkeypatch.context():
            request.getfixturevalue("next_release")
            store.install()
        monkeypatch.undo()

        store.check_schema()
        add(store, run := a_run())
        assert store.get_run(run.id) is not None


class TestVersions:
    """Code and tables that do not fit say so, with the way out."""

    def test_tables_that_are_older_than_the_code(self):
        with pytest.raises(SchemaOutdated, match="tickwork install"):
            check_version(
                "sqlite://", installed=migrate.SCHEMA_VERSION - 1 or -1, compatible_from=0
            )

    def test_code_that_was_left_behind(self):
        with pytest.raises(SchemaTooNew, match="Upgrade tickwork"):
            check_version("sqlite://", installed=9, compatible_from=9)

    def test_newer_tables_that_this_code_can_still_use(self):
        check_version("sqlite://", installed=9, compatible_from=1)
