"""One suite, every store. A new store is one more line in STORES."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from pymysql.constants import SERVER_STATUS

from contract.odd_connections import odd_mariadb, odd_postgres, odd_sqlite
from oracle.store import OracleStore
from servers import mariadb
from servers.pgbouncer import PgBouncer
from tickwork._kernel.clock import Clock
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract import Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.testing import ManualClock
from tickwork_conformance.stores import clock, other_worker, worker

__all__ = ["clock", "other_worker", "worker"]

Opener: TypeAlias = Callable[[pytest.FixtureRequest, Clock], AbstractContextManager[Store]]
"""Gives a fresh, empty, installed store. Other fixtures are had by ``request.getfixturevalue``."""


@contextmanager
def open_oracle(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    yield OracleStore(clock)


@contextmanager
def open_memory(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    yield MemoryStore(clock)


class Base64:
    """Encrypts nothing, but no plain text can be found in what it returns."""

    def encrypt(self, data: bytes) -> bytes:
        return b64encode(data)

    def decrypt(self, token: bytes) -> bytes:
        return b64decode(token, validate=True)


@contextmanager
def open_encrypted(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    yield MemoryStore(clock).with_cipher(Cipher([Base64()]))


@contextmanager
def open_sqlite(request: pytest.FixtureRequest, clock: Clock) -> Iterator[SqliteStore]:
    # Nothing here is about power cuts, and waiting for the disk is most of the time.
    path = request.getfixturevalue("tmp_path") / "jobs.db"
    store = SqliteStore(path, synchronous="NORMAL", clock=clock)
    store.install()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_postgres(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    store: PostgresStore = request.getfixturevalue("installed_postgres")
    yield store
    # Quicker than another database for each test, by a factor of ten.
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(EMPTIED)}".encode())


@contextmanager
def open_pooled_postgres(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    """The same store, behind a pooler that lends another connection for each transaction."""
    store: PostgresStore = request.getfixturevalue("installed_postgres")
    yield request.getfixturevalue("pooled_postgres")
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(EMPTIED)}".encode())


@contextmanager
def open_borrowed_sqlite(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    """Everything in one transaction of a caller whose connection is as odd as can be."""
    with open_sqlite(request, clock) as store, odd_sqlite(store) as connection:
        connection.execute("BEGIN")
        yield store.using(connection)
        assert connection.in_transaction


@contextmanager
def open_borrowed_postgres(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    """The same on PostgreSQL. It is rolled back, so there is nothing to clean up."""
    store: PostgresStore = request.getfixturevalue("installed_postgres")
    connection = request.getfixturevalue("odd_postgres_connection")
    yield store.using(connection)
    assert connection.info.transaction_status is not TransactionStatus.INERROR
    connection.rollback()


@contextmanager
def open_mariadb(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    store: MysqlStore = request.getfixturevalue("installed_mariadb")
    yield store
    mariadb.empty(store.url)


@contextmanager
def open_borrowed_mariadb(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Store]:
    """The same on MariaDB."""
    store: MysqlStore = request.getfixturevalue("installed_mariadb")
    connection = request.getfixturevalue("odd_mariadb_connection")
    connection.begin()
    yield store.using(connection)
    assert connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
    connection.rollback()


@pytest.fixture(scope="session")
def odd_mariadb_connection(installed_mariadb: MysqlStore) -> Iterator[Any]:
    with odd_mariadb(installed_mariadb) as connection:
        yield connection


@pytest.fixture(scope="session")
def installed_mariadb(mariadb_databases: Any) -> Iterator[MysqlStore]:
    """A store on MariaDB that the suite shares, emptied after each test."""
    database = mariadb_databases.create_database()
    store = MysqlStore(mariadb_databases.url(database))
    store.install()
    yield store
    store.close()
    mariadb_databases.drop_database(database)


@pytest.fixture(scope="session")
def odd_postgres_connection(
    installed_postgres: PostgresStore,
) -> Iterator[psycopg.Connection[object]]:
    with odd_postgres(installed_postgres) as connection:
        yield connection


@pytest.fixture(scope="session")
def installed_postgres(postgres_databases: Any) -> Iterator[PostgresStore]:
    """A store on PostgreSQL that the suite shares, emptied after each test."""
    database = postgres_databases.create_database()
    store = PostgresStore(postgres_databases.url(database))
    store.install()
    yield store
    store.close()
    postgres_databases.drop_database(database)


@pytest.fixture(scope="session")
def pooled_postgres(
    installed_postgres: PostgresStore, pgbouncer_server: PgBouncer
) -> Iterator[PostgresStore]:
    database = urlsplit(installed_postgres.url).path.strip("/")
    store = PostgresStore(pgbouncer_server.url(database))
    yield store
    store.close()


# All tables but those that an installation fills.
EMPTIED = [
    f"tickwork_{name}"
    for name in (
        *("run", "history", "attempt", "log", "slot", "limit", "unique", "schedule", "job"),
        "definition",
        *("pause", "worker", "lock", "rate", "start", "audit", "alert", "request", "rollup"),
        *("step", "event", "wait", "edge", "outbox"),
    )
]


STORES: dict[str, Opener] = {
    "oracle": open_oracle,
    "memory": open_memory,
    "encrypted": open_encrypted,
    "sqlite": open_sqlite,
    "postgres": open_postgres,
    "mariadb": open_mariadb,
    "sqlite borrowed": open_borrowed_sqlite,
    "postgres borrowed": open_borrowed_postgres,
    "postgres pgbouncer": open_pooled_postgres,
    "mariadb borrowed": open_borrowed_mariadb,
}
SERVERS = frozenset({"postgres", "mariadb"})
"""Stores that need a private server of that name: their tests get its marker."""

ON_DISK = [
    "sqlite",
    *(pytest.param(kind, marks=pytest.mark.servers(kind)) for kind in ("postgres", "mariadb")),
]
"""Stores of which there are rows to look at."""


def _parameters() -> list[object]:
    needed = SERVERS | {"pgbouncer"}
    return [
        pytest.param(name, marks=[pytest.mark.servers(kind) for kind in needed & set(name.split())])
        for name in STORES
    ]


@pytest.fixture(params=_parameters())
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with STORES[request.param](request, clock) as opened:
        yield opened
