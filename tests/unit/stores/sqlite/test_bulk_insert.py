"""A batch of rows is inserted with few statements, whatever its rows share."""

import sqlite3

import pytest

from tickwork._stores._sql.statement import Row, Statement
from tickwork._stores.sqlite.connection import BULK_MIN, run_statement

INSERT = "INSERT INTO item (kind, id, name, size, note) VALUES ('new', ?1, ?2, ?3, ?4)"

SHAPES: dict[str, tuple[object, object, object]] = {
    "all values differ": ("name{}", "{}", "note{}"),
    "all but the id are the same": ("name", 7, "note"),
    "a column is NULL": ("name{}", 7, None),
    "all but the id are NULL": (None, None, None),
}


def a_row(number: int, shape: tuple[object, object, object]) -> Row:
    return (
        number,
        *(value.format(number) if isinstance(value, str) else value for value in shape),
    )


@pytest.fixture
def connection():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE item (kind, id, name, size, note DEFAULT 'none')")
    yield connection
    connection.close()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("count", [2, BULK_MIN - 1, BULK_MIN, 100, 249, 250, 999, 1000, 2500])
def test_all_rows_are_stored_in_order(connection, count, shape):
    rows = [a_row(number, shape) for number in range(count)]

    run_statement(Statement("insert", (INSERT,), {}, rows), connection)

    found = connection.execute("SELECT * FROM item ORDER BY rowid").fetchall()
    assert found == [("new", *row) for row in rows]


def test_identical_rows_are_all_stored(connection):
    run_statement(Statement("insert", (INSERT,), {}, [(1, "a", 2, None)] * 100), connection)

    assert connection.execute("SELECT count(*) FROM item").fetchone() == (100,)


def test_it_takes_few_statements(connection):
    texts: list[str] = []
    connection.set_trace_callback(texts.append)

    rows = [(number, "same", 7, None) for number in range(1000)]
    run_statement(Statement("insert", (INSERT,), {}, rows), connection)

    assert len([text for text in texts if text.startswith("INSERT")]) < 10
