"""Programs that write rows of their own, in every mode that a connection can be in.

A caller has a table of orders, and dispatches runs in the transaction that writes one. Others
see it through ``caller.store``, whose connections are its own.
"""

import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from pymysql.constants import CLIENT, SERVER_STATUS

from servers import mariadb
from tickwork._stores.contract import Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore

HAS_AUTOCOMMIT: Final = sys.version_info >= (3, 12)
"""Whether an sqlite3.Connection knows PEP 249's way to control transactions."""

NEW_ORDER: Final = "INSERT INTO orders (id) VALUES (1)"
COUNT_ORDERS: Final = "SELECT count(*) FROM orders"


class Caller(ABC):
    """A caller with a connection and rows of its own to write."""

    store: Store
    borrowed: Store
    """The same, in the transaction of the caller's connection."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether a transaction is open, and can be worked in."""

    @abstractmethod
    def order(self) -> None:
        """Write something."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def roll_back(self) -> None: ...

    @abstractmethod
    def orders(self) -> int:
        """How many there are for everybody else."""


class SqliteCaller(Caller):
    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self.store = store
        self.connection = connection
        self.borrowed = store.using(connection)

    @property
    def is_open(self) -> bool:
        return self.connection.in_transaction

    def order(self) -> None:
        self.connection.execute(NEW_ORDER)

    def commit(self) -> None:
        if self.is_by_hand:
            self.connection.execute("COMMIT")
        else:
            self.connection.commit()

    def roll_back(self) -> None:
        if self.is_by_hand:
            self.connection.execute("ROLLBACK")
        else:
            self.connection.rollback()

    @property
    def is_by_hand(self) -> bool:
        """Whether commit() and rollback() do nothing at all."""
        return getattr(self.connection, "autocommit", False) is True

    def orders(self) -> int:
        assert isinstance(self.store, SqliteStore)
        with closing(sqlite3.connect(self.store.path)) as connection:
            [count] = connection.execute(COUNT_ORDERS).fetchone()
        return int(count)


class PostgresCaller(Caller):
    def __init__(self, store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
        self.store = store
        self.connection = connection
        self.borrowed = store.using(connection)
        self.block: psycopg.Transaction | None = None
        self.blocks = ExitStack()

    @property
    def is_open(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.INTRANS

    def order(self) -> None:
        self.connection.execute(NEW_ORDER)

    def begin_block(self) -> None:
        self.block = self.blocks.enter_context(self.connection.transaction())

    def commit(self) -> None:
        if self.block is None:
            self.connection.commit()
        else:
            self.blocks.close()
            self.block = None

    def roll_back(self) -> None:
        if self.block is None:
            self.connection.rollback()
        else:
            error = psycopg.Rollback()
            assert self.blocks.__exit__(type(error), error, None)
            self.block = None

    def orders(self) -> int:
        assert isinstance(self.store, PostgresStore)
        with psycopg.connect(self.store.url) as connection:
            row = connection.execute(COUNT_ORDERS).fetchone()
        assert row is not None
        return int(row[0])


class MariadbCaller(Caller):
    def __init__(self, store: MysqlStore, connection: mariadb.Connection) -> None:
        self.store = store
        self.connection = connection
        self.borrowed = store.using(connection)

    @property
    def is_open(self) -> bool:
        return bool(self.connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def order(self) -> None:
        self.connection.execute(NEW_ORDER)

    def commit(self) -> None:
        self.connection.commit()

    def roll_back(self) -> None:
        self.connection.rollback()

    def orders(self) -> int:
        assert isinstance(self.store, MysqlStore)
        with mariadb.connect(self.store.url) as connection:
            [[count]] = connection.execute(COUNT_ORDERS).fetchall()
        return int(count)


# ---------------------------------------------------------------- modes


Opener: TypeAlias = Callable[[Any], AbstractContextManager[Caller]]


class Mode(NamedTuple):
    """A way to have a connection, on a store of this kind."""

    kind: str
    name: str
    open: Opener

    def __str__(self) -> str:
        return f"{self.kind}, {self.name}"


def on_sqlite(name: str, *statements: str, **given: Any) -> Mode:
    """A connection that was opened like this, after these statements."""

    @contextmanager
    def open_caller(store: SqliteStore) -> Iterator[Caller]:
        with closing(sqlite3.connect(store.path)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER NOT NULL)")
        with closing(sqlite3.connect(store.path, **given)) as connection:
            for statement in statements:
                connection.execute(statement)
            yield SqliteCaller(store, connection)

    return Mode("sqlite", name, open_caller)


def on_postgres(
    name: str,
    *statements: str,
    has_block: bool = False,
    has_pipeline: bool = False,
    isolation: psycopg.IsolationLevel | None = None,
    **given: Any,
) -> Mode:
    @contextmanager
    def open_caller(store: PostgresStore) -> Iterator[Caller]:
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id integer NOT NULL)")
            connection.execute("TRUNCATE orders")
        with (
            closing(psycopg.connect(store.url, **given)) as connection,
            ExitStack() as modes,
        ):
            connection.isolation_level = isolation
            caller = PostgresCaller(store, connection)
            if has_pipeline:
                modes.enter_context(connection.pipeline())
            if has_block:
                caller.begin_block()
                modes.callback(caller.roll_back)
            for statement in statements:
                connection.execute(statement)
            yield caller

    return Mode("postgres", name, open_caller)


def on_mariadb(name: str, *statements: str, **given: Any) -> Mode:
    @contextmanager
    def open_caller(store: MysqlStore) -> Iterator[Caller]:
        with mariadb.connect(store.url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id INT NOT NULL)")
            connection.execute("DELETE FROM orders")
        with closing(mariadb.connect(store.url, **{"autocommit": False, **given})) as connection:
            for statement in statements:
                connection.execute(statement)
            yield MariadbCaller(store, connection)

    return Mode("mariadb", name, open_caller)


_LOOK = "SELECT count(*) FROM orders"
_AT = "SET SESSION TRANSACTION ISOLATION LEVEL"

OPEN: Final = [
    on_sqlite("legacy"),
    on_sqlite("legacy, written before", "INSERT INTO orders (id) VALUES (0)"),
    on_sqlite("legacy, deferred", isolation_level="DEFERRED"),
    on_sqlite("legacy, immediate", isolation_level="IMMEDIATE"),
    on_sqlite("legacy, exclusive", isolation_level="EXCLUSIVE"),
    on_sqlite("by hand", "BEGIN", isolation_level=None),
    on_sqlite("by hand, read before", "BEGIN", _LOOK, isolation_level=None),
    on_sqlite("by hand, in a savepoint", "SAVEPOINT tickwork", isolation_level=None),
    on_postgres("idle"),
    on_postgres("read before", _LOOK),
    on_postgres("written before", "INSERT INTO orders (id) VALUES (0)"),
    on_postgres("by hand", "BEGIN", autocommit=True),
    on_postgres("in a savepoint", "SAVEPOINT tickwork"),
    on_postgres("in a block", has_block=True),
    on_postgres("in a block, autocommit", has_block=True, autocommit=True),
    on_postgres("in a pipeline", has_pipeline=True),
    on_postgres("in a pipeline, written before", NEW_ORDER, has_pipeline=True),
    on_postgres("in a block and a pipeline", has_block=True, has_pipeline=True, autocommit=True),
    on_postgres("repeatable read", isolation=psycopg.IsolationLevel.REPEATABLE_READ),
    on_postgres("serializable", isolation=psycopg.IsolationLevel.SERIALIZABLE),
    on_mariadb("idle"),
    on_mariadb("read before", _LOOK),
    on_mariadb("written before", "INSERT INTO orders (id) VALUES (0)"),
    on_mariadb("by hand", "BEGIN", autocommit=True),
    on_mariadb("in a savepoint", "SAVEPOINT tickwork"),
    on_mariadb(
        "in a savepoint, written before", NEW_ORDER, "SAVEPOINT tickwork", "DELETE FROM orders"
    ),
    on_mariadb("read committed", f"{_AT} READ COMMITTED"),
    on_mariadb("serializable", f"{_AT} SERIALIZABLE"),
    on_mariadb("several at once", client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS),
]
"""Modes in which what is done stays open until the caller ends it."""

AT_ONCE: Final = [
    on_sqlite("on its own", isolation_level=None),
    on_postgres("autocommit", autocommit=True),
    on_postgres("autocommit in a pipeline", autocommit=True, has_pipeline=True),
    on_postgres(
        "autocommit, serializable",
        autocommit=True,
        options="-c default_transaction_isolation=serializable",
    ),
    on_mariadb("autocommit", autocommit=True),
    on_mariadb("autocommit, serializable", f"{_AT} SERIALIZABLE", autocommit=True),
]
"""Modes in which each statement is committed by itself."""

if HAS_AUTOCOMMIT:
    OPEN.append(on_sqlite("without autocommit", autocommit=False))
    OPEN.append(on_sqlite("autocommit, by hand", "BEGIN", autocommit=True))
    AT_ONCE.append(on_sqlite("autocommit", autocommit=True))
