"""Dispatches in the caller's transaction: after a rollback the run never existed."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from typing import Any

import psycopg
import pytest

from servers import mariadb
from tickwork import RunStatus, Tickwork
from tickwork.errors import (
    ArgumentError,
    NotCommitted,
    NotSerializable,
    RunNotFound,
    RunUnsuccessful,
    WrongConnection,
)
from tickwork.events import RunDispatched

Connection = Any
# SQLite has no async connections of its own.
POSTGRES = pytest.param("postgres", marks=[pytest.mark.servers("postgres")])


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


@pytest.fixture
def connect(url: str, database: str, app: Tickwork) -> Callable[[], Connection]:
    """Connections of the program, to the application's database."""
    app.install()
    if database == "sqlite":
        return lambda: closing(sqlite3.connect(path_of(url)))
    if database == "mariadb":
        return lambda: closing(mariadb.connect(url, autocommit=False))
    return lambda: closing(psycopg.connect(url))


@pytest.fixture
def connection(connect: Callable[[], Connection]) -> Iterator[Connection]:
    with connect() as opened:
        opened.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        opened.execute("DELETE FROM orders")
        opened.commit()
        yield opened
        opened.rollback()


@pytest.fixture
def ship(app):
    @app.job
    def ship(order: int) -> str:
        return f"shipped {order}"

    return ship


def orders(connect: Callable[[], Connection]) -> list[int]:
    with connect() as other:
        return [row[0] for row in other.execute("SELECT id FROM orders ORDER BY id")]


@contextmanager
def listening(app):
    heard: list[RunDispatched] = []
    end = app.events.subscribe(RunDispatched, heard.append)
    yield heard
    end()


class TestDispatching:
    """The run is committed together with the caller's writes, or not at all."""

    def test_after_a_commit_order_and_run_exist(self, app, connect, connection, ship, passes):
        connection.execute("INSERT INTO orders VALUES (1)")
        run = ship.using(connection).dispatch(order=1)
        assert app.runs.recent() == []  # no other connection sees it yet
        connection.commit()

        assert orders(connect) == [1]
        assert run.status is RunStatus.PENDING
        assert passes(app) == 1
        assert run.result() == "shipped 1"

    def test_after_a_rollback_neither_exists(self, app, connect, connection, ship, passes):
        connection.execute("INSERT INTO orders VALUES (1)")
        run = ship.using(connection).dispatch(order=1)
        connection.rollback()

        assert orders(connect) == []
        assert app.runs.recent() == []
        assert passes(app) == 0
        with pytest.raises(RunNotFound):
            run.read()

    def test_other_options_can_be_combined_with_using(self, app, clock, connection, ship):
        run = (
            ship.queue("slow")
            .using(connection)
            .delay(60)
            .tags("red")
            .tenant("acme")
            .priority(3)
            .dispatch(order=1)
        )
        connection.commit()

        found = run.read()
        assert (found.queue, found.tags, found.tenant) == ("slow", ("red",), "acme")
        assert (found.due_at - clock.now()).total_seconds() == 60
        assert found.priority == 3

    def test_a_builder_a_draft_and_a_name(self, app, connection, ship):
        app.schedule("pack", lambda order: None).using(connection).dispatch(order=1)
        app.args(order=2).using(connection).dispatch("ship")
        app.draft.using(connection).dispatch(ship, 3)
        app.remote("elsewhere").using(connection).dispatch(order=4)
        connection.commit()

        assert sorted(run.job for run in app.runs.recent()) == ["elsewhere", "pack", "ship", "ship"]

    def test_dispatch_many_is_part_of_the_transaction(self, app, connection, ship):
        runs = ship.using(connection).dispatch_many({"order": order} for order in range(200))
        assert app.runs.recent() == []
        connection.commit()

        assert len(app.runs.recent(limit=1000)) == 200
        assert [run.read().args for run in runs[:2]] == ['{"order":0}', '{"order":1}']

    def test_a_draft_can_dispatch_several_runs_in_one_transaction(self, app, connection, ship):
        draft = ship.using(connection)
        draft.dispatch(order=1)
        draft.dispatch(order=2)
        connection.rollback()
        draft.dispatch(order=3)
        connection.commit()

        assert [run.args for run in app.runs.recent()] == ['{"order":3}']

    def test_wrong_arguments_leave_the_transaction_as_it_was(self, connect, connection, ship):
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ArgumentError):
            ship.using(connection).dispatch(no="order")
        with pytest.raises(NotSerializable):
            ship.using(connection).dispatch(order=10**5_000)
        connection.commit()

        assert orders(connect) == [1]

    def test_nothing_leaks_into_the_next_dispatch(self, app, connection, ship):
        ship.using(connection).dispatch(order=1)
        connection.rollback()
        ship.dispatch(order=2)

        assert [run.args for run in app.runs.recent()] == ['{"order":2}']

    def test_a_connection_to_another_database(self, ship):
        with pytest.raises(WrongConnection):
            ship.using("jobs.db").dispatch(order=1)


