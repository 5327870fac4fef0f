"""A private PgBouncer in front of a PostgreSQL."""

import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from servers import install
from servers.postgres import create_database, drop_database
from servers.private import HOST, PrivateServer

FOLDERS = (Path("/usr/sbin"), Path("/usr/local/bin"), Path("/usr/local/sbin"))
PACKAGES = ("pgbouncer",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    return install.find_or_install(
        "pgbouncer",
        _program,
        folders=FOLDERS,
        packages=PACKAGES,
        is_installed_on_demand=may_install,
    )


def _program() -> Path | None:
    return install.find_program(["pgbouncer"], [*FOLDERS, *install.folders_on_path()])


class PgBouncer(PrivateServer):
    """A pooler of our own. Every database of the server behind it can be reached.

    Connections to the server are lent in turns, so that two transactions of one client hardly
    ever have the same one: what is kept in a session is gone with the next statement.
    """

    name = "PgBouncer"
    kind = "pgbouncer"
    user_names = ("postgres", "nobody")
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "fast": signal.SIGTERM,
        "immediate": signal.SIGTERM,
    }

    def __init__(
        self,
        server_url: str,
        *,
        mode: str = "transaction",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.program = find_programs()
        self.server_url = server_url
        self.mode = mode
        super().__init__(fsync=False, settings=settings)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres@{HOST}:{port or self.port}/{database}"

    def create_database(self) -> str:
        """Create a database on the server behind it."""
        return create_database(self.server_url)

    def drop_database(self, database: str) -> None:
        drop_database(self.server_url, database)

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return ["mkdir", data_folder]

    def _server_command(self) -> list[str | Path]:
        settings = {
            "listen_addr": HOST,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self.mode,
            "default_pool_size": "8",
            "max_client_conn": "200",
            "server_round_robin": "1",
            **self.settings,
        }
        lines = [
            "[databases]",
            f"* = {self._server()}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        config = self.folder / "pgbouncer.ini"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        config.chmod(0o644)
        return [self.program, config]

    def _server(self) -> str:
        parts = urlsplit(self.server_url)
        facts = {
            "host": parts.hostname,
            "port": parts.port or 5432,
            "user": parts.username,
            "password": parts.password,
        }
        return " ".join(f"{name}={value}" for name, value in facts.items() if value)

    def _is_ready(self, output: bytes) -> bool:
        return b"process up" in output
