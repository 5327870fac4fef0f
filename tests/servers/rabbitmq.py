"""A private RabbitMQ."""

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from servers import install
from servers.install import ServerUnavailable
from servers.private import HOST, PrivateServer, free_port

FOLDERS = (Path("/usr/lib/rabbitmq/bin"),)
PACKAGES = ("rabbitmq-server",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    program = install.find_program(["rabbitmq-server"], FOLDERS)
    if program is None and may_install and install.may_install():
        install.install(PACKAGES)
        program = install.find_program(["rabbitmq-server"], FOLDERS)
    if program is None:
        raise ServerUnavailable(
            "The program rabbitmq-server is not on this machine.",
            why=f"Looked in {', '.join(map(str, FOLDERS))}.",
            fix=f"Install it: apt-get install {' '.join(PACKAGES)} (as root, the tests do).",
        )
    return program


class RabbitMQServer(PrivateServer):
    """A broker with a node name and ports of its own, and an epmd of its own."""

    name = "RabbitMQ"
    kind = "rabbitmq"
    user_names = ("rabbitmq", "nobody")
    signals_by_mode = {  # noqa: RUF012  declared ClassVar by the parent
        "fast": signal.SIGTERM,
        "immediate": signal.SIGTERM,
    }
    start_seconds_max = 240.0

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.program = find_programs()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port = 0
        self._node_port = 0
        super().__init__(fsync=fsync, settings=settings)

    def url(self, database: str = "", *, port: int | None = None) -> str:
        return f"amqp://guest:guest@{HOST}:{port or self.port}/{database}"

    def create_database(self) -> str:
        """Return the virtual host: there is only one."""
        return ""

    def drop_database(self, database: str) -> None:
        """Do nothing: tests use queues with different names."""

    def close(self) -> None:
        super().close()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def _launch(self) -> None:
        if self._epmd is None:
            # Otherwise the broker starts one that outlives it.
            self._epmd_port, self._node_port = free_port(), free_port()
            self._epmd = self._spawn(
                ["epmd", "-port", str(self._epmd_port), "-address", HOST], end_by=signal.SIGKILL
            )
        super()._launch()

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        return ["mkdir", data_folder]

    def _server_command(self) -> list[str | Path]:
        facts = {
            "ERL_EPMD_PORT": self._epmd_port,
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"tickwork{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": self._node_port,
            "RABBITMQ_MNESIA_BASE": self.data_folder,
            "RABBITMQ_LOG_BASE": self.data_folder,
            "RABBITMQ_CONFIG_FILE": self.data_folder / "none",
            "RABBITMQ_CONF_ENV_FILE": self.data_folder / "none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.data_folder / "plugins",
            # Idle schedulers must not spin: tests measure beside it.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none",
            **self.settings,
        }
        return ["env", *(f"{name}={value}" for name, value in facts.items()), self.program]

    def _is_ready(self, output: bytes) -> bool:
        return b"completed with" in output