class TestUniqueKeys:
    """A duplicate returns the earlier run, of this transaction or an earlier one."""

    def test_a_duplicate_returns_the_earlier_run(self, app, connection, ship):
        first = ship.unique().dispatch(order=1)

        again = ship.unique().using(connection).dispatch(order=1)

        assert (again, again.is_new) == (first, False)
        connection.commit()
        assert len(app.runs.recent()) == 1
        assert again.status is RunStatus.PENDING

    def test_a_duplicate_in_the_same_transaction(self, app, connection, ship):
        first = ship.unique().using(connection).dispatch(order=1)
        again = ship.unique().using(connection).dispatch(order=1)
        connection.commit()

        assert first.is_new
        assert (again, again.is_new) == (first, False)
        assert len(app.runs.recent()) == 1

    def test_after_a_rollback_the_key_is_free(self, connection, ship):
        ship.unique(within="1h").using(connection).dispatch(order=1)
        connection.rollback()

        assert ship.unique(within="1h").dispatch(order=1).is_new


class TestHandles:
    """A handle raises NotCommitted before the commit, and works as usual afterwards."""

    VERBS = (
        lambda run: run.wait(timeout=5),
        lambda run: run.result(timeout=5),
        lambda run: run.read(),
        lambda run: run.status,
        lambda run: run.cancel(),
        lambda run: run.delay(10),
        lambda run: run.at("2030-01-01T00:00:00Z"),
        lambda run: run.retry(),
        lambda run: run.attempts(),
        lambda run: run.log(),
    )

    @pytest.mark.parametrize("operation", VERBS)
    def test_before_the_commit_every_method_raises_not_committed(self, connection, ship, operation):
        run = ship.using(connection).dispatch(order=1)

        with pytest.raises(NotCommitted, match="not committed, or was rolled back") as found:
            operation(run)
        assert "Commit the transaction" in found.value.fix

    def test_async_methods_raise_it_as_well(self, connection, ship):
        run = ship.using(connection).dispatch(order=1)

        with pytest.raises(NotCommitted):
            asyncio.run(run.aio.wait())

    def test_after_a_rollback_the_run_does_not_exist(self, connection, ship):
        run = ship.using(connection).dispatch(order=1)
        connection.rollback()

        with pytest.raises(NotCommitted):
            run.wait()

    def test_committed_it_can_be_waited_for(self, app, connection, ship):
        run = ship.using(connection).dispatch(order=1)
        connection.commit()
        app.run()

        assert run.wait(timeout=5) is RunStatus.COMPLETED
        assert run.result() == "shipped 1"
        assert not run.cancel()


