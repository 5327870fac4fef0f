"""Programs with a connection of their own: one for each kind of connection that `using` takes.

All of them have the same async methods, so that each test is written once. A sync connection
blocks the event loop meanwhile, which does not matter here.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    create_async_engine,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from servers import mariadb
from tickwork import Tickwork

NEW_ORDER: Final = "INSERT INTO notes_of_orders (id) VALUES (1)"


class Borrower(ABC):
    """A program that writes orders, and lends its connection to dispatches."""

    borrowed: Any

    @abstractmethod
    async def execute(self, statement: str) -> None: ...

    async def order(self) -> None:
        """Execute a statement."""
        await self.execute(NEW_ORDER)

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def roll_back(self) -> None: ...

    @abstractmethod
    def savepoint(self) -> AbstractAsyncContextManager[object]:
        """A savepoint that is rolled back when an error leaves the block."""


class Undone(Exception):  # noqa: N818  # not an error of the program
    """Leaves a savepoint, so that it is rolled back."""


# ---------------------------------------------------------------- drivers


class PlainDriver(Borrower):
    """psycopg, sqlite3 and PyMySQL."""

    def __init__(self, connection: Any) -> None:
        self.borrowed = connection

    async def execute(self, statement: str) -> None:
        self.borrowed.execute(statement)

    async def commit(self) -> None:
        self.borrowed.commit()

    async def roll_back(self) -> None:
        self.borrowed.rollback()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        self.borrowed.execute("SAVEPOINT mine")
        try:
            yield
        except BaseException:
            self.borrowed.execute("ROLLBACK TO SAVEPOINT mine")
            raise


class CursorDriver(PlainDriver):
    """psycopg2 and mysqlclient, whose connections have no execute()."""

    async def execute(self, statement: str) -> None:
        self._run(statement)

    def _run(self, statement: str) -> None:
        with closing(self.borrowed.cursor()) as cursor:
            cursor.execute(statement)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        self._run("SAVEPOINT mine")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK TO SAVEPOINT mine")
            raise


class AsyncDriver(Borrower):
    """psycopg's async connection, and aiosqlite."""

    def __init__(self, connection: Any) -> None:
        self.borrowed = connection

    async def execute(self, statement: str) -> None:
        await self.borrowed.execute(statement)

    async def commit(self) -> None:
        await self.borrowed.commit()

    async def roll_back(self) -> None:
        await self.borrowed.rollback()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        await self.borrowed.execute("SAVEPOINT mine")
        try:
            yield
        except BaseException:
            await self.borrowed.execute("ROLLBACK TO SAVEPOINT mine")
            raise


class Asyncpg(Borrower):
    """asyncpg has transactions that are begun, rather than connections that are committed."""

    def __init__(self, connection: Any, transaction: Any) -> None:
        self.borrowed = connection
        self.transaction = transaction

    async def execute(self, statement: str) -> None:
        await self.borrowed.execute(statement)

    async def commit(self) -> None:
        await self.transaction.commit()

    async def roll_back(self) -> None:
        await self.transaction.rollback()

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        found: AbstractAsyncContextManager[object] = self.borrowed.transaction()
        return found


# ---------------------------------------------------------------- SQLAlchemy


class PlainSession(Borrower):
    """SQLAlchemy's Connection, and its Session."""

    borrowed: Connection | Session

    def __init__(self, borrowed: Connection | Session) -> None:
        self.borrowed = borrowed

    async def execute(self, statement: str) -> None:
        self.borrowed.execute(text(statement))

    async def commit(self) -> None:
        self.borrowed.commit()

    async def roll_back(self) -> None:
        self.borrowed.rollback()

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with self.borrowed.begin_nested():
            yield


class WaitingSession(Borrower):
    """Its AsyncConnection, and its AsyncSession."""

    borrowed: AsyncConnection | AsyncSession

    def __init__(self, borrowed: AsyncConnection | AsyncSession) -> None:
        self.borrowed = borrowed

    async def execute(self, statement: str) -> None:
        await self.borrowed.execute(text(statement))

    async def commit(self) -> None:
        await self.borrowed.commit()

    async def roll_back(self) -> None:
        await self.borrowed.rollback()

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        return self.borrowed.begin_nested()


