"""MariaDB comes and goes; threads, forks and installers come together."""

import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pymysql
import pytest

from contract.builders import (
    BOB,
    MINUTE,
    NOON,
    StoreDriver,
    a_run,
    add,
    all_runs,
    ids,
    settled,
    the_run,
)
from servers import mariadb
from servers.mariadb import MariaDBServer
from servers.proxy import TcpProxy
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql import server_store
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.server_store import StatementRejected
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores.contract import AddedRun, ClaimRequest
from tickwork._stores.mysql import connection as connection_module
from tickwork._stores.mysql import schema as schema_module
from tickwork._stores.mysql.store import MysqlStore
from tickwork.errors import (
    InvalidStoreUrl,
    OutcomeUnknown,
    SchemaMissing,
    ServerTooOld,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)

SECOND = timedelta(seconds=1)
# Not sleep(): MySQL interrupts it without an error.
ENDLESS = (
    "WITH RECURSIVE numbers (n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)"
    " SELECT count(*) FROM numbers AS a, numbers AS b, numbers AS c, numbers AS d"
)


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MysqlStore]:
    store = MysqlStore(mariadb_url)
    store.install()
    yield store
    store.close()


@pytest.fixture
def proxy(mariadb_server: MariaDBServer) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", mariadb_server.port) as proxy:
        yield proxy


@pytest.fixture
def behind(store: MysqlStore, mariadb_server: MariaDBServer, proxy: TcpProxy) -> Any:
    """The same store, by a way that can be cut."""
    database = store.url.rpartition("/")[2]
    behind = MysqlStore(mariadb_server.url(database, port=proxy.port))
    yield behind
    behind.close()


@pytest.fixture
def other(store: MysqlStore) -> Iterator[mariadb.Connection]:
    """Another connection, in a transaction."""
    with mariadb.connect(store.url, autocommit=False) as connection:
        yield connection


def sessions(store: MysqlStore) -> list[int]:
    """The server's threads that serve this store."""
    with mariadb.connect(store.url) as connection:
        return sessions_beside(connection)


def sessions_beside(connection: mariadb.Connection) -> list[int]:
    rows = connection.execute(
        "SELECT id FROM information_schema.processlist"
        " WHERE db = database() AND id <> connection_id()"
    ).fetchall()
    return [row[0] for row in rows]


def has_begun(store: MysqlStore, statement: str) -> None:
    """Wait until the server is at work on it. Its clock is its own, and cannot be moved."""
    look = f"SELECT 1 FROM information_schema.processlist WHERE info LIKE '{statement}%'"
    give_up_at = time.monotonic() + 10
    with mariadb.connect(store.url) as connection:
        while not connection.execute(look).fetchall():
            assert time.monotonic() < give_up_at, statement
            time.sleep(0.01)


