"""A caller's own psycopg connection: what others hear and see, and what is left as it was."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from contract.builders import (
    HOUR,
    NOON,
    StoreDriver,
    a_run,
    add,
    all_runs,
    ids,
    the_run,
)
from contract.odd_connections import ODD, odd_postgres
from contract.stores.conftest import open_postgres
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.caller_connection import TRIES_MAX
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.statement import Operation, Statement, WriteConflict
from tickwork._stores.contract import AddedRun, Store
from tickwork._stores.postgres import caller_connection
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import StoreBusy, WrongConnection
from tickwork.testing import ManualClock

pytestmark = pytest.mark.servers("postgres")

ONE = UniqueKey("one", None)
LIMIT = "job:send_email"
WAIT_SECONDS_MAX = 20.0
SETTINGS = "SELECT name, setting FROM pg_settings ORDER BY name"


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with open_postgres(request, clock) as store:
        yield store


@pytest.fixture
def connection(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """A connection with the defaults of psycopg."""
    with closing(psycopg.connect(store.url)) as connection:
        yield connection


@pytest.fixture
def other(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(store.url)) as connection:
        yield connection


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def claim(store: Store, worker: StoreDriver) -> Claim:
    """A claim that holds a slot."""
    store.set_limits({LIMIT: 1})
    add(store, a_run(limit_keys=(LIMIT,)))
    return worker.claim_one(lease=HOUR)


def status(connection: psycopg.Connection[Any]) -> TransactionStatus:
    return connection.info.transaction_status


def await_waiter(store: PostgresStore, is_done: Callable[[], bool] = lambda: False) -> None:
    """Return when another transaction waits for a lock."""
    with psycopg.connect(store.url, autocommit=True) as connection:
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while time.monotonic() < give_up_at and not is_done():
            row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            if row and row[0]:
                return
            threading.Event().wait(0.005)
    raise AssertionError("No transaction waits.")


class TestOthers:
    """No other connection sees or is notified of anything before the caller commits."""

    @pytest.fixture
    def listener(self, store):
        with closing(psycopg.connect(store.url, autocommit=True)) as connection:
            connection.execute("LISTEN tickwork")
            yield connection

    def heard(self, listener: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> list[str]:
        """The notifications up to a marker of our own."""
        other.execute("NOTIFY tickwork, 'that is all'")
        other.commit()
        found: list[str] = []
        for word in listener.notifies(timeout=WAIT_SECONDS_MAX):
            if word.payload == "that is all":
                return found
            found.append(word.payload)
        raise AssertionError(found)

    def test_a_wake_up_is_heard_when_it_is_committed(self, store, connection, listener, other):
        store.using(connection).add_runs([a_run(queue="mails")])
        assert self.heard(listener, other) == []
        connection.commit()

        assert self.heard(listener, other) == ["mails"]

    def test_a_wake_up_that_was_rolled_back_is_never_heard(
        self, store, connection, listener, other
    ):
        store.using(connection).add_runs([a_run(queue="mails")])
        connection.rollback()

        assert self.heard(listener, other) == []

    def test_nor_is_that_of_a_verb_that_failed(self, store, connection, listener, other):
        add(store, there := a_run())
        self.heard(listener, other)
        borrowed = store.using(connection)
        with pytest.raises(psycopg.errors.UniqueViolation):
            borrowed.add_runs([a_run(queue="mails"), there])
        borrowed.add_runs([a_run(queue="pages")])
        connection.commit()

        assert self.heard(listener, other) == ["pages"]

    def test_a_worker_claims_it_after_the_commit_and_no_sooner(self, store, connection, worker):
        store.using(connection).add_runs([run := a_run()])
        assert worker.claim() == []
        connection.commit()

        assert ids(worker.claim()) == [run.id]

    def test_other_workers_do_not_wait_for_a_completed_run(
        self, store, connection, worker, claim, clock
    ):
        add(store, waiting := a_run(limit_keys=(LIMIT,)))
        worker.claim()
        store.using(connection).complete(claim, now=NOON)

        # Its slot counts until then, and no gate or job row is locked.
        assert worker.beat(claim).lost == []
        assert store.count_taken([LIMIT]) == {LIMIT: 1}
        assert store.sweep(now=NOON, limit=10) == 0
        connection.commit()

        assert store.sweep(now=NOON, limit=10) == 1
        assert ids(worker.claim()) == [waiting.id]


class TestConflicts:
    """Two that want one key: the second waits for what the first becomes."""

    @pytest.fixture
    def added(self, store, connection, other, background) -> "Future[Any]":
        """The second, while the first is not committed yet."""
        store.using(other).add_runs([a_run(unique=ONE)])
        done: Future[Any] = background.submit(store.using(connection).add_runs, [a_run(unique=ONE)])
        await_waiter(store, done.done)
        return done

    def test_it_is_answered_with_the_first(self, store, connection, other, added):
        other.commit()
        [answer] = added.result(WAIT_SECONDS_MAX)
        connection.commit()

        assert [run.id for run in all_runs(store)] == [answer.run_id]
        assert not answer.is_new

    def test_it_is_new_when_the_other_is_rolled_back(self, store, connection, other, added):
        other.rollback()
        [answer] = added.result(WAIT_SECONDS_MAX)
        connection.commit()

        assert [run.id for run in all_runs(store)] == [answer.run_id]
        assert answer.is_new

    def test_an_overlap_key_is_answered_likewise(self, store, connection, other, background):
        key = "held:019cb0d2-0000-7000-8000-000000000001"
        store.using(other).add_runs([first := a_run(overlap_key=key)])
        done = background.submit(store.using(connection).add_runs, [a_run(overlap_key=key)])
        await_waiter(store, done.done)
        other.commit()

        assert done.result(WAIT_SECONDS_MAX) == [AddedRun(first.id, is_new=False)]
        assert status(connection) == TransactionStatus.INTRANS

    def test_one_that_is_overtaken_again_and_again_gives_up(self, store, connection, monkeypatch):
        tries = []

        def overtaken(*_: object, **__: object) -> Any:
            tries.append(1)
            yield store.query("count_gates")
            raise WriteConflict

        monkeypatch.setattr("tickwork._stores._sql.operations.inserts.add_runs", overtaken)

        with pytest.raises(StoreBusy):
            store.using(connection).add_runs([a_run()])
        assert len(tries) == TRIES_MAX
        assert status(connection) == TransactionStatus.INTRANS


class TestIsolation:
    """What a stricter level refuses, the caller hears of in psycopg's own words."""

    @pytest.fixture(
        params=[psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
    )
    def connection(self, request, store):
        with closing(psycopg.connect(store.url)) as connection:
            connection.isolation_level = request.param
            connection.execute("SELECT count(*) FROM tickwork_run")  # from here on it sees no more
            yield connection

    def test_a_run_whose_lease_was_extended_meanwhile(self, store, worker, claim, connection):
        worker.beat(claim, until=NOON + 2 * HOUR)

        with pytest.raises(psycopg.errors.SerializationFailure):
            store.using(connection).complete(claim, now=NOON)
        assert status(connection) == TransactionStatus.INTRANS
        connection.rollback()

        assert store.using(connection).complete(claim, now=NOON)
        connection.commit()
        assert the_run(store, claim).status is RunStatus.COMPLETED

    def test_a_key_that_was_taken_meanwhile(self, store, connection):
        add(store, first := a_run(unique=ONE))

        with pytest.raises(psycopg.errors.SerializationFailure):
            store.using(connection).add_runs([a_run(unique=ONE)])
        connection.rollback()

        assert store.using(connection).add_runs([a_run(unique=ONE)]) == [
            AddedRun(first.id, is_new=False)
        ]

    def test_a_repeat_whose_first_try_cannot_be_seen(self, store, connection, worker):
        """It would be added a second time: by now it is in history."""
        add(store, run := a_run())
        worker.run()

        with pytest.raises(WrongConnection, match="whose transaction is READ COMMITTED"):
            store.using(connection).add_runs([run], may_be_stored=True)
        assert status(connection) == TransactionStatus.INTRANS

    def test_a_run_is_added_all_the_same(self, store, connection, worker):
        add(store, first := a_run())
        store.using(connection).add_runs([second := a_run()])
        connection.commit()

        assert ids(worker.claim()) == [first.id, second.id]


class TestSettings:
    """Nothing of the caller's session is changed for longer than an operation takes."""

    @pytest.mark.parametrize("autocommit", [False, True])
    @pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "WIN1251", "SQL_ASCII", "EUC_JP"])
    def test_any_encoding_will_do(self, store, encoding, autocommit):
        with closing(
            psycopg.connect(store.url, client_encoding=encoding, autocommit=autocommit)
        ) as connection:
            borrowed = store.using(connection)
            before = connection.execute(SETTINGS).fetchall()
            borrowed.add_runs([run := a_run(args='["ü€😀"]', unique=UniqueKey("ключ", None))])
            found = borrowed.get_run(run.id)
            again = borrowed.add_runs([a_run(unique=UniqueKey("ключ", None)), a_run(trace="日本")])
            with pytest.raises(psycopg.errors.UniqueViolation):
                borrowed.add_runs([a_run(id=run.id)])

            assert connection.execute(SETTINGS).fetchall() == before
            connection.commit()
            assert connection.execute(SETTINGS).fetchall() == before
        assert found is not None
        assert found.args == '["ü€😀"]' == the_run(store, run).args
        assert [answer.is_new for answer in again] == [False, True]

    def test_an_encoding_that_was_chosen_for_the_transaction(self, store, connection):
        connection.execute("SET LOCAL client_encoding = LATIN2")
        store.using(connection).add_runs([a_run(trace="€😀")])

        assert connection.execute("SHOW client_encoding").fetchone() == ("LATIN2",)
        connection.commit()
        assert connection.execute("SHOW client_encoding").fetchone() == ("UTF8",)

    def test_nothing_is_prepared(self, store, connection):
        borrowed = store.using(connection)
        for _ in range(10):
            borrowed.add_runs([a_run()])

        assert connection.execute("SELECT * FROM pg_prepared_statements").fetchall() == []

    def test_loaders_factories_and_cursors_are_the_callers(self, store):
        with odd_postgres(store, cursor_factory=psycopg.Cursor) as connection:
            store.using(connection).add_runs([a_run()])

            connection.row_factory = dict_row
            found = connection.execute("SELECT job, priority FROM tickwork_run").fetchone()
            assert found == {"job": ODD, "priority": ODD}
            assert connection.info.encoding == "iso8859-1"

    def test_a_cursor_on_the_server_goes_on_where_it_was(self, store, connection):
        add(store, there := a_run())
        with connection.cursor("numbers") as cursor:
            cursor.execute("SELECT * FROM generate_series(1, 9)")
            assert cursor.fetchone() == (1,)
            with pytest.raises(psycopg.errors.UniqueViolation):
                store.using(connection).add_runs([there])
            store.using(connection).add_runs([a_run()])

            assert cursor.fetchone() == (2,)


