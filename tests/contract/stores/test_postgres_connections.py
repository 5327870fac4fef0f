"""PostgreSQL comes and goes; threads, forks and installers come together."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from contract.builders import ANN, BOB, MINUTE, NOON, StoreDriver, a_run, add, ids, settled, the_run
from servers.postgres import PostgresServer
from servers.proxy import TcpProxy
from tickwork._domain.runs.handover import handover_of
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql import server_store
from tickwork._stores._sql.migrate import SCHEMA_VERSION, SchemaMigration
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation, Statement
from tickwork._stores.contract import AddedRun, ClaimRequest
from tickwork._stores.postgres import connection as connection_module
from tickwork._stores.postgres import schema as schema_module
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.postgres.values import Message
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
COMMIT = b"COMMIT\x00"  # the statement, or the answer to it; not READ COMMITTED


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    store.install()
    yield store
    store.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def behind(
    store: PostgresStore, postgres_server: PostgresServer, proxy: TcpProxy
) -> Iterator[PostgresStore]:
    """The same store, by a way that can be cut."""
    database = store.url.rpartition("/")[2]
    behind = PostgresStore(postgres_server.url(database, port=proxy.port))
    yield behind
    behind.close()


def sessions(store: PostgresStore) -> list[int]:
    """The server's processes that serve this store."""
    with psycopg.connect(store.url) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'tickwork'"
        ).fetchall()
    return [row[0] for row in rows]


def terminate(store: PostgresStore) -> None:
    with psycopg.connect(store.url, autocommit=True) as connection:
        for pid in sessions(store):
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


class TestLosingTheServer:
    """A lost transaction is retried; one that may be committed raises OutcomeUnknown."""

    def test_connections_that_died_while_idle_are_not_noticed(self, store):
        with ThreadPoolExecutor(4) as threads:
            together = threading.Barrier(4)
            list(threads.map(lambda _: (together.wait(), store.database_time()), range(4)))
        assert sessions(store)
        terminate(store)

        # Even of those whose COMMIT is in the first thing that they send.
        assert store.add_runs([run := a_run()]) == [AddedRun(run.id, is_new=True)]
        assert len(sessions(store)) == 1

    def test_a_transaction_that_was_cut_off_is_done_again(self, behind, proxy, clock):
        add(behind, *(runs := [a_run() for _ in range(3)]))
        cut = proxy.cut_after(b"FOR UPDATE SKIP LOCKED")

        claims = StoreDriver(behind, clock).claim(3)

        assert cut.is_set()
        assert ids(claims) == ids(runs)

    def test_reading_is_repeated_whatever_went(self, behind, proxy):
        add(behind, run := a_run())
        cut = proxy.cut_after(COMMIT, answer=COMMIT)

        assert the_run(behind, run).id == run.id
        assert cut.is_set()

    def test_a_commit_whose_answer_was_lost_is_unknown(self, behind, proxy):
        run = a_run()
        behind.database_time()
        proxy.cut_after(COMMIT, answer=COMMIT)

        with pytest.raises(OutcomeUnknown, match="may be stored or not") as raised:
            behind.add_runs([run])

        assert isinstance(raised.value, StoreUnavailable)
        assert behind.add_runs([run], may_be_stored=True) == [AddedRun(run.id, is_new=False)]

    def test_a_record_whose_answer_was_lost_was_committed(self, behind, proxy, clock):
        add(behind, a_run())
        [claim] = StoreDriver(behind, clock).claim(1)
        proxy.cut_after(COMMIT, answer=COMMIT)

        with pytest.raises(OutcomeUnknown):
            behind.record([settled(claim)])

        assert behind.record([settled(claim)], may_be_stored=True) == []
        assert the_run(behind, claim).status is RunStatus.COMPLETED

    def test_a_claim_whose_answer_was_lost_is_found_by_its_tag(self, behind, proxy, clock):
        add(behind, run := a_run())
        worker = StoreDriver(behind, clock)
        proxy.cut_after(COMMIT, answer=COMMIT)

        with pytest.raises(OutcomeUnknown):
            worker.claim(1)

        assert ids(behind.find_claims(worker=worker.id, tag=worker.tag)) == [run.id]

    def test_a_server_that_is_away_is_unavailable(self, behind, proxy):
        behind.database_time()
        proxy.cut(reset=True)

        with pytest.raises(StoreUnavailable, match="tickwork doctor") as raised:
            behind.add_runs([a_run()])
        assert not isinstance(raised.value, OutcomeUnknown)

        proxy.heal()
        assert behind.add_runs([a_run()])[0].is_new

    def test_a_server_that_was_never_there_is_reported_at_once(self):
        store = PostgresStore("postgresql://ann@127.0.0.1:1/none")

        with pytest.raises(StoreUnavailable, match="refused"):
            store.database_time()

    def test_a_server_that_says_nothing_is_given_up(self, behind, proxy, monkeypatch):
        monkeypatch.setattr(server_store, "ANSWER_GRACE", timedelta(0))
        impatient = PostgresStore(behind.url, statement_timeout=SECOND / 4)
        impatient.database_time()
        proxy.stall()
        began_at = time.monotonic()

        with pytest.raises(OutcomeUnknown, match=r"0\.25 seconds"):
            impatient.add_runs([a_run()])

        assert time.monotonic() - began_at < 5
        proxy.heal()
        impatient.close()

    @pytest.mark.servers("postgres")
    def test_a_server_that_crashed_and_came_back(self, clock):
        with PostgresServer(fsync=False) as server:
            store = PostgresStore(server.url(server.create_database()))
            store.install()
            add(store, run := a_run())
            server.crash()
            with pytest.raises(StoreUnavailable):
                store.database_time()
            server.start()

            assert ids(StoreDriver(store, clock).claim(1)) == [run.id]
            store.close()