# ---------------------------------------------------------------- kinds


Opener: TypeAlias = Callable[..., AbstractAsyncContextManager[Borrower]]


class Kind(NamedTuple):
    """A kind of connection and of database; ``open(url, **options)`` gives a program with one.

    ``isolation`` names a level as SQL spells it; ``prepare`` is called with the driver's own
    connection, once it is open; ``is_at_once`` asks for one that commits each statement.
    """

    database: str
    name: str
    open: Opener
    is_async: bool = False

    def __str__(self) -> str:
        return f"{self.database}, {self.name}"


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


Prepare: TypeAlias = Callable[[Any], Any]


def nothing(_: Any) -> None:
    pass


@asynccontextmanager
async def sqlite3_connection(
    url: str, *, prepare: Prepare = nothing, is_at_once: bool = False, **options: Any
) -> AsyncIterator[Borrower]:
    if is_at_once:
        options["isolation_level"] = None
    with closing(sqlite3.connect(path_of(url), **options)) as connection:
        prepare(connection)
        yield PlainDriver(connection)


@asynccontextmanager
async def aiosqlite_connection(
    url: str, *, prepare: Prepare = nothing, is_at_once: bool = False, **options: Any
) -> AsyncIterator[Borrower]:
    if is_at_once:
        options["isolation_level"] = None
    async with aiosqlite.connect(path_of(url), **options) as connection:
        await connection._execute(prepare, connection._conn)
        yield AsyncDriver(connection)


@asynccontextmanager
async def psycopg_connection(
    url: str, *, prepare: Prepare = nothing, isolation: str = "", is_at_once: bool = False
) -> AsyncIterator[Borrower]:
    with closing(psycopg.connect(url, autocommit=is_at_once)) as connection:
        connection.isolation_level = psycopg_level(isolation)
        prepare(connection)
        yield PlainDriver(connection)


@asynccontextmanager
async def psycopg_async_connection(
    url: str, *, prepare: Prepare = nothing, isolation: str = "", is_at_once: bool = False
) -> AsyncIterator[Borrower]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=is_at_once)
    try:
        await connection.set_isolation_level(psycopg_level(isolation))
        prepare(connection)
        yield AsyncDriver(connection)
    finally:
        await connection.close()


def psycopg_level(isolation: str) -> psycopg.IsolationLevel | None:
    return psycopg.IsolationLevel[isolation.replace(" ", "_")] if isolation else None


@asynccontextmanager
async def asyncpg_connection(
    url: str,
    *,
    prepare: Prepare = nothing,
    isolation: str = "",
    is_at_once: bool = False,
    **options: Any,
) -> AsyncIterator[Borrower]:
    connection = await asyncpg.connect(url, **options)
    try:
        await _prepared(prepare, connection)
        yield await _in_transaction(connection, isolation, is_at_once=is_at_once)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_of_a_pool(
    url: str,
    *,
    prepare: Prepare = nothing,
    isolation: str = "",
    is_at_once: bool = False,
    **options: Any,
) -> AsyncIterator[Borrower]:
    init = partial(_prepared, prepare)
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1, init=init, **options) as pool,
        pool.acquire() as connection,
    ):
        yield await _in_transaction(connection, isolation, is_at_once=is_at_once)


async def _in_transaction(connection: Any, isolation: str, *, is_at_once: bool) -> Asyncpg:
    level = isolation.lower().replace(" ", "_") or None
    transaction = connection.transaction(isolation=level)
    if not is_at_once:
        await transaction.start()
    return Asyncpg(connection, transaction)


@asynccontextmanager
async def pymysql_connection(
    url: str,
    *,
    prepare: Prepare = nothing,
    isolation: str = "",
    is_at_once: bool = False,
    **options: Any,
) -> AsyncIterator[Borrower]:
    with closing(mariadb.connect(url, autocommit=is_at_once, **options)) as connection:
        if isolation:
            connection.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        prepare(connection)
        yield PlainDriver(connection)