class TestEvents:
    """A dispatch with ``using`` emits no event: the transaction may roll back."""

    def test_no_event_for_a_run_of_an_open_transaction(self, app, connection, ship):
        with listening(app) as heard:
            ship.using(connection).dispatch(order=1)
            ship.using(connection).dispatch_many([{"order": 2}])
            connection.rollback()
            ship.dispatch(order=3)

        assert len(heard) == 1

    def test_on_added_is_not_called(self, app, connection, ship):
        woken: list[Any] = []
        app._services.inserter.on_added = woken.extend
        ship.using(connection).dispatch(order=1)
        connection.rollback()
        run = ship.dispatch(order=2)

        assert [each.id for each in woken] == [run.id]


# ---------------------------------------------------------------- async connections


@pytest.fixture
def connect_async(
    url: str, app: Tickwork
) -> Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]]:
    app.install()

    @asynccontextmanager
    async def connect() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(url) as opened:
            yield opened

    return connect


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
class TestAsyncConnections:
    """A dispatch on an async connection is awaited, and uses no thread."""

    def test_committed_and_rolled_back(self, app, connect_async, ship):
        async def main():
            async with connect_async() as connection:
                run = await ship.using(connection).dispatch(order=1)
                with pytest.raises(NotCommitted):
                    await run.aio.wait(timeout=5)
                await connection.rollback()
                run = await ship.delay(5).using(connection).priority(7).dispatch(order=2)
                many = await ship.using(connection).dispatch_many([{"order": 3}, {"order": 4}])
                named = await app.args(order=5).using(connection).dispatch("ship")
                more = await app.draft.using(connection).dispatch_many(ship, [{"order": 6}])
                await connection.commit()
                return [await each.aio.read() for each in (run, *many, named, *more)]

        found = asyncio.run(main())

        assert [run.args for run in found] == [f'{{"order":{n}}}' for n in range(2, 7)]
        assert found[0].priority == 7
        assert len(app.runs.recent()) == 5

    def test_no_thread_is_used(self, app, connect_async, ship):
        async def main():
            app.runs  # noqa: B018  # once opened, there is nothing to wait for
            before = set(threading.enumerate())
            async with connect_async() as connection:
                for order in range(5):
                    await ship.using(connection).dispatch(order=order)
                await connection.commit()
            return set(threading.enumerate()) - before

        assert asyncio.run(main()) == set()

    def test_the_first_use_does_not_block_the_loop(self, make_app, connect_async):
        other = make_app(clock=None)  # it has to ask the server what time it is
        ship = other.job(lambda order: None, name="ship")

        async def main():
            async with connect_async() as connection:
                await ship.using(connection).dispatch(order=1)
                await connection.commit()

        asyncio.run(main())

        assert len(other.runs.recent()) == 1

    def test_a_unique_key_gives_the_earlier_run(self, app, connect_async, ship):
        async def main():
            async with connect_async() as connection:
                first = await ship.unique().using(connection).dispatch(order=1)
                again = await ship.unique().using(connection).dispatch(order=1)
                await connection.commit()
                return first, again

        first, again = asyncio.run(main())

        assert first.is_new
        assert (again, again.is_new) == (first, False)

    def test_wrong_arguments_store_nothing(self, app, connect_async, ship):
        async def main():
            async with connect_async() as connection:
                with pytest.raises(ArgumentError):
                    await ship.using(connection).dispatch(no="order")
                await connection.commit()

        asyncio.run(main())

        assert app.runs.recent() == []


def test_sqlite_takes_no_async_connection():
    class Async:
        async def commit(self) -> None:
            raise NotImplementedError

    with Tickwork("sqlite://") as app:

        @app.job
        def ship(order: int) -> None:
            pass

        with pytest.raises(WrongConnection):
            asyncio.run(ship.using(Async()).dispatch(order=1))


def test_the_result_of_a_failed_run_raises(app, connection):
    @app.job
    def fail() -> None:
        raise ValueError("on purpose")

    run = fail.using(connection).dispatch()
    connection.commit()
    app.run()

    with pytest.raises(RunUnsuccessful, match="on purpose"):
        run.result()
