"""Connections with unusual settings: codecs, row factories, isolation levels, sessions."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from typing import Any

import asyncpg
import pymysql
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from application.connections import (
    NEW_ORDER,
    Borrower,
    Kind,
    async_engine_of,
    connect,
    each_kind,
    engine_of,
    maybe,
    orders,
    path_of,
    ship,
)
from contract.builders import a_run
from contract.odd_connections import ODD, make_odd, refuse
from tickwork import RunContext, Tickwork, testing
from tickwork._payload.codec import decode
from tickwork._stores.contract import Store
from tickwork.errors import SchemaMissing, TickworkError, WrongConnection

__all__ = ["connect", "orders", "ship"]  # fixtures

on_postgres = each_kind(lambda kind: kind.database == "postgres")
on_servers = each_kind(lambda kind: kind.database != "sqlite")
each_level = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
POSTGRES = pytest.param("postgres", marks=pytest.mark.servers("postgres"))
MARIADB = pytest.param("mariadb", marks=pytest.mark.servers("mariadb"))
on_all = pytest.mark.parametrize("database", ["sqlite", POSTGRES, MARIADB], indirect=True)
on_both = pytest.mark.parametrize("database", ["sqlite", POSTGRES], indirect=True)
of_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
of_postgres = pytest.mark.parametrize("database", [POSTGRES], indirect=True)

PLAIN_DRIVERS = {"sqlite": "pysqlite", "postgres": "psycopg", "mariadb": "pymysql"}
KEY = "ключ 'ü' \\ €😀"
TEXT = "\"ü\\€😀\n'%s $1 :a"


def check_everything(app: Tickwork, url: str, kind: Kind, **options: Any) -> None:
    """Call every method in one transaction.

    The run that ends in it had failed before: then its row is locked, and an attempt added.
    """
    answers: list[bool] = []

    @app.job(retries={"max": 2, "delay": 0}, concurrency=1)
    async def charge(ctx: RunContext) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")
        async with kind.open(url, **options) as borrower:
            await borrower.order()
            runs = await dispatches(app, borrower.borrowed)
            answers.extend(run.is_new for run in runs)
            if kind.is_async:
                await ctx.complete_async(connection=borrower.borrowed, result=TEXT)
            else:
                ctx.complete(connection=borrower.borrowed, result=TEXT)
            await borrower.commit()

    run = charge.dispatch()
    app.run()
    app.run()

    assert answers == [True, False, True, False, True]
    result: object = run.result(5)
    assert result == TEXT
    assert [each.outcome for each in run.attempts()] == ["failed", "succeeded"]
    found = [each for each in app.runs.recent() if each.job == "ship"]
    assert len(found) == 3
    assert {each.tags for each in found} == {("ü,", "b")}
    assert decode(min(each.args for each in found)) == {"to": TEXT}


async def dispatches(app: Tickwork, connection: Any) -> list[Any]:
    draft = app.remote("ship").tags("ü,", "b").using(connection)
    first = await maybe(draft.unique(KEY).dispatch(to=TEXT))
    again = await maybe(draft.unique(KEY).dispatch(to="bob"))
    many = await maybe(draft.unique(by="to").dispatch_many({"to": to} for to in "aab"))
    assert (again.id, many[0].id) == (first.id, many[1].id)
    return [first, again, *many]


# ---------------------------------------------------------------- whatever was changed


class OddRecord(asyncpg.Record):  # type: ignore[misc]  # it has no types
    """A record that cannot be read by position."""

    def __getitem__(self, _: object) -> str:
        return ODD


async def with_odd_codecs(connection: Any) -> None:
    for kind in (
        "text",
        "int2",
        "int4",
        "int8",
        "uuid",
        "json",
        "jsonb",
        "bool",
        "name",
        "varchar",
    ):
        await connection.set_type_codec(
            kind, schema="pg_catalog", encoder=lambda _: ODD, decoder=lambda _: ODD
        )


def with_odd_factories(connection: sqlite3.Connection) -> None:
    connection.row_factory = refuse
    connection.text_factory = lambda _: ODD


def with_odd_decoders(connection: Any) -> None:
    connection.decoders = dict.fromkeys(range(256), lambda _: ODD)
    connection.cursorclass = pymysql.cursors.SSDictCursor
    connection.query("SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'")


def with_odd_conversion(connection: Any) -> None:
    from MySQLdb.cursors import SSDictCursor

    connection.converter = dict.fromkeys(range(256), lambda _: ODD)
    connection.cursorclass = SSDictCursor
    connection.query("SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'")


def with_odd_typecasters(connection: Any) -> None:
    from psycopg2.extensions import new_type, register_type
    from psycopg2.extras import RealDictCursor

    kinds = (16, 18, 19, 20, 21, 23, 25, 114, 1043, 2950, 3802)
    register_type(new_type(kinds, "ODD", lambda *_: ODD), connection)
    connection.cursor_factory = RealDictCursor
    connection.set_client_encoding("LATIN1")


@pytest.fixture
def odd_converters() -> Iterator[None]:
    converters: dict[str, Any] = sqlite3.converters
    before = dict(converters)
    for kind in ("TEXT", "INTEGER"):
        sqlite3.register_converter(kind, lambda _: ODD)
    yield
    converters.clear()
    converters.update(before)


def oddities(kind: Kind) -> dict[str, Any]:
    """The unusual options of this kind of connection."""
    is_engine = " over " in kind.name
    if kind.database == "sqlite":
        types = {"detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES}
        return {"prepare": with_odd_factories, **({"connect_args": types} if is_engine else types)}
    if kind.database == "mariadb":
        latin = {"charset": "latin1"}
        prepare = with_odd_conversion if "mysqlclient" in kind.name else with_odd_decoders
        return {"prepare": prepare, **({"connect_args": latin} if is_engine else latin)}
    if "psycopg2" in kind.name:
        return {"prepare": with_odd_typecasters}
    if "asyncpg" not in kind.name:
        return {"prepare": make_odd}
    return {"prepare": with_odd_codecs, **({} if is_engine else {"record_class": OddRecord})}


@each_kind()
def test_codecs_factories_and_converters(*, app, url, orders, odd_converters, kind: Kind):
    check_everything(app, url, kind, **oddities(kind))

    assert orders() == 1


@on_servers
@each_level
def test_isolation_levels(*, app, url, orders, kind: Kind, level: str):
    check_everything(app, url, kind, isolation=level)

    assert orders() == 1


@on_postgres
def test_a_search_path_that_leads_elsewhere(*, app, url, orders, ship, kind: Kind):
    """The error names the search path, and the transaction can still be used."""

    async def main() -> None:
        async with kind.open(url) as borrower:
            await borrower.order()
            await borrower.execute("SET LOCAL search_path = elsewhere, nowhere")
            with pytest.raises(WrongConnection, match="search_path: elsewhere, nowhere"):
                await maybe(ship.using(borrower.borrowed).dispatch(order=1))
            await borrower.execute("SET LOCAL search_path = nowhere, public")
            await maybe(ship.using(borrower.borrowed).dispatch(order=2))
            await borrower.commit()

    asyncio.run(main())

    assert [run.args for run in app.runs.recent()] == ['{"order":2}']
    assert orders() == 1


@each_kind()
def test_where_each_statement_is_committed_by_itself(*, app, url, orders, kind: Kind):
    """Then each method is committed by itself, as a whole."""

    async def main() -> None:
        async with kind.open(url, is_at_once=True) as borrower:
            await dispatches(app, borrower.borrowed)
            assert len(app.runs.recent()) == 3
            await borrower.order()
            assert orders() == 1

    asyncio.run(main())


def borrowed(store: Store, kind: Kind, borrower: Borrower) -> Any:
    return (store.using_async if kind.is_async else store.using)(borrower.borrowed)


@each_kind()
def test_a_verb_that_failed_leaves_the_transaction_as_it_was(*, app, url, orders, kind: Kind):
    there, before, undone, after = (a_run() for _ in range(4))
    store = app._services.opened_store
    store.add_runs([there])

    async def main() -> None:
        async with kind.open(url) as borrower:
            await borrower.order()
            runs = borrowed(store, kind, borrower)
            await maybe(runs.add_runs([before]))
            # The driver's own, so that the caller's way to try again works for it, too.
            with pytest.raises(Exception, match=r"(?i)duplicate|unique") as raised:
                await maybe(runs.add_runs([undone, there]))
            assert not isinstance(raised.value, TickworkError)
            await maybe(runs.add_runs([after]))
            await borrower.commit()

    asyncio.run(main())

    assert orders() == 1
    assert sorted(run.id for run in app.runs.recent()) == [there.id, before.id, after.id]


@on_postgres
def test_a_transaction_that_had_failed_before(*, app, url, orders, ship, kind: Kind):
    """A savepoint of the caller with the same name is not taken for ours."""

    async def main() -> None:
        async with kind.open(url) as borrower:
            await borrower.execute("SAVEPOINT tickwork")
            await borrower.order()
            with pytest.raises(Exception, match="division by zero"):
                await borrower.execute("SELECT 1 / 0")
            with pytest.raises(Exception, match="current transaction is aborted"):
                await maybe(ship.using(borrower.borrowed).dispatch(order=1))
            with pytest.raises(Exception, match="current transaction is aborted"):
                await borrower.order()
            await borrower.roll_back()

    asyncio.run(main())

    assert orders() == 0
    assert app.runs.recent() == []


# ---------------------------------------------------------------- repeats


@each_kind()
def test_a_repeat_is_not_added_again(*, app, clock, url, connect, kind: Kind):
    finished, stored, new = (a_run(job="ship", created_at=clock.now()) for _ in range(3))
    app.schedule("ship", lambda: None)
    app._services.opened_store.add_runs([finished])
    app.run()
    app._services.opened_store.add_runs([stored])

    async def main() -> list[Any]:
        async with kind.open(url) as borrower:
            runs = borrowed(app._services.opened_store, kind, borrower)
            answers = await maybe(runs.add_runs([finished, stored, new], may_be_stored=True))
            await borrower.commit()
            return list(answers)

    assert [answer.is_new for answer in asyncio.run(main())] == [False, False, True]
    assert len(app.runs.recent()) == 3


@on_servers
@each_level
def test_a_repeat_where_the_first_try_cannot_be_seen(
    *, app, clock, url, connect, kind: Kind, level: str
):
    """A run that was committed after the snapshot is invisible: it would be added twice."""
    run, other = (a_run(job="ship", created_at=clock.now()) for _ in range(2))
    app.schedule("ship", lambda: None)

    async def main() -> None:
        async with kind.open(url, isolation=level) as borrower:
            await borrower.execute("SELECT count(*) FROM notes_of_orders")
            app._services.opened_store.add_runs([run])
            assert app.run() == 1
            runs = borrowed(app._services.opened_store, kind, borrower)
            if kind.database == "mariadb":  # there a look that locks sees it
                [answer] = await maybe(runs.add_runs([run], may_be_stored=True))
                assert not answer.is_new
            else:
                with pytest.raises(WrongConnection, match=f"{level.lower()}, and sees nothing"):
                    await maybe(runs.add_runs([run], may_be_stored=True))
            await maybe(runs.add_runs([other]))
            await borrower.commit()

    asyncio.run(main())

    assert app.run() == 1


# ---------------------------------------------------------------- sessions


@on_all
class TestSessions:
    """Sessions of SQLAlchemy."""

    @pytest.fixture
    def engine(self, url, database, connect):
        with engine_of(url, PLAIN_DRIVERS[database]) as engine:
            yield engine

    @pytest.mark.filterwarnings("ignore::tickwork.errors.UndispatchedDraft")
    def test_a_block_that_is_left_by_an_error(self, app, engine, orders, ship):
        with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
            session.execute(text(NEW_ORDER))
            ship.using(session).dispatch(order=1 // 1)
            ship.using(session).dispatch(order=1 // 0)

        assert (orders(), app.runs.recent()) == (0, [])

    def test_a_draft_outlives_a_transaction(self, app, engine, ship):
        """Each transaction of the session has another connection."""
        with Session(engine) as session:
            draft = ship.using(session)
            draft.dispatch(order=1)
            session.rollback()
            draft.dispatch(order=2)
            session.commit()
            draft.dispatch(order=3)

        assert [run.args for run in app.runs.recent()] == ['{"order":2}']

    def test_a_session_of_a_thread(self, app, engine, ship):
        session = scoped_session(sessionmaker(engine))
        ship.using(session).dispatch(order=1)
        session.commit()
        ship.using(session).dispatch(order=2)
        session.remove()

        assert [run.args for run in app.runs.recent()] == ['{"order":1}']

    def test_a_session_inside_an_outer_transaction(self, app, engine, ship):
        with engine.connect() as connection, connection.begin() as outer:
            connection.execute(text(NEW_ORDER))
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                ship.using(session).dispatch(order=1)
                session.commit()
                ship.using(session).dispatch(order=2)
                session.rollback()
            assert app.runs.recent() == []
            outer.commit()

        assert [run.args for run in app.runs.recent()] == ['{"order":1}']

    def test_the_application_in_a_session(self, app, engine, ship):
        with Session(engine) as session:
            with testing.isolated(app, session):
                ship.dispatch(order=1)
                session.commit()
                ship.dispatch(order=2)
                assert len(app.runs.recent()) == 2
            session.rollback()

        assert [run.args for run in app.runs.recent()] == ['{"order":1}']


@on_both
def test_a_session_of_a_task(*, app, url, database, connect, ship):
    async def main() -> None:
        driver = "aiosqlite" if database == "sqlite" else "asyncpg"
        async with async_engine_of(url, driver) as engine:
            session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
            await ship.using(session).dispatch(order=1)
            await session.commit()
            await ship.using(session).dispatch(order=2)
            await session.remove()

    asyncio.run(main())

    assert [run.args for run in app.runs.recent()] == ['{"order":1}']


@of_sqlite
def test_sqlite_transactions_that_the_program_begins_itself(app, url, connect, ship):
    """As the documentation of SQLAlchemy advises for savepoints."""
    with engine_of(url, "pysqlite") as engine:

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

        with Session(engine) as session:
            with session.begin_nested():
                ship.using(session).dispatch(order=1)
            session.rollback()
            ship.using(session).dispatch(order=2)
            assert app.runs.recent() == []
            session.commit()

    assert [run.args for run in app.runs.recent()] == ['{"order":2}']


# ---------------------------------------------------------------- what cannot be used


class TestWrongConnections:
    """The error names the connection, and those that are supported."""

    @on_all
    @pytest.mark.parametrize("thing", ["jobs.db", object(), pymysql])
    def test_an_object_that_is_no_connection(self, app, connect, database, ship, thing):
        with pytest.raises(WrongConnection, match="a Connection or Session of SQLAlchemy") as found:
            ship.using(thing).dispatch(order=1)

        drivers = {"sqlite": "aiosqlite", "postgres": "asyncpg", "mariadb": "pymysql"}
        assert f"{drivers[database]}.Connection" in found.value.fix

    @of_postgres
    def test_a_session_on_another_database(self, app, connect, ship, tmp_path):
        with (
            engine_of(f"sqlite:///{tmp_path}/other.db", "pysqlite") as engine,
            Session(engine) as session,
            pytest.raises(WrongConnection, match=r"a sqlalchemy.*Session over a sqlite3.Connec"),
        ):
            ship.using(session).dispatch(order=1)

    @of_sqlite
    def test_a_session_on_another_file(self, app, connect, ship, tmp_path):
        async def main() -> None:
            async with (
                async_engine_of(f"sqlite:///{tmp_path}/other.db", "aiosqlite") as engine,
                AsyncSession(engine) as session,
            ):
                with pytest.raises(WrongConnection, match=r"It was opened on .*other\.db"):
                    await ship.using(session).dispatch(order=1)

        asyncio.run(main())

    @on_both
    def test_the_sync_session_of_an_async_session(self, app, url, database, connect, ship):
        async def main() -> None:
            driver = "aiosqlite" if database == "sqlite" else "asyncpg"
            async with async_engine_of(url, driver) as engine, AsyncSession(engine) as session:
                with pytest.raises(WrongConnection, match=r"pass it to using_async\(\)"):
                    await session.run_sync(lambda plain: ship.using(plain).dispatch(order=1))

        asyncio.run(main())


# ---------------------------------------------------------------- tables that are not there yet


@each_kind(lambda kind: kind.database == "sqlite")
def test_tables_that_are_missing_while_a_transaction_is_open(url, kind: Kind):
    """Creating them would wait for the caller's own transaction."""
    with closing(sqlite3.connect(path_of(url))) as connection:
        connection.execute("CREATE TABLE notes_of_orders (id INTEGER NOT NULL)")

    async def main() -> None:
        with Tickwork(url) as app:
            ship: Any = app.schedule("ship", lambda order: None)
            async with kind.open(url) as borrower:
                await borrower.order()
                began_at = time.monotonic()
                with pytest.raises(SchemaMissing, match=r"install.* before the transaction"):
                    await maybe(ship.using(borrower.borrowed).dispatch(order=1))
                assert time.monotonic() - began_at < 5
                await borrower.commit()
                await maybe(ship.using(borrower.borrowed).dispatch(order=2))
                await borrower.commit()
            assert len(app.runs.recent()) == 1

    asyncio.run(main())


