"""A caller's PyMySQL connection: whatever it is like, it is left as it was found."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pymysql
import pymysql.cursors
import pytest

from contract.builders import (
    HOUR,
    NOON,
    StoreDriver,
    a_run,
    add,
    all_runs,
    ids,
    in_phase,
    the_run,
)
from contract.odd_connections import ODD, odd_mariadb
from contract.stores.conftest import open_mariadb
from servers import mariadb
from servers.mysql import MySQLServer
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._stores._sql.caller_connection import TRIES_MAX
from tickwork._stores._sql.statement import WriteConflict
from tickwork._stores.contract import AddedRun
from tickwork._stores.mysql.store import MysqlStore
from tickwork.errors import StoreBusy, WrongConnection
from tickwork.testing import ManualClock

ONE = UniqueKey("one", None)
LIMIT = "job:send_email"
SESSION = (
    "SELECT @@sql_mode, @@character_set_client, @@character_set_results, @@collation_connection,"
    " @@character_set_connection, @@autocommit,"
    " /*M! @@tx_isolation */ /*!80017 @@transaction_isolation */,"
    " /*M!110602 @@innodb_snapshot_isolation OR */ 0"
)
AT = "SET SESSION TRANSACTION ISOLATION LEVEL"

pytestmark = pytest.mark.servers("mariadb")


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[MysqlStore]:
    with open_mariadb(request, clock) as store:
        assert isinstance(store, MysqlStore)
        yield store


@pytest.fixture
def connection(store: MysqlStore) -> Iterator[mariadb.Connection]:
    with closing(mariadb.connect(store.url, autocommit=False)) as connection:
        yield connection


@pytest.fixture
def claim(store: MysqlStore, worker: StoreDriver) -> Claim:
    store.set_limits({LIMIT: 1})
    add(store, a_run(limit_keys=(LIMIT,), unique=ONE))
    return worker.claim_one(lease=HOUR)


class TestSettings:
    """Nothing of the caller's session is changed for longer than an operation takes."""

    @pytest.mark.parametrize("autocommit", [False, True])
    @pytest.mark.parametrize("charset", ["utf8mb4", "utf8mb3", "latin1", "cp1251", "ujis"])
    def test_any_encoding_will_do(self, store, charset, autocommit):
        given: dict[str, Any] = {"charset": charset, "autocommit": autocommit}
        with closing(mariadb.connect(store.url, **given)) as connection:
            borrowed = store.using(connection)
            before = connection.execute(SESSION).fetchall()
            borrowed.add_runs([run := a_run(args='["ü€😀"]', unique=UniqueKey("ключ", None))])
            found = borrowed.get_run(run.id)
            again = borrowed.add_runs([a_run(unique=UniqueKey("ключ", None)), a_run(trace="日本")])
            with pytest.raises(pymysql.err.IntegrityError):
                borrowed.add_runs([a_run(id=run.id)])

            assert connection.execute(SESSION).fetchall() == before
            connection.commit()
        assert found is not None
        assert found.args == '["ü€😀"]' == the_run(store, run).args
        assert [answer.is_new for answer in again] == [False, True]

    def test_an_encoding_that_pymysql_knows_nothing_of(self, store, connection):
        connection.execute("SET NAMES latin1")
        before = connection.execute(SESSION).fetchall()
        store.using(connection).add_runs([run := a_run(args="€😀")])
        connection.commit()

        assert connection.execute(SESSION).fetchall() == before
        assert the_run(store, run).args == "€😀"

    @pytest.mark.parametrize(
        "mode", ["", "ANSI", "ORACLE", "NO_BACKSLASH_ESCAPES", "TRADITIONAL", "ANSI_QUOTES"]
    )
    def test_any_mode_will_do(self, store, connection, mode, mariadb_databases):
        if mode == "ORACLE" and isinstance(mariadb_databases, MySQLServer):
            pytest.skip("MySQL has no such mode.")
        connection.execute(f"SET SESSION sql_mode = '{mode}'")
        before = connection.execute(SESSION).fetchall()
        text = "it's a \\ back\"slash"
        store.using(connection).add_runs([run := a_run(args=text, tenant="")])

        assert store.using(connection).get_run(run.id).args == text
        assert store.using(connection).get_run(run.id).tenant == ""
        assert connection.execute(SESSION).fetchall() == before
        connection.commit()
        assert the_run(store, run).args == text

    def test_converters_and_cursors_are_the_callers(self, store):
        with odd_mariadb(store) as connection:
            borrowed = store.using(connection)
            borrowed.add_runs([run := a_run()])
            assert borrowed.get_run(run.id).job == run.job

            with connection.cursor() as cursor:
                cursor.execute("SELECT job FROM tickwork_run")
                assert cursor.fetchall() == [ODD]

    def test_unread_rows_of_the_caller_are_kept(self, store, connection):
        with connection.cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(
                "WITH RECURSIVE numbers (n) AS"
                " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9) SELECT n FROM numbers"
            )
            assert cursor.fetchone() == (1,)

            with pytest.raises(WrongConnection, match="unbuffered cursor"):
                store.using(connection).add_runs([a_run()])

            assert cursor.fetchone() == (2,)
            cursor.fetchall()
        store.using(connection).add_runs([run := a_run()])
        connection.commit()
        assert ids(all_runs(store)) == [run.id]


