"""Programs that dispatch with ``using`` are tested in memory, or in the test's own transaction."""

import asyncio
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from application.connections import (
    async_engine_of,
    connect,
    each_kind,
    engine_of,
    maybe,
    orders,
    ship,
)
from tickwork import RunContext, RunStatus, Tickwork, testing
from tickwork.errors import TickworkError, WrongConnection
from tickwork.testing import ManualClock

__all__ = ["connect", "orders", "ship"]

CREATE = "CREATE TABLE IF NOT EXISTS notes_of_orders (id INTEGER NOT NULL)"
NEW = "INSERT INTO notes_of_orders (id) VALUES (1)"
STAND_IN: Any = object()
COUNT = "SELECT count(*) FROM notes_of_orders"


class TestInMemory:
    """``testing.swap``: the run is in memory at once, whatever connection was given."""

    @each_kind()
    def test_runs_are_added_and_executed(self, app, ship, connect, url, kind):
        async def scenario():
            async with kind.open(url) as program:
                with testing.swap(app):
                    await program.order()
                    run = await maybe(ship.using(program.borrowed).dispatch(1))
                    testing.assert_dispatched(app, ship, args={"order": 1})
                    assert len(testing.drain(app)) == 1
                    assert run.result() == "shipped 1"
                await program.roll_back()

        asyncio.run(scenario())

        assert app.runs.recent() == []

    def test_a_stand_in_for_a_session_is_accepted(self):
        app = Tickwork("postgresql://app@127.0.0.1:1/none")
        job = app.schedule("ship", lambda order: order)

        with testing.swap(app):
            job.using(STAND_IN).dispatch_many([{"order": 1}, {"order": 2}])

            assert [each.result for each in testing.drain(app)] == [1, 2]

    def test_a_handler_completes_its_run_on_its_connection(self):
        with testing.app() as app:

            @app.job
            def charge(ctx: RunContext, amount: int) -> None:
                ctx.complete(connection=STAND_IN, result=amount)

            run = charge.using(STAND_IN).dispatch(5)
            testing.drain(app)

            assert run.read().status is RunStatus.COMPLETED
            assert run.result() == 5


class Rollback(Exception):  # noqa: N818  # not an error
    """Leaves a block of a transaction."""


@contextmanager
def joined_session(url, driver):
    """What test suites have: a connection, a transaction, and a session that joins it."""
    with engine_of(url, driver) as engine, engine.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            yield connection, session
        transaction.rollback()


SESSIONS = [
    pytest.param("sqlite", "pysqlite", id="sqlite"),
    pytest.param("postgres", "psycopg", id="postgres", marks=pytest.mark.servers("postgres")),
    pytest.param("mariadb", "pymysql", id="mariadb", marks=pytest.mark.servers("mariadb")),
]


@pytest.mark.parametrize(("database", "driver"), SESSIONS, indirect=["database"])
class TestSessionOfATest:
    """The code under test commits its session; the test drains it, and rolls all of it back."""

    def place_order(self, session, ship):
        session.execute(text(NEW))
        run = ship.using(session).dispatch(1)
        session.commit()
        return run

    def test_the_effects_are_visible_and_nothing_remains(self, app, orders, url, driver):
        with (
            joined_session(url, driver) as (connection, session),
            testing.isolated(app, connection),
        ):

            @app.job
            def ship(order: int) -> None:
                with Session(connection, join_transaction_mode="create_savepoint") as inner:
                    inner.execute(text(NEW))
                    inner.commit()

            run = self.place_order(session, ship)
            testing.assert_dispatched(app, ship, args={"order": 1}, times=1)
            assert len(testing.drain(app)) == 1
            assert run.read().status is RunStatus.COMPLETED
            assert session.scalar(text(COUNT)) == 2

        assert orders() == 0
        assert app.runs.recent() == []

    def test_also_when_the_session_itself_is_given(self, app, ship, orders, url, driver):
        with joined_session(url, driver) as (_, session), testing.isolated(app, session):
            self.place_order(session, ship)
            assert len(testing.drain(app)) == 1

        assert orders() == 0
        assert app.runs.recent() == []

    def test_a_rollback_of_the_code_under_test_undoes_its_dispatch(
        self, app, ship, connect, url, driver
    ):
        with (
            joined_session(url, driver) as (connection, session),
            testing.isolated(app, connection),
        ):
            self.place_order(session, ship)
            session.execute(text(NEW))
            ship.using(session).dispatch(2)
            session.rollback()

            [attempt] = testing.drain(app)
            assert attempt.result == "shipped 1"
            assert session.scalar(text(COUNT)) == 1

    @pytest.mark.parametrize("is_scoped", [False, True])
    def test_a_handler_that_rolls_back_the_session_fails_and_is_retried(
        self, app, connect, url, driver, is_scoped
    ):
        with ExitStack() as stack:
            connection, session = stack.enter_context(joined_session(url, driver))
            if is_scoped:
                maker = sessionmaker(connection, join_transaction_mode="create_savepoint")
                session = scoped_session(maker)
                stack.callback(session.remove)
            stack.enter_context(testing.isolated(app, session))

            def attempt_to_ship(ctx: RunContext, order: int) -> str:
                session.execute(text(NEW))
                if ctx.attempt == 1:
                    session.rollback()
                    raise ValueError("no stamps")
                session.commit()
                return "shipped"

            ship = app.schedule("ship", attempt_to_ship).retries(max=2, base="1m")
            run = self.place_order(session, ship)
            first = testing.drain(app)
            assert [each.error for each in first] == ["ValueError: no stamps"]
            [second] = testing.travel(app, minutes=5)
            assert (second.attempt, second.result) == (2, "shipped")
            assert run.read().status is RunStatus.COMPLETED
            assert session.scalar(text(COUNT)) == 2


