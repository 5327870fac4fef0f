"""The databases under test: start, connect, cut off, crash, fill the disk."""

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

from chaos import audit

if TYPE_CHECKING:
    from servers.private import PrivateServer
    from servers.proxy import TcpProxy
    from servers.small_disk import SmallDisk

KINDS: Final = ("sqlite", "postgres", "mariadb", "mysql")


ROLE: Final = "chaos_actor"
"""The role of all actors. Only a role that is no superuser can lose a right."""
RIGHTS: Final = (
    "INSERT ON tickwork_history",
    "UPDATE ON tickwork_run",
    "DELETE ON tickwork_run",
    "UPDATE ON tickwork_job",
)


def connect(url: str) -> Any:
    """Open a connection of the driver in its default mode: the caller commits."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(parts.path[1:], timeout=20)
    if parts.scheme == "postgresql":
        import psycopg  # noqa: PLC0415  # loaded on demand

        return psycopg.connect(url, connect_timeout=10)
    import pymysql  # noqa: PLC0415  # as above

    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
        connect_timeout=10,
        read_timeout=20,
        ssl_disabled=True,
        charset="utf8mb4",
    )


def with_placeholders(statement: str, url: str) -> str:
    """Return the statement with the placeholders of the driver."""
    return statement if url.startswith("sqlite") else statement.replace("?", "%s")


class Database(ABC):
    """One database and the faults that it supports."""

    kind: str
    faults: frozenset[str] = frozenset()  # those of this kind only

    @abstractmethod
    def start(self) -> None:
        """Start an empty database."""

    @abstractmethod
    def url(self, proxy: int | None = None) -> str:
        """Return its URL; ``proxy`` is the number of a proxy in front of it, which can be cut."""

    @abstractmethod
    def close(self) -> None:
        """Stop and remove it."""

    def prepare(self) -> None:
        """Add the audit after tickwork's tables were installed."""
        connection = connect(self.url())
        with contextlib.closing(connection):
            cursor = connection.cursor()
            for statement in audit.statements(self.kind):
                cursor.execute(statement)
            connection.commit()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SqliteDatabase(Database):
    """One file, on a small disk of its own if this process may mount one."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        from servers.small_disk import SmallDisk  # noqa: PLC0415  # not in the processes under test

        self._disk = SmallDisk(folder / "disk")

    def start(self) -> None:
        own = {"hog", "step_clock"}
        self.faults = frozenset(own | {"fill_disk"} if self._disk.mount() else own)

    @property
    def path(self) -> Path:
        return self._disk.folder / "jobs.db"

    def url(self, proxy: int | None = None) -> str:  # noqa: ARG002  # a file has no proxies
        return f"sqlite:///{self.path}"

    def disk_full(self) -> contextlib.AbstractContextManager[None]:
        """Every write fails."""
        return self._disk.full()

    @contextlib.contextmanager
    def write_lock_held(self) -> Iterator[None]:
        """Hold the write lock."""
        with contextlib.closing(
            sqlite3.connect(self.path, isolation_level=None, timeout=10)
        ) as holder:
            with contextlib.suppress(sqlite3.OperationalError):
                holder.execute("BEGIN IMMEDIATE")
            yield
            if holder.in_transaction:
                holder.execute("ROLLBACK")

    def close(self) -> None:
        self._disk.unmount()


class ServerDatabase(Database):
    """A private server, with one proxy for each actor."""

    faults = frozenset(
        {"restart_server", "crash_server", "cut", "delay", "stall", "lose_answer", "jump_clock"}
    )

    def __init__(self, server: "PrivateServer", *, proxies: int) -> None:
        self.kind = server.kind
        self.server = server
        self.proxies: list[TcpProxy] = []
        self._proxy_count = proxies
        self._name = ""

    def start(self) -> None:
        self.server.start()
        self._add_database()

    def _add_database(self) -> None:
        from servers.proxy import TcpProxy  # noqa: PLC0415  # loaded on demand

        self._name = self.server.create_database()
        self.proxies = [TcpProxy("127.0.0.1", self.server.port) for _ in range(self._proxy_count)]

    def url(self, proxy: int | None = None) -> str:
        port = None if proxy is None else self.proxies[proxy % len(self.proxies)].port
        return self.server.url(self._name, port=port)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.server.close()


class PostgresDatabase(ServerDatabase):
    """Its actors are no superusers. Its tables, without the log, are on a small disk if possible.

    Without the log of its transactions the server ends, and cannot start again.
    """

    faults = ServerDatabase.faults | {"revoke_rights", "hold_reader", "hold_writer"}

    def __init__(self, server: "PrivateServer", *, proxies: int) -> None:
        super().__init__(server, proxies=proxies)
        self._disk: SmallDisk | None = None

    def start(self) -> None:
        from servers.small_disk import SmallDisk  # noqa: PLC0415  # as above

        self.server.start()
        disk = SmallDisk(self.server.folder / "small", owner=self.server.owner)
        if disk.mount():
            self._disk = disk
            self.faults |= {"fill_disk"}
            self._execute(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
            self._execute("ALTER SYSTEM SET default_tablespace = small")
            self._execute("SELECT pg_reload_conf()")
        self._execute(f"CREATE ROLE {ROLE}")
        self._add_database()

    def url(self, proxy: int | None = None) -> str:
        url = super().url(proxy)
        return url if proxy is None else f"{url}?options=-c%20role%3D{ROLE}"

    def prepare(self) -> None:
        super().prepare()
        self._execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}", in_ours=True)
        self._execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}", in_ours=True)

    def disk_full(self) -> contextlib.AbstractContextManager[None]:
        """Every statement fails that needs another page."""
        assert self._disk is not None, self
        return self._disk.full()

    @contextlib.contextmanager
    def right_revoked(self, number: int) -> Iterator[None]:
        """Revoke one of the rights that workers need."""
        right = RIGHTS[number % len(RIGHTS)]
        self._execute(f"REVOKE {right} FROM {ROLE}", in_ours=True)
        try:
            yield
        finally:
            self._execute(f"GRANT {right} TO {ROLE}", in_ours=True)

    @contextlib.contextmanager
    def transaction_held(self, *, has_number: bool) -> Iterator[None]:
        """Keep a snapshot, and so all dead rows; with a number, as a program that writes."""
        import psycopg  # noqa: PLC0415  # loaded on demand

        with contextlib.ExitStack() as stack:
            with contextlib.suppress(psycopg.Error):  # the server may be down
                holder = psycopg.connect(super().url(), connect_timeout=10)
                stack.callback(holder.close)
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM tickwork_run")
                if has_number:
                    holder.execute("SELECT txid_current()")
            yield

    def _execute(self, statement: str, *, in_ours: bool = False) -> None:
        import psycopg  # noqa: PLC0415  # loaded on demand

        url = super().url() if in_ours else self.server.url()
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())

    def close(self) -> None:
        if self._disk is not None:
            self.server.stop("immediate")
            self._disk.unmount()
        super().close()


def create_database(kind: str, folder: Path, *, proxies: int) -> Database:
    """Return a database of this kind, not yet started."""
    if kind == "sqlite":
        return SqliteDatabase(folder)
    if kind == "postgres":
        from servers.postgres import PostgresServer  # noqa: PLC0415  # loaded on demand

        return PostgresDatabase(PostgresServer(fsync=False), proxies=proxies)
    if kind == "mariadb":
        from servers.mariadb import MariaDBServer  # noqa: PLC0415  # as above

        return ServerDatabase(MariaDBServer(fsync=False), proxies=proxies)
    if kind == "mysql":
        from servers.mysql import MySQLServer  # noqa: PLC0415  # as above

        return ServerDatabase(MySQLServer(fsync=False), proxies=proxies)
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
