"""Private PostgreSQL servers."""

import contextlib
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psycopg

from servers import choice, install, unpacked
from servers.install import ServerUnavailable
from servers.private import HOST, PrivateServer

# Debian keeps them off the PATH, because several versions may be installed side by side.
FOLDER_PATTERNS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin")
PACKAGES = ("postgresql",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the folder of the newest PostgreSQL on this machine.

    Raises:
        ServerUnavailable: there is none, and none can be installed.
    """
    if choice.chosen() == "newest" and may_install:
        unpacked.prepare("postgres")
    folder = _newest_folder()
    if folder is None and may_install and install.may_install():
        install.install(PACKAGES)
        folder = _newest_folder()
    if folder is None:
        looked_in = [*(f"/{pattern}" for pattern in FOLDER_PATTERNS), "pg_config", "PATH"]
        raise ServerUnavailable(
            "PostgreSQL's programs initdb and postgres are not on this machine.",
            why=f"Looked in {', '.join(looked_in)}.",
            fix=f"Install them: apt-get install {' '.join(PACKAGES)} (as root, the tests do).",
        )
    return folder


def _newest_folder() -> Path | None:
    if choice.chosen() == "newest":
        root = unpacked.find("postgres")
        return None if root is None else max(root.glob(FOLDER_PATTERNS[0]), default=None)
    candidates = [folder for pattern in FOLDER_PATTERNS for folder in Path("/").glob(pattern)]
    if (pg_config := shutil.which("pg_config")) is not None:
        answer = subprocess.run(
            [pg_config, "--bindir"], capture_output=True, text=True, timeout=10, check=False
        )
        candidates.append(Path(answer.stdout.strip()))
    candidates.extend(install.folders_on_path())
    # What is on the PATH may be a link to a program whose companions are elsewhere.
    servers = {install.find_program(["postgres"], [candidate]) for candidate in candidates}
    folders_by_version = {}
    for server in servers:
        if server is None or install.find_program(["initdb"], [server.parent]) is None:
            continue
        version = install.version_of(server, pattern=r"\(PostgreSQL\) ([\d.]+)")
        if version is not None:
            folders_by_version[version] = server.parent
    return folders_by_version[max(folders_by_version)] if folders_by_version else None


class PostgresServer(PrivateServer):
    """A PostgreSQL of our own. Its superuser is ``postgres``, without a password."""

    name = "PostgreSQL"
    kind = "postgres"
    user_names = ("postgres", "nobody")
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "smart": signal.SIGTERM,
        "fast": signal.SIGINT,
        "immediate": signal.SIGQUIT,
    }

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.programs = find_programs()
        super().__init__(fsync=fsync, settings=settings)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres@{HOST}:{port or self.port}/{database}"

    def create_database(self, *, template: str = "template0") -> str:
        """Create a database and return its name. ``template`` must have no connections."""
        return create_database(self.url(), template=template)

    def drop_database(self, database: str) -> None:
        drop_database(self.url(), database)

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return [
            self.programs / "initdb",
            f"--pgdata={data_folder}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]

    def _server_command(self) -> list[str | Path]:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            # In the folder rather than in /dev/shm, where a killed server leaves it behind.
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self.fsync:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        settings |= self.settings
        options = [part for item in settings.items() for part in ("-c", "=".join(item))]
        return [self.programs / "postgres", "-D", self.data_folder, *options]

    def _is_ready(self, output: bytes) -> bool:
        # The server keeps its state in line 8, for pg_ctl. A killed one leaves its own behind.
        lines = self._pid_file_lines()
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _pid_file_lines(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.data_folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        return []

    def _after_crash(self) -> None:
        # A small System V segment outlives the processes. The next start would reuse it; but
        # there may be none, and a power cut does not spare it either. Line 7 is "key id".
        lines = self._pid_file_lines()
        if len(lines) > 6 and len(words := lines[6].split()) == 2:
            subprocess.run(["ipcrm", "--shmem-id", words[1]], capture_output=True, check=False)


def create_database(admin_url: str, *, template: str = "template0") -> str:
    database = f"tickwork_test_{secrets.token_hex(4)}"
    _execute(admin_url, f"CREATE DATABASE {database} TEMPLATE {template}")
    return database


def drop_database(admin_url: str, database: str) -> None:
    _execute(admin_url, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")


def _execute(admin_url: str, statement: str) -> None:
    with psycopg.connect(admin_url, autocommit=True, connect_timeout=10) as connection:
        # Names of databases cannot be parameters, and these are our own.
        connection.execute(statement.encode())