@pytest.mark.servers("postgres")
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
class TestAbortedTransaction:
    """On PostgreSQL, an error of a handler's statement does not end the test's transaction."""

    def test_the_attempt_fails_and_the_transaction_goes_on(self, app, connect, url):
        with psycopg.connect(url) as connection:

            @app.job
            def ship(order: int) -> None:
                connection.execute("SELECT 1 FROM no_such_table")

            with testing.isolated(app, connection):
                connection.execute(NEW)
                ship.using(connection).dispatch(1)
                [attempt] = testing.drain(app)

                assert "no_such_table" in attempt.error
                assert connection.execute(COUNT).fetchone() == (1,)
            connection.rollback()

    def test_also_with_psycopg2(self, app, connect, url):
        with closing(psycopg2.connect(url)) as connection:

            @app.job
            def ship(order: int) -> None:
                connection.cursor().execute("SELECT 1 FROM no_such_table")

            with testing.isolated(app, connection):
                ship.using(connection).dispatch(1)
                [attempt] = testing.drain(app)
                assert "no_such_table" in attempt.error
            connection.rollback()

        assert app.runs.recent() == []

    def test_a_failed_handler_keeps_what_it_wrote(self, app, connect, url):
        with psycopg.connect(url) as connection:

            @app.job
            def ship(order: int) -> None:
                connection.execute(NEW)
                raise ValueError("after the write")

            with testing.isolated(app, connection):
                ship.using(connection).dispatch(1)
                assert len(testing.drain(app).failures) == 1
                assert connection.execute(COUNT).fetchone() == (1,)
            connection.rollback()


class TestNoTransaction:
    """A connection that commits each statement cannot be rolled back."""

    @each_kind(lambda kind: not kind.is_async and kind.database != "sqlite")
    def test_it_is_rejected(self, app, connect, url, kind):
        async def scenario():
            async with kind.open(url, is_at_once=True) as program:
                with pytest.raises(WrongConnection, match="commits each statement"):
                    testing.isolated(app, program.borrowed).__enter__()

        asyncio.run(scenario())

    @each_kind(lambda kind: kind.name in {"asyncpg", "psycopg, async"})
    def test_an_async_one_too(self, app, connect, url, kind):
        async def scenario():
            async with kind.open(url, is_at_once=True) as program:
                with pytest.raises(WrongConnection, match="commits each statement"):
                    await testing.isolated(app, program.borrowed).__aenter__()

        asyncio.run(scenario())

    @each_kind(lambda kind: kind.name in {"sqlite3", "Session over pysqlite"})
    def test_on_sqlite_a_transaction_is_begun(self, app, ship, connect, url, kind):
        async def scenario():
            async with kind.open(url) as program:
                with testing.isolated(app, program.borrowed):
                    ship.using(program.borrowed).dispatch(1)
                    async with program.savepoint():
                        await program.order()
                    assert len(testing.drain(app)) == 1
                await program.roll_back()

        asyncio.run(scenario())

        assert app.runs.recent() == []