class TestIsolation:
    """REPEATABLE READ, as it is by default: a transaction that has read sees no more than then."""

    @pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
    def connection(self, request, store):
        with closing(mariadb.connect(store.url, autocommit=False)) as connection:
            connection.execute(f"{AT} {request.param}")
            connection.execute("SELECT count(*) FROM tickwork_meta")  # from here on
            yield connection

    def test_a_run_whose_lease_was_extended_meanwhile(self, store, worker, claim, connection):
        worker.beat(claim, until=NOON + 2 * HOUR)

        assert store.using(connection).complete(claim, now=NOON)
        connection.commit()
        assert the_run(store, claim).status is RunStatus.COMPLETED

    def test_a_run_that_was_taken_over_meanwhile(
        self, store, worker, other_worker, clock, connection
    ):
        add(store, a_run())
        stale = worker.claim_one()
        clock.advance(minutes=5)
        worker.reap()
        other_worker.claim_one(lease=HOUR)

        assert not store.using(connection).complete(stale, now=clock.now())

    def test_a_run_is_added_all_the_same(self, store, connection, worker):
        add(store, first := a_run())
        store.using(connection).add_runs([second := a_run()])
        connection.commit()

        assert ids(worker.claim()) == [first.id, second.id]

    def test_a_key_that_was_taken_meanwhile(self, store):
        with closing(mariadb.connect(store.url, autocommit=False)) as connection:
            connection.execute("SELECT count(*) FROM tickwork_run")
            add(store, first := a_run(unique=ONE))

            with pytest.raises(StoreBusy):
                store.using(connection).add_runs([a_run(unique=ONE)])
            connection.rollback()

            assert store.using(connection).add_runs([a_run(unique=ONE)]) == [
                AddedRun(first.id, is_new=False)
            ]

    def test_completing_does_not_delay_the_insertion_of_keys(self, store, worker):
        # A locking read of a key that is not there would keep it from coming.
        add(store, a_run())
        claim = worker.claim_one(lease=HOUR)
        with closing(mariadb.connect(store.url, autocommit=False)) as connection:
            assert store.using(connection).complete(claim, now=NOON)

            began_at = time.monotonic()
            store.add_runs([a_run(unique=UniqueKey(f"{number}", None)) for number in range(20)])

        assert time.monotonic() - began_at < 5


class TestGates:
    """In a caller's transaction no gate is taken: other finishers would wait for it."""

    def test_completing_takes_none(self, store, worker, claim, connection):
        add(store, a_run(limit_keys=(LIMIT,)))
        assert worker.claim() == []
        assert store.using(connection).complete(claim, now=NOON)

        began_at = time.monotonic()
        store.sweep(now=NOON, limit=10)
        assert time.monotonic() - began_at < 5
        connection.commit()

        assert store.after_complete([claim]) == [claim.run_id]
        assert len(in_phase(store, Phase.READY)) == 1


