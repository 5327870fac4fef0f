"""A private nginx."""

import signal
from collections.abc import Mapping
from pathlib import Path

from servers import install
from servers.private import HOST, PrivateServer

FOLDERS = (Path("/usr/sbin"), Path("/usr/local/sbin"), Path("/usr/local/nginx/sbin"))
PACKAGES = ("nginx-light",)
TEMPORARY_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    return install.find_or_install(
        "nginx", _program, folders=FOLDERS, packages=PACKAGES, is_installed_on_demand=may_install
    )


def _program() -> Path | None:
    return install.find_program(["nginx"], [*FOLDERS, *install.folders_on_path()])


class NginxServer(PrivateServer):
    """An nginx with one configuration of servers, in which PORT stands for its own port."""

    name = "nginx"
    kind = "nginx"
    user_names = ("www-data", "nobody")
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "fast": signal.SIGQUIT,
        "immediate": signal.SIGTERM,
    }

    def __init__(self, servers: str, *, files: Mapping[str, str] | None = None) -> None:
        """``files`` are files beside the configuration: certificates and keys."""
        self.program = find_programs()
        self.servers = servers
        self.files = dict(files or {})
        super().__init__(fsync=False)

    def url(self, database: str = "", *, port: int | None = None) -> str:
        return f"http://{HOST}:{port or self.port}/{database}"

    def create_database(self) -> str:
        """Return nothing: it has no databases."""
        return ""

    def drop_database(self, database: str) -> None:
        """Do nothing: as above."""

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return ["mkdir", data_folder]

    def _server_command(self) -> list[str | Path]:
        lines = [
            "daemon off;",
            "worker_processes 1;",
            f"pid {self.data_folder}/pid;",
            "error_log stderr notice;",
            "events { worker_connections 256; }",
            "http {",
            "access_log off;",
            *(f"{name}_temp_path {self.data_folder}/{name};" for name in TEMPORARY_FOLDERS),
            self.servers.replace("PORT", str(self.port)),
            "}",
        ]
        for name, text in {"nginx.conf": "\n".join(lines), **self.files}.items():
            path = self.folder / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
        return [self.program, "-p", self.folder, "-e", "stderr", "-c", "nginx.conf"]

    def _is_ready(self, output: bytes) -> bool:
        return b"start worker process " in output
