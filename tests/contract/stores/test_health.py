"""The health of the database: what grows without vacuum."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from contract.builders import NOON, a_run, add
from tickwork._stores.contract import Health, TableHealth
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore


def test_every_store_tells_something(store):
    add(store, a_run())

    health = store.health()

    assert isinstance(health, Health)
    assert health.bytes >= 0
    assert all(isinstance(table, TableHealth) for table in health.tables)
    assert health.dead_rows >= 0


def test_what_was_deleted_is_free_and_a_reader_lets_the_log_grow(tmp_path):
    store = SqliteStore(tmp_path / "jobs.db", synchronous="NORMAL")
    store.install()
    with closing(sqlite3.connect(store.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tickwork_run").fetchall()
        for _ in range(20):
            add(store, *(a_run(args=f'"{"x" * 1000}"') for _ in range(100)))
        assert (store.health().log_bytes or 0) > 1_000_000
        reader.rollback()
    before = store.health()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("DELETE FROM tickwork_run")
        connection.commit()

    after = store.health()

    assert (before.free_bytes, after.bytes) == (0, before.bytes)
    assert (after.free_bytes or 0) > 1_000_000
    store.close()


@pytest.mark.servers("postgres")
def test_dead_rows_and_the_transaction_that_keeps_them(postgres_url):
    store = PostgresStore(postgres_url)
    store.install()
    add(store, *(a_run() for _ in range(500)))
    assert store.health().oldest_transaction is None
    with psycopg.connect(postgres_url) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # it keeps its snapshot
        [[began_at]] = idle.execute("SELECT transaction_timestamp()").fetchall()
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("ALTER TABLE tickwork_run SET (autovacuum_enabled = false)")
            other.execute("DELETE FROM tickwork_run WHERE queue = 'default'")
        # The server counts the deleted rows of a session at its end at the latest.
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("VACUUM ANALYZE tickwork_run")

        health = store.health()

        found = health.oldest_transaction
        assert found is not None
        assert found.began_at == began_at
        pid = idle.info.backend_pid
        assert found.holder == f"process {pid} (user postgres, 127.0.0.1, idle in transaction)"
        assert found.query == "SELECT transaction_timestamp()"
        assert found.ending == f"SELECT pg_terminate_backend({pid})"
        [runs] = [table for table in health.tables if table.name == "tickwork_run"]
        assert (runs.rows, runs.dead_rows) == (0, 500)
        assert runs.bytes > 0
        assert health.bytes > sum(table.bytes for table in health.tables)
        assert health.dead_rows >= 500
        assert "tickwork_history" in {table.name for table in health.tables}
    assert began_at > NOON
    store.close()


@pytest.mark.servers("postgres")
def test_the_transaction_with_the_oldest_snapshot_is_named(postgres_url):
    store = PostgresStore(postgres_url)
    store.install()
    holder = psycopg.connect(postgres_url)
    with psycopg.connect(postgres_url) as older:
        older.execute("SELECT 1")  # it is open, and keeps nothing
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 2, 'it''s secret', 3")
        add(store, a_run())

        found = store.health().oldest_transaction

        assert found is not None
        assert found.query == "SELECT 2, '…', 3"
        with psycopg.connect(postgres_url, autocommit=True) as operator:
            operator.execute(found.ending.encode())
        assert older.execute("SELECT 3").fetchall() == [(3,)]
        with pytest.raises(psycopg.OperationalError):
            holder.execute("SELECT 4")
    holder.close()
    store.close()
