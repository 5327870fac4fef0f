"""The databases under test: start, connect, cut off, crash, fill the disk."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

from chaos import audit

if TYPE_CHECKING:
    from servers.private import PrivateServer
    from servers.proxy import TcpProxy

KINDS: Final = ("sqlite", "postgres", "mariadb", "mysql")

DISK_BYTES: Final = 1024 * 1024 * 1024
LEFT_BYTES: Final = 16_384
"""Free bytes on a full disk: too few for a page, enough for the file system's rounding."""


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
        self._folder = folder / "disk"
        self._is_mounted = False

    def start(self) -> None:
        self._folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self._folder)]
        if os.geteuid() == 0 and shutil.which("mount"):
            mounted = subprocess.run(command, check=False, capture_output=True)
            self._is_mounted = mounted.returncode == 0
        own = {"hog", "step_clock"}
        self.faults = frozenset(own | {"fill_disk"} if self._is_mounted else own)

    @property
    def path(self) -> Path:
        return self._folder / "jobs.db"

    def url(self, proxy: int | None = None) -> str:  # noqa: ARG002  # a file has no proxies
        return f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def disk_full(self) -> Iterator[None]:
        """Shrink the disk to what is on it: every write fails."""
        for _ in range(20):
            if self._resize(shutil.disk_usage(self._folder).used + LEFT_BYTES):
                break  # otherwise another process wrote in the meantime
        try:
            yield
        finally:
            assert self._resize(DISK_BYTES), self._folder

    def _resize(self, size: int) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

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
        if self._is_mounted:
            # A process that was just killed may have the file open for a moment.
            for _ in range(50):
                ended = subprocess.run(["umount", self._folder], check=False, capture_output=True)
                if ended.returncode == 0:
                    self._is_mounted = False
                    break
                time.sleep(0.1)


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
        from servers.proxy import TcpProxy  # noqa: PLC0415  # loaded on demand

        self.server.start()
        self._name = self.server.create_database()
        self.proxies = [TcpProxy("127.0.0.1", self.server.port) for _ in range(self._proxy_count)]

    def url(self, proxy: int | None = None) -> str:
        port = None if proxy is None else self.proxies[proxy % len(self.proxies)].port
        return self.server.url(self._name, port=port)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.server.close()


def create_database(kind: str, folder: Path, *, proxies: int) -> Database:
    """Return a database of this kind, not yet started."""
    if kind == "sqlite":
        return SqliteDatabase(folder)
    if kind == "postgres":
        from servers.postgres import PostgresServer  # noqa: PLC0415  # loaded on demand

        return ServerDatabase(PostgresServer(fsync=False), proxies=proxies)
    if kind == "mariadb":
        from servers.mariadb import MariaDBServer  # noqa: PLC0415  # as above

        return ServerDatabase(MariaDBServer(fsync=False), proxies=proxies)
    if kind == "mysql":
        from servers.mysql import MySQLServer  # noqa: PLC0415  # as above

        return ServerDatabase(MySQLServer(fsync=False), proxies=proxies)
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
