"""Tables that were changed or dropped: one clear error on every path, and none of the driver."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
from click.testing import CliRunner, Result

from tickwork import Tickwork
from tickwork._stores import open_store
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.table_check import table_columns
from tickwork.cli.main import command_for
from tickwork.errors import SchemaDamaged, SchemaMissing, SchemaTooNew, StoreError

DATABASES = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.servers("postgres")),
    pytest.param("mariadb", marks=pytest.mark.servers("mariadb")),
]
TEXT = {
    "sqlite": "UPDATE tickwork_meta SET version = 'five'",
    "postgres": "ALTER TABLE tickwork_meta ALTER COLUMN version TYPE text USING 'five'",
    "mariadb": "ALTER TABLE tickwork_meta MODIFY version VARCHAR(20) NOT NULL",
}
COLUMN = {
    # SQLite drops no column that a view uses.
    "sqlite": "ALTER TABLE tickwork_run RENAME COLUMN tenant TO tenants",
    "postgres": "ALTER TABLE tickwork_run DROP COLUMN tenant CASCADE",
    "mariadb": "ALTER TABLE tickwork_run DROP COLUMN tenant",
}
SECOND_ROW = {
    "sqlite": "INSERT INTO tickwork_meta (version, compatible_from) VALUES (1, 1)",
    "postgres": "INSERT INTO tickwork_meta (version, compatible_from) VALUES (1, 1)",
    "mariadb": "INSERT INTO tickwork_meta (only_one, version, compatible_from) VALUES (2, 1, 1)",
}


class Damage(NamedTuple):
    """What happened to the tables, and how the error describes it."""

    statement: str | dict[str, str]
    reason: str
    error: type[StoreError] = SchemaDamaged


EVERYWHERE = {
    "text for the version": Damage(TEXT, "instead of a version"),
    "two versions": Damage(SECOND_ROW, "tickwork_meta has 2 rows instead of one"),
    "a column of meta": Damage("ALTER TABLE tickwork_meta DROP COLUMN compatible_from", "column"),
    "a column": Damage(COLUMN, "tenant"),
    "a newer release": Damage(
        "UPDATE tickwork_meta SET version = 9, compatible_from = 9",
        "knows tables up to version 1; the tables need a release that knows version 9",
        SchemaTooNew,
    ),
}
# On MariaDB, `tickwork install` continues an installation that was interrupted.
WITHOUT_VERSION = {
    "no version": Damage("DELETE FROM tickwork_meta", "tickwork_meta is missing or has no row"),
    "a version that no release has": Damage(
        "UPDATE tickwork_meta SET version = 0, compatible_from = 0", "tickwork_meta has 0 instead"
    ),
    "meta": Damage("DROP TABLE tickwork_meta", "tickwork_meta is missing or has no row"),
}
TABLE = {
    "sqlite": "DROP TABLE tickwork_run",
    "postgres": "DROP TABLE tickwork_run CASCADE",
    "mariadb": "DROP TABLE tickwork_run",
}
LATER = {
    "a table": Damage(TABLE, "tickwork_run"),
    "a table of workers": Damage("DROP TABLE tickwork_worker", "tickwork_worker"),
}
READERS = ["runs", "dispatch note"]
COMMANDS = [*READERS, "collect", "work", "install", "upgrade", "doctor"]


def connect(url: str) -> Any:
    """A connection of another program."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(parts.path[1:])
    if parts.scheme == "mysql":
        return pymysql.connect(
            host=parts.hostname, port=parts.port or 0, user=parts.username, database=parts.path[1:]
        )
    return psycopg.connect(url)


def execute(url: str, statement: str) -> list[Any]:
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.commit()
        return rows


def queries_of(url: str) -> Queries:
    package = {"mysql": "mysql", "sqlite": "sqlite", "postgresql": "postgres"}[urlsplit(url).scheme]
    return Queries(f"tickwork._stores.{package}")


@pytest.fixture(params=DATABASES)
def database(request) -> str:
    found: str = request.param
    return found


@pytest.fixture
def url(database, request, tmp_path) -> str:
    """An installed database."""
    found = f"sqlite:///{tmp_path}/jobs.db"
    if database != "sqlite":
        found = request.getfixturevalue(f"{database}_url")
    with closing(open_store(found)) as store:
        store.install()
    return found


def application(url: str) -> Tickwork:
    app = Tickwork(url, install=False)

    @app.job
    def note(n: int = 0) -> None:
        pass

    return app


def run(url: str, command: str) -> Result:
    with application(url) as app:
        return CliRunner().invoke(command_for(app), command.split())


