"""The linter of metrics: promtool, a part of Debian's package of Prometheus."""

from pathlib import Path

from servers import install

FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"))
PACKAGES = ("prometheus",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    return install.find_or_install(
        "promtool", _program, folders=FOLDERS, packages=PACKAGES, is_installed_on_demand=may_install
    )


def _program() -> Path | None:
    return install.find_program(["promtool"], [*FOLDERS, *install.folders_on_path()])