@asynccontextmanager
async def psycopg2_connection(
    url: str, *, prepare: Prepare = nothing, isolation: str = "", is_at_once: bool = False
) -> AsyncIterator[Borrower]:
    import psycopg2

    with closing(psycopg2.connect(url)) as connection:
        if isolation:
            connection.set_session(isolation_level=isolation)
        connection.autocommit = is_at_once
        prepare(connection)
        yield CursorDriver(connection)


@asynccontextmanager
async def mysqlclient_connection(
    url: str,
    *,
    prepare: Prepare = nothing,
    isolation: str = "",
    is_at_once: bool = False,
    **options: Any,
) -> AsyncIterator[Borrower]:
    import MySQLdb

    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    options = {"charset": "utf8mb4", **place, "database": parts.path[1:], **options}
    with closing(MySQLdb.connect(**options, autocommit=is_at_once)) as connection:
        if isolation:
            connection.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        prepare(connection)
        yield CursorDriver(connection)


def engine_url(url: str, driver: str) -> str:
    if url.startswith("mysql"):
        return url.replace("mysql://", f"mysql+{driver}://", 1)
    if url.startswith("sqlite"):
        return f"sqlite+{driver}:///{path_of(url)}"
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


@contextmanager
def engine_of(
    url: str, driver: str, *, prepare: Prepare = nothing, isolation: str = "", **options: Any
) -> Iterator[Engine]:
    is_at_once = options.pop("is_at_once", False)
    if is_at_once or isolation:
        options["isolation_level"] = "AUTOCOMMIT" if is_at_once else isolation
    if driver == "pymysql":  # reading certificates takes 80 ms
        options["connect_args"] = {"ssl_disabled": True, **options.get("connect_args", {})}
    engine = create_engine(engine_url(url, driver), poolclass=NullPool, **options)
    event.listen(engine, "connect", lambda connection, _: prepare(connection))
    try:
        yield engine
    finally:
        engine.dispose()


@asynccontextmanager
async def async_engine_of(
    url: str, driver: str, *, prepare: Prepare = nothing, isolation: str = "", **options: Any
) -> AsyncIterator[AsyncEngine]:
    is_at_once = options.pop("is_at_once", False)
    if is_at_once or isolation:
        options["isolation_level"] = "AUTOCOMMIT" if is_at_once else isolation
    engine = create_async_engine(engine_url(url, driver), poolclass=NullPool, **options)

    def connected(connection: Any, _: object) -> None:
        if driver == "aiosqlite":  # a sync connection stays in its thread
            connection.run_async(lambda aio: aio._execute(prepare, aio._conn))
        elif driver == "asyncpg":
            connection.run_async(lambda aio: _prepared(prepare, aio))
        else:
            prepare(connection.driver_connection)

    event.listen(engine.sync_engine, "connect", connected)
    try:
        yield engine
    finally:
        await engine.dispose()


async def _prepared(prepare: Prepare, connection: Any) -> None:
    if (prepared := prepare(connection)) is not None:
        await prepared


def connection_over(driver: str) -> Opener:
    @asynccontextmanager
    async def open_borrower(url: str, **options: Any) -> AsyncIterator[Borrower]:
        with engine_of(url, driver, **options) as engine, engine.connect() as connection:
            yield PlainSession(connection)

    return open_borrower


def session_over(driver: str) -> Opener:
    @asynccontextmanager
    async def open_borrower(url: str, **options: Any) -> AsyncIterator[Borrower]:
        with engine_of(url, driver, **options) as engine, Session(engine) as session:
            yield PlainSession(session)

    return open_borrower


def async_connection_over(driver: str) -> Opener:
    @asynccontextmanager
    async def open_borrower(url: str, **options: Any) -> AsyncIterator[Borrower]:
        async with (
            async_engine_of(url, driver, **options) as engine,
            engine.connect() as connection,
        ):
            yield WaitingSession(connection)

    return open_borrower


def async_session_over(driver: str) -> Opener:
    @asynccontextmanager
    async def open_borrower(url: str, **options: Any) -> AsyncIterator[Borrower]:
        async with (
            async_engine_of(url, driver, **options) as engine,
            AsyncSession(engine) as session,
        ):
            yield WaitingSession(session)

    return open_borrower