def kill_sessions(store: MysqlStore) -> None:
    with mariadb.connect(store.url) as connection:
        killed = sessions_beside(connection)
        for number in killed:
            try:
                connection.execute(f"KILL /*M! HARD */ CONNECTION {number}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != 1094:  # it has gone by itself
                    raise
        give_up_at = time.monotonic() + 10
        while set(killed) & set(sessions_beside(connection)) and time.monotonic() < give_up_at:
            time.sleep(0.01)


def asking(text: str) -> Callable[[Queries], Operation[Any]]:
    def ask(_: Queries) -> Operation[Any]:
        return (yield Statement("query", (text,), {}))

    return ask


class TestLosingTheServer:
    """A lost transaction is retried; one that may be committed raises OutcomeUnknown."""

    def test_connections_that_died_while_idle_are_not_noticed(self, store):
        with ThreadPoolExecutor(4) as threads:
            together = threading.Barrier(4)
            list(threads.map(lambda _: (together.wait(), store.database_time()), range(4)))
        kill_sessions(store)

        # Even of those whose COMMIT is in the first thing that they send.
        assert store.add_runs([run := a_run()]) == [AddedRun(run.id, is_new=True)]
        # The session that killed the others may take a moment to end.
        give_up_at = time.monotonic() + 30
        while len(sessions(store)) > 1 and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert len(sessions(store)) == 1

    def test_reading_is_repeated_whatever_went(self, behind, proxy):
        add(behind, run := a_run())
        cut = proxy.cut_after(b"COMMIT")

        assert the_run(behind, run).id == run.id
        assert cut.is_set()

    def test_a_server_that_was_never_there_is_reported_at_once(self):
        store = MysqlStore("mysql://ann@127.0.0.1:1/none")

        with pytest.raises(StoreUnavailable, match="refused"):
            store.database_time()

    def test_a_database_that_is_not_there(self, store):
        nowhere = MysqlStore(store.url + "_not")

        with pytest.raises(StoreUnavailable, match="Unknown database"):
            nowhere.database_time()

    def test_a_connection_that_is_killed_at_work(self, store):
        working = threading.Thread(
            target=lambda: store._read(asking("SELECT sleep(1)")), daemon=True
        )
        working.start()
        has_begun(store, "SELECT sleep")
        kill_sessions(store)
        working.join(10)

        assert not working.is_alive()
        assert store.add_runs([a_run()])[0].is_new


class TestWaiting:
    """Nothing waits without an end."""

    def test_for_a_lock(self, store, other):
        add(store, run := a_run())
        impatient = MysqlStore(store.url, lock_timeout=SECOND, statement_timeout=SECOND / 2)
        other.execute("SELECT id FROM tickwork_run FOR UPDATE")

        with pytest.raises(StoreBusy):
            impatient.cancel(run.id, now=NOON)
        impatient.close()

    def test_it_tries_again_for_a_lock_that_is_released(self, store, other):
        add(store, run := a_run())
        patient = MysqlStore(store.url, lock_timeout=SECOND, statement_timeout=60 * SECOND)
        other.execute("SELECT id FROM tickwork_run FOR UPDATE")
        with ThreadPoolExecutor(1) as threads:
            canceling = threads.submit(patient.cancel, run.id, now=NOON)
            time.sleep(1.3)  # by then it has failed once with error 1205, the lock wait timeout
            other.rollback()
            canceling.result(20)

        assert the_run(store, run).status is RunStatus.CANCELED
        patient.close()

    def test_for_a_statement(self, store):
        impatient = MysqlStore(store.url, statement_timeout=SECOND / 10)

        with pytest.raises(StoreBusy):
            impatient._read(asking(ENDLESS))
        assert impatient.count_runs() is not None  # the connection is as good as before
        impatient.close()

    def test_for_a_connection(self, store):
        crowded = MysqlStore(store.url, pool_max=1, statement_timeout=SECOND / 10)

        with crowded._pool.acquire(), pytest.raises(StoreBusy):
            crowded._read(asking("SELECT 1"))
        crowded.close()


class TestConflicts:
    """What may be over when it is tried again is tried again."""

    def test_a_deadlock(self, store, other):
        add(store, run := a_run())
        # It has changed more than the store's transaction has: the latter is ended.
        other.execute("UPDATE tickwork_gate SET gate = gate + 5000 WHERE gate > 900")
        other.execute("SELECT gate FROM tickwork_gate WHERE gate = 5 FOR UPDATE")
        errors: list[str] = []

        def act() -> str:
            with store._pool.acquire() as connection, connection.transaction():
                connection.execute(store.query("lock_run", id=run.id))
                try:
                    connection.execute(store.query("lock_gates", gates=[5]))
                except StatementRejected as error:
                    errors.append(error.state)
                    raise
                return "done"

        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(store._with_retries, act)
            self.await_waiter(other)
            other.execute("SELECT id FROM tickwork_run FOR UPDATE")
            other.rollback()

            assert done.result(20) == "done"
        assert errors == ["1213"]

    def await_waiter(self, other: mariadb.Connection) -> None:
        give_up_at = time.monotonic() + 20
        query = "SHOW GLOBAL STATUS LIKE 'innodb_row_lock_current_waits'"
        while other.execute(query).fetchone()[1] == "0" and time.monotonic() < give_up_at:
            time.sleep(0.005)

    @pytest.mark.parametrize("state", ["1213", "1205", "1020", "1062"])
    def test_each_of_them(self, store, monkeypatch, state):
        monkeypatch.setattr(server_store, "_sleep", lambda _: None)
        refusals = [StatementRejected(state, "no"), StatementRejected(state, "no")]

        def act() -> str:
            if refusals:
                raise refusals.pop()
            return "done"

        assert store._with_retries(act) == "done"

    def test_nothing_else(self, store):
        with pytest.raises(StoreError, match="1064"):
            store._read(asking("SELECT FROM WHERE"))

    def test_they_are_given_up_at_last(self, store, monkeypatch):
        monkeypatch.setattr(server_store, "_sleep", lambda _: None)

        def act() -> str:
            raise StatementRejected("1213", "Deadlock found")

        with pytest.raises(StoreError, match="1213"):
            store._with_retries(act)

    def test_the_same_id_twice_is_reported_as_such(self, store):
        add(store, run := a_run())

        with pytest.raises(StoreError, match="1062"):
            store.add_runs([a_run(), run])
        assert ids(all_runs(store)) == [run.id]


class TestSharing:
    """One store serves threads and forks."""

    def test_more_threads_than_connections(self, store):
        few = MysqlStore(store.url, pool_max=2)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: few.add_runs([a_run()]), range(40)))

        assert len(all_runs(store)) == 40
        few.close()

    def test_a_fork_has_connections_of_its_own(self, store, clock):
        add(store, run := a_run())
        pid = os.fork()
        if pid == 0:
            try:
                claimed = store.claim(ClaimRequest(1), worker=BOB, tag="x", now=NOON, lease=MINUTE)
                os._exit(0 if ids(claimed) == [run.id] else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(pid, 0)

        assert status == 0
        assert the_run(store, run).worker == BOB  # on our own connection, as if nothing was

    def test_a_child_that_is_killed_takes_nothing_along(self, store):
        add(store, a_run())
        pid = os.fork()
        if pid == 0:
            store.count_runs()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert len(all_runs(store)) == 1

    def test_a_closed_store_can_be_used_again(self, store):
        store.close()
        store.close()

        assert store.add_runs([a_run()])[0].is_new

    def test_certificates_are_read_once(self, monkeypatch):
        made: list[ssl.SSLContext] = []
        create = ssl.create_default_context

        def counted(*args: Any, **given: Any) -> ssl.SSLContext:
            made.append(create(*args, **given))
            return made[-1]

        monkeypatch.setattr(ssl, "create_default_context", counted)
        monkeypatch.setattr(connection_module._LeanConnection, "_context_by_options", {})
        for _ in range(3):
            connection_module._LeanConnection(host="db.example.org", defer_connect=True)

        assert len(made) == 1


class TestInstalling:
    """Ten that install at once make one set of tables."""

    def test_ten_at_once(self, mariadb_url):
        stores = [MysqlStore(mariadb_url) for _ in range(10)]
        with ThreadPoolExecutor(10) as threads:
            versions = list(threads.map(lambda store: store.install(), stores))
        for store in stores:
            store.close()

        assert versions == [SCHEMA_VERSION] * 10

    @pytest.mark.parametrize("made", [1, 5, 15])
    def test_one_that_died_half_way_is_carried_on(self, mariadb_url, monkeypatch, made):
        # DDL cannot be undone: what it has made is there.
        make = schema_module._make
        texts: list[str] = []

        def dying(text: str, maker: Any) -> None:
            if len(texts) == made:
                raise KeyboardInterrupt
            texts.append(text)
            make(text, maker)

        store = MysqlStore(mariadb_url)
        with monkeypatch.context() as patch:
            patch.setattr(schema_module, "_make", dying)
            with pytest.raises(KeyboardInterrupt):
                store.install()
        assert store.schema_version() == 0
        with pytest.raises(SchemaMissing):
            store.check_schema()

        assert store.install() == SCHEMA_VERSION
        assert store.add_runs([a_run()])[0].is_new
        assert store._read(asking("SELECT count(*) FROM tickwork_gate"))[0][0] == 1024
        store.close()

    def test_tables_that_are_not_there(self, mariadb_url):
        store = MysqlStore(mariadb_url)

        assert store.schema_version() == 0
        with pytest.raises(SchemaMissing):
            store.add_runs([a_run()])
        with pytest.raises(SchemaMissing):
            store.check_schema()
        store.close()

    def test_another_prefix_stands_beside(self, store):
        beside = MysqlStore(store.url, prefix="other_")
        beside.install()
        add(beside, run := a_run())

        assert all_runs(store) == []
        assert ids(all_runs(beside)) == [run.id]
        beside.close()

    @pytest.mark.parametrize(
        ("version", "message"),
        [
            ("10.5.23-MariaDB", "MariaDB 10.5.23 is too old; tickwork needs 10.6"),
            ("8.0.16", "MySQL 8.0.16 is too old; tickwork needs 8.0.17"),
            ("5.7.44-log", r"MySQL 5.7.44 is too old"),
            ("5.6.51", r"MySQL 5.6.51 is too old; tickwork needs 8.0.17"),
        ],
    )
    @pytest.mark.parametrize("knows_settings", [True, False])
    def test_a_server_that_is_too_old(self, store, monkeypatch, version, message, knows_settings):
        settings = ("SET SESSION no_such_setting = 1",) if not knows_settings else ()
        monkeypatch.setattr(
            connection_module, "_SETTINGS", (*settings, *connection_module._SETTINGS)
        )
        monkeypatch.setattr(connection_module, "_VERSION", f"'{version}'")
        store.close()

        with pytest.raises(ServerTooOld, match=message):
            store.database_time()

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("mysql://root@localhost", "names no database"),
            ("mysql://root@localhost/", "names no database"),
            ("mysql://root@localhost/jobs?colour=red", "no option 'colour'"),
            ("mysql://root@localhost:port/jobs", "[Pp]ort"),
        ],
    )
    def test_a_url_that_cannot_be_read(self, url, message):
        with pytest.raises(InvalidStoreUrl, match=message):
            MysqlStore(url)

    def test_the_time_of_the_server(self, store):
        off_by = abs(store.database_time() - datetime.now(UTC))  # noqa: TID251

        assert off_by < timedelta(seconds=10)


