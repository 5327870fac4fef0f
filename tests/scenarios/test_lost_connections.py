"""Servers restart and answers get lost: no run is lost, and none is done twice."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg
import psycopg
import psycopg2
import pymysql
import pytest

from contract.builders import (
    ANN,
    BOB,
    HOUR,
    MINUTE,
    NOON,
    a_run,
    add,
    added,
    all_runs,
    ids,
    settled,
    the_run,
    tick,
)
from servers.mariadb import MariaDBServer
from servers.mysql import ChosenServer
from servers.postgres import PostgresServer
from servers.private import HOST
from servers.proxy import TcpProxy
from tickwork import Tickwork
from tickwork._dispatch import dispatch
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.outcome import Failed, Outcome, Snoozed, Succeeded
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._stores._sql import server_store
from tickwork._stores._sql.server_store import ServerStore
from tickwork._stores.contract import AddedRun, ChangeResult, ClaimRequest, Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import OutcomeUnknown, StoreUnavailable
from tickwork.testing import ManualClock

T = TypeVar("T")

KEY = "job:send_email"
PATIENCE_SECONDS = 60.0
SECOND = timedelta(seconds=1)


class Kind(NamedTuple):
    """A kind of server, and how to recognise its COMMIT on the wire."""

    name: str
    server: type[PostgresServer] | type[MariaDBServer]
    store: type[PostgresStore] | type[MysqlStore]
    commit: Callable[[bytes], bool]
    committed: Callable[[bytes], bool]


def is_last_ok(answer: bytes) -> bool:
    """Whether this ends with an OK packet that is the last one."""
    last = answer[-11:]
    return last[:3] == b"\x07\x00\x00" and last[4] == 0 and not last[7] & 0x08


KINDS = [
    pytest.param(kind, id=kind.name, marks=pytest.mark.servers(kind.name))
    for kind in (
        # The statement, rather than READ COMMITTED.
        Kind(
            "postgres",
            PostgresServer,
            PostgresStore,
            lambda sent: b"\x00COMMIT\x00" in sent,
            lambda answer: b"COMMIT\x00" in answer,
        ),
        Kind(
            "mariadb",
            ChosenServer,
            MysqlStore,
            lambda sent: sent.endswith(b"COMMIT"),
            is_last_ok,
        ),
    )
]


def insist(act: Callable[[bool], T]) -> T:
    """Call it until it succeeds; from the second call on it is a repeat."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    may_be_stored = False
    while True:
        try:
            return act(may_be_stored)
        except StoreUnavailable:
            assert time.monotonic() < give_up_at
            may_be_stored = True
            time.sleep(0.05)


# ---------------------------------------------------------------- servers that stop


@dataclass
class Stream:
    """Threads that add, claim and record while the server is stopped."""

    store: ServerStore[Any]
    added: list[RunId] = field(default_factory=list)
    handled: Counter[RunId] = field(default_factory=Counter)
    lost: list[RunId] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    connected: int = 0

    def __post_init__(self) -> None:
        self.connect = self.store._pool._connect
        self.store._pool._connect = self.counted
        self.is_enough = threading.Event()
        jobs = [self.enqueue_all, self.work, self.work]
        self.threads = [threading.Thread(target=self.guarded, args=(job,)) for job in jobs]
        self.has_added = threading.Event()
        for thread in self.threads:
            thread.start()

    def guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            self.errors.append(error)
            raise

    def counted(self) -> Any:
        self.connected += 1
        return self.connect()

    def enqueue_all(self) -> None:
        try:
            while not self.is_enough.is_set():
                batch = [a_run(attempts_max=3) for _ in range(5)]
                answers = insist(partial(self.add_runs, batch))
                assert ids(batch) == [answer.run_id for answer in answers]
                self.added += ids(batch)
                time.sleep(0.003)
        finally:
            self.has_added.set()

    def work(self) -> None:
        worker = ANN if threading.current_thread() is self.threads[1] else BOB
        tags = 0
        while True:
            is_last = self.has_added.is_set()
            tags += 1
            claims = insist(partial(self.claim, worker, f"tag {tags}"))
            if not claims and is_last:
                return
            self.handled.update(ids(claims))
            # Some runs fail first, and are retried.
            steps = [
                settled(claim, Failed("no", delay=timedelta(0)))
                if claim.attempt == 1 and claim.run_id.endswith("7")
                else settled(claim)
                for claim in claims
            ]
            self.lost += insist(partial(self.record, steps))

    def add_runs(self, batch: list[NewRun], may_be_stored: bool) -> list[AddedRun]:
        return self.store.add_runs(batch, may_be_stored=may_be_stored)

    def claim(self, worker: WorkerId, tag: str, may_be_stored: bool) -> list[Claim]:
        found = self.store.find_claims(worker=worker, tag=tag) if may_be_stored else []
        return found or self.store.claim(
            ClaimRequest(7), worker=worker, tag=tag, now=NOON, lease=HOUR
        )

    def record(self, steps: list[Transition], may_be_stored: bool) -> list[RunId]:
        return self.store.record(steps, may_be_stored=may_be_stored)

    def finish(self) -> None:
        self.is_enough.set()
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
        assert self.errors == []


