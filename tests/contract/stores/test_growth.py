"""The cost of a operation does not depend on the number of rows.

Counted, not timed: rows that a server has read, steps of SQLite's machine.
The same with millions, and timed, is a long test, and `benchmarks/growth.py`.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from contract.builders import NOON
from contract.growth import BATCH, Operations, Sizes, fill
from tickwork._stores import Store, open_store

SMALL = Sizes.all_of(1_200, unknown=6_000)
"""More than a claim looks at before it goes by queue and job."""

LARGE = Sizes.all_of(12_000, unknown=24_000)
HUGE = Sizes.all_of(1_000_000, unknown=1_000_000)

FACTOR, MORE = 1.5, 60
KINDS = [
    "sqlite",
    *(pytest.param(kind, marks=[pytest.mark.servers(kind)]) for kind in ("postgres", "mariadb")),
]

Cost = Callable[[Callable[[], object]], int]


def steps_of_sqlite(store: Any) -> Cost:
    """In tens of steps of its virtual machine."""

    def cost(act: Callable[[], object]) -> int:
        counted = [0]

        def step() -> None:
            counted[0] += 1

        connections: list[sqlite3.Connection] = [
            each._connection or each._open() for each in (store._writer, store._reader)
        ]
        for connection in connections:
            connection.set_progress_handler(step, 10)
        act()
        for connection in connections:
            connection.set_progress_handler(None, 0)
        return counted[0]

    return cost


READ = """
SELECT (SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
        FROM pg_stat_user_tables)
     + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
"""


def rows_of_postgres(store: Any) -> Cost:
    """Rows of tables, and entries of indexes."""

    def read(other: psycopg.Connection[Any]) -> int:
        with store._pool.acquire() as connection:
            connection._connection.pgconn.exit_pipeline_mode()
            connection._connection.pgconn.exec_(b"SELECT pg_stat_force_next_flush()")
            connection._connection.pgconn.exec_(b"SELECT 1")
            connection._connection.pgconn.enter_pipeline_mode()
        [[total]] = other.execute(READ).fetchall()
        return int(total)

    def cost(act: Callable[[], object]) -> int:
        with psycopg.connect(store.url, autocommit=True) as other:
            before = read(other)
            act()
            return read(other) - before

    return cost


def rows_of_mariadb(store: Any) -> Cost:
    """Rows that tables have handed to this connection."""

    def read() -> int:
        with store._pool.acquire() as connection:
            cursor = connection._connection.cursor()
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())

    def cost(act: Callable[[], object]) -> int:
        before = read()
        idle = read() - before  # to ask reads something, too
        before = read()
        act()
        return read() - before - idle

    return cost


COSTS = {
    "sqlite": steps_of_sqlite,
    "postgres": rows_of_postgres,
    "mariadb": rows_of_mariadb,
}


def url_of(kind: str, request: pytest.FixtureRequest, name: str) -> str:
    if kind == "sqlite":
        folder = request.getfixturevalue("tmp_path_factory").mktemp("growth")
        return f"sqlite:///{folder}/{name}.db?synchronous=NORMAL"
    databases = request.getfixturevalue(f"{kind}_databases")
    database = databases.create_database()
    request.addfinalizer(lambda: databases.drop_database(database))
    return str(databases.url(database))


def opened(request: pytest.FixtureRequest, *sizes: Sizes) -> Iterator[tuple[str, list[Store]]]:
    made = []
    for number, size in enumerate(sizes):
        url = url_of(request.param, request, f"{number}")
        store = open_store(url)
        store.install()
        fill(request.param, url, size, now=NOON)
        made.append(store)
    yield request.param, made
    for store in made:
        store.close()


@pytest.fixture(scope="module", params=KINDS)
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Store]]]:
    """One with little in it, and one with ten times as much."""
    yield from opened(request, SMALL, LARGE)


@pytest.fixture(scope="module", params=KINDS)
def millions(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Store]]]:
    """One with little in it, and one with a million rows of each kind."""
    yield from opened(request, SMALL, HUGE)


def check(filled: tuple[str, list[Store]], operation: str) -> None:
    kind, stores = filled
    costs = []
    for store in stores:
        operations = Operations(store, NOON)
        act = getattr(operations, operation)()
        costs.append(COSTS[kind](store)(act))
        operations.finish_all()
    small, large = costs
    assert operation != "claim" or small >= BATCH  # it does count
    assert large <= FACTOR * small + MORE, (small, large)


@pytest.mark.parametrize("operation", Operations.names())
def test_it_costs_the_same_however_much_there_is(stores, operation):
    check(stores, operation)


@pytest.mark.long
@pytest.mark.parametrize("operation", Operations.names())
def test_also_when_there_are_millions(millions, operation):
    check(millions, operation)
