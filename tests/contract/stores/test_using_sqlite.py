"""A caller's own SQLite connection: whose file, which lock, and what is left as it was."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from contract.builders import a_run, add, added, all_runs, ids
from contract.odd_connections import ODD, odd_sqlite
from contract.stores.conftest import open_sqlite
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.tick import TickPlan
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.statement import Statement
from tickwork._stores.sqlite import caller_connection
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import SchemaMissing, StoreBusy, WrongConnection
from tickwork.testing import ManualClock

ONE = UniqueKey("one", None)


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[SqliteStore]:
    with open_sqlite(request, clock) as store:
        yield store


@contextmanager
def connected(store: SqliteStore, **given: Any) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(store.path, **{"timeout": 0, **given})) as connection:
        yield connection


@pytest.fixture
def connection(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    with connected(store) as connection:
        yield connection


@pytest.fixture
def other(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    with connected(store, isolation_level=None) as connection:
        yield connection


class TestBeginning:
    """Where Python begins a transaction before the first INSERT, so do we; and it stays open."""

    @pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
    def test_it_has_the_write_lock_as_after_an_insert(self, store, other, level):
        with connected(store, isolation_level=level) as connection:
            store.using(connection).add_runs([a_run()])

            assert connection.in_transaction
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")

    def test_one_that_failed_is_not_left_open(self, store, connection):
        add(store, there := a_run())

        with pytest.raises(sqlite3.IntegrityError):
            store.using(connection).add_runs([there])
        assert not connection.in_transaction

    def test_a_look_begins_nothing(self, store, connection):
        store.using(connection).get_run(a_run().id)

        assert not connection.in_transaction

    def test_a_look_that_failed_leaves_nothing_open(self, tmp_path):
        empty = SqliteStore(tmp_path / "empty.db")
        with connected(empty) as connection:
            with pytest.raises(SchemaMissing):
                empty.using(connection).count_runs()
            assert not connection.in_transaction
        empty.close()


class TestOddConnections:
    """Whatever a caller has set stays set. That every operation works, the suite itself says."""

    def test_factories_are_the_callers_again(self, store):
        with odd_sqlite(store, isolation_level="") as connection:
            factories = connection.row_factory, connection.text_factory
            borrowed = store.using(connection)
            add(borrowed, run := a_run())
            with pytest.raises(sqlite3.IntegrityError):
                borrowed.add_runs([run])

            assert (connection.row_factory, connection.text_factory) == factories
            connection.row_factory = None
            assert connection.execute("SELECT id, +id FROM tickwork_run").fetchone() == (ODD, ODD)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("SELECT id, run.job\nFROM run", "SELECT +id, +run.job\nFROM run"),
            ("SELECT DISTINCT key FROM slot", "SELECT DISTINCT +key FROM slot"),
            ("SELECT count(*), NULL AS a, 'b'", "SELECT count(*), NULL AS a, 'b'"),
            (
                "WITH a (b, c) AS (SELECT b, c FROM d) SELECT b FROM a",
                "WITH a (b, c) AS (SELECT b, c FROM d) SELECT +b FROM a",
            ),
            (
                "SELECT id FROM a UNION SELECT id FROM b ORDER BY id",
                "SELECT +id FROM a UNION SELECT id FROM b ORDER BY id",
            ),
            (
                "SELECT (SELECT a FROM b), c FROM (SELECT c FROM d)",
                "SELECT (SELECT a FROM b), +c FROM (SELECT c FROM d)",
            ),
            ("INSERT INTO a (b) SELECT b FROM c", "INSERT INTO a (b) SELECT b FROM c"),
        ],
    )
    def test_columns_become_expressions_which_no_converter_is_for(self, text, expected):
        assert caller_connection.strip_declared_types(text) == expected


class TestFiles:
    """Only a connection to the store's own file will do."""

    def test_another_file(self, store, tmp_path):
        with (
            closing(sqlite3.connect(tmp_path / "other.db")) as connection,
            pytest.raises(WrongConnection, match=r"other\.db"),
        ):
            store.using(connection)

    def test_a_database_in_memory(self, store):
        with (
            closing(sqlite3.connect(":memory:")) as connection,
            pytest.raises(WrongConnection, match="in memory"),
        ):
            store.using(connection)

    def test_the_file_is_only_attached(self, store, tmp_path):
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("ATTACH ? AS jobs", (store.path,))
            with pytest.raises(WrongConnection, match="attached to it as 'jobs'"):
                store.using(connection)

    def test_another_file_is_attached(self, store, connection, tmp_path):
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
        store.using(connection).add_runs([run := a_run()])
        connection.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_the_same_file_by_another_name(self, store, tmp_path):
        link = tmp_path / "link.db"
        link.symlink_to(store.path)
        with closing(sqlite3.connect(link)) as connection:
            store.using(connection).add_runs([run := a_run()])
            connection.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_a_uri(self, store):
        uri = f"{Path(store.path).as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            store.using(connection).add_runs([run := a_run()])
            connection.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_a_file_that_is_not_there_yet(self, tmp_path):
        store = SqliteStore(tmp_path / "new.db")
        with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
            assert store.using(connection).install() == SCHEMA_VERSION
            connection.commit()

        assert store.schema_version() == SCHEMA_VERSION
        store.close()

    def test_a_store_in_memory_takes_none(self, connection):
        store = SqliteStore(":memory:")

        with pytest.raises(WrongConnection, match="one connection of its own"):
            store.using(connection)

    def test_tables_that_are_not_there(self, tmp_path):
        store = SqliteStore(tmp_path / "new.db")
        with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
            connection.execute("CREATE TABLE orders (id)")
            connection.execute("INSERT INTO orders VALUES (1)")
            with pytest.raises(SchemaMissing):
                store.using(connection).add_runs([a_run()])
            connection.commit()
            assert connection.execute("SELECT count(*) FROM orders").fetchone() == (1,)