@pytest.mark.parametrize("kind", KINDS)
class TestServerRestart:
    """The store reconnects by itself; a caller that repeats a failed call has its effect once."""

    @pytest.mark.parametrize("way", ["fast", "immediate", "crash"])
    def test_in_the_middle_of_the_work(self, kind, way):
        with kind.server(fsync=False) as server:
            store = kind.store(server.url(server.create_database()))
            store.install()
            stream = Stream(store)
            for _ in range(3):
                time.sleep(0.2)
                if way == "crash":
                    server.crash()
                    server.start()
                else:
                    server.restart(way)
            time.sleep(0.2)
            stream.finish()

            expected = {run_id: 2 if run_id.endswith("7") else 1 for run_id in stream.added}
            found = [store.get_run(run_id) for run_id in stream.added]
            assert stream.connected > len(stream.threads), "it was harmed on the way"
            assert {run.status for run in found if run} == {RunStatus.COMPLETED}
            assert None not in found
            assert not any(store.count_runs().by_phase.values())
            assert stream.lost == []
            assert stream.handled == expected
            store.close()

    def test_while_it_is_down_calls_raise_an_error(self, kind):
        with kind.server(fsync=False) as server:
            store = kind.store(server.url(server.create_database()))
            store.install()
            server.stop()

            with pytest.raises(StoreUnavailable):
                store.add_runs([a_run()])

            server.start()
            add(store, run := a_run())
            assert ids(all_runs(store)) == [run.id]
            store.close()


# ---------------------------------------------------------------- answers that get lost


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{kind.name}_server")


@pytest.fixture
def proxy(server: Any) -> Iterator[TcpProxy]:
    with TcpProxy(HOST, server.port) as made:
        yield made


@pytest.fixture
def database(server: Any) -> Iterator[str]:
    name = server.create_database()
    yield name
    server.drop_database(name)


@pytest.fixture
def store(kind: Kind, server: Any, database: str, proxy: TcpProxy) -> Iterator[Store]:
    made = kind.store(server.url(database, port=proxy.port))
    made.install()
    yield made
    made.close()


@pytest.fixture
def losing(kind: Kind, proxy: TcpProxy) -> Callable[[Callable[[], object]], None]:
    """Calls a function, and loses the answer to its COMMIT."""

    def lose(act: Callable[[], object]) -> None:
        sprung = proxy.cut_after(kind.commit, answer=kind.committed)
        with pytest.raises(OutcomeUnknown):
            act()
        assert sprung.wait(10)

    return lose


