"""The same on a caller's async connection, and which door is for which connection."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from contract.builders import HOUR, NOON, StoreDriver, a_run, add, all_runs, ids, the_run
from contract.odd_connections import make_odd, refuse
from contract.stores.conftest import open_postgres
from contract.stores.test_using_postgres import await_waiter
from tickwork._dispatch.async_connections import is_async_connection
from tickwork._domain.limits.limits import UniqueKey
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import AddedRun, Store
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import WrongConnection
from tickwork.testing import ManualClock

T = TypeVar("T")

ONE = UniqueKey("one", None)
LIMIT = "job:send_email"

Act = Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with open_postgres(request, clock) as store:
        yield store


@pytest.fixture
def claim(store: Store, worker: StoreDriver) -> Claim:
    """A claim that holds a slot."""
    store.set_limits({LIMIT: 1})
    add(store, a_run(limit_keys=(LIMIT,)))
    return worker.claim_one(lease=HOUR)


def on_connection(store: PostgresStore, act: Act[T], **given: Any) -> T:
    """Do this with a connection of the caller's, in a loop of its own."""

    async def main() -> T:
        connection = await psycopg.AsyncConnection.connect(store.url, **given)
        try:
            return await act(connection)
        finally:
            await connection.close()

    return asyncio.run(main())


