"""From one version of the tables to the next, with rows in them.

A step is applied once, rows stay, an upgraded database is as a fresh one, and code that was
left behind raises an error. The second version is that of a release that does not exist.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from contract.builders import (
    HOUR,
    NOON,
    StoreDriver,
    a_run,
    add,
    added,
    all_runs,
    tick,
)
from contract.stores.conftest import ON_DISK
from servers import mariadb
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed
from tickwork._stores import Store, open_store
from tickwork._stores._sql import migrate, script
from tickwork._stores._sql.migrate import SchemaMigration, check_version, render_migration
from tickwork._stores._sql.queries import TABLE_PREFIX
from tickwork._stores.contract import LogLine
from tickwork._stores.mysql import schema as mysql_schema
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres import schema as postgres_schema
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite import store as sqlite_store
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import SchemaOutdated, SchemaTooNew
from tickwork.testing import ManualClock

MODULES: dict[str, Any] = {
    "sqlite": sqlite_store,
    "postgres": postgres_schema,
    "mariadb": mysql_schema,
}
SCHEMES: dict[type, str] = {SqliteStore: "sqlite", PostgresStore: "postgresql", MysqlStore: "mysql"}
NOW = migrate.SCHEMA_VERSION
NEXT = NOW + 1
STEP = """
-- What a release would add: a column with a CHECK, an index, and a table.
ALTER TABLE tickwork_schedule ADD COLUMN colour INTEGER CHECK (colour >= 0);

CREATE INDEX tickwork_schedule_colour ON tickwork_schedule (colour)
-- for: postgres sqlite
    WHERE colour IS NOT NULL
-- end
;

CREATE TABLE tickwork_colour (
    id   {id} NOT NULL,
    {key} {long_name} NOT NULL,
    PRIMARY KEY (id)
) {rows};
"""


def steps_of(package: str, *, prefix: str = TABLE_PREFIX) -> list[SchemaMigration]:
    """The migrations of the release that brings the next version."""
    step = SchemaMigration(NEXT, render_migration(STEP, package, prefix=prefix))
    return [*migrate.migrations(package, prefix=prefix), step]


@pytest.fixture(params=ON_DISK)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with nothing in its database."""
    if kind == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"
    else:
        url = request.getfixturevalue(f"{kind}_url")
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def store(empty: Store) -> Store:
    empty.install()
    return empty


@pytest.fixture
def install_as(kind: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Store, int], None]:
    """Install as the release did that brought this version."""
    module = MODULES[kind]

    def install(store: Store, version: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, "migrations", lambda *a, **k: steps_of(*a, **k)[:version])
            patch.setattr(module, "SCHEMA_VERSION", version)
            assert store.install() == version

    return install


class TestUpgrading:
    """A step is applied once, and rows stay as they were."""

    def test_rows_stay(self, store, install_as):
        add(store, run := a_run())
        before = store.get_run(run.id)

        install_as(store, NEXT)

        assert store.schema_version() == NEXT
        assert store.get_run(run.id) == before

    def test_a_second_time_nothing_happens(self, store, install_as):
        install_as(store, NEXT)

        # On SQLite and PostgreSQL the step would fail if it were applied again.
        install_as(store, NEXT)

    def test_the_release_before_goes_on_working(self, store, install_as):
        install_as(store, NEXT)

        assert store.install() == NEXT
        store.check_schema()
        add(store, run := a_run())
        assert store.get_run(run.id) is not None