class TestReading:
    """What people see."""

    def test_the_view_shows_times_as_times(self, store, clock):
        add(store, a_run(due_at=NOON))
        StoreDriver(store, clock).run()
        add(store, a_run(due_at=NOON + MINUTE))

        rows = store._read(
            asking("SELECT status, due_at, ended_at IS NULL FROM tickwork_runs ORDER BY due_at")
        )

        assert list(rows) == [
            ("completed", NOON.replace(tzinfo=None), 0),
            ("pending", (NOON + MINUTE).replace(tzinfo=None), 1),
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "it's",
            '"quoted"',
            "a\\b\\'c",
            "%s %(name)s %%",
            ":name ?1 [[(?1)]]",
            "tab\tnew\nline\r\x00nul\x1a",
            "ünï €😀",
            "-- no comment; /* nor this */",
        ],
    )
    def test_text_comes_back_as_it_went_in(self, store, clock, text):
        add(store, run := a_run(args=text, trace=text, unique=UniqueKey(text, None)))
        [claim] = StoreDriver(store, clock).claim(1)
        store.record([settled(claim)._replace(result=text)])

        found = the_run(store, run)
        assert (found.args, found.trace, found.result, claim.args) == (text,) * 4

    def test_half_a_surrogate_pair_is_replaced(self, store):
        add(store, run := a_run(args="half \ud83d"))

        assert the_run(store, run).args == "half ?"

    def test_keys_differ_by_their_last_space(self, store):
        answers = store.add_runs(
            [a_run(unique=UniqueKey(key, None)) for key in ("key", "key ", "KEY", "kéy")]
        )

        assert all(answer.is_new for answer in answers)