class TestAsyncConnections:
    """``async with testing.isolated``: the same on an async connection, on the test's loop."""

    @each_kind(lambda kind: kind.is_async)
    def test_runs_are_executed_and_rolled_back(self, app, connect, orders, url, kind):
        async def scenario():
            async with kind.open(url) as program:
                await program.execute("DELETE FROM notes_of_orders")

                @app.job
                async def ship(order: int) -> str:
                    await program.order()
                    return f"shipped {order}"

                async with testing.isolated(app, program.borrowed):
                    run = await ship.using(program.borrowed).dispatch(1)
                    await testing.aio.assert_dispatched(app, ship, args={"order": 1})
                    [attempt] = await testing.aio.drain(app)
                    assert attempt.error == ""
                    assert await run.aio.result() == "shipped 1"
                await program.roll_back()

        asyncio.run(scenario())

        assert orders() == 0
        assert app.runs.recent() == []

    @pytest.mark.parametrize(
        ("database", "driver"),
        [
            pytest.param("sqlite", "aiosqlite", id="aiosqlite"),
            pytest.param(
                "postgres", "asyncpg", id="asyncpg", marks=pytest.mark.servers("postgres")
            ),
            pytest.param(
                "postgres", "psycopg", id="psycopg", marks=pytest.mark.servers("postgres")
            ),
        ],
        indirect=["database"],
    )
    def test_the_session_of_a_test(self, app, connect, orders, url, driver):
        async def scenario():
            async with async_engine_of(url, driver) as engine, engine.connect() as connection:
                transaction = await connection.begin()
                options: Any = {
                    "join_transaction_mode": "create_savepoint",
                    "expire_on_commit": False,
                }

                @app.job
                async def ship(order: int) -> None:
                    async with AsyncSession(connection, **options) as inner:
                        await inner.execute(text(NEW))
                        await inner.commit()

                async with (
                    testing.isolated(app, connection),
                    AsyncSession(connection, **options) as session,
                ):
                    await session.execute(text(NEW))
                    await ship.using(session).dispatch(1)
                    await session.commit()
                    assert len(await testing.aio.drain(app)) == 1
                    assert await session.scalar(text(COUNT)) == 2
                await transaction.rollback()

        asyncio.run(scenario())

        assert orders() == 0
        assert app.runs.recent() == []

    @each_kind(lambda kind: kind.name in {"asyncpg", "psycopg, async"})
    def test_a_failed_statement_of_a_handler_does_not_end_the_transaction(
        self, app, connect, url, kind
    ):
        async def scenario():
            async with kind.open(url) as program:

                @app.job
                async def ship(order: int) -> None:
                    await program.execute("SELECT 1 FROM no_such_table")

                async with testing.isolated(app, program.borrowed):
                    await ship.using(program.borrowed).dispatch(1)
                    [attempt] = await testing.aio.drain(app)
                    assert "no_such_table" in attempt.error
                await program.roll_back()

        asyncio.run(scenario())

    @each_kind(lambda kind: kind.name in {"aiosqlite", "asyncpg"})
    def test_time_travels_there_too(self, app, connect, url, kind, clock):
        async def scenario():
            app.schedule("report", lambda: None).hourly()
            async with kind.open(url) as program:
                async with testing.isolated(app, program.borrowed):
                    assert len(await testing.aio.travel(app, hours=3)) == 3
                    await app.aio.dispatch("report")
                    assert len(await testing.aio.dispatched(app, "report")) == 1
                await program.roll_back()

        asyncio.run(scenario())

        assert app._services.store.list_schedules() == []

    @each_kind(lambda kind: kind.name in {"aiosqlite", "asyncpg"})
    def test_a_call_that_would_block_the_loop_is_rejected(self, app, ship, connect, url, kind):
        async def scenario():
            async with kind.open(url) as program:
                async with testing.isolated(app, program.borrowed):
                    with pytest.raises(TickworkError, match="would block the event loop"):
                        testing.drain(app)
                await program.roll_back()

        asyncio.run(scenario())

    @each_kind(lambda kind: kind.name in {"aiosqlite", "asyncpg"})
    def test_a_plain_with_is_rejected(self, app, connect, url, kind):
        async def scenario():
            async with kind.open(url) as program:
                with (
                    pytest.raises(WrongConnection, match="async with"),
                    testing.isolated(app, program.borrowed),
                ):
                    pass

        asyncio.run(scenario())


class TestCoroutinesInMemory:
    """``testing.aio``: coroutine handlers run on the event loop of the test."""

    def test_a_handler_uses_what_belongs_to_the_loop_of_the_test(self):
        async def scenario():
            with testing.app(clock=ManualClock()) as app:
                loop = asyncio.get_running_loop()

                @app.job
                async def ship(order: int) -> bool:
                    return asyncio.get_running_loop() is loop

                ship.dispatch(1)
                [attempt] = await testing.aio.drain(app)
                return attempt.result

        assert asyncio.run(scenario()) is True
