"""The database ends a read that takes longer than its limit; other calls do not notice."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from contract.stores.conftest import ON_DISK, STORES
from tickwork._kernel.read_limit import limit_reads
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation, Rows, Statement
from tickwork.errors import ReadTimeout

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
SLOW = f"{NUMBERS} SELECT count(*) FROM n, n AS b, n AS c, n AS d"
SHORT = timedelta(milliseconds=200)
LIMITS = {
    "PostgresStore": "SELECT current_setting('statement_timeout')",
    "MysqlStore": "SELECT /*M! @@max_statement_time */ /*!50708 @@max_execution_time */",
}


@pytest.fixture(params=ON_DISK)
def store(request, clock):
    with STORES[request.param](request, clock) as opened:
        yield opened


def select(store: Any, text: str) -> Rows:
    def operation(_: Queries) -> Operation[Rows]:
        return (yield Statement("select", (text,), {}))

    found: Rows = store._read(operation)
    return found


def current_limit(store: Any) -> Any:
    """The limit of the database for a statement; None for SQLite, which has none."""
    text = LIMITS.get(type(store).__name__)
    return None if text is None else select(store, text)[0][0]


def test_a_slow_read_ends(store):
    with limit_reads(SHORT), pytest.raises(ReadTimeout, match=r"longer than 0\.2s"):
        select(store, SLOW)


def test_the_limit_is_for_all_reads_of_a_block_together(store):
    with limit_reads(SHORT):
        with pytest.raises(ReadTimeout):
            select(store, SLOW)
        with pytest.raises(ReadTimeout):
            store.list_workers()


def test_a_quick_read_is_not_affected(store):
    with limit_reads(timedelta(seconds=30)):
        assert store.list_workers() == []
        assert [tuple(row) for row in select(store, "SELECT 1")] == [(1,)]


def test_later_reads_have_the_usual_limit_again(store):
    usual = current_limit(store)
    with limit_reads(SHORT), pytest.raises(ReadTimeout):
        select(store, SLOW)

    assert current_limit(store) == usual
    assert store.list_workers() == []
    with limit_reads(timedelta(seconds=20)):
        assert usual is None or current_limit(store) != usual


def test_others_read_and_write_meanwhile(store, clock):
    ended = threading.Event()
    errors = []

    def read_slowly() -> None:
        try:
            with limit_reads(timedelta(seconds=2)):
                select(store, SLOW)
        except ReadTimeout as error:
            errors.append(error)
        ended.set()

    thread = threading.Thread(target=read_slowly)
    thread.start()
    store.stamp_seen(jobs=["work"], schedules=[], now=clock.now())
    jobs = store.list_jobs()
    was_reading = not ended.is_set()
    thread.join(30)

    assert was_reading
    assert [job.name for job in jobs] == ["work"]
    assert len(errors) == 1
