"""Finds the programs of a database server, or installs Debian's packages when it may."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

UPDATE_SECONDS_MAX = 120
DOWNLOAD_SECONDS_MAX = 300
INSTALL_SECONDS_MAX = 300

POLICY = Path("/usr/sbin/policy-rc.d")
CLUSTER_SETTINGS = Path("/etc/postgresql-common/createcluster.d/tickwork-tests.conf")
# A failed installation is not repeated for every test.
_failures: dict[tuple[str, ...], "ServerUnavailable"] = {}
MARK = "# Written by tickwork's tests for the time of an installation.\n"


class ServerUnavailable(Exception):  # noqa: N818  it states a fact about the machine
    """The server is not on this machine. The message has the paths, and what to install."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__("\n".join(part for part in (what, why, fix) if part))
        self.what = what
        self.why = why
        self.fix = fix


def folders_on_path() -> list[Path]:
    return [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]


def find_program(names: Iterable[str], folders: Iterable[Path]) -> Path | None:
    """Find the first of the folders that has a program by one of the names."""
    names = list(names)
    for folder in folders:
        for name in names:
            if (found := shutil.which(name, path=str(folder))) is not None:
                return Path(found).resolve()
    return None


def version_of(program: Path, *, pattern: str) -> tuple[int, ...] | None:
    """Return the version of the program; None if it is another program of that name."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, answer.stdout)
    return tuple(map(int, match[1].split("."))) if match and answer.returncode == 0 else None


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait while another process installs: the tests may run in several processes."""
    with (Path(tempfile.gettempdir()) / "tickwork-tests-install.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def may_install() -> bool:
    return (
        os.geteuid() == 0
        and Path("/etc/debian_version").exists()
        and shutil.which("apt-get") is not None
    )


def install(packages: Sequence[str]) -> None:
    """Install Debian packages without starting, stopping or configuring a server.

    Raises:
        ServerUnavailable: no permission, an error, or a timeout.
    """
    key = tuple(packages)
    if key in _failures:
        raise _failures[key]
    try:
        _install(packages)
    except ServerUnavailable as error:
        _failures[key] = error
        raise


def _install(packages: Sequence[str]) -> None:
    fix = f"Install it by hand: apt-get install {' '.join(packages)}"
    if not may_install():
        raise ServerUnavailable(
            "The packages could not be installed.",
            why="That takes root, and apt-get on Debian or one of its children.",
            fix=fix,
        )
    quietly = ["--yes", "--quiet", "--no-install-recommends", *packages]
    try:
        apt_get("update", "--quiet", seconds_max=UPDATE_SECONDS_MAX)
        # Downloading takes long, and may be interrupted; unpacking does not, and should not be.
        apt_get("install", "--download-only", *quietly, seconds_max=DOWNLOAD_SECONDS_MAX)
        with _no_server_starts():
            apt_get("install", *quietly, seconds_max=INSTALL_SECONDS_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "output", None) or ""
        raise ServerUnavailable(
            f"Installing {' '.join(packages)} did not work: {error}", why=output[-2000:], fix=fix
        ) from error


def apt_get(order: str, *arguments: str, seconds_max: int) -> None:
    """Run apt-get without questions and with a limit of time.

    Raises:
        CalledProcessError: it failed; with its output.
        TimeoutExpired: it took too long, and was ended.
    """
    command = [
        "apt-get",
        *("-o", "Dpkg::Lock::Timeout=60"),  # seconds
        *("-o", "DPkg::Options::=--force-confold"),
        *("-o", "Acquire::Retries=2"),
        order,
        *arguments,
    ]
    environment = {
        **os.environ,
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBIAN_PRIORITY": "critical",
        "UCF_FORCE_CONFFOLD": "1",
        "NEEDRESTART_SUSPEND": "1",
        "LC_ALL": "C",
    }
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except BaseException:
            # SIGTERM to the whole group lets dpkg leave its database whole.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, output)


@contextlib.contextmanager
def _no_server_starts() -> Iterator[None]:
    """Keep Debian's packages from making a cluster and from starting services.

    Installing PostgreSQL makes a cluster "main" on port 5432 and starts every cluster of
    the machine, also those that an administrator has stopped.
    """
    made = []
    try:
        # A policy that is already there is the administrator's, and stays.
        if _write_new(POLICY, f"#!/bin/sh\n{MARK}exit 101\n", mode=0o755):
            made.append(POLICY)
        CLUSTER_SETTINGS.parent.mkdir(parents=True, exist_ok=True)
        if _write_new(CLUSTER_SETTINGS, f"{MARK}create_main_cluster = false\n", mode=0o644):
            made.append(CLUSTER_SETTINGS)
        yield
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def _write_new(path: Path, text: str, *, mode: int) -> bool:
    """Write the file unless another is there. One of ours, left by a crash, is replaced."""
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return False
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return True


def find_or_install(
    name: str,
    find: Callable[[], Path | None],
    *,
    folders: Iterable[Path],
    packages: Sequence[str],
    is_installed_on_demand: bool = True,
) -> Path:
    """Find a program, or install its packages.

    Raises:
        ServerUnavailable: it is not there, and cannot be installed.
    """
    program = find()
    if program is None and is_installed_on_demand and may_install():
        install(packages)
        program = find()
    if program is None:
        raise ServerUnavailable(
            f"The program {name} is not on this machine.",
            why=f"Looked in {', '.join(map(str, folders))}, PATH.",
            fix=f"Install it: apt-get install {' '.join(packages)} (as root, the tests do).",
        )
    return program
