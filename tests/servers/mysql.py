"""Private MySQL servers, and which server the tests of "mariadb" run on."""

from pathlib import Path

from servers import choice, install, mariadb, unpacked
from servers.install import ServerUnavailable
from servers.mariadb import MariaDBServer
from servers.private import HOST

PACKAGES = unpacked.PACKAGES_BY_SET["mysql"]


def find_programs(*, may_install: bool = True) -> mariadb.Programs:
    """Find MySQL's server: on this machine, or among the unpacked packages.

    Raises:
        ServerUnavailable: there is none, and none can be unpacked.
    """
    program = _find()
    if program is None and may_install:
        unpacked.prepare("mysql")
        program = _find()
    if program is None:
        raise ServerUnavailable(
            "MySQL's program mysqld is not on this machine.",
            why="Looked in PATH, and for an unpacked package.",
            fix=f"make test-matrix unpacks {', '.join(PACKAGES)} into {unpacked.cache_folder()}.",
        )
    return mariadb.Programs(program, program)  # it prepares its folder itself


def _find() -> Path | None:
    root = unpacked.find("mysql")
    folders = [*([] if root is None else [root / "usr/sbin"]), *install.folders_on_path()]
    for folder in folders:
        program = install.find_program(["mysqld"], [folder])
        # MariaDB's server has the same old name.
        if program is not None and install.version_of(
            program, pattern=r"Ver ([\d.]+)(?!.*MariaDB)"
        ):
            return program
    return None


class MySQLServer(MariaDBServer):
    """A MySQL of our own. Its ``root`` has no password, from the loopback."""

    name = "MySQL"
    kind = "mysql"

    def _find_programs(self) -> mariadb.Programs:
        return find_programs()

    def _options(self) -> dict[str, str]:
        share = self.programs.server.parents[1] / "share/mysql"
        return {
            "basedir": str(self.programs.server.parents[1]),
            "lc-messages-dir": str(share),
            "innodb-redo-log-capacity": "16M",
            "innodb-use-native-aio": "0",
            # The folder for files of LOAD DATA that is compiled in does not exist here.
            "secure-file-priv": "",
        }

    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        # Not skip-name-resolve with root@localhost: connections come from 127.0.0.1.
        script = data_folder.parent / "users.sql"
        script.write_text(f"RENAME USER root@localhost TO root@'{HOST}';\n", encoding="ascii")
        script.chmod(0o644)
        options = self._options() | {
            "datadir": str(data_folder),
            "init-file": str(script),
            "innodb-doublewrite": "OFF",
            "auto-generate-certs": "OFF",
        }
        return [
            self.programs.server,
            "--no-defaults",
            "--initialize-insecure",
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    def _server_command(self) -> list[str | Path]:
        settings = self._options() | {
            "datadir": str(self.data_folder),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "tmpdir": str(self.folder),
            "bind-address": HOST,
            "port": str(self.port),
            "mysqlx": "OFF",
            "innodb-buffer-pool-size": "64M",
            # The history of binary logs is not needed, and doubles the writes.
            "disable-log-bin": "ON",
            # It takes 200 MB.
            "performance-schema": "OFF",
        }
        if not self.fsync:
            # 2 writes to the kernel at every commit, which outlives SIGKILL; 0 would not.
            settings |= {
                "innodb-flush-log-at-trx-commit": "2",
                "innodb-flush-method": "nosync",
                "innodb-doublewrite": "OFF",
            }
        settings |= self.settings
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self.programs.server, "--no-defaults", "--skip-name-resolve", *options]


ChosenServer: type[MariaDBServer] = MySQLServer if choice.chosen() == "mysql" else MariaDBServer
find_chosen = find_programs if choice.chosen() == "mysql" else mariadb.find_programs