class TestRoundTrips:
    """An operation makes as few round trips as it can, and one statement never becomes many."""

    @pytest.fixture
    def sent(self, store, monkeypatch) -> list[int]:
        """How many texts went out in each round trip."""
        store.database_time()
        counts: list[int] = []
        execute = pymysql.Connection._execute_command

        def counted(connection: Any, command: int, text: bytes) -> Any:
            counts.append(text.count(b";\n") + 1)
            return execute(connection, command, text)

        monkeypatch.setattr(pymysql.Connection, "_execute_command", counted)
        return counts

    def test_adding_takes_one(self, store, sent):
        store.add_runs([a_run() for _ in range(100)])

        assert sent == [1], "one statement is a transaction of its own"

    def test_claiming_takes_two(self, store, sent, clock):
        store.add_runs([a_run() for _ in range(100)])
        sent.clear()
        claims = StoreDriver(store, clock).claim(100)

        assert len(claims) == 100
        assert sent == [2, 2]

    def test_recording_takes_three(self, store, sent, clock):
        store.add_runs([a_run() for _ in range(100)])
        claims = StoreDriver(store, clock).claim(100)
        sent.clear()
        store.record([settled(claim) for claim in claims])

        # Runs; their keys, if there are any; the counts and the job.
        assert sent == [3, 1, 3]

    def test_what_does_not_fit_into_a_packet_goes_in_several(self, store, sent, clock, monkeypatch):
        store.add_runs([a_run()])
        with store._pool.acquire() as connection:
            monkeypatch.setattr(connection, "_packet_max", 20_000)
        sent.clear()

        runs = [a_run(args=f'["{"x" * 3000}"]') for _ in range(20)]
        store.add_runs(runs)
        claims = StoreDriver(store, clock).claim(100)
        lost = store.record([settled(claim)._replace(result='"' + "y" * 3000) for claim in claims])

        assert lost == []
        assert len(claims) == 21
        assert {run.status for run in all_runs(store)} == {RunStatus.COMPLETED}
        assert max(sent) < 20
        assert len(sent) > 8


