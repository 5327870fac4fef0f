"""A private Dask cluster: a scheduler and workers, each a process on the loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
START_SECONDS_MAX = 60.0


class DaskCluster:
    """Starts with ``with``. Processes can be killed and started again; the address stays."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        threads: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://{HOST}:{self.port}"
        self._folder = folder
        self._count = workers
        self._threads = threads
        self.environment = {**os.environ, **(environment or {})}
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._names = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        self.start_scheduler()
        for _ in range(self._count):
            self.start_worker()

    def close(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            _kill(process)

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            "dask_scheduler", "--host", HOST, "--port", str(self.port), "--no-dashboard"
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:  # ends when it listens, or at the deadline
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return
            assert time.monotonic() < deadline, self.log()
            assert self.scheduler.poll() is None, self.log()
            time.sleep(0.05)

    def start_worker(self) -> subprocess.Popen[bytes]:
        self._names += 1
        worker = self._start(
            "dask_worker",
            self.address,
            *("--host", HOST, "--no-nanny", "--no-dashboard", "--nthreads", str(self._threads)),
            *("--name", f"worker-{self._names}", "--memory-limit", "0"),
            *("--local-directory", str(self._folder)),
        )
        self.workers.append(worker)
        return worker

    def kill_scheduler(self) -> None:
        """Kill the scheduler. Workers end when they have lost it."""
        assert self.scheduler is not None
        _kill(self.scheduler)

    def restart(self) -> None:
        """Start the scheduler again, and new workers, as a supervisor does."""
        self.start_scheduler()
        lost, self.workers = self.workers, []
        for _ in lost:
            self.start_worker()
        for process in lost:
            _kill(process)

    def kill_worker(self, number: int = 0) -> None:
        _kill(self.workers.pop(number))

    def log(self) -> str:
        file = self._folder / "dask.log"
        return file.read_text(errors="replace")[-4000:] if file.exists() else ""

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{program}", *arguments],
                env=self.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()
