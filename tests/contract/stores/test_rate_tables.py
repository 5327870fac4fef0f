"""Rates: what only the tables can show, on SQLite."""

import sqlite3
from contextlib import closing

import pytest

from tickwork._domain.runs.status import Phase
from tickwork._stores.sqlite.store import SqliteStore
from tickwork_conformance.builders import DAY, SECOND, add, in_phase
from tickwork_conformance.stores.rates import KEY, rated, turn


class TestInTheFile:
    """What only the tables can show, on SQLite."""

    @pytest.fixture
    def store(self, tmp_path, clock):
        store = SqliteStore(tmp_path / "jobs.db", synchronous="NORMAL", clock=clock)
        store.install()
        yield store
        store.close()

    @pytest.fixture
    def table(self, store):
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            yield connection.execute

    def test_no_more_starts_are_kept_than_count(self, store, clock, worker, table):
        store.set_limits({KEY: 3})
        add(store, *rated(20))
        for _ in range(60):
            turn(store, clock)
            worker.run()
            clock.advance(20 * SECOND)

        [kept] = table("SELECT min(number), max(number), count(*) FROM tickwork_start").fetchall()
        assert kept == (18, 20, 3)

    def test_a_run_blocked_by_older_code_gets_a_turn(self, store, clock, worker, table):
        store.set_limits({KEY: 1})
        add(store, *rated(3))
        worker.run()
        table("DELETE FROM tickwork_rate")
        table("DELETE FROM tickwork_start")
        assert turn(store, clock) == 0

        store.sweep(now=clock.now(), limit=10)

        assert turn(store, clock) == 1
        assert len(worker.run()) == 1
        assert len(in_phase(store, Phase.BLOCKED)) == 1

    def test_what_rests_leaves_nothing_behind(self, store, clock, worker, table):
        store.set_limits({KEY: 5})
        add(store, *rated(5))
        worker.run()
        clock.advance(DAY)

        store.prune(before=clock.now(), limit=10)

        for name in ("rate", "start"):
            assert table(f"SELECT count(*) FROM tickwork_{name}").fetchall() == [(0,)]
