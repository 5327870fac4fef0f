"""Identifies this process, and detects whether another process of this machine has ended."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """Identifies a process, also after its pid was used again.

    ``boot_id`` identifies the boot of the machine and the pid namespace: process 7 of a
    container is not process 7 of its host. It is empty where the system does not provide it.
    """

    host: str
    pid: int
    boot_id: str
    started: str

    @classmethod
    def current(cls) -> "ThisProcess":
        """This process. Call it again after a fork."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _boot_id(), read_process_start(pid))


def has_ended(pid: int, started: str) -> bool:
    """Whether the process with this id and start time has ended. In doubt, False."""
    return bool(started) and read_process_start(pid) != started


def is_running(pid: int, started: str) -> bool:
    """Whether the process with this id and start time is running. In doubt, False."""
    return bool(started) and read_process_start(pid) == started


def read_process_start(pid: int) -> str:
    """The start time of a process in ticks since boot; empty if it has ended or is unknown."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name in parentheses may contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    # A zombie has ended; its parent has not collected it yet.
    return "" if fields[0] in {"Z", "X"} else fields[19]


def read_memory() -> int:
    """The bytes of memory that this process uses; 0 where the system does not tell."""
    try:
        pages = int((_PROC / "self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _boot_id() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {space}"
