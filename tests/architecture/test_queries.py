"""SQL by name: every dialect has every query, every query is used, and none is forgotten."""

import ast
import re
from pathlib import Path

import pytest

import tickwork
from tickwork.stores._sql.queries import Queries, split_statements

SOURCE = Path(tickwork.__file__).parent
DIALECTS = [
    path.parent.name for path in sorted((SOURCE / "stores").glob("*/queries")) if path.is_dir()
]
GATES = {"count_gates", "restore_gates"}  # SQLite has one writer, and needs no gates
ACCEPT = {"accept_runs", "accepted_runs"}  # PostgreSQL does both in one statement
# What one database needs and another has not.
OWN = {
    "mysql": {
        *("count_change", "create_meta", "read_changes", "oldest_transaction", "server_time"),
        *ACCEPT,
        *GATES,
        "move_together",  # on SQLite, one statement for each schedule is as fast
    },
    "postgres": {
        *("accept_and_read", "finish_all"),  # the commit is sent with them
        *("create_meta", "move_together", "notify", "server_time"),
        *GATES,
    },
    "sqlite": {"drop_finished", *ACCEPT},
}


def queries_of(dialect: str) -> Queries:
    return Queries(f"tickwork.stores.{dialect}")


def names_used() -> set[str]:
    """Every text in the stores' Python that could name a query."""
    found = set()
    for path in (SOURCE / "stores").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_same_queries(dialect):
    own = OWN.get(dialect, set())

    assert queries_of(dialect).names - own == queries_of("sqlite").names - OWN["sqlite"]
    assert own <= queries_of(dialect).names


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_is_used(dialect):
    assert queries_of(dialect).names <= names_used()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_query_asks_the_database_for_the_time(dialect):
    for file in (SOURCE / "stores" / dialect / "queries").glob("*.sql"):
        text = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        if file.name == "schema.sql":
            continue  # the one that measures the offset
        assert not re.search(r"(?i)\bnow\(\)|current_timestamp|clock_timestamp|sysdate", text), file


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_without_a_gap(dialect):
    files = sorted((SOURCE / "stores" / dialect / "migrations").glob("*.sql"))

    assert [file.name for file in files] == [f"{n:04}.sql" for n in range(1, len(files) + 1)]
    assert all(split_statements(file.read_text(encoding="utf-8")) for file in files)