class TestListening:
    """A look at the newest run, now and then."""

    def test_a_new_run_is_noticed(self, store):
        listener = store.listen()
        listener.wait(0)  # the first look is one
        assert not listener.wait(0.1)

        store.add_runs([a_run()])

        assert listener.wait(5)
        assert not listener.wait(0.1)
        listener.close()

    def test_one_that_ends_is_not(self, store, clock):
        listener = store.listen()
        store.add_runs([a_run(), a_run()])
        assert listener.wait(5)

        StoreDriver(store, clock).run()

        assert not listener.wait(0.1)
        store.add_runs([a_run()])
        assert listener.wait(5)
        listener.close()

    def test_a_server_that_goes_is_noticed_and_looked_for(self, store):
        listener = store.listen()
        listener.wait(0)
        kill_sessions(store)

        assert listener.wait(5)
        store.add_runs([a_run()])
        assert listener.wait(10)
        listener.close()


@pytest.mark.parametrize(
    ("unique", "is_last"),
    [
        (None, lambda sent: b"INSERT INTO tickwork_run" in sent),  # there is nothing else
        (UniqueKey("key", None), lambda sent: sent.endswith(b"COMMIT")),
    ],
    ids=["one statement", "a transaction"],
)
def test_a_commit_whose_answer_was_lost_is_unknown(behind, proxy, unique, is_last):
    behind.database_time()
    run = a_run(unique=unique)
    proxy.cut_after(is_last)

    with pytest.raises(OutcomeUnknown, match="may be stored or not"):
        behind.add_runs([run])

    assert behind.add_runs([run], may_be_stored=True)[0].run_id == run.id
    assert ids(all_runs(behind)) == [run.id]