COLUMNS = """
SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
"""
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"
CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
"""


def shape_of(store: Store) -> list[Any]:
    """Every table, column and index, as the database tells."""
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store.path)) as connection:
            return sorted(connection.execute("SELECT type, name, sql FROM sqlite_master"), key=str)
    if isinstance(store, MysqlStore):
        with mariadb.connect(store.url) as server:
            tables = server.execute("SHOW TABLES").fetchall()
            return [server.execute(f"SHOW CREATE TABLE {name}").fetchall() for (name,) in tables]
    assert isinstance(store, PostgresStore)
    with psycopg.connect(store.url) as connection:
        return [
            row
            for text in (COLUMNS, INDEXES, CONSTRAINTS)
            for row in connection.execute(text.encode()).fetchall()
        ]


def seen(store: Store) -> list[Any]:
    """What people see of it."""
    runs = all_runs(store)
    stories = [store.run_record(run.id) for run in runs]
    return [runs, stories, store.list_schedules(), store.list_jobs(), store.list_limits()]


class TestRows:
    """An upgrade with rows of many kinds."""

    def test_rows_stay_and_go_on(self, store, install_as):
        clock = ManualClock(NOON)
        driver = StoreDriver(store, clock)
        store.set_limits({"job:send_email": 1})
        limited = [a_run(limit_keys=("job:send_email",), attempts_max=2) for _ in range(3)]
        add(store, *limited, a_run(due_at=NOON + HOUR), a_run(unique=UniqueKey("key", None)))
        added(store, "digest", job="sweep")
        added(store, "report", next_due_at=NOON + HOUR)
        for claim in driver.claim(2):
            driver.record(claim, Failed("no", retry=False))
        store.append_logs({limited[0].id: [LogLine(NOON, "INFO", "x", "y")]}, lines_max=9)
        before = seen(store)

        install_as(store, NEXT)

        store.check_schema()
        assert seen(store) == before
        assert store.scheduled_jobs() == ["send_email", "sweep"]
        assert len(driver.claim()) == 1  # the unblocked run
        clock.advance(hours=1)
        assert len(tick(store, clock).runs) == 1

    def test_the_tables_are_as_if_they_were_fresh(self, store, install_as):
        install_as(store, NEXT)
        upgraded = shape_of(store)

        if isinstance(store, SqliteStore):
            fresh: Store = SqliteStore(store.path + "-fresh")
        elif isinstance(store, MysqlStore):
            mariadb.drop_tables(store.url)
            fresh = open_store(store.url)
        else:
            assert isinstance(store, PostgresStore)
            with psycopg.connect(store.url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            fresh = open_store(store.url)
        install_as(fresh, NEXT)

        assert shape_of(fresh) == upgraded
        assert any("tickwork_colour" in str(row) for row in upgraded)
        fresh.close()


class TestVersions:
    """Code and tables that do not fit say so, with the way out."""

    def test_tables_that_are_older_than_the_code(self, monkeypatch):
        monkeypatch.setattr(migrate, "SCHEMA_VERSION", NEXT)
        with pytest.raises(SchemaOutdated, match="tickwork install"):
            check_version("sqlite://", installed=NOW, compatible_from=0)

    def test_code_that_was_left_behind(self):
        with pytest.raises(SchemaTooNew, match="Upgrade tickwork"):
            check_version("sqlite://", installed=9, compatible_from=9)

    def test_newer_tables_that_this_code_can_still_use(self):
        check_version("sqlite://", installed=9, compatible_from=1)


class TestScripts:
    """What other tools execute instead of ``install``."""

    @pytest.fixture(autouse=True)
    def next_release(self, monkeypatch):
        monkeypatch.setattr(script, "migrations", steps_of)
        monkeypatch.setattr(script, "SCHEMA_VERSION", NEXT)

    def test_the_statements_from_one_version_to_the_next(self):
        found = script.schema_statements("mysql", since=NOW, to=NEXT)

        assert found[0].startswith("ALTER TABLE tickwork_schedule")
        assert found[-1] == f"UPDATE tickwork_meta SET version = {NEXT}, compatible_from = 1"
        assert "WHERE colour" not in "\n".join(found)

    def test_the_statements_of_one_version(self):
        found = script.schema_statements("mysql", to=NOW)

        assert not [text for text in found if "colour" in text]
        assert found[-1] == f"UPDATE tickwork_meta SET version = {NOW}, compatible_from = 1"

    def test_an_upgrade_script_has_only_the_missing_steps(self, store):
        text = script.schema_script(SCHEMES[type(store)], since=NOW)

        assert "ADD COLUMN colour" in text
        assert "CREATE TABLE tickwork_run (" not in text

    def test_each_step_is_described(self):
        [step] = script.schema_steps("sqlite", since=NOW)

        assert step.version == NEXT
        assert step.statements == [
            "ALTER TABLE tickwork_schedule",
            "CREATE INDEX tickwork_schedule_colour",
            "CREATE TABLE tickwork_colour",
        ]

    def test_new_tables_have_privileges(self):
        assert "GRANT SELECT ON tickwork_colour TO tickwork_read" in script.grant_script("mysql")