KINDS: list[Kind] = [
    Kind("sqlite", "sqlite3", sqlite3_connection),
    Kind("sqlite", "aiosqlite", aiosqlite_connection, is_async=True),
    Kind("sqlite", "Connection over pysqlite", connection_over("pysqlite")),
    Kind("sqlite", "Session over pysqlite", session_over("pysqlite")),
    Kind("sqlite", "AsyncConnection over aiosqlite", async_connection_over("aiosqlite"), True),
    Kind("sqlite", "AsyncSession over aiosqlite", async_session_over("aiosqlite"), True),
    Kind("mariadb", "PyMySQL", pymysql_connection),
    Kind("mariadb", "Connection over pymysql", connection_over("pymysql")),
    Kind("mariadb", "Session over pymysql", session_over("pymysql")),
    Kind("postgres", "psycopg", psycopg_connection),
    Kind("postgres", "psycopg, async", psycopg_async_connection, is_async=True),
    Kind("postgres", "asyncpg", asyncpg_connection, is_async=True),
    Kind("postgres", "asyncpg, of a pool", asyncpg_of_a_pool, is_async=True),
    Kind("postgres", "Connection over psycopg", connection_over("psycopg")),
    Kind("postgres", "Session over psycopg", session_over("psycopg")),
    Kind("postgres", "AsyncConnection over psycopg", async_connection_over("psycopg"), True),
    Kind("postgres", "AsyncSession over psycopg", async_session_over("psycopg"), True),
    Kind("postgres", "AsyncConnection over asyncpg", async_connection_over("asyncpg"), True),
    Kind("postgres", "AsyncSession over asyncpg", async_session_over("asyncpg"), True),
]
if find_spec("psycopg2") is not None:
    KINDS += [
        Kind("postgres", "psycopg2", psycopg2_connection),
        Kind("postgres", "Connection over psycopg2", connection_over("psycopg2")),
        Kind("postgres", "Session over psycopg2", session_over("psycopg2")),
    ]
if find_spec("MySQLdb") is not None:  # it needs a compiler and the headers of MariaDB
    KINDS += [
        Kind("mariadb", "mysqlclient", mysqlclient_connection),
        Kind("mariadb", "Connection over mysqlclient", connection_over("mysqldb")),
        Kind("mariadb", "Session over mysqlclient", session_over("mysqldb")),
    ]


def each_kind(which: Callable[[Kind], bool] = lambda _: True) -> Any:
    """Run a test with each of these kinds of connections, on its database."""
    return pytest.mark.parametrize(
        ("database", "kind"),
        [
            pytest.param(
                kind.database,
                kind,
                id=str(kind),
                marks=[] if kind.database == "sqlite" else [pytest.mark.servers(kind.database)],
            )
            for kind in KINDS
            if which(kind)
        ],
        indirect=["database"],
    )


async def maybe(answer: Any) -> Any:
    """Await an awaitable; return any other value as it is."""
    return await answer if isinstance(answer, Awaitable) else answer


# ---------------------------------------------------------------- fixtures


@pytest.fixture
def connect(url: str, database: str, app: Tickwork) -> Callable[[], Any]:
    """Sync connections of another program, with a table of orders."""
    app.install()

    def opened() -> Any:
        if database == "sqlite":
            return closing(sqlite3.connect(path_of(url)))
        if database == "mariadb":
            return closing(mariadb.connect(url, autocommit=False))
        return closing(psycopg.connect(url))

    with opened() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes_of_orders (id INTEGER NOT NULL)")
        connection.execute("DELETE FROM notes_of_orders")
        connection.commit()
    return opened


@pytest.fixture
def orders(connect: Callable[[], Any]) -> Callable[[], int]:
    """The number of committed orders."""

    def count() -> int:
        with connect() as connection:
            return int(connection.execute("SELECT count(*) FROM notes_of_orders").fetchone()[0])

    return count


@pytest.fixture
def ship(app: Tickwork) -> Any:
    @app.job
    def ship(order: int) -> str:
        return f"shipped {order}"

    return ship
