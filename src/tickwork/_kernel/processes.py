"""Which process this is, and whether another one of this machine is still there."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """A process, so that no other one can be taken for it.

    ``boot_id`` says which start of the machine, and in which space of process ids: a
    container's process 7 is not its host's. Empty where the system does not tell.
    """

    host: str
    pid: int
    boot_id: str
    started: str

    @classmethod
    def current(cls) -> "ThisProcess":
        """This one, as it is now: after a fork it is another."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _boot_id(), read_process_start(pid))


def has_ended(pid: int, started: str) -> bool:
    """Whether the process with this id and start has ended. When in doubt, it has not."""
    return bool(started) and read_process_start(pid) != started


def read_process_start(pid: int) -> str:
    """When a process started, in ticks since boot; empty when it has ended, or nobody tells."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name in parentheses may hold anything, spaces and parentheses too.
    fields = stat.rpartition(")")[2].split()
    # A zombie has ended; its parent has not looked yet.
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _boot_id() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return f"{boot} {space}"
