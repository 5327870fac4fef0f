"""Detects commits of other processes, as a hint that there may be new work."""

import ctypes
import os
import select
import sqlite3
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tickwork._kernel.fork import pause_for_fork

_MODIFY: Final = 0x00000002
_CREATE: Final = 0x00000100
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENT: Final = struct.Struct("iIII")

READS_MAX: Final = 20
READ_INTERVAL: Final = 0.001
"""The file changes shortly before the commit is visible, so the version is read several times."""

POLL_INTERVAL: Final = 0.01
"""Without inotify, the version is polled at this interval, in seconds."""


class SqliteListener:
    """Watches the write-ahead log with inotify; ``data_version`` tells whether it was a commit.

    Writers do no extra work for it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._wal = Path(f"{path}-wal")
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._has_changed()
        self._watch = _Watch.open(self._wal)
        pause_for_fork(self)

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        if self._watch is None:
            return self._wait_by_polling(deadline)
        if self._has_changed():
            return True
        while (left := deadline - time.monotonic()) > 0:
            if not self._watch.wait(left):
                break
            for _ in range(READS_MAX):
                if self._has_changed():
                    return True
                time.sleep(READ_INTERVAL)
        return self._has_changed()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        with self._lock:
            self._close_connection()

    # ------------------------------------------------------------ forks, as in SqliteConnection

    def before_fork(self) -> None:
        self._lock.acquire()
        self._close_connection()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _wait_by_polling(self, deadline: float) -> bool:
        while not self._has_changed():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_INTERVAL, left))
        return True

    def _has_changed(self) -> bool:
        with self._lock:
            if self._connection is None:
                # Other connections count the changes from another number on.
                self._version = -1
                self._connection = sqlite3.connect(
                    self._path, isolation_level=None, check_same_thread=False, timeout=1
                )
            before = self._version
            self._version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            return self._version != before

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Watch:
    """Watches the write-ahead log with inotify, through the C library. Linux only."""

    def __init__(self, library: ctypes.CDLL, file: int, wal: Path) -> None:
        self._library = library
        self._file = file
        self._wal = wal
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)
        self._library.inotify_add_watch(file, os.fsencode(wal.parent), _CREATE)
        self._watch_wal()

    @classmethod
    def open(cls, wal: Path) -> "_Watch | None":
        try:
            library = ctypes.CDLL(None, use_errno=True)
            file = library.inotify_init1(_FLAGS)
        except (OSError, AttributeError):
            return None
        return None if file < 0 else cls(library, file, wal)

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        # Ends at the deadline. Events of other files in the folder are ignored.
        while (left := deadline - time.monotonic()) > 0:
            if not self._poll.poll(max(int(left * 1000), 1)):
                return False
            with suppress(BlockingIOError):
                if self._has_wal_event(os.read(self._file, 64 * 1024)):
                    # The last process that closes the file deletes the log; a new one may exist.
                    self._watch_wal()
                    return True
        return False

    def _has_wal_event(self, events: bytes) -> bool:
        at = 0
        while at < len(events):
            _, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            name = events[at - length : at].rstrip(b"\0")
            if not mask & _CREATE or name == os.fsencode(self._wal.name):
                return True
        return False

    def close(self) -> None:
        os.close(self._file)

    def _watch_wal(self) -> None:
        # Adding a watch for the same file again has no effect.
        self._library.inotify_add_watch(self._file, os.fsencode(self._wal), _MODIFY)