def damage(url: str, database: str, how: Damage) -> None:
    statement = how.statement
    execute(url, statement if isinstance(statement, str) else statement[database])


def check_output(done: Result, command: str, how: Damage) -> None:
    assert done.exit_code == (1 if command == "doctor" else 4), (command, done.output)
    output = " ".join(done.output.split())
    if how.error is SchemaDamaged:
        assert f"not those of version {SCHEMA_VERSION}" in output, command
        assert "tickwork install --sql" in output, command
    assert how.reason in output, command
    assert "rejected a statement" not in output, command
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception


class TestEveryCommand:
    """The error names the fault, the version and a command."""

    @pytest.mark.parametrize("name", [*EVERYWHERE, *LATER])
    def test_for_a_fault_of_the_tables(self, url, database, name):
        how = {**EVERYWHERE, **LATER}[name]
        if database == "sqlite" and name == "text for the version":
            with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value"):
                damage(url, database, how)
            return
        damage(url, database, how)

        for command in COMMANDS:
            if name == "a table of workers" and command in READERS:
                continue  # they need no table of workers
            check_output(run(url, command), command, how)

    @pytest.mark.parametrize("database", DATABASES[:2], indirect=True)
    @pytest.mark.parametrize("name", WITHOUT_VERSION)
    def test_for_tables_without_a_version(self, url, database, name):
        how = WITHOUT_VERSION[name]
        damage(url, database, how)

        for command in COMMANDS:
            check_output(run(url, command), command, how)

    @pytest.mark.parametrize("database", DATABASES[2:], indirect=True)
    @pytest.mark.parametrize("name", WITHOUT_VERSION)
    def test_on_mariadb_install_continues_an_installation_without_a_version(
        self, url, database, name
    ):
        with application(url) as app:
            kept = app.remote("note").dispatch()
        damage(url, database, WITHOUT_VERSION[name])

        assert "Run `tickwork install`" in run(url, "status").output
        assert run(url, "install").exit_code == 0
        assert f"The tables are at version {SCHEMA_VERSION}." in run(url, "doctor").output
        with application(url) as app:
            assert app.get_run(kept.id).id == kept.id


CALLS: dict[str, Callable[[Tickwork], object]] = {
    "dispatch": lambda app: app.remote("note").dispatch(),
    "async": lambda app: asyncio.run(app.aio.run()),
    "run": lambda app: app.run(),
    "start": lambda app: app.start(),
    "install": lambda app: app.install(),
    "page": lambda app: app.runs.page(),
}


class TestAProgram:
    """A program gets the same error, before and after its first use of the tables."""

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("is_used", [False, True], ids=["at first", "later"])
    @pytest.mark.parametrize("name", ["a column", "a table", "two versions"])
    def test_that_uses_damaged_tables(self, url, database, call, is_used, name):
        if name == "two versions" and is_used and call != "install":
            return  # the version was read before
        with application(url) as app:
            if is_used:
                app.remote("note").dispatch()
            damage(url, database, {**EVERYWHERE, **LATER}[name])

            with pytest.raises(SchemaDamaged):
                CALLS[call](app)

    def test_whose_tables_are_all_gone(self, url, database):
        with application(url) as app:
            app.remote("note").dispatch()
            for table in [*table_columns(queries_of(url)), "tickwork_meta"]:
                ending = " CASCADE" if database == "postgres" else ""
                execute(url, f"DROP TABLE IF EXISTS {table}{ending}")

            with pytest.raises(SchemaMissing, match="tickwork install"):
                app.remote("note").dispatch()

    def test_that_dispatches_on_its_own_connection(self, url, database):
        with application(url) as app:
            app.remote("note").dispatch()
            damage(url, database, EVERYWHERE["a column"])
            with (
                closing(connect(url)) as connection,
                pytest.raises(SchemaDamaged, match="tenant"),
            ):
                app.remote("note").using(connection).dispatch()


def test_the_columns_that_are_checked_are_those_of_the_database(url, database):
    expected = table_columns(queries_of(url))
    columns = {
        "sqlite": "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table'",
        "postgres": "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'tickwork_runs'",
        "mariadb": "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND table_name <> 'tickwork_runs'",
    }[database]
    found: dict[str, set[str]] = {}
    for table, column in execute(url, columns):
        found.setdefault(table, set()).add(column)
    found.pop("tickwork_meta")

    expected.pop("tickwork_meta", None)
    assert {name: {each.strip("`") for each in each_of} for name, each_of in expected.items()} == (
        found
    )
