"""SQL by name: every dialect has every query, every query is used, and none is forgotten."""

import ast
import re
from pathlib import Path

import pytest

import tickwork
from tickwork._stores._sql.queries import Queries, split_statements
from tickwork._stores._sql.table_check import table_columns

SOURCE = Path(tickwork.__file__).parent
DIALECTS = [
    path.parent.name for path in sorted((SOURCE / "_stores").glob("*/queries")) if path.is_dir()
]
ACCEPT = {"accept_runs", "accepted_runs"}  # PostgreSQL does both in one statement
ERAS = {
    "count_dead",
    "count_eras",
    "foreign_eras",
    "gather_eras",
    "list_eras",
    "move_boundary",
    "restart_eras",
}
# What one database needs and another has not, besides the optional statements that it declares.
OWN = {
    "mysql": {"oldest_transaction", "read_changes", "restore_gates", "server_time", *ACCEPT},
    "postgres": {"restore_gates", "server_time", *ERAS},
    "sqlite": ACCEPT,
}


def queries_of(dialect: str) -> Queries:
    return Queries(f"tickwork._stores.{dialect}")


def own_of(dialect: str) -> set[str]:
    optional = queries_of(dialect).optional._asdict()
    return OWN.get(dialect, set()) | {name for name, is_declared in optional.items() if is_declared}


def names_used() -> set[str]:
    """Every text in the stores' Python that could name a query."""
    found = set()
    for path in (SOURCE / "_stores").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_same_queries(dialect):
    own = own_of(dialect)

    assert queries_of(dialect).names - own == queries_of("sqlite").names - own_of("sqlite")
    assert own <= queries_of(dialect).names


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_is_used(dialect):
    assert queries_of(dialect).names <= names_used()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_query_asks_the_database_for_the_time(dialect):
    own = (SOURCE / "_stores" / dialect / "queries").glob("*.sql")
    for file in [*own, *(SOURCE / "_stores" / "_sql" / "common_queries").glob("*.sql")]:
        text = re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
        if file.name == "schema.sql":
            continue  # the one that measures the offset
        assert not re.search(r"(?i)\bnow\(\)|current_timestamp|clock_timestamp|sysdate", text), file


NOT_READY = re.compile(r"\bphase = '(running|blocked|waiting)'")


def test_every_statement_that_can_make_a_run_ready_sets_its_era():
    query = queries_of("postgres")
    changing = []
    for name, parts in query.parts_by_name.items():
        for part in parts:
            is_insert = "INSERT INTO tickwork_run (" in part
            sets = re.search(
                r"UPDATE tickwork_run\b.*?\bSET\b(.*?)\b(?:FROM unnest|WHERE)", part, re.DOTALL
            )
            is_update = sets is not None and re.search(r"\bphase =", NOT_READY.sub("", sets[1]))
            if is_insert or is_update:
                changing.append(name)
                assert "pg_sequence_last_value('tickwork_era')" in part, name

    assert {
        "insert_runs",
        "stage_runs",
        "unblock",
        "unblock_expired",
        "return_runs",
        "move_run",
    } <= {*changing}


@pytest.mark.parametrize("dialect", ["mysql", "postgres"])
def test_the_health_of_every_table_is_measured(dialect):
    query = queries_of(dialect)
    [text] = query("health_of_tables").parts

    measured = re.findall(r"'(tickwork_\w+)'", text)

    assert len(measured) == len(set(measured))
    assert set(table_columns(query)) <= set(measured)
    assert set(measured) <= {*table_columns(queries_of("mysql")), "tickwork_meta"}


# What waits for locks of rows takes them in this order. A read that skips locked rows cannot be a
# part of a deadlock, and a read of one row by its id needs no order.
LOCK_ORDER = {
    "postgres": {
        "lock_called": "id",
        "lock_gates": "gate",
        "lock_marks": "schedule.id",
        "lock_running": "id",
        "lock_waiting": "id",
        "clear_skip_marks": "schedule.id",
        "merge_skips": "id",
        "prune_runs": "id",
        "release_worker": "id",
        "request_cancel_of_schedules": "run.id",
        "runs_of_schedules": "id",
        "set_skip_marks": "schedule.id",
    },
    "mysql": {
        "lock_called": "id",
        "lock_gates": "gate",
        "lock_marks": "tenant, name",
        "lock_running": "id",
        "lock_waiting": "id",
        "runs_of_schedules": "id",
    },
}
LOCK = re.compile(r"\bFOR UPDATE\b(?: OF \w+)?(?P<skips> SKIP LOCKED)?")
ORDER = re.compile(r"\bORDER BY (.+?)(?: LIMIT .+)?$")


def read_locks(dialect):
    """Each read that locks rows: its query, its order if it has one, and whether it can wait."""
    for name, parts in sorted(queries_of(dialect).parts_by_name.items()):
        for part in parts:
            text = " ".join(part.split())
            for lock in LOCK.finditer(text):
                read = text[: lock.start()].rstrip()
                order = ORDER.search(read[read.rfind("SELECT") :])
                yield name, order and order[1], lock["skips"] is None


@pytest.mark.parametrize("dialect", LOCK_ORDER)
def test_statements_that_wait_for_locks_take_them_in_one_order(dialect):
    orders = {name: order for name, order, waits in read_locks(dialect) if waits and order}

    assert orders == LOCK_ORDER[dialect]


@pytest.mark.parametrize("dialect", LOCK_ORDER)
def test_no_lock_is_taken_in_descending_order(dialect):
    locks = list(read_locks(dialect))

    assert len(locks) > 20
    assert [lock for lock in locks if "DESC" in (lock[1] or "")] == []


def test_all_dialects_have_the_same_words():
    words = [
        re.findall(r"^-- fragment: (\w+)$", file.read_text("utf-8"), flags=re.MULTILINE)
        for file in (SOURCE / "_stores").glob("*/queries/words.sql")
    ]

    assert len(words) == len(DIALECTS) == 3
    assert words[0] == words[1] == words[2]


def test_migrations_are_numbered_without_a_gap():
    files = sorted((SOURCE / "_stores" / "_sql" / "migrations").glob("*.sql"))

    assert [file.name for file in files] == [f"{n:04}.sql" for n in range(1, len(files) + 1)]
    assert all(split_statements(file.read_text(encoding="utf-8")) for file in files)
