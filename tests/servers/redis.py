"""A private Redis."""

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from servers import install
from servers.private import HOST, PrivateServer

FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"))
PACKAGES = ("redis-server",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    return install.find_or_install(
        "redis-server",
        _program,
        folders=FOLDERS,
        packages=PACKAGES,
        is_installed_on_demand=may_install,
    )


def _program() -> Path | None:
    # Not the target of the link: the program does what its name says, and has several.
    folders = map(str, [*FOLDERS, *install.folders_on_path()])
    found = shutil.which("redis-server", path=os.pathsep.join(folders))
    return None if found is None else Path(found)


class RedisServer(PrivateServer):
    """A Redis that appends each write to a file."""

    name = "Redis"
    kind = "redis"
    user_names = ("redis", "nobody")
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "fast": signal.SIGTERM,
        "immediate": signal.SIGTERM,
    }

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.program = find_programs()
        super().__init__(fsync=fsync, settings=settings)

    def url(self, database: str = "0", *, port: int | None = None) -> str:
        return f"redis://{HOST}:{port or self.port}/{database}"

    def create_database(self) -> str:
        """Return the number of a database: there is only one."""
        return "0"

    def drop_database(self, database: str) -> None:
        """Do nothing: tests use queues with different names."""

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return ["mkdir", data_folder]

    def _server_command(self) -> list[str | Path]:
        settings = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.data_folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always" if self.fsync else "no",
            **self.settings,
        }
        return [
            self.program,
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]

    def _is_ready(self, output: bytes) -> bool:
        return b"Ready to accept connections" in output
