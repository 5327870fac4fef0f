"""The base of the private servers: start, stop, crash, restart, remove."""

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from servers import guard, workspace
from servers.workspace import Workspace

HOST = "127.0.0.1"
START_SECONDS_MAX = 45.0
STOP_SECONDS_MAX = 30.0
PREPARE_SECONDS_MAX = 60.0
PORT_ATTEMPTS_MAX = 5
LOG_TAIL_BYTES = 6_000


class ServerFailed(Exception):  # noqa: N818  it states what happened
    """A server did not start or stop. The message has the end of its log."""


class PrivateServer(ABC):
    """A database server of our own: in a temporary folder, on a free port of the loopback.

    Nothing is started before ``start`` or ``with``; nothing is left after ``close``. Stopped,
    crashed and restarted, it keeps its port and its data.

    ``fsync=False`` is for tests that want speed. Data then still survives ``crash``, because
    the kernel keeps what a killed process has written; only a machine that loses power would
    lose it. ``True`` is for benchmarks and for tests of what is synced; only then are the files
    sure to be on disk.

    ``settings`` are options of the server by name, and win over ours.

    Raises:
        ServerUnavailable: the programs are not on this machine.
    """

    name: ClassVar[str]  # for messages
    kind: ClassVar[str]  # for folders and fixtures
    user_names: ClassVar[Sequence[str]]  # the user that runs it if we are root
    signals_by_mode: ClassVar[Mapping[str, signal.Signals]]
    start_seconds_max: ClassVar[float] = START_SECONDS_MAX

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.fsync = fsync
        self.settings = dict(settings or {})
        self.port = 0
        self._owner_pid = os.getpid()
        self.owner = unprivileged_user(self.user_names)
        self._workspace: Workspace | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_of_closed = ""
        _known.add(self)

    # ------------------------------------------------------------ for tests

    def start(self) -> Self:
        assert not self.is_running, self
        if self._folder is not None:
            self._launch()
            return self
        self._workspace = workspace.current()
        self._folder = self._workspace.new_folder(
            self.kind, owner=self.owner, is_in_memory=not self.fsync
        )
        self._copy_seed(self._seed())
        for attempts_left in reversed(range(PORT_ATTEMPTS_MAX)):
            self.port = free_port()
            try:
                self._launch()
            except ServerFailed as error:
                # Another process took the port after we checked it.
                if "in use" not in str(error) or not attempts_left:
                    raise
            else:
                break
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop in an orderly way ("fast"), or leave a recovery to the next start ("immediate").

        Raises:
            ServerFailed: it did not end in time, and was killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        assert self._workspace is not None, self
        process.send_signal(self.signals_by_mode[mode])
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise ServerFailed(
                f"{self.name} did not stop within {STOP_SECONDS_MAX:.0f} s.\n{self.log_tail()}"
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self._workspace.forget(process)

    def crash(self) -> None:
        """Kill the server and all its processes with SIGKILL, as a power cut would."""
        process, self._process = self._process, None
        assert process is not None, self
        assert process.poll() is None, self
        assert self._workspace is not None, self
        # Stopped first, so that it cannot start another child while we list them.
        process.send_signal(signal.SIGSTOP)
        children = children_of(process.pid)
        process.kill()
        process.wait()
        self._workspace.forget(process)
        for pid, started in children.items():
            guard.end(pid, started, signal.SIGKILL)
        self._after_crash()

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End the server and remove its folder. May be called again."""
        # A forked child that leaves a `with` must not take its parent's server down.
        if self._folder is None or self._owner_pid != os.getpid():
            return
        try:
            self.stop("immediate")
        finally:
            self._log_of_closed = self.log_tail()
            guard.remove_folder(self._folder)
            self._folder = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "down"
        return f"<{type(self).__name__} {state} on port {self.port} in {self._folder}>"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, self
        return self._process.pid

    @property
    def folder(self) -> Path:
        assert self._folder is not None, self
        return self._folder

    @property
    def data_folder(self) -> Path:
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        return self.folder / "log"

    def log_tail(self) -> str:
        """Return the end of what the server wrote. Still there after ``close``."""
        if self._folder is None or not self.log_path.exists():
            return self._log_of_closed
        with self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")

    @abstractmethod
    def url(self, database: str = "", *, port: int | None = None) -> str:
        """Return where the database is; ``port`` names a proxy's instead of the server's."""

    @abstractmethod
    def create_database(self) -> str:
        """Create an empty database and return its name."""

    @abstractmethod
    def drop_database(self, database: str) -> None:
        """Drop the database, and every connection that is still in it."""

    # ------------------------------------------------------------ for subclasses

    @abstractmethod
    def _prepare_command(self, data_folder: Path) -> list[str | Path]:
        """The command that fills an empty data folder."""

    @abstractmethod
    def _server_command(self) -> list[str | Path]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self, output: bytes) -> bool:
        """Whether the server answers, given its output since its start."""

    def _after_crash(self) -> None:  # noqa: B027  most servers leave nothing outside of their folder
        """Clear up what the killed processes left outside of the folder."""

    # ------------------------------------------------------------ details

    def _seed(self) -> Path:
        """Return a filled data folder to copy from, made once per process.

        Filling one takes a second. Copying it takes a tenth.
        """
        assert self._workspace is not None, self
        with _seed_lock:
            key = (self._workspace, self.kind)
            if key not in _seeds:
                folder = self._workspace.new_folder(
                    f"{self.kind}-seed", owner=self.owner, is_in_memory=True
                )
                self._run_as_owner(self._prepare_command(folder / "data"))
                _seeds[key] = folder / "data"
            return _seeds[key]

    def _copy_seed(self, seed: Path) -> None:
        # By the owner itself, so that everything is the owner's.
        self._run_as_owner(["cp", "-a", "--reflink=auto", seed, self.data_folder])

    def _run_as_owner(self, command: list[str | Path]) -> None:
        # Not SIGKILL: initdb removes its files on SIGTERM.
        process = self._spawn(command, end_by=signal.SIGTERM)
        assert self._workspace is not None, self
        try:
            status = process.wait(PREPARE_SECONDS_MAX)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            self._workspace.forget(process)
        if status != 0:
            raise ServerFailed(
                f"{' '.join(map(str, command))} ended with status {status}.\n{self.log_tail()}"
            )
        self.log_path.write_bytes(b"")  # the output of a success is not needed

    def _launch(self) -> None:
        written_before = self.log_path.stat().st_size
        self._process = process = self._spawn(
            self._server_command(), end_by=self.signals_by_mode["immediate"]
        )
        give_up_at = time.monotonic() + self.start_seconds_max
        while not self._is_ready(self._output_since(written_before)):
            if process.poll() is None and time.monotonic() < give_up_at:
                time.sleep(0.01)
                continue
            status = process.poll()
            what = "did not answer in time" if status is None else f"ended with status {status}"
            self.stop("immediate")
            raise ServerFailed(f"{self.name} {what} at its start.\n{self.log_tail()}")

    def _output_since(self, position: int) -> bytes:
        with self.log_path.open("rb") as log:
            log.seek(position)
            return log.read()

    def _spawn(
        self, command: list[str | Path], *, end_by: signal.Signals
    ) -> subprocess.Popen[bytes]:
        assert self._workspace is not None, self
        uid, gid = self.owner or (None, None)
        # Not our environment: PGDATA, MYSQL_HOME or a locale would change the server.
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LC_ALL": "C",
            "TZ": "UTC",
        }
        with self.log_path.open("ab") as log:
            # Its own session, because Ctrl-C in the terminal is meant for the tests, which
            # then end the server themselves.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                user=uid,
                group=gid,
                extra_groups=None if gid is None else [],
                start_new_session=True,
            )
        self._workspace.watch(process, end_by=end_by)
        return process


# The servers whose log a failed test shows. Weak references, so that none is kept alive.
_known: weakref.WeakSet[PrivateServer] = weakref.WeakSet()
_seed_lock = threading.Lock()
_seeds: dict[tuple[Workspace, str], Path] = {}
_ports_given: set[int] = set()


def known_servers() -> list[PrivateServer]:
    """Return the servers of this process that are still referenced."""
    return list(_known)


def unprivileged_user(names: Sequence[str]) -> tuple[int, int] | None:
    """The user that runs a server, because servers refuse to run as root; None if we are not."""
    if os.geteuid() != 0:
        return None
    for name in names:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise ServerFailed(
        f"Servers do not run as root, and none of these users exists: {', '.join(names)}."
    )


def free_port() -> int:
    """Find a free port below those that the kernel gives to outgoing connections.

    From the kernel's own range, a client's outgoing connection could take the port while the
    server is down; worse, a client that tries to reach it can get that very port for its own
    end and be connected to itself.
    """
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    lowest_outgoing = int(limits.split()[0])
    for _ in range(200):
        # Not `random`: the test runner seeds it alike for every test.
        port = 10_240 + secrets.randbelow(max(1, lowest_outgoing - 10_240))
        if port in _ports_given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _ports_given.add(port)
        return port
    raise ServerFailed(f"No free port between 10240 and {lowest_outgoing}.")


def children_of(parent_pid: int) -> dict[int, int]:
    """Return when each child of a process was started, by pid."""
    children = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or guard.parent_of(int(entry.name)) != parent_pid:
            continue
        started = guard.started_ticks(int(entry.name))
        if started is not None:
            children[int(entry.name)] = started
    return children
