"""A small disk that a test can fill: a tmpfs, if this process may mount one."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

DISK_BYTES = 1024 * 1024 * 1024
LEFT_BYTES = 16_384
"""Free bytes on a full disk: too few for a page, enough for the file system's rounding."""


class SmallDisk:
    """A disk in a folder. ``owner`` is the user and the group to whom it belongs."""

    def __init__(self, folder: Path, *, owner: tuple[int, int] | None = None) -> None:
        self.folder = folder
        self._owner = owner
        self.is_mounted = False

    def mount(self) -> bool:
        """Mount it; False if this process may not."""
        self.folder.mkdir(exist_ok=True)
        options = f"size={DISK_BYTES},mode=700"
        if self._owner is not None:
            options += f",uid={self._owner[0]},gid={self._owner[1]}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        if os.geteuid() == 0 and shutil.which("mount"):
            mounted = subprocess.run(command, check=False, capture_output=True)
            self.is_mounted = mounted.returncode == 0
        return self.is_mounted

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Shrink the disk to what is on it: every write that needs space fails."""
        for _ in range(20):
            if self._resize(shutil.disk_usage(self.folder).used + LEFT_BYTES):
                break  # otherwise another process wrote in the meantime
        try:
            yield
        finally:
            assert self._resize(DISK_BYTES), self.folder

    def _resize(self, size: int) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def unmount(self) -> None:
        if self.is_mounted:
            # A process that was just killed may have a file open for a moment.
            for _ in range(50):
                ended = subprocess.run(["umount", self.folder], check=False, capture_output=True)
                if ended.returncode == 0:
                    self.is_mounted = False
                    break
                time.sleep(0.1)

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        self.unmount()