@of_sqlite
def test_tables_that_are_old_while_a_transaction_is_open(url):
    with Tickwork(url) as app:
        app.install()
    with Tickwork(url) as app, closing(sqlite3.connect(path_of(url))) as connection:
        connection.execute("UPDATE tickwork_meta SET version = version - 1")
        connection.commit()
        connection.execute("DELETE FROM tickwork_run")
        with pytest.raises(SchemaMissing, match="or outdated ones"):
            app.remote("ship").using(connection).dispatch(order=1)


@each_kind(lambda kind: kind.name in {"PyMySQL", "mysqlclient"})
def test_unread_rows_of_an_unbuffered_cursor(*, app, url, orders, ship, kind: Kind):
    cursors = {
        "PyMySQL": "pymysql.cursors",
        "mysqlclient": "MySQLdb.cursors",
    }

    async def main() -> None:
        async with kind.open(url) as borrower:
            cursor = import_module(cursors[kind.name]).SSCursor(borrower.borrowed)
            cursor.execute("SELECT 1 UNION ALL SELECT 2")
            cursor.fetchone()
            with pytest.raises(WrongConnection, match="has not read all rows"):
                ship.using(borrower.borrowed).dispatch(order=1)
            if kind.name == "PyMySQL":  # mysqlclient reports the error for the caller's cursor, too
                assert cursor.fetchall()

    asyncio.run(main())

    assert app.runs.recent() == []
