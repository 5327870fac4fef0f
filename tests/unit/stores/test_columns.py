"""The declared columns are those of the tables."""

import re
from importlib.resources import files

import pytest

from tickwork._stores._sql import columns
from tickwork._stores._sql.migrate import migrations

DIALECTS = ["sqlite", "postgres", "mysql"]
INTERNAL = {
    # Columns that no value has: for queries only.
    "run": {"claim_tag", "era", "waiting_at"},
    "history": set(),
    "schedule": {"skip_id", "skip_reason", "skip_last_at", "fires_at"},
    "log": {"run", "line"},
}
DECLARED = {
    "run": [column for column in columns.RUN if not column.live],
    "history": [column for column in columns.RUN if not column.history],
    "schedule": columns.SCHEDULE,
    "attempt": columns.ATTEMPT,
    "log": columns.LOG,
    "worker": columns.WORKER,
    "lock": columns.LOCK,
    "pause": columns.PAUSE,
    "job": columns.JOB,
}


def columns_of(dialect: str, table: str) -> set[str]:
    """The names in the CREATE TABLE of a table, and in what was added to it later."""
    texts = [text for step in migrations(f"tickwork._stores.{dialect}") for text in step.statements]
    [create] = [text for text in texts if text.startswith(f"CREATE TABLE tickwork_{table} (")]
    added = re.findall(rf"ALTER TABLE tickwork_{table} ADD COLUMN (\w+)", "\n".join(texts))
    return {*re.findall(r"^ {4}([a-z_]+) +[A-Za-z]", create, flags=re.MULTILINE), *added}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("table", DECLARED)
def test_a_table_has_the_declared_columns(dialect, table):
    found = columns_of(dialect, table) - INTERNAL.get(table, set())

    assert found == set(columns.names(DECLARED[table]))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_query_file_defines_a_list_of_columns_that_is_declared(dialect):
    for file in files(f"tickwork._stores.{dialect}").joinpath("queries").iterdir():
        fragments = re.findall(r"^-- fragment: (\w+)$", file.read_text(), flags=re.MULTILINE)

        assert not columns.COLUMN_LISTS.keys() & set(fragments)
