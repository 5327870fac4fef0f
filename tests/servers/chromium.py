"""The browser of the tests: Debian's Chromium."""

from pathlib import Path

from servers import install

FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"), Path("/snap/bin"))
PACKAGES = ("chromium",)


def find_programs(*, may_install: bool = True) -> Path:
    """Find the program.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    return install.find_or_install(
        "chromium", _program, folders=FOLDERS, packages=PACKAGES, is_installed_on_demand=may_install
    )


def _program() -> Path | None:
    names = ["chromium", "chromium-browser", "google-chrome"]
    return install.find_program(names, [*FOLDERS, *install.folders_on_path()])