@asynccontextmanager
async def idle(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def in_pipeline(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    async with connection.pipeline():
        yield


@pytest.mark.servers("postgres")
class TestTransactions:
    """Rolled back means never seen; committed means there, with all that belongs to it."""

    modes = pytest.mark.parametrize("mode", [idle, in_pipeline])

    @modes
    def test_a_run_that_was_rolled_back(self, store, mode):
        async def act(connection):
            async with mode(connection):
                answers = await store.using_async(connection).add_runs([a_run(unique=ONE)])
                await connection.rollback()
            return answers

        [answer] = on_connection(store, act)

        assert answer.is_new
        assert all_runs(store) == []
        assert store.add_runs([a_run(unique=ONE)])[0].is_new

    @modes
    def test_a_run_that_was_committed(self, store, worker, mode):
        run = a_run(args='["ü€😀"]')

        async def act(connection):
            async with mode(connection):
                await store.using_async(connection).add_runs([run])
                assert store.get_run(run.id) is None
                await connection.commit()

        on_connection(store, act)

        assert [claim.args for claim in worker.claim()] == ['["ü€😀"]']

    def test_no_runs_at_all(self, store):
        async def act(connection):
            answers = await store.using_async(connection).add_runs([])
            return answers, connection.info.transaction_status

        assert on_connection(store, act) == ([], TransactionStatus.IDLE)

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_the_end_of_a_run(self, store, claim, is_committed):
        async def act(connection):
            async with connection.transaction(force_rollback=not is_committed):
                return await store.using_async(connection).complete(claim, now=NOON, result='"ok"')

        assert on_connection(store, act, autocommit=True)

        found = the_run(store, claim)
        expected = (RunStatus.COMPLETED, '"ok"') if is_committed else (RunStatus.RUNNING, None)
        assert (found.status, found.result) == expected
        assert store.count_taken([LIMIT]) == {LIMIT: 0 if is_committed else 1}

    def test_a_claim_that_was_lost(self, store, clock, worker, other_worker):
        add(store, a_run())
        stale = worker.claim_one()
        clock.advance(minutes=5)
        worker.reap()
        other_worker.claim_one()
        before = the_run(store, stale)

        async def act(connection):
            is_ours = await store.using_async(connection).complete(stale, now=NOON)
            await connection.commit()
            return is_ours

        assert not on_connection(store, act)
        assert the_run(store, stale) == before

    def test_where_each_statement_is_committed_by_itself(self, store, worker):
        async def act(connection):
            await store.using_async(connection).add_runs([run := a_run()])
            assert connection.info.transaction_status == TransactionStatus.IDLE
            return run

        run = on_connection(store, act, autocommit=True)

        assert ids(worker.claim()) == [run.id]

    def test_a_key_that_is_held(self, store):
        add(store, held := a_run(unique=ONE))

        async def act(connection):
            return await store.using_async(connection).add_runs([a_run(unique=ONE)])

        assert on_connection(store, act) == [AddedRun(held.id, is_new=False)]

    @modes
    def test_a_verb_that_failed(self, store, mode):
        add(store, there := a_run())
        before, after = a_run(), a_run(unique=ONE)

        async def act(connection):
            async with mode(connection):
                runs = store.using_async(connection)
                await runs.add_runs([before])
                with pytest.raises(psycopg.errors.UniqueViolation):
                    await runs.add_runs([a_run(unique=ONE), there])
                await runs.add_runs([after])
                await connection.commit()

        on_connection(store, act)

        assert ids(all_runs(store)) == [there.id, before.id, after.id]

    def test_an_odd_connection(self, store, worker, claim):
        run = a_run(args='["ü€😀"]', unique=UniqueKey("ключ", None))

        async def act(connection):
            make_odd(connection)
            runs = store.using_async(connection)
            answers = [
                *(await runs.add_runs([run])),
                *(await runs.add_runs([a_run(unique=run.unique), a_run()])),
            ]
            is_ours = await runs.complete(claim, now=NOON)
            await connection.commit()
            return [answer.is_new for answer in answers], is_ours

        given = {"client_encoding": "LATIN1", "row_factory": refuse}
        assert on_connection(store, act, **given) == ([True, False, True], True)
        assert the_run(store, run).args == '["ü€😀"]'

    def test_a_serialization_failure_is_psycopgs_own(self, store, worker, claim):
        async def act(connection):
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.execute("SELECT count(*) FROM tickwork_run")
            worker.beat(claim, until=NOON + 2 * HOUR)
            with pytest.raises(psycopg.errors.SerializationFailure):
                await store.using_async(connection).complete(claim, now=NOON)
            return connection.info.transaction_status

        assert on_connection(store, act) == TransactionStatus.INTRANS

    def test_one_that_is_called_off_while_it_waits(self, store):
        """As by a timeout: the transaction can be used, and nothing of the operation is in it."""
        before, after = a_run(), a_run()

        async def act(connection):
            runs = store.using_async(connection)
            await runs.add_runs([before])
            waiting = asyncio.create_task(runs.add_runs([a_run(), a_run(unique=ONE)]))
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(threads, await_waiter, store, waiting.done)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert connection.info.transaction_status == TransactionStatus.INTRANS
            await runs.add_runs([after])
            await connection.commit()

        with (
            closing(psycopg.connect(store.url)) as other,
            ThreadPoolExecutor(1) as threads,
        ):
            store.using(other).add_runs([a_run(unique=ONE)])
            on_connection(store, act)
            other.rollback()

        assert ids(all_runs(store)) == [before.id, after.id]


class TestDoors:
    """A connection that has to be awaited has a door of its own."""

    def test_which_is_which(self):
        class Session:
            async def execute(self, text: str) -> None: ...

        assert is_async_connection(object.__new__(psycopg.AsyncConnection))
        assert is_async_connection(Session())
        assert not is_async_connection(object.__new__(psycopg.Connection))
        assert not is_async_connection("sqlite:///jobs.db")
        with closing(sqlite3.connect(":memory:")) as connection:
            assert not is_async_connection(connection)

    def test_sqlite_has_no_async_connections(self, tmp_path):
        store = SqliteStore(tmp_path / "jobs.db")

        with (
            closing(sqlite3.connect(tmp_path / "jobs.db")) as connection,
            pytest.raises(WrongConnection, match=r"an sqlite3\.Connection"),
        ):
            store.using_async(connection)

    @pytest.mark.parametrize("thing", ["jobs.db", None, psycopg])
    def test_sqlite_takes_its_own_only(self, tmp_path, thing):
        with pytest.raises(WrongConnection, match=r"an sqlite3\.Connection"):
            SqliteStore(tmp_path / "jobs.db").using(thing)

    def test_the_store_in_memory_has_none(self):
        with closing(sqlite3.connect(":memory:")) as connection:
            for door in (MemoryStore().using, MemoryStore().using_async):
                with pytest.raises(WrongConnection, match="Pass no connection"):
                    door(connection)

    @pytest.mark.servers("postgres")
    def test_postgres_refuses_an_async_one_at_the_plain_door(self, store):
        async def act(connection):
            with pytest.raises(
                WrongConnection, match=r"AsyncConnection; pass it to using_async\(\)"
            ):
                store.using(connection)

        on_connection(store, act)