class TestFirstUse:
    """A program may meet its store for the first time inside a transaction of its own."""

    def test_tables_that_are_there_are_left_alone(self, store, connection):
        connection.execute("CREATE TABLE orders (id)")
        connection.execute("INSERT INTO orders VALUES (1)")
        assert connection.in_transaction
        fresh = SqliteStore(store.path, busy_timeout=timedelta(0))

        assert fresh.install() == SCHEMA_VERSION
        fresh.using(connection).add_runs([run := a_run()])
        connection.commit()

        assert ids(all_runs(fresh)) == [run.id]
        fresh.close()


class TestLocks:
    """The caller's timeout applies; an operation that cannot get the lock has not begun."""

    @pytest.mark.parametrize("unique", [None, ONE])
    @pytest.mark.parametrize("level", ["", "IMMEDIATE", None])
    def test_another_connection_writes(self, store, other, level, unique):
        with connected(store, isolation_level=level) as connection:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy) as caught:
                store.using(connection).add_runs([a_run(unique=unique)])

            assert not connection.in_transaction
            assert caught.value.waited < timedelta(seconds=5)
            other.execute("ROLLBACK")
            assert store.using(connection).add_runs([a_run(unique=unique)])[0].is_new

    @pytest.mark.parametrize("unique", [None, ONE])
    def test_another_connection_writes_while_a_transaction_is_open(self, store, other, unique):
        with connected(store, isolation_level=None) as connection:
            connection.execute("BEGIN")
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                store.using(connection).add_runs([a_run(unique=unique)])

            assert connection.in_transaction
            other.execute("ROLLBACK")
            store.using(connection).add_runs([run := a_run(unique=unique)])
            connection.commit()

        assert ids(all_runs(store)) == [run.id]

    def test_another_connection_has_written_since_the_callers_read(self, store, connection):
        borrowed = store.using(connection)
        connection.execute("BEGIN")
        borrowed.count_runs()
        add(store, run := a_run())

        with pytest.raises(StoreBusy):
            borrowed.add_runs([a_run()])
        assert connection.in_transaction
        connection.rollback()

        assert ids(all_runs(store)) == [run.id]

    @pytest.mark.parametrize("level", ["", None])
    @pytest.mark.parametrize("is_begun", [False, True])
    def test_no_writer_gets_in_between_a_read_and_a_write(
        self, store, clock, other, level, is_begun
    ):
        added(store)
        with connected(store, isolation_level=level) as connection:
            if is_begun:
                connection.execute("BEGIN")

            def plan(*_: object) -> TickPlan:
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("BEGIN IMMEDIATE")
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                store.using(connection).fire(
                    now=clock.now(), limit=10, jobs=None, keys_of=lambda _: (), plan=plan
                )

    def test_other_errors_are_the_drivers_own(self, store):
        with connected(store) as connection:
            connection.execute("PRAGMA query_only = ON")
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                store.using(connection).add_runs([a_run()])
            assert not connection.in_transaction

    def test_an_error_after_which_sqlite_has_undone_everything(self, store, other):
        """As after a full disk: there is no savepoint to go back to."""
        other.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON tickwork_run WHEN NEW.job = 'bad'"
            " BEGIN SELECT RAISE (ROLLBACK, 'no more of this'); END"
        )
        with connected(store, isolation_level=None) as connection:
            connection.execute("BEGIN")
            borrowed = store.using(connection)
            borrowed.add_runs([a_run()])
            with pytest.raises(sqlite3.IntegrityError, match="no more of this"):
                borrowed.add_runs([a_run(), a_run(job="bad")])

            assert not connection.in_transaction
            assert all_runs(borrowed) == []
            other.execute("BEGIN IMMEDIATE")


class TestStatements:
    """However many runs there are, the statements are as many."""

    def test_they_are_as_many_for_one_run_as_for_hundreds(self, store, connection, monkeypatch):
        seen: list[str] = []
        execute = caller_connection.SqliteCallerConnection.execute

        def counted(self: Any, statement: Statement) -> Any:
            seen.append(statement.name)
            return execute(self, statement)

        monkeypatch.setattr(caller_connection.SqliteCallerConnection, "execute", counted)
        borrowed = store.using(connection)
        borrowed.add_runs([a_run()])  # from here on a transaction is open
        counts = []
        for number in (1, 300):
            seen.clear()
            borrowed.add_runs(
                [a_run(unique=UniqueKey(f"{number}:{n}", None)) for n in range(number)]
            )
            counts.append(list(seen))

        assert counts[0] == counts[1] == ["lock_meta", "key_holders", "protect_keys", "insert_runs"]
