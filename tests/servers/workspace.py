"""The temporary folders of a test process, and the guard that removes them."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from servers import guard

PREFIX = "tickwork-servers-"
NAME = re.compile(rf"{PREFIX}(?P<pid>\d+)-(?P<started>\d+)-\w+")

# The path of a UNIX socket must fit into 107 bytes, and ours ends with
# /tickwork-servers-4194304-99999999999-abcdefgh/postgres-10/.s.PGSQL.65535
PARENT_LENGTH_MAX = 30

# Where files are kept in memory, and how much of it must be free for us to use it.
MEMORY_PARENT = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 2**30


class Workspace:
    """Folders that are removed when this process ends, also when it is killed.

    One is on disk. The other is in memory if the machine has plenty, and else on disk too:
    making a PostgreSQL database then takes 40 ms rather than 250 on a busy machine.
    """

    def __init__(self) -> None:
        started = guard.started_ticks(os.getpid())
        self.folders = []
        for parent in parent_folders():
            sweep(parent)
            prefix = f"{PREFIX}{os.getpid()}-{started}-"
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            # Servers run as other users: they may enter, but not list it.
            folder.chmod(0o711)
            self.folders.append(folder)
        # Its own session, so that Ctrl-C in the terminal does not reach it; no output, so
        # that `pytest | less` does not wait for it.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, *map(str, self.folders)],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        self._order_lock = threading.Lock()
        self._folders_made = 0

    def new_folder(self, kind: str, *, owner: tuple[int, int] | None, is_in_memory: bool) -> Path:
        with self._order_lock:
            self._folders_made += 1
            number = self._folders_made
        folder = self.folders[-1 if is_in_memory else 0] / f"{kind}-{number}"
        folder.mkdir(mode=0o700)
        if owner is not None:
            os.chown(folder, *owner)
        return folder

    def watch(self, process: subprocess.Popen[bytes], *, end_by: signal.Signals) -> None:
        """Have the process ended when this one ends before ``forget`` was called."""
        started = guard.started_ticks(process.pid)
        if started is not None:  # otherwise it has ended already
            self._order(f"watch {process.pid} {started} {int(end_by)}\n")

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        self._order(f"forget {process.pid}\n")

    def _order(self, line: str) -> None:
        assert self._guard.stdin is not None, self._guard
        with self._order_lock:
            self._guard.stdin.write(line.encode())

    def close(self) -> None:
        """Remove the folders now. A process that ends without calling this loses nothing."""
        assert self._guard.stdin is not None, self._guard
        self._guard.stdin.close()
        self._guard.wait(timeout=4 * guard.PATIENCE)

    def disown(self) -> None:
        """Close the pipe in a forked child: the guard waits for the end of the parent only."""
        assert self._guard.stdin is not None, self._guard
        self._guard.stdin.close()
        self._guard.returncode = 0  # not the child's to wait for


_lock = threading.Lock()
_current: Workspace | None = None


def current() -> Workspace:
    """Return the workspace of this process, making it on first use."""
    global _current  # noqa: PLW0603  one workspace per process is the point
    with _lock:
        if _current is None:
            _current = Workspace()
        return _current


def close_current() -> None:
    global _current  # noqa: PLW0603  as above
    with _lock:
        if _current is not None:
            _current.close()
        _current = None


def _after_fork_in_child() -> None:
    global _current, _lock  # noqa: PLW0603  as above
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _current is not None:
        _current.disown()
    _current = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def parent_folders() -> list[Path]:
    """Return where the folder on disk goes, then where the one in memory goes, if anywhere."""
    disk = _disk_parent()
    return [disk, MEMORY_PARENT] if disk != MEMORY_PARENT and _has_memory() else [disk]


def _has_memory() -> bool:
    if not os.access(MEMORY_PARENT, os.W_OK | os.X_OK):
        return False
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return (
        available is not None
        and int(available[1]) * 1024 >= MEMORY_BYTES_MIN
        and shutil.disk_usage(MEMORY_PARENT).free >= MEMORY_BYTES_MIN
    )


def _disk_parent() -> Path:
    """Find a folder for temporary files whose path is short, and open to other users."""
    candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    for candidate in candidates:
        folder = candidate.resolve()
        if len(str(folder)) > PARENT_LENGTH_MAX or not os.access(folder, os.W_OK | os.X_OK):
            continue
        if os.geteuid() != 0 or all(_is_open_to_others(f) for f in (folder, *folder.parents)):
            return folder
    raise OSError(
        f"No folder for temporary files has a short path that the users of database servers "
        f"can reach. Tried: {', '.join(map(str, candidates))}."
    )


def _is_open_to_others(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def sweep(parent: Path) -> None:
    """Remove the folders of earlier test processes that died together with their guard.

    Ours only: the name says which process it belonged to, the owner is this user, and a
    server in it is recognised by the folder's path on its command line.
    """
    for folder in parent.glob(f"{PREFIX}*"):
        name = NAME.fullmatch(folder.name)
        if name is None or folder.is_symlink():
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
        except FileNotFoundError:
            continue
        if guard.started_ticks(int(name["pid"])) == int(name["started"]):
            continue
        commands_by_pid = _commands_naming(folder)
        if any(guard.__file__ in command for command in commands_by_pid.values()):
            continue  # its own guard is at work
        for pid in commands_by_pid:
            started = guard.started_ticks(pid)
            if started is not None:
                # Both servers take SIGQUIT for an order to end.
                guard.end(pid, started, signal.SIGQUIT)
        guard.remove_folder(folder)


def _commands_naming(folder: Path) -> dict[int, str]:
    """Return the command lines that hold an argument inside the folder, by pid."""
    commands_by_pid = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        arguments = command.split("\0")
        inside = f"{folder}/"
        if any(f"{a.rpartition('=')[2]}/".startswith(inside) for a in arguments):
            commands_by_pid[int(entry.name)] = command
    return commands_by_pid