class TestPipelines:
    """In a pipeline of the caller's, what is under way comes to its end first."""

    def test_results_belong_to_their_statements(self, store, connection, worker):
        with connection.pipeline():
            before = connection.execute("SELECT 'before'")
            store.using(connection).add_runs([run := a_run()])
            after = connection.execute("SELECT 'after'")
            assert (before.fetchone(), after.fetchone()) == (("before",), ("after",))
        connection.commit()

        assert ids(worker.claim()) == [run.id]

    def test_an_earlier_error_is_raised(self, store, connection):
        with connection.pipeline():
            connection.execute("SELECT 1 / 0")
            with pytest.raises(psycopg.errors.DivisionByZero):
                store.using(connection).add_runs([a_run()])
        connection.commit()

        assert all_runs(store) == []

    def test_an_error_of_ours_ends_nobodys_pipeline(self, store, connection):
        add(store, there := a_run())
        with connection.pipeline():
            with pytest.raises(psycopg.errors.UniqueViolation):
                store.using(connection).add_runs([there])
            after = connection.execute("SELECT 'after'")
            assert after.fetchone() == ("after",)
            store.using(connection).add_runs([run := a_run()])
        connection.commit()

        assert ids(all_runs(store)) == [there.id, run.id]


class TestWrongConnections:
    """A connection that cannot do is refused, and the error says which can."""

    @pytest.mark.parametrize("thing", ["postgresql://db/jobs", None, psycopg])
    def test_of_another_kind(self, store, thing):
        with pytest.raises(WrongConnection, match=r"psycopg\.Connection"):
            store.using(thing)
        with pytest.raises(WrongConnection, match=r"psycopg\.AsyncConnection"):
            store.using_async(thing)

    def test_to_another_database(self, store):
        with (
            closing(sqlite3.connect(":memory:")) as connection,
            pytest.raises(WrongConnection, match=r"It is a sqlite3\.Connection"),
        ):
            store.using(connection)

    def test_a_cursor(self, store, connection):
        with pytest.raises(WrongConnection, match=r"It is a psycopg\.Cursor"):
            store.using(connection.cursor())

    def test_a_plain_one_where_an_async_one_is_meant(self, store, connection):
        with pytest.raises(
            WrongConnection, match=r"It is a psycopg\.Connection; pass it to using\(\)"
        ):
            store.using_async(connection)

    def test_tables_that_it_does_not_find(self, store, connection):
        connection.execute("CREATE TEMPORARY TABLE orders (id integer)")
        connection.execute("SET search_path = elsewhere, nowhere")
        with pytest.raises(WrongConnection, match="search_path: elsewhere, nowhere"):
            store.using(connection).add_runs([a_run()])

        connection.execute("INSERT INTO orders VALUES (1)")
        connection.execute("SET search_path = public")
        store.using(connection).add_runs([run := a_run()])
        connection.commit()
        assert ids(all_runs(store)) == [run.id]

    def test_tables_that_it_finds_elsewhere(self, postgres_url):
        with closing(psycopg.connect(postgres_url)) as connection:
            connection.execute("CREATE SCHEMA jobs")
            connection.execute("SET search_path = jobs")
            connection.commit()
            store = PostgresStore(f"{postgres_url}?options=-c%20search_path%3Djobs")
            assert store.using(connection).install() == SCHEMA_VERSION
            connection.commit()
            store.using(connection).add_runs([run := a_run()])
            connection.commit()

        assert ids(all_runs(store)) == [run.id]
        store.close()

    def test_a_transaction_that_has_failed(self, store, connection):
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            store.using(connection).add_runs([a_run()])
        connection.rollback()

        assert all_runs(store) == []

    def test_a_savepoint_of_the_same_name_in_a_transaction_that_has_failed(self, store, connection):
        connection.execute("SAVEPOINT tickwork")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            store.using(connection).add_runs([a_run()])

        assert status(connection) == TransactionStatus.INERROR

    def test_a_verb_that_fails_before_its_first_statement(self, store, connection):
        connection.execute("SELECT 1")
        with pytest.raises(AssertionError):
            store.using(connection).add_runs([a_run(priority=1.5)])

        assert status(connection) == TransactionStatus.INTRANS
        assert store.using(connection).add_runs([a_run()])[0].is_new

    def test_one_that_is_closed(self, store, connection):
        connection.close()

        with pytest.raises(psycopg.OperationalError, match="closed"):
            store.using(connection).add_runs([a_run()])

    def test_one_that_is_lost(self, store, connection, other):
        store.using(connection).add_runs([a_run()])
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))
        other.commit()

        with pytest.raises(psycopg.OperationalError):
            store.using(connection).add_runs([a_run()])
        assert all_runs(store) == []

    def test_one_that_may_only_read(self, store, connection):
        connection.read_only = True

        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            store.using(connection).add_runs([a_run()])
        assert status(connection) == TransactionStatus.INTRANS


