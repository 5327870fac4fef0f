"""Errors of the disk are StoreUnavailable: they may pass, and the statement is not at fault."""

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from contract.builders import NOON, StoreDriver, a_run, add
from tickwork._domain.runs.outcome import Succeeded
from tickwork._stores.sqlite.connection import SqliteConnection
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import StoreBusy, StoreUnavailable
from tickwork.testing import ManualClock


@pytest.fixture
def store(tmp_path):
    opened = SqliteStore(
        tmp_path / "jobs.db", synchronous="NORMAL", busy_timeout=timedelta(milliseconds=50)
    )
    opened.install()
    yield opened
    opened.close()


def pages_left(store: SqliteStore, count: int) -> None:
    assert isinstance(store._writer, SqliteConnection)
    connection = store._writer._connection or store._writer._open()
    [[pages]] = connection.execute("PRAGMA page_count").fetchall()
    connection.execute(f"PRAGMA max_page_count = {pages + count}").fetchall()


class TestAFullDisk:
    def test_a_dispatch_raises_store_unavailable(self, store):
        pages_left(store, 2)

        with pytest.raises(StoreUnavailable, match="database or disk is full"):
            add(store, *(a_run(args=f'{{"x": "{"y" * 9_000}"}}') for _ in range(20)))

    def test_an_outcome_is_kept_and_not_taken_for_a_bad_one(self, store):
        driver = StoreDriver(store, ManualClock(NOON))
        add(store, a_run())
        claim = driver.claim_one()
        pages_left(store, 2)
        outcome = Succeeded(result=f'"{"y" * 60_000}"')

        with pytest.raises(StoreUnavailable):
            driver.record(claim, outcome)

        pages_left(store, 100)
        assert driver.record(claim, outcome) == []  # the same, once there is room


class TestALockedFile:
    def test_a_read_of_a_locked_file_raises_store_busy(self, store, tmp_path):
        store.close()
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN IMMEDIATE")
            other.execute("CREATE TABLE x (y)")

            with pytest.raises(StoreBusy):
                store.get_runs([])
