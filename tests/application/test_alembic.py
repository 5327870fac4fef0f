"""Alembic compares the tables of a program with its database, where tickwork has tables, too."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Integer, MetaData, Table, text

from application.connections import engine_of
from tickwork import Tickwork
from tickwork._stores import schema_statements
from tickwork.integrations.sqlalchemy import include_object

DRIVERS = {"sqlite": "pysqlite", "postgres": "psycopg", "mariadb": "pymysql"}


@pytest.fixture
def engine(app, url, database):
    app.install()
    with engine_of(url, DRIVERS[database]) as engine:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS dropped_in_code"))
            connection.execute(text("CREATE TABLE dropped_in_code (id INTEGER PRIMARY KEY)"))
        yield engine
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS dropped_in_code"))


@pytest.fixture
def compare(engine):
    """The changes that autogenerate proposes, as the names of operations and tables."""
    metadata = MetaData()
    Table("new_in_code", metadata, Column("id", Integer, primary_key=True))

    def run(**options):
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts=options)
            found = compare_metadata(context, metadata)
        return {(change[0], change[1].name) for change in found if change[0].endswith("_table")}

    return run


def test_without_the_filter_autogenerate_would_drop_the_tables(compare):
    assert ("remove_table", "tickwork_run") in compare()


def test_the_filter_hides_them_and_nothing_else(compare):
    found = compare(include_object=include_object)

    assert {("add_table", "new_in_code"), ("remove_table", "dropped_in_code")} <= found
    assert not [name for _, name in found if name.startswith("tickwork")]


def test_a_migration_creates_the_tables(tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db"
    with engine_of(url, "pysqlite") as engine, engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        for statement in schema_statements("sqlite"):
            op.execute(statement)

    with Tickwork(url, install=False) as app:
        run = app.schedule("double", lambda n: 2 * n).dispatch(n=21)
        app.run()
        assert run.result() == 42
