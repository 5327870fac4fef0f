"""From one version of the tables to the next, with rows in them.

A step is applied once, rows stay, an upgraded database is as a fresh one, and code that was
left behind raises an error.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
from tickwork._domain.limits import UniqueKey
from tickwork._domain.outcome import Failed
from tickwork.errors import SchemaOutdated, SchemaTooNew
from tickwork.stores import Store, open_store
from tickwork.stores._sql import migrate
from tickwork.stores._sql.migrate import SchemaMigration, check_version
from tickwork.stores.contract import LogLine
from tickwork.stores.mysql import schema as mysql_schema
from tickwork.stores.mysql.store import MysqlStore
from tickwork.stores.postgres import schema as postgres_schema
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite import store as sqlite_store
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock

MODULES: dict[str, Any] = {
    "sqlite": sqlite_store,
    "postgres": postgres_schema,
    "mariadb": mysql_schema,
}
NOW = migrate.SCHEMA_VERSION
NEXT = NOW + 1
STEP = SchemaMigration(NEXT, ["ALTER TABLE tickwork_job ADD COLUMN colour TEXT"])


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
    module, steps = MODULES[kind], migrate.migrations

    def install(store: Store, version: int) -> None:
        def known(package: str, *, prefix: str) -> list[SchemaMigration]:
            return [*steps(package, prefix=prefix), STEP][:version]

        with monkeypatch.context() as patch:
            patch.setattr(module, "migrations", known)
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

        # The step would fail if it were applied again: the column is there.
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


def alter(store: Store, statement: str) -> None:
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(statement)
    elif isinstance(store, MysqlStore):
        with mariadb.connect(store.url) as server:
            server.execute(statement)
    elif isinstance(store, PostgresStore):
        with psycopg.connect(store.url) as postgres:
            postgres.execute(statement.encode())


LATER_COLUMNS = {"expect_within": 5}
"""Columns that this code writes, and the version that added them to tickwork_schedule."""


@contextmanager
def later_columns(store: Store, version: int) -> Iterator[None]:
    """Add what this code needs to tables of another version for a block: then it can fill them."""
    names = [name for name, since in LATER_COLUMNS.items() if version < since]
    for name in names:
        alter(store, f"ALTER TABLE tickwork_schedule ADD COLUMN {name} BIGINT")
    yield
    for name in names:
        alter(store, f"ALTER TABLE tickwork_schedule DROP COLUMN {name}")


def seen(store: Store) -> list[Any]:
    """What people see of it."""
    runs = all_runs(store)
    stories = [store.run_record(run.id) for run in runs]
    return [runs, stories, store.list_schedules(), store.list_jobs(), store.list_limits()]


@pytest.mark.parametrize("version", range(1, NOW))
class TestSteps:
    """From each version that was released to this one, with rows of many kinds."""

    def test_rows_stay_and_go_on(self, empty, install_as, version):
        install_as(store := empty, version)
        clock = ManualClock(NOON)
        driver = StoreDriver(store, clock)
        store.set_limits({"job:send_email": 1})
        limited = [a_run(limit_keys=("job:send_email",), attempts_max=2) for _ in range(3)]
        add(store, *limited, a_run(due_at=NOON + HOUR), a_run(unique=UniqueKey("key", None)))
        with later_columns(store, version):
            added(store, "digest", job="sweep")
            added(store, "report", next_due_at=NOON + HOUR)
            for claim in driver.claim(2):
                driver.record(claim, Failed("no", retry=False))
            store.append_logs({limited[0].id: [LogLine(NOON, "INFO", "x", "y")]}, lines_max=9)
            before = seen(store)

        assert store.install() == NOW

        store.check_schema()
        assert seen(store) == before
        assert store.scheduled_jobs() == ["send_email", "sweep"]
        assert len(driver.claim()) == 1  # the unblocked run
        clock.advance(hours=1)
        assert len(tick(store, clock).runs) == 1

    def test_the_tables_are_as_if_they_were_fresh(self, empty, install_as, version, kind):
        install_as(empty, version)
        empty.install()
        upgraded = shape_of(empty)

        if isinstance(empty, SqliteStore):
            fresh: Store = SqliteStore(empty.path + "-fresh")
        elif isinstance(empty, MysqlStore):
            mariadb.drop_tables(empty.url)
            fresh = open_store(empty.url)
        else:
            assert isinstance(empty, PostgresStore)
            with psycopg.connect(empty.url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            fresh = open_store(empty.url)
        fresh.install()

        assert shape_of(fresh) == upgraded
        fresh.close()


class TestVersions:
    """Code and tables that do not fit say so, with the way out."""

    def test_tables_that_are_older_than_the_code(self):
        with pytest.raises(SchemaOutdated, match="tickwork install"):
            check_version("sqlite://", installed=NOW - 1, compatible_from=0)

    def test_code_that_was_left_behind(self):
        with pytest.raises(SchemaTooNew, match="Upgrade tickwork"):
            check_version("sqlite://", installed=9, compatible_from=9)

    def test_newer_tables_that_this_code_can_still_use(self):
        check_version("sqlite://", installed=9, compatible_from=1)