class TestRefusedCommits:
    """Where we commit, a commit that is refused is the caller's to hear of, and nothing else."""

    def test_nothing_is_left(self, postgres_url):
        store = PostgresStore(postgres_url)
        store.install()
        given: list[str | None] = []
        with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
            connection.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
                " AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$"
            )
            connection.execute(
                "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON tickwork_run"
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
            connection.add_notice_handler(lambda notice: given.append(notice.message_primary))

            with pytest.raises(psycopg.errors.RaiseException, match="not today"):
                store.using(connection).add_runs([a_run()])
            assert status(connection) == TransactionStatus.IDLE

        assert given == []
        assert all_runs(store) == []
        store.close()


class TestStatements:
    """However many runs there are, the statements are as many, in as many round trips."""

    @pytest.fixture
    def sent(self, monkeypatch) -> list[list[bytes]]:
        """The beginnings of the statements of each round trip."""
        trips: list[list[bytes]] = []
        send = caller_connection.PostgresCallerConnection._send

        def counting(self: Any, connection: Any, messages: Any, pipeline: Any) -> Any:
            trips.append([message.text.split()[0] for message in messages])
            return send(self, connection, messages, pipeline)

        monkeypatch.setattr(caller_connection.PostgresCallerConnection, "_send", counting)
        return trips

    @pytest.mark.parametrize("number", [1, 500])
    def test_adding_runs(self, store, connection, sent, number):
        store.using(connection).add_runs([a_run() for _ in range(number)])

        assert sent == [[b"SAVEPOINT", b"INSERT", b"SELECT", b"RELEASE"]]

    @pytest.mark.parametrize("number", [1, 500])
    def test_adding_runs_with_keys(self, store, connection, sent, number):
        runs = [a_run(unique=UniqueKey(f"{n}", None)) for n in range(number)]
        store.using(connection).add_runs(runs)

        assert [len(trip) for trip in sent] == [2, 3, 3]

    def test_completing_a_run(self, store, connection, sent, claim):
        store.using(connection).complete(claim, now=NOON)

        assert sent == [
            [b"SAVEPOINT", b"WITH"],
            [b"SELECT"],  # what it counts as
            [b"INSERT", b"DELETE", b"DELETE", b"RELEASE"],
        ]

    def test_a_percent_sign_is_one_and_a_value_may_stand_twice(self, store, connection):
        def ask() -> Operation[Any]:
            text = "SELECT 7 % :n::integer, :n::text || '%', :m::text IS NULL"
            return (yield Statement("ask", (text,), {"n": 4, "m": None}))

        assert caller_connection.PostgresCallerConnection(connection, url=store.url).run(ask) == [
            (3, "4%", True)
        ]

    def test_where_each_statement_is_committed_by_itself(self, store, connection, sent):
        connection.autocommit = True
        store.using(connection).add_runs([a_run()])

        assert sent == [[b"BEGIN", b"INSERT", b"SELECT", b"COMMIT"]]