class TestLostAnswer:
    """COMMIT succeeded, and its answer did not arrive."""

    def test_to_an_enqueue(self, store, losing):
        for _ in range(5):
            batch = [a_run(), a_run(unique=UniqueKey(f"key {len(all_runs(store))}", None))]
            before = ids(all_runs(store))

            losing(partial(store.add_runs, batch))
            answers = store.add_runs(batch, may_be_stored=True)

            assert answers == [AddedRun(run.id, is_new=False) for run in batch]
            assert ids(all_runs(store)) == [*before, *ids(batch)]

    def test_to_a_claim(self, store, losing):
        store.set_limits({KEY: 1})
        add(store, *(a_run(limit_keys=(KEY,)) for _ in range(2)), a_run())

        losing(
            lambda: store.claim(ClaimRequest(5), worker=ANN, tag="tag", now=NOON, lease=MINUTE),
        )

        claims = store.find_claims(worker=ANN, tag="tag")
        assert len(claims) == 2
        assert store.claim(ClaimRequest(5), worker=BOB, tag="other", now=NOON, lease=MINUTE) == []
        assert store.record([settled(claim) for claim in claims]) == []
        assert {run.token for run in all_runs(store)} == {0, 1}

    def test_to_a_record(self, store, losing):
        store.set_limits({KEY: 2})
        add(store, *(a_run(attempts_max=3, limit_keys=(KEY,)) for _ in range(4)))
        add(store, *(a_run(attempts_max=3) for _ in range(3)))
        claims = store.claim(ClaimRequest(5), worker=ANN, tag="tag", now=NOON, lease=MINUTE)
        outcomes: list[Outcome] = [
            Succeeded(),
            Failed("no"),
            Succeeded('"done"'),
            Failed("no"),
            Snoozed(HOUR),
        ]
        steps = [settled(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]

        losing(lambda: store.record(steps))
        before = [store.run_record(run.id) for run in all_runs(store)], store.list_jobs()

        assert store.record(steps, may_be_stored=True) == []
        assert ([store.run_record(run.id) for run in all_runs(store)], store.list_jobs()) == before
        assert store.list_jobs()[0].failures == 1
        assert store.count_runs().by_phase[Phase.READY] == 2, "the waiting runs are unblocked"

    def test_to_a_tick(self, store, losing):
        clock = ManualClock(NOON)
        added(store)

        losing(lambda: tick(store, clock))

        assert tick(store, clock).runs == []
        assert len(all_runs(store)) == 1

    def test_to_a_cancel(self, store, losing):
        add(store, run := a_run())

        losing(lambda: store.cancel(run.id, now=NOON))

        assert store.cancel(run.id, now=NOON) is ChangeResult.FINISHED
        assert the_run(store, run).status is RunStatus.CANCELED


class TestLostConnection:
    """Before COMMIT nothing has happened, and the store retries by itself."""

    def test_the_caller_does_not_notice(self, store, proxy):
        add(store, first := a_run())
        proxy.cut(reset=True)
        proxy.heal()

        add(store, second := a_run())
        claims = store.claim(ClaimRequest(5), worker=ANN, tag="tag", now=NOON, lease=MINUTE)

        assert ids(claims) == [first.id, second.id]

    def test_in_the_middle_of_a_transaction(self, store, proxy):
        add(store, run := a_run(limit_keys=(KEY,)))
        sprung = proxy.cut_after(b"tickwork_slot")

        [claim] = store.claim(ClaimRequest(5), worker=ANN, tag="tag", now=NOON, lease=MINUTE)

        assert sprung.is_set()
        assert (claim.run_id, claim.token) == (run.id, 1)

    def test_without_a_server_it_is_an_error(self, store, proxy):
        proxy.cut()

        with pytest.raises(StoreUnavailable):
            store.add_runs([a_run()])

        proxy.heal()
        add(store, a_run())


class TestStalledConnection:
    """A call on a server that does not answer ends with a timeout."""

    def test_the_deadline_fires(self, kind, server, database, proxy, monkeypatch):
        monkeypatch.setattr(server_store, "ANSWER_GRACE", timedelta(seconds=0.5))
        store = kind.store(
            server.url(database, port=proxy.port), statement_timeout=timedelta(seconds=1)
        )
        store.install()
        run = a_run()
        proxy.stall()
        begun = time.monotonic()

        with pytest.raises(StoreUnavailable):
            store.add_runs([run])

        assert 1.0 < time.monotonic() - begun < 15.0
        proxy.heal()  # what was queued is delivered, late
        assert insist(lambda _: store.add_runs([run], may_be_stored=True)[0].run_id) == run.id
        assert ids(all_runs(store)) == [run.id]
        store.close()


@pytest.fixture
def url(server: Any, database: str, proxy: TcpProxy) -> str:
    """The database behind the proxy."""
    found: str = server.url(database, port=proxy.port)
    return found


@pytest.fixture
def shop(kind: Kind, url: str) -> Iterator[Tickwork]:
    """An application behind the proxy, with a small timeout."""
    with Tickwork(url, store=kind.store(url, statement_timeout=SECOND), install=True) as app:
        app.remote("note").dispatch()
        yield app


DISPATCHES: dict[str, Callable[[Tickwork], object]] = {
    "dispatch": lambda app: app.remote("note").dispatch(),
    "many": lambda app: app.remote("note").dispatch_many([{"n": n} for n in range(5)]),
    "unique": lambda app: app.remote("note").unique("key").dispatch(),
    "async": lambda app: asyncio.run(dispatch_async(app)),
}


async def dispatch_async(app: Tickwork) -> None:
    await app.remote("note").aio.dispatch()


class TestADispatchWhoseAnswerIsLost:
    """Its error names the runs, and says whether the server did not answer or was lost."""

    @pytest.mark.parametrize("way", ["dispatch", "many", "async"])
    def test_a_server_that_does_not_answer(self, shop, proxy, way):
        proxy.stall()
        began_at = time.monotonic()

        with pytest.raises(OutcomeUnknown, match="did not answer COMMIT in time") as raised:
            DISPATCHES[way](shop)

        assert time.monotonic() - began_at < server_store.answer_timeout(SECOND).total_seconds() + 3
        assert raised.value.run_ids[0] in raised.value.what
        assert len(raised.value.run_ids) == (5 if way == "many" else 1)
        proxy.heal()

    @pytest.mark.parametrize("way", DISPATCHES)
    def test_a_server_that_is_lost_during_commit(self, shop, kind, proxy, monkeypatch, way):
        monkeypatch.setattr(dispatch, "PAUSES", (0.5, 0.01))
        is_plain = way != "unique" and kind.name == "mariadb"  # the INSERT commits by itself
        commit = (lambda sent: b"INSERT INTO tickwork_run" in sent) if is_plain else kind.commit
        cut = proxy.cut_after(commit, answer=None if is_plain else kind.committed)
        cutter = threading.Thread(target=lambda: (cut.wait(20), proxy.cut()))
        cutter.start()

        with pytest.raises(OutcomeUnknown, match="was lost during COMMIT: the run") as raised:
            DISPATCHES[way](shop)

        cutter.join()
        proxy.heal()
        assert {shop.get_run(run_id).status for run_id in raised.value.run_ids} == {
            RunStatus.PENDING
        }
        if way == "unique":
            again = shop.remote("note").unique("key").dispatch()
            assert (again.id, again.is_new) == (raised.value.run_ids[0], False)


def connect_psycopg(url: str) -> Any:
    return psycopg.connect(url, autocommit=True)


def connect_psycopg2(url: str) -> Any:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    return connection


def connect_pymysql(url: str) -> Any:
    options = urlsplit(url)
    return pymysql.connect(
        host=options.hostname,
        port=options.port,
        user=options.username,
        database=options.path[1:],
        autocommit=True,
    )


class TestADispatchOnAConnectionOfTheCaller:
    """If it commits by itself, and the answer is lost, the error names the run."""

    @pytest.mark.parametrize(
        ("kind", "connect"),
        [
            pytest.param(*each.values[:1], connect, id=connect.__name__, marks=each.marks)
            for each, connect in (
                (KINDS[0], connect_psycopg),
                (KINDS[0], connect_psycopg2),
                (KINDS[1], connect_pymysql),
            )
        ],
    )
    def test_that_commits_by_itself(self, shop, kind, url, proxy, connect):
        connection = connect(url)
        is_joined = connect is connect_psycopg2  # with the statements before it
        commit = (lambda sent: b"COMMIT" in sent) if is_joined else kind.commit
        proxy.cut_after(commit, answer=kind.committed)

        with pytest.raises(OutcomeUnknown, match="was lost during COMMIT: the run") as raised:
            shop.remote("note").using(connection).dispatch()

        [run_id] = raised.value.run_ids
        assert shop.get_run(run_id).status is RunStatus.PENDING
        connection.close()

    @pytest.mark.servers("postgres")
    @pytest.mark.parametrize("kind", KINDS[:1])
    @pytest.mark.parametrize("is_asyncpg", [False, True], ids=["psycopg", "asyncpg"])
    def test_that_is_async(self, shop, kind, url, proxy, is_asyncpg):
        async def lose() -> None:
            connection: Any = (
                await asyncpg.connect(url)
                if is_asyncpg
                else await psycopg.AsyncConnection.connect(url, autocommit=True)
            )
            proxy.cut_after(b"COMMIT", answer=kind.committed)
            try:
                await shop.remote("note").using(connection).dispatch()
            finally:
                await connection.close()

        with pytest.raises(OutcomeUnknown) as raised:
            asyncio.run(lose())

        [run_id] = raised.value.run_ids
        assert shop.get_run(run_id).status is RunStatus.PENDING

    @pytest.mark.parametrize(
        ("kind", "connect"),
        [
            pytest.param(*each.values[:1], connect, id=connect.__name__, marks=each.marks)
            for each, connect in ((KINDS[0], connect_psycopg), (KINDS[1], connect_pymysql))
        ],
    )
    def test_in_an_open_transaction_nothing_is_stored(self, shop, url, proxy, connect):
        """So the error is that of the driver, as for the caller's own statements."""
        connection = connect(url)
        connection.cursor().execute("BEGIN")
        proxy.cut_after(b"INSERT INTO tickwork_run")
        before = len(shop.runs.recent())

        with pytest.raises((psycopg.OperationalError, pymysql.err.OperationalError)):
            shop.remote("note").using(connection).dispatch()

        assert len(shop.runs.recent()) == before
        connection.close()
