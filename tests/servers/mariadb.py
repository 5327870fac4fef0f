"""Private MariaDB servers."""

import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pymysql
import pymysql.cursors

from servers import choice, install, unpacked
from servers.install import ServerUnavailable
from servers.private import HOST, PrivateServer

FOLDERS = tuple(
    Path(folder)
    for folder in (
        "/usr/sbin",
        "/usr/bin",
        "/usr/libexec",
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/local/mysql/bin",
        "/usr/local/mysql/scripts",
    )
)
# Debian's packages of the programs alone: no service, no configuration, no user.
PACKAGES = ("mariadb-server-core", "mariadb-client-core")


class Programs(NamedTuple):
    server: Path
    preparer: Path


def find_programs(*, may_install: bool = True) -> Programs:
    """Find MariaDB's programs on this machine.

    Raises:
        ServerUnavailable: there are none, and none can be installed.
    """
    folders = [*install.folders_on_path(), *FOLDERS]
    if choice.chosen() == "newest":
        root = unpacked.prepare("mariadb") if may_install else unpacked.find("mariadb")
        folders = [] if root is None else [root / "usr/sbin", root / "usr/bin"]
    programs = _find(folders)
    if programs is None and may_install and install.may_install():
        install.install(PACKAGES)
        programs = _find(folders)
    if programs is None:
        raise ServerUnavailable(
            "MariaDB's programs mariadbd, mariadb-install-db and my_print_defaults "
            "are not all on this machine.",
            why=f"Looked in PATH, {', '.join(map(str, FOLDERS))}.",
            fix=f"Install them: apt-get install {' '.join(PACKAGES)} (as root, the tests do).",
        )
    return programs


def _find(folders: list[Path]) -> Programs | None:
    server = install.find_program(["mariadbd", "mysqld"], folders)
    preparer = install.find_program(["mariadb-install-db", "mysql_install_db"], folders)
    # The preparer is a script, and calls a program that Debian keeps in another package.
    helper = install.find_program(["my_print_defaults"], folders)
    if server is None or preparer is None or helper is None:
        return None
    # MySQL's server has the same old name, and other options.
    if install.version_of(server, pattern=r"Ver ([\d.]+)-MariaDB") is None:
        return None
    return Programs(server, preparer)


class MariaDBServer(PrivateServer):
    """A MariaDB of our own. Its ``root`` has no password, from the loopback."""

    name = "MariaDB"
    kind = "mariadb"
    user_names = ("mysql", "nobody")
    # Nothing is faster than SIGKILL, and it means the same: the next start recovers.
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "fast": signal.SIGTERM,
        "immediate": signal.SIGKILL,
    }

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.programs = self._find_programs()
        super().__init__(fsync=fsync, settings=settings)

    def _find_programs(self) -> Programs:
        return find_programs()

    def url(self, database: str = "mysql", *, port: int | None = None) -> str:
        return f"mysql://root@{HOST}:{port or self.port}/{database}"

    def create_database(self) -> str:
        return create_database(self.url())

    def drop_database(self, database: str) -> None:
        drop_database(self.url(), database)

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return [
            self.programs.preparer,
            "--no-defaults",
            f"--datadir={data_folder}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-log-file-size=16M",
            "--innodb-flush-method=nosync",
        ]

    def _server_command(self) -> list[str | Path]:
        settings = {
            "datadir": str(self.data_folder),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "tmpdir": str(self.folder),
            "bind-address": HOST,
            "port": str(self.port),
            "character-set-server": "utf8mb4",
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "16M",
            # Needs locked memory that containers often do not grant.
            "innodb-use-native-aio": "0",
            # From 11.4 on a server creates a certificate. The proxy has to read the traffic.
            "loose-ssl": "0",
        }
        if not self.fsync:
            # 2 writes to the kernel at every commit, which outlives SIGKILL; 0 would not.
            settings |= {
                "innodb-flush-log-at-trx-commit": "2",
                "innodb-flush-method": "nosync",
                "innodb-doublewrite": "0",
            }
        settings |= self.settings
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self.programs.server, "--no-defaults", "--skip-name-resolve", *options]

    def _is_ready(self, output: bytes) -> bool:
        return b"ready for connections" in output


class Connection(pymysql.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """PyMySQL's connection, with ``execute``."""

    def execute(self, text: str) -> Any:
        cursor = pymysql.cursors.Cursor(self)
        cursor.execute(text)
        return cursor


def connect(url: str, **options: Any) -> Connection:
    """Open a connection to what a ``mysql://`` URL names; one that commits by itself."""
    parts = urlsplit(url)
    facts = {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/") or None,
        "autocommit": True,
        "connect_timeout": 10,
        "read_timeout": 30,
        # PyMySQL reads all certificates of the machine for every connection: 80 of 85 ms.
        "ssl_disabled": parts.hostname == HOST,
    }
    return Connection(**facts | options)


def create_database(admin_url: str) -> str:
    database = f"tickwork_test_{secrets.token_hex(4)}"
    with connect(admin_url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    return database


def tables_of(connection: Connection) -> list[str]:
    found = connection.execute("SHOW FULL TABLES WHERE table_type = 'BASE TABLE'").fetchall()
    return [name for name, _ in found]


def empty(url: str) -> None:
    """Empty all tables but those that an installation fills."""
    with connect(url) as connection:
        for name in tables_of(connection):
            if name not in {"tickwork_meta", "tickwork_gate", "tickwork_change_counter"}:
                # Quicker than TRUNCATE, which creates a new file.
                connection.execute(f"DELETE FROM {name}")


def drop_tables(url: str) -> None:
    with connect(url) as connection:
        for name in tables_of(connection):
            connection.execute(f"DROP TABLE {name}")


def drop_database(admin_url: str, database: str) -> None:
    with connect(admin_url) as connection, connection.cursor() as cursor:
        # An open transaction would hold the drop up for a day: lock_wait_timeout is 86,400 s.
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()",
            (database,),
        )
        for (connection_id,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL CONNECTION {connection_id}")
            except pymysql.err.OperationalError as error:
                if error.args[0] != 1094:  # it has gone by itself
                    raise
        cursor.execute("SET SESSION lock_wait_timeout = 10")
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
