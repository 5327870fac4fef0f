"""The databases that are beaten: how each is started, reached, cut off, crashed and filled up."""

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

DISK_BYTES: Final = 1024 * 1024 * 1024
LEFT_BYTES: Final = 16_384
"""What a full disk still has: enough for nothing, and the file system's own rounding."""


def connect(url: str) -> Any:
    """A plain connection of the database's driver, in its default mode: transactions by hand."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(parts.path[1:], timeout=20)
    if parts.scheme == "postgresql":
        import psycopg  # noqa: PLC0415  # only who needs it

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


def placed(statement: str, url: str) -> str:
    """The statement with the driver's own way to write a placeholder."""
    return statement if url.startswith("sqlite") else statement.replace("?", "%s")


class Database(ABC):
    """One database, and what can be done to it."""

    kind: str
    faults: frozenset[str] = frozenset()  # those that only this kind knows

    @abstractmethod
    def start(self) -> None:
        """Start it, empty."""

    @abstractmethod
    def url(self, way: int | None = None) -> str:
        """Where it is; ``way`` is a number of one's own way there, which can be cut."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove it."""

    def prepare(self) -> None:
        """Add the audit, once tickwork's tables are there."""
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
    """One file: on a small disk of its own, where we may mount one."""

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
        self.faults = frozenset({"hog", "fill_disk"} if self._is_mounted else {"hog"})

    @property
    def path(self) -> Path:
        return self._folder / "jobs.db"

    def url(self, way: int | None = None) -> str:  # noqa: ARG002  # there is but one way
        return f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def filled_up(self) -> Iterator[None]:
        """Nobody can write a byte more to the disk: it is as small as what is on it."""
        for _ in range(20):
            if self._resized(shutil.disk_usage(self._folder).used + LEFT_BYTES):
                break  # else somebody has written meanwhile
        try:
            yield
        finally:
            assert self._resized(DISK_BYTES), self._folder

    def _resized(self, size: int) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    @contextlib.contextmanager
    def hogged(self) -> Iterator[None]:
        """Somebody else has the write lock."""
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
            # Whoever was just killed may still have the file open for a moment.
            for _ in range(50):
                ended = subprocess.run(["umount", self._folder], check=False, capture_output=True)
                if ended.returncode == 0:
                    self._is_mounted = False
                    break
                time.sleep(0.1)


class ServerDatabase(Database):
    """A private server, and a way to it for each of those that use it."""

    faults = frozenset(
        {"restart_server", "crash_server", "cut", "delay", "stall", "lose_answer", "jump_clock"}
    )

    def __init__(self, server: "PrivateServer", *, ways: int) -> None:
        self.kind = server.kind
        self.server = server
        self.proxies: list[TcpProxy] = []
        self._ways = ways
        self._name = ""

    def start(self) -> None:
        from servers.proxy import TcpProxy  # noqa: PLC0415  # only servers have ways to them

        self.server.start()
        self._name = self.server.create_database()
        self.proxies = [TcpProxy("127.0.0.1", self.server.port) for _ in range(self._ways)]

    def url(self, way: int | None = None) -> str:
        port = None if way is None else self.proxies[way % len(self.proxies)].port
        return self.server.url(self._name, port=port)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.server.close()


def made(kind: str, folder: Path, *, ways: int) -> Database:
    """A database of this kind, not yet started."""
    if kind == "sqlite":
        return SqliteDatabase(folder)
    # The suite's own private servers: they are started once, in a folder that goes with us.
    if kind == "postgres":
        from servers.postgres import PostgresServer  # noqa: PLC0415  # only who needs it

        return ServerDatabase(PostgresServer(fsync=False), ways=ways)
    if kind == "mariadb":
        from servers.mariadb import MariaDBServer  # noqa: PLC0415  # as above

        return ServerDatabase(MariaDBServer(fsync=False), ways=ways)
    raise ValueError(f"There is no database of the kind {kind!r}: sqlite, postgres or mariadb.")
