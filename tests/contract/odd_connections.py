"""Connections of callers who changed everything that can be changed about them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NoReturn

import psycopg
import pymysql
import pymysql.cursors
from psycopg.adapt import Buffer, Dumper, Loader
from pymysql.converters import conversions

from tickwork._stores.mysql.connection import settings_of
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore

ODD = "a converter made this"


def refuse(*_: object) -> NoReturn:
    raise AssertionError("The caller's own factory is not for our rows.")


# ---------------------------------------------------------------- SQLite


@contextmanager
def odd_sqlite(store: SqliteStore, **given: Any) -> Iterator[sqlite3.Connection]:
    """A connection with a converter for every type, and factories that no other code can use."""
    converters: dict[str, Any] = sqlite3.converters
    before = dict(converters)
    for kind in ("TEXT", "INTEGER"):
        sqlite3.register_converter(kind, lambda _: ODD)
    facts: dict[str, Any] = {
        "isolation_level": None,
        "detect_types": sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES,
    }
    try:
        with closing(sqlite3.connect(store.path, **facts | given)) as connection:
            connection.row_factory = refuse
            connection.text_factory = lambda _: ODD
            yield connection
    finally:
        converters.clear()
        converters.update(before)


# ---------------------------------------------------------------- PostgreSQL


class OddLoader(Loader):
    def load(self, data: Buffer) -> str:
        return ODD


class OddDumper(Dumper):
    oid = 25

    def dump(self, obj: object) -> bytes:
        return ODD.encode()


@contextmanager
def odd_postgres(store: PostgresStore, **given: Any) -> Iterator[psycopg.Connection[Any]]:
    """A connection in Latin-1, with loaders and dumpers for every type."""
    facts: dict[str, Any] = {
        "client_encoding": "LATIN1",
        "cursor_factory": psycopg.ClientCursor,
        "row_factory": refuse,
    }
    with closing(psycopg.connect(store.url, **facts | given)) as connection:
        make_odd(connection)
        yield connection


def make_odd(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    for name in ("text", "int2", "int4", "int8", "uuid", "json", "jsonb", "bool", "name"):
        connection.adapters.register_loader(name, OddLoader)
    connection.adapters.register_loader(0, OddLoader)
    for kind in (str, int, bytes, list, dict, type(None)):
        connection.adapters.register_dumper(kind, OddDumper)


# ---------------------------------------------------------------- MariaDB


class OddCursor(pymysql.cursors.DictCursor):  # type: ignore[misc]  # PyMySQL has no types
    """The default cursor class of the connection."""

    def fetchall(self) -> list[Any]:
        return [ODD]


@contextmanager
def odd_mariadb(store: MysqlStore, **given: Any) -> Iterator[Any]:
    """A connection in Latin-1, with converters for every type, in the oddest of modes."""
    where = settings_of(store.url)
    facts: dict[str, Any] = {
        **{name: where[name] for name in ("host", "port", "user", "password", "database")},
        "ssl_disabled": True,
        "charset": "latin1",
        "use_unicode": False,
        "cursorclass": OddCursor,
        "conv": {**conversions, **dict.fromkeys(range(256), lambda *_: ODD)},
        "sql_mode": "ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
    }
    with closing(pymysql.connect(**facts | given)) as connection:
        yield connection
