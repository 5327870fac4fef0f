"""Newer servers and interpreters: Debian's unstable packages, unpacked into a folder.

Nothing is installed, and no privilege is needed: apt downloads the packages with the files that
they need into a folder of ours, and the programs are edited to load their libraries from there. So
they run beside the machine's own, without chroot and without mounts.

The mirror and its keys are those of the machine's own apt sources. The folder is kept between
runs: TICKWORK_MATRIX_FOLDER, or in the cache folder of the user.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from servers import guard, install
from servers.install import ServerUnavailable

VARIABLE = "TICKWORK_MATRIX_FOLDER"
SUITE = "sid"
EDITOR = "patchelf"
PACKAGES_BY_SET = {
    "mysql": ("mysql-server-core",),
    "mariadb": ("mariadb-server-core", "mariadb-client-core"),
    "postgres": ("postgresql-18",),
    "python": ("python3.13-venv", "python3.14-venv"),
}
PROGRAM_FOLDERS = ("usr/sbin", "usr/bin", "usr/lib/postgresql/*/bin")

# A failed preparation is not repeated for every test.
_failures: dict[str, ServerUnavailable] = {}


def cache_folder() -> Path:
    """Return where the unpacked packages are; servers run as other users, and must reach it."""
    if given := os.environ.get(VARIABLE):
        return Path(given).resolve()
    if os.geteuid() == 0:  # the home of root is closed to other users
        return Path("/var/cache/tickwork-matrix")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tickwork-matrix"


def find(name: str) -> Path | None:
    """Return the root of a set that was prepared; None if it was not."""
    root = cache_folder() / name
    mark = root / ".packages"
    if not mark.exists() or mark.read_text(encoding="utf-8").split() != _wanted(name):
        return None
    return root


def prepare(name: str) -> Path:
    """Return the root of a set, after downloading and unpacking it at its first use.

    Raises:
        ServerUnavailable: apt is missing, or the mirror cannot be reached.
    """
    if (root := find(name)) is not None:
        return root
    if name in _failures:
        raise _failures[name]
    try:
        with _locked(cache_folder()):
            # A process that waited finds what the other one prepared.
            return find(name) or _unpack(name, cache_folder() / name)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "output", None) or ""
        _failures[name] = unavailable = ServerUnavailable(
            f"Debian's packages {', '.join(PACKAGES_BY_SET[name])} could not be unpacked: {error}",
            why=str(output)[-2000:],
            fix=f"It takes apt-get, dpkg-deb, a Debian mirror, and {cache_folder()} ({VARIABLE}).",
        )
        raise unavailable from error
    except ServerUnavailable as error:
        _failures[name] = error
        raise


def _wanted(name: str) -> list[str]:
    return [SUITE, *PACKAGES_BY_SET[name]]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user.")
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(name: str, root: Path) -> Path:
    # Beside its place, so that a preparation that was interrupted leaves no half of a folder.
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root.parent) as temporary:
        work = Path(temporary)
        made = work / "root"
        made.mkdir(mode=0o755)
        for package in _download([*PACKAGES_BY_SET[name], EDITOR], work):
            subprocess.run(["dpkg-deb", "--extract", package, made], check=True, timeout=120)
            package.unlink()
        _edit_programs(made, root)
        (made / ".packages").write_text("\n".join(_wanted(name)), encoding="utf-8")
        guard.remove_folder(root)
        made.rename(root)
    return root


def _source() -> str:
    """Return the source of the packages, in the format of apt: the machine's mirror and keys."""
    fix = "The packages come from the mirror in the machine's apt sources."
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServerUnavailable("Newer servers need apt-get and dpkg-deb.", fix=fix)
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(SITE) $(SOURCESENTRY)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    for line in answer.stdout.splitlines():
        origin, release, mirror, entry = line.split()
        if origin == "Debian" and "-" not in release:  # not "bookworm-security"
            text = Path(entry.rpartition(":")[0]).read_text(encoding="utf-8")
            keys = re.search(r"signed-by[:=]\s*([^\s\]]+)", text, re.IGNORECASE)
            option = f"[signed-by={keys[1]}] " if keys else ""
            return f"deb {option}{mirror} {SUITE} main\n"
    raise ServerUnavailable("The apt sources of this machine name no Debian mirror.", fix=fix)


def _download(packages: Sequence[str], work: Path) -> list[Path]:
    """Download the packages with everything they depend on, as if nothing were installed."""
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text(_source(), encoding="utf-8")
    options = {
        "Dir::State": work,
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": work / "parts",
        "Dir::Etc::Preferences": work / "none",
        "Dir::Etc::PreferencesParts": work / "parts",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        # A mirror may be a copy of some weeks ago.
        "Acquire::Check-Valid-Until": "false",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    install.apt_get("update", "--quiet", *given, seconds_max=install.UPDATE_SECONDS_MAX)
    install.apt_get(
        *("install", "--download-only", "--yes", "--quiet", *given, *packages),
        seconds_max=install.DOWNLOAD_SECONDS_MAX,
    )
    return sorted((work / "cache/archives").glob("*.deb"))


def _edit_programs(made: Path, root: Path) -> None:
    """Have the programs load their libraries from the folder, where it will be."""
    [loader] = {path.resolve() for path in made.glob("usr/lib*/ld-linux*.so.*")}
    libraries = loader.parent
    final = root / libraries.relative_to(made.resolve())
    programs = [
        path
        for pattern in PROGRAM_FOLDERS
        for folder in made.glob(pattern)
        for path in folder.iterdir()
        if path.is_file() and not path.is_symlink() and _has_loader(path)
    ]
    editor = made / "usr/bin" / EDITOR
    subprocess.run(
        [
            *(loader, "--library-path", libraries, editor),
            # Sorted sections break programs without position-independent code, as Python.
            *("--no-sort", "--force-rpath", "--set-rpath", final),
            *("--set-interpreter", final / loader.name),
            *(program for program in programs if program != editor),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _has_loader(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(4096)
    return start.startswith(b"\x7fELF") and b"/ld-linux" in start