class TestWaiting:
    """Nothing waits without an end."""

    def test_for_a_lock(self, store, clock):
        add(store, run := a_run())
        impatient = PostgresStore(store.url, lock_timeout=SECOND / 20, statement_timeout=SECOND / 2)

        with psycopg.connect(store.url) as other:
            other.execute("SELECT FROM tickwork_run FOR UPDATE")
            with pytest.raises(StoreBusy):
                impatient.cancel(run.id, now=NOON)
        impatient.close()

    def test_for_a_statement(self, store):
        impatient = PostgresStore(store.url, statement_timeout=SECOND / 10)

        with psycopg.connect(store.url) as other:
            other.execute("LOCK TABLE tickwork_run IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreBusy):
                impatient.add_runs([a_run()])
        impatient.close()

    def test_for_a_connection(self, store):
        crowded = PostgresStore(store.url, pool_max=1, statement_timeout=SECOND / 10)

        with crowded._pool.acquire(), pytest.raises(StoreBusy):
            crowded.database_time()
        crowded.close()

    def test_a_deadlock_is_tried_again(self, store):
        add(store, run := a_run())
        with psycopg.connect(store.url) as other, ThreadPoolExecutor(1) as threads:
            # The store's session notices first, and is the one that gives up.
            other.execute("SET deadlock_timeout = '20s'")
            other.execute("SELECT FROM tickwork_gate WHERE gate = 5 FOR UPDATE")
            done = threads.submit(_lock_run_then_gate, store, run.id)
            _await_waiter(store)
            other.execute("SELECT FROM tickwork_run FOR UPDATE")
            other.rollback()

            assert done.result(20) == "done"


def _lock_run_then_gate(store: PostgresStore, run_id: Any) -> str:
    def operation(query: Queries) -> Operation[str]:
        yield query("lock_run", id=run_id)
        yield query("lock_gates", gates=[5])
        yield query("count_slots", keys=[])
        return "done"

    return store._write(operation)


def _await_waiter(store: PostgresStore) -> None:
    with psycopg.connect(store.url, autocommit=True) as connection:
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            if row and row[0]:
                return
            threading.Event().wait(0.005)
    raise AssertionError("No transaction waits.")


class TestSharing:
    """One store serves threads and forks."""

    def test_more_threads_than_connections(self, store):
        narrow = PostgresStore(store.url, pool_max=2)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: narrow.add_runs([a_run()]), range(80)))

        assert sum(answer[0].is_new for answer in answers) == 80
        assert len(sessions(store)) <= 3
        narrow.close()

    def test_a_fork_has_connections_of_its_own(self, store, clock):
        add(store, a_run(), a_run())
        before = sessions(store)

        pid = os.fork()
        if pid == 0:
            try:
                [claim] = StoreDriver(store, clock, BOB).claim(1)
                store.close()
                os._exit(0 if store.get_run(claim.run_id) else 1)
            except BaseException:  # noqa: BLE001  # it must not go on as a second test run
                os._exit(2)
        _, status = os.waitpid(pid, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert len(StoreDriver(store, clock).claim(5)) == 1
        assert sessions(store) == before

    def test_a_child_that_is_killed_takes_nothing_along(self, store, clock):
        add(store, a_run())
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert len(StoreDriver(store, clock).claim(5)) == 1

    def test_a_closed_store_can_be_used_again(self, store):
        store.close()
        store.close()

        assert sessions(store) == []
        assert store.schema_version() == SCHEMA_VERSION

    def test_an_error_leaves_the_connection_as_it_was(self, store):
        [run] = [a_run()]
        add(store, run)
        before = sessions(store)

        with pytest.raises(StoreError, match="23505"):
            store.add_runs([run])

        assert store.get_run(run.id) is not None
        assert sessions(store) == before

    def test_nothing_is_left_in_the_session(self, store, clock):
        changed = Message(
            b"SELECT count(*) FROM pg_settings WHERE source = 'session'"
            b" AND name IN ('statement_timeout', 'lock_timeout', 'enable_sort', 'jit')",
        )
        add(store, a_run())
        StoreDriver(store, clock).run()

        with store._pool.acquire() as connection:
            connection._unsent = [changed]
            [left] = connection._send()

        assert left.get_value(0, 0) == b"0"


class TestPreparedStatements:
    """What is run all the time is prepared, unless a pooler stands in the way."""

    def prepared(self, store: PostgresStore) -> set[str]:
        with store._pool.acquire() as connection:
            connection._unsent = [Message(b"SELECT name FROM pg_prepared_statements")]
            [found] = connection._send()
            return {(found.get_value(row, 0) or b"").decode() for row in range(found.ntuples)}

    def test_only_what_is_run_all_the_time(self, store, clock):
        add(store, a_run(), a_run())
        StoreDriver(store, clock).run(1)
        before = self.prepared(store)
        StoreDriver(store, clock).run(1)
        store.get_run(a_run().id)
        store.list_jobs()

        assert 5 < len(before) < 20
        assert self.prepared(store) == before

    def test_twice_in_one_round_trip(self, store, clock):
        add(store, a_run(job="a"), a_run(job="b"))

        claims = StoreDriver(store, clock).claim(2, lease_by_job={"b": 5 * MINUTE})

        assert [claim.lease_until for claim in claims] == [NOON + MINUTE, NOON + 5 * MINUTE]
        assert self.prepared(store)

    def test_a_pooler_that_lends_another_session(self, store, clock):
        add(store, run := a_run(), other := a_run())
        StoreDriver(store, clock).claim(1)
        with store._pool.acquire() as connection:
            # As in a session without prepared statements.
            connection._unsent = [Message(b"DEALLOCATE ALL")]
            connection._send()

        assert ids(StoreDriver(store, clock).claim(1)) == [other.id]
        assert self.prepared(store) == set()
        assert the_run(store, run).status is RunStatus.RUNNING

    def test_a_pooler_that_lends_a_session_twice(self, store, clock):
        add(store, a_run(), other := a_run())
        StoreDriver(store, clock).claim(1)
        with store._pool.acquire() as connection:
            connection._to_prepare.update(connection._name_by_text)
            connection._name_by_text.clear()

        assert ids(StoreDriver(store, clock).claim(1)) == [other.id]
        assert self.prepared(store) == set()

    def test_an_error_does_not_make_it_forget(self, store):
        add(store, run := a_run())
        store.close()

        # The first of a new session: prepared, then refused.
        with pytest.raises(StoreError, match="23505"):
            store.add_runs([run])

        add(store, a_run())
        assert self.prepared(store)

    def test_a_column_that_was_changed_meanwhile(self, store, clock):
        add(store, a_run(), a_run())
        StoreDriver(store, clock).claim(1)
        with psycopg.connect(store.url) as connection:
            connection.execute("ALTER TABLE tickwork_run ALTER postponements TYPE bigint")

        assert len(StoreDriver(store, clock).claim(1)) == 1
        assert self.prepared(store)

    def test_none_at_all(self, store, clock):
        plain = PostgresStore(store.url, prepare=False)
        add(plain, a_run())
        StoreDriver(plain, clock).run()

        assert self.prepared(plain) == set()
        plain.close()


class TestInstalling:
    """Ten that install at once make one set of tables."""

    def test_ten_at_once(self, postgres_url):
        stores = [PostgresStore(postgres_url) for _ in range(10)]
        together = threading.Barrier(10)

        def install(store: PostgresStore) -> int:
            together.wait()
            return store.install()

        with ThreadPoolExecutor(10) as threads:
            assert list(threads.map(install, stores)) == [SCHEMA_VERSION] * 10

        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT count(*) FROM tickwork_meta").fetchone() == (1,)
            assert connection.execute("SELECT count(*) FROM tickwork_gate").fetchone() == (1024,)
        for store in stores:
            store.close()

    def test_a_step_may_take_longer_than_a_statement(self, postgres_url, monkeypatch):
        slow = [SchemaMigration(1, ["SELECT pg_sleep(0.4)"])]
        monkeypatch.setattr(schema_module, "migrations", lambda *_, **__: slow)
        store = PostgresStore(postgres_url, statement_timeout=timedelta(seconds=0.1))

        def sleeping(_: Queries) -> Operation[None]:
            yield Statement("sleep", ("SELECT pg_sleep(1)",), {})

        assert store.install() == SCHEMA_VERSION
        with pytest.raises(StoreBusy):
            store._write(sleeping)
        store.close()

    def test_a_second_installation_waits_for_the_first(self, postgres_url):
        first = PostgresStore(postgres_url)
        first.install()
        short = timedelta(seconds=0.05)
        second = PostgresStore(postgres_url, statement_timeout=short, lock_timeout=short)

        with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE tickwork_meta IN EXCLUSIVE MODE")
            installed = threads.submit(second.install)
            with pytest.raises(TimeoutError):
                installed.result(timeout=1.0)
            other.rollback()
            assert installed.result(timeout=20) == SCHEMA_VERSION
        first.close()
        second.close()

    def test_tables_that_are_not_there(self, postgres_url):
        store = PostgresStore(postgres_url)

        assert store.schema_version() == 0
        with pytest.raises(SchemaMissing):
            store.check_schema()
        with pytest.raises(SchemaMissing):
            store.add_runs([a_run()])
        store.close()

    def test_another_prefix_stands_beside(self, store):
        other = PostgresStore(store.url, prefix="other_")

        assert other.schema_version() == 0
        assert other.install() == SCHEMA_VERSION
        add(other, run := a_run())
        assert other.get_run(run.id) is not None
        assert store.get_run(run.id) is None
        other.close()

    def test_a_server_that_is_too_old(self, store, monkeypatch):
        monkeypatch.setattr(connection_module.PostgresConnection, "server_version", 120_018)
        store.close()

        with pytest.raises(ServerTooOld, match=r"12\.18"):
            store.database_time()

    def test_a_url_that_cannot_be_read(self):
        with pytest.raises(InvalidStoreUrl):
            PostgresStore("postgresql://host/db?no_such_option=1")

    def test_a_url_with_a_driver_in_it(self, store):
        named = PostgresStore(store.url.replace("postgresql://", "postgresql+psycopg://"))

        assert named.schema_version() == SCHEMA_VERSION
        named.close()

    def test_the_time_of_the_server(self, store):
        with psycopg.connect(store.url) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row

        assert timedelta(0) < store.database_time() - row[0] < 20 * SECOND
        assert store.database_time().tzinfo is UTC


class TestReading:
    """What people see."""

    def test_the_view_shows_times_as_times(self, store, clock):
        add(store, run := a_run(), done := a_run(priority=1))
        [claim] = StoreDriver(store, clock).claim(1)
        assert claim.run_id == done.id
        store.record([settled(claim, now=NOON + MINUTE)])

        with psycopg.connect(store.url) as connection:
            rows = connection.execute(
                "SELECT id::text, status, due_at, ended_at FROM tickwork_runs ORDER BY id"
            ).fetchall()

        assert rows == [
            (run.id, "pending", NOON, None),
            (done.id, "completed", NOON, datetime(2026, 3, 2, 12, 1, tzinfo=UTC)),
        ]

    @pytest.mark.parametrize(
        "text", ["\\", '"', "{}", "a,b", "NULL", "\n\t", "%s %% :c1 $1", "'", "ü€😀", "\\N", ""]
    )
    def test_text_comes_back_as_it_went_in(self, store, clock, text):
        add(store, *(runs := [a_run(args=f'["{n}{text}"]', trace=text) for n in range(3)]))
        add(store, alone := a_run(args=text, trace=text))
        claims = StoreDriver(store, clock).claim(4)
        store.record([settled(claim)._replace(reason=text, result=text) for claim in claims])

        found = [the_run(store, run) for run in runs]
        assert [run.args for run in found] == [f'["{n}{text}"]' for n in range(3)]
        assert {(run.trace, run.reason, run.result) for run in found} == {(text, text, text)}
        assert the_run(store, alone).args == text

    def test_what_no_text_can_hold_is_replaced(self, store, clock):
        add(store, a_run(), a_run())
        claims = StoreDriver(store, clock).claim(2)
        store.record(
            [settled(claim)._replace(reason=f"a\x00b\ud800{n}") for n, claim in enumerate(claims)]
        )

        assert {the_run(store, claim).reason for claim in claims} == {"a\ufffdb?0", "a\ufffdb?1"}


class TestRoundTrips:
    """An operation makes as few round trips as it can, and one statement never becomes many."""

    @pytest.fixture
    def sent(self, monkeypatch) -> list[int]:
        """How many statements went out in each round trip."""
        trips: list[int] = []
        send = connection_module.PostgresConnection._send

        def counting(self: Any) -> Any:
            trips.append(len(self._unsent))
            return send(self)

        monkeypatch.setattr(connection_module.PostgresConnection, "_send", counting)
        return trips

    def test_adding_takes_one(self, store, sent):
        store.add_runs([a_run()])
        store.add_runs([a_run() for _ in range(500)])

        assert len(sent) == 2

    def test_claiming_takes_two_and_recording_takes_one(self, store, sent, clock):
        store.add_runs([a_run() for _ in range(500)])
        store.query.eras.check_seconds = 60.0
        # The first claim of a store looks where ready runs are.
        store.claim(ClaimRequest(1, jobs=("other",)), worker=BOB, tag="", now=NOON, lease=MINUTE)
        sent.clear()

        claims = store.claim(ClaimRequest(500), worker=BOB, tag="", now=NOON, lease=MINUTE)
        store.record([settled(claim) for claim in claims])

        assert len(claims) == 500
        assert len(sent) == 3

    def test_recording_checks_each_run_after_a_claim_was_lost(self, store, sent, clock):
        store.add_runs([a_run() for _ in range(3)])
        lost, *others = store.claim(ClaimRequest(3), worker=BOB, tag="", now=NOON, lease=MINUTE)
        sent.clear()

        assert store.record([settled(lost._replace(token=7)), *map(settled, others)]) == [
            lost.run_id
        ]
        # The first try and its end, then the check of each run.
        assert len(sent) == 5

    def test_accepting_takes_one(self, store, sent, clock):
        store.add_runs([a_run()])
        [claim] = store.claim(ClaimRequest(1), worker=BOB, tag="", now=NOON, lease=MINUTE)
        handover = handover_of(claim)
        store.hand_over([handover])
        sent.clear()

        accepted = store.accept(
            [handover], worker=ANN, tag="a", until=NOON + MINUTE, started_at=NOON
        )

        assert [found.token for found in accepted] == [claim.token + 1]
        assert len(sent) == 1

    def test_a_heartbeat_takes_two(self, store, sent, clock):
        store.add_runs([a_run() for _ in range(500)])
        claims = StoreDriver(store, clock).claim(500)
        sent.clear()

        StoreDriver(store, clock).beat(*claims)

        assert len(sent) == 2
