"""Prepares the transaction of a test for ``testing.isolated``.

The test rolls the transaction back at its end. So it must be open, and must stay usable when a
statement of a handler fails, which aborts the whole transaction on PostgreSQL.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Final

from tickwork._define.definition import Definition
from tickwork._stores._sql.sessions import (
    async_driver_connection,
    driver_connection,
    is_instance_of,
)
from tickwork.errors import WrongConnection

_SAVEPOINT: Final = "SAVEPOINT tickwork_attempt"
_UNDO: Final = "ROLLBACK TO SAVEPOINT tickwork_attempt"
_IN_ERROR: Final = 3  # libpq's PQTRANS_INERROR, for all drivers

_PSYCOPG: Final = ("psycopg", "Connection")
_PSYCOPG2: Final = ("psycopg2.extensions", "connection")
_ASYNC_PSYCOPG: Final = ("psycopg", "AsyncConnection")
_ASYNCPG: Final = (("asyncpg", "Connection"), ("asyncpg.pool", "PoolConnectionProxy"))
_BOUND: Final = (
    ("sqlalchemy.engine", "Connection"),
    ("sqlalchemy.ext.asyncio", "AsyncConnection"),
)


def outer_connection(connection_or_session: Any) -> Any:
    """The connection to which a session is bound, or the given object.

    A session that joins a test's transaction has a savepoint of its own, which the code under test
    may roll back. Claims and outcomes must not be lost then.
    """
    bind = getattr(connection_or_session, "bind", None)
    return bind if is_instance_of(bind, *_BOUND) else connection_or_session


def begin(connection: Any, *, url: str) -> None:
    """Begin a transaction on SQLite; elsewhere require that one is open or begins by itself.

    Raises:
        WrongConnection: The connection commits each statement.
    """
    driver: Any = driver_connection(connection)
    if isinstance(driver, sqlite3.Connection):
        # The first statement of a session may be a savepoint, whose release would commit.
        if not driver.in_transaction:
            sqlite3.Cursor(driver).execute("BEGIN IMMEDIATE")
    elif _commits_at_once(driver):
        raise _not_in_transaction(url)


async def begin_async(connection: Any, *, url: str) -> None:
    """As :func:`begin`, for async connections."""
    driver: Any = await async_driver_connection(connection)
    if is_instance_of(driver, ("aiosqlite", "Connection")):
        if not driver.in_transaction:
            await driver.execute("BEGIN IMMEDIATE")
    elif is_instance_of(driver, *_ASYNCPG):
        if not driver.is_in_transaction():
            raise _not_in_transaction(url)
    elif _commits_at_once(driver):
        raise _not_in_transaction(url)


def _commits_at_once(connection: Any) -> bool:
    if is_instance_of(connection, _PSYCOPG, _ASYNC_PSYCOPG):
        return bool(connection.autocommit) and connection.pgconn.transaction_status == 0
    if is_instance_of(connection, ("pymysql", "Connection")):
        return connection.get_autocommit() and not connection.server_status & 1
    if is_instance_of(connection, _PSYCOPG2):
        return bool(connection.autocommit) and connection.get_transaction_status() == 0
    if is_instance_of(connection, ("MySQLdb.connections", "Connection")):
        from tickwork._stores.mysql.caller_drivers import MysqlclientDriver  # noqa: PLC0415

        return MysqlclientDriver(connection).commits_at_once()
    return False


def _not_in_transaction(url: str) -> WrongConnection:
    return WrongConnection(
        url,
        "No transaction is open, and the connection commits each statement, so the test could not "
        "roll back.",
        takes="a connection on which a transaction was begun",
    )


# ---------------------------------------------------------------- savepoints on PostgreSQL


def guard_attempts(connection: Any) -> Callable[[Definition], Definition] | None:
    """Give each attempt a savepoint, to which it returns if a statement aborted the transaction.

    Other writes of a failed handler stay, as they would on a connection of its own.
    The savepoint is not released: a session may have begun one of its own inside.
    """
    driver: Any = driver_connection(connection)
    is_psycopg2 = is_instance_of(driver, _PSYCOPG2)
    if not is_psycopg2 and not is_instance_of(driver, _PSYCOPG):
        return None

    def execute(text: str) -> None:
        with closing(driver.cursor()) as cursor:
            cursor.execute(text)

    def save(_: Any) -> None:
        execute(_SAVEPOINT)

    def restore(_: Any) -> None:
        status = (
            driver.get_transaction_status() if is_psycopg2 else driver.pgconn.transaction_status
        )
        if status == _IN_ERROR:
            execute(_UNDO)

    return lambda definition: _with_hooks(definition, save, restore)


async def guard_attempts_async(connection: Any) -> Callable[[Definition], Definition] | None:
    """As :func:`guard_attempts`, for async connections."""
    driver: Any = await async_driver_connection(connection)
    is_asyncpg = is_instance_of(driver, *_ASYNCPG)
    if not is_asyncpg and not is_instance_of(driver, _ASYNC_PSYCOPG):
        return None

    async def save(_: Any) -> None:
        await driver.execute(_SAVEPOINT)

    async def restore(_: Any) -> None:
        if is_asyncpg:
            # asyncpg does not report whether the transaction was aborted.
            with suppress(Exception):
                await driver.execute("SELECT 1")
                return
            await driver.execute(_UNDO)
        elif driver.pgconn.transaction_status == _IN_ERROR:
            await driver.execute(_UNDO)

    return lambda definition: _with_hooks(definition, save, restore)


def _with_hooks(definition: Definition, save: Any, restore: Any) -> Definition:
    options = definition.options
    hooks = replace(
        options,
        before=(save, *options.before),
        error=(restore, *options.error),
        after=(restore, *options.after),
    )
    return replace(definition, options=hooks, is_simple=False)
