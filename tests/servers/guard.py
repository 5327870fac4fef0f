"""A small process that outlives the test process, and cleans up after it.

It reads orders from a pipe that only the test process holds open. The kernel closes that
pipe however the process ends. Then the guard ends the servers that are still watched, and removes
the folders.

PR_SET_PDEATHSIG would be shorter. It was rejected for three reasons: it fires when the *thread*
that started the server ends, so a test that restarts a server from a thread would kill it;
it needs code between fork and exec, which Python 3.12 warns about as soon as there are
threads; and it cannot remove a folder.

Run as ``python -I -S guard.py FOLDER...``, so it imports nothing but the standard library.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PATIENCE = 10.0  # seconds that a server gets to end by itself


def started_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None when it has ended.

    Pids are used again (after 32,768 of them, by default). A pid together with its start is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name comes second, in parentheses, and may itself contain any of them.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], int(fields[19])
    # A zombie has ended. Without an init process that collects them, they stay for good.
    return None if state in "ZX" else started


def parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1])


def wait_until_gone(pid: int, started: int, *, limit: float = PATIENCE) -> bool:
    give_up_at = time.monotonic() + limit
    while started_ticks(pid) == started:
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.005)
    return True


def end(pid: int, started: int, signal_number: int) -> None:
    """End exactly this process: with the signal first, with SIGKILL if it takes too long."""
    if started_ticks(pid) != started:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_number)
    if not wait_until_gone(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid, started)


def remove_folder(folder: Path) -> None:
    # A process that is just ending may still write a file into a folder that was just emptied.
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def main(folders: list[Path]) -> None:
    watched: dict[int, tuple[int, int]] = {}
    for line in sys.stdin:
        order, pid, *rest = line.split()
        if order == "watch":
            watched[int(pid)] = (int(rest[0]), int(rest[1]))
        else:
            watched.pop(int(pid), None)
    for pid, (started, signal_number) in watched.items():
        end(pid, started, signal_number)
    for folder in folders:
        remove_folder(folder)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