class TestFailing:
    """What ends a caller's transaction, the caller hears of in PyMySQL's own words."""

    def test_one_that_is_overtaken_again_and_again_gives_up(self, store, connection, monkeypatch):
        tries = []

        def overtaken(*_: object, **__: object) -> Any:
            tries.append(1)
            yield store.query("count_head", head_size=1)
            raise WriteConflict

        monkeypatch.setattr("tickwork._stores._sql.operations.inserts.add_runs", overtaken)

        with pytest.raises(StoreBusy):
            store.using(connection).add_runs([a_run()])
        assert len(tries) == TRIES_MAX

    def test_a_lock_of_another_transaction(self, store, worker, claim, connection):
        connection.execute("SET SESSION innodb_lock_wait_timeout = 1")
        connection.execute("SELECT 1")
        with closing(mariadb.connect(store.url, autocommit=False)) as other:
            other.execute("SELECT id FROM tickwork_run FOR UPDATE")

            with pytest.raises(StoreBusy, match="1s"):
                store.using(connection).complete(claim, now=NOON)
            other.rollback()

        assert store.using(connection).complete(claim, now=NOON)
        connection.commit()
        assert the_run(store, claim).status is RunStatus.COMPLETED

    def test_a_deadlock_is_raised_and_the_next_verb_is_atomic(self, store, claim, connection):
        connection.autocommit(True)
        connection.begin()
        connection.execute("SELECT gate FROM tickwork_gate WHERE gate = 7 FOR UPDATE")
        with (
            closing(mariadb.connect(store.url, autocommit=False)) as other,
            ThreadPoolExecutor(1) as threads,
        ):
            # It has changed more, and so it is not the one that is ended.
            other.execute(
                "UPDATE tickwork_gate SET gate = gate + 5000 WHERE gate BETWEEN 901 AND 1023"
            )
            other.execute("SELECT id FROM tickwork_run FOR UPDATE")
            waiting = threads.submit(
                other.execute, "SELECT gate FROM tickwork_gate WHERE gate = 7 FOR UPDATE"
            )
            time.sleep(0.2)
            with pytest.raises(pymysql.err.OperationalError, match="1213"):
                store.using(connection).complete(claim, now=NOON)
            waiting.result(10)
            other.rollback()

        # No transaction is open any more, and PyMySQL does not know it. Operations stay atomic.
        add(store, there := a_run())
        with pytest.raises(pymysql.err.IntegrityError):
            store.using(connection).add_runs([undone := a_run(), there])
        assert store.get_run(undone.id) is None
        store.using(connection).add_runs([run := a_run()])
        assert the_run(store, run) is not None

    def test_one_that_commits_by_itself_is_begun_anew_after_a_deadlock(self, store, claim):
        done: list[Exception] = []
        with closing(mariadb.connect(store.url)) as connection:
            borrowed = store.using(connection)
            write = borrowed._caller.execute

            def refuse_once(statement: Any) -> Any:
                if not done:
                    done.append(pymysql.err.OperationalError(1213, "Deadlock found"))
                    raise done[0]
                return write(statement)

            borrowed._caller.execute = refuse_once
            assert borrowed.complete(claim, now=NOON)
        assert the_run(store, claim).status is RunStatus.COMPLETED


class TestWrongConnections:
    """Another kind of connection, or one that leads elsewhere, is refused with the way out."""

    @pytest.mark.parametrize("thing", ["mysql://", None, 7])
    def test_it_is_none(self, store, thing):
        with pytest.raises(WrongConnection, match=r"pymysql\.Connection"):
            store.using(thing)
        with pytest.raises(WrongConnection, match="no async"):
            store.using_async(thing)

    def test_it_is_a_cursor(self, store, connection):
        with pytest.raises(WrongConnection, match=r"It is a pymysql\.cursors\.Cursor"):
            store.using(connection.cursor())

    def test_it_leads_to_another_database(self, store, connection):
        connection.select_db("mysql")

        with pytest.raises(WrongConnection, match="to the database 'mysql'"):
            store.using(connection).add_runs([a_run()])

    def test_it_is_closed(self, store):
        connection = mariadb.connect(store.url)
        borrowed = store.using(connection)
        connection.close()

        with pytest.raises(pymysql.err.InterfaceError):
            borrowed.add_runs([a_run()])


class TestInstalling:
    """DDL would commit what the caller has open: it is done elsewhere."""

    def test_what_is_open_stays_open(self, store, connection):
        borrowed = store.using(connection)
        borrowed.add_runs([run := a_run()])

        assert borrowed.install() == store.schema_version()
        connection.rollback()

        assert store.get_run(run.id) is None


def test_many_runs_with_long_arguments_go_in_several_packets(store, connection):
    borrowed = store.using(connection)
    connection.execute("SET SESSION innodb_lock_wait_timeout = 5")
    borrowed.add_runs(runs := [a_run(args=f'["{"x" * 60_000}"]') for _ in range(200)])
    connection.commit()

    assert ids(all_runs(store)) == ids(runs)
