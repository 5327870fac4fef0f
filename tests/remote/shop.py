"""Starts the processes of ``celery_shop``: Celery workers, and workers of tickwork."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import psycopg

from chaos.workload import JobFacts, LimitFacts
from remote.kill_record import KillRecord

TESTS = Path(__file__).parents[1]
JOBS = [JobFacts(name, crashes_max=100, lease=6.0) for name in ("journaled", "limited", "patient")]


class Note(NamedTuple):
    """What a handler wrote when it was called."""

    text: str
    pid: int
    at: float  # by the monotonic clock of the machine


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


class Shop:
    """The processes of one program, on one database and one broker."""

    def __init__(self, folder: Path, *, url: str, broker: str, lease: str = "6s") -> None:
        self.folder = folder
        self.url = url
        self.notes_path = folder / "notes"
        self.notes_path.touch()
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            "SHOP_NOTES": str(self.notes_path),
            "SHOP_BROKER": broker,
            "SHOP_QUEUE": f"shop-{os.getpid()}-{folder.name}",
            "SHOP_URL": url,
            "SHOP_LEASE": lease,
        }
        limits = [LimitFacts(2, ("limited",))]
        self.record = KillRecord(folder / "record", url, jobs=JOBS, limits=limits)
        self.environment["SHOP_JOURNAL"] = str(self.record.handlers)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._module: ModuleType | None = None

    # ------------------------------------------------------------ processes

    def start_celery(self, *, processes: int = 2) -> subprocess.Popen[bytes]:
        number = len(self.processes)
        return self._start(
            "celery", "-A", "remote.celery_shop:celery", "worker", "-c", str(processes),
            "-n", f"worker-{number}@shop", "--without-mingle", "--without-gossip",
        )  # fmt: skip

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self._start("tickwork", "-a", "remote.celery_shop:app", "work")

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.processes)}-{arguments[0]}").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process and its children, as a machine that loses power would."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
        if self._module is not None:
            self._module.app.close()

    # ------------------------------------------------------------ runs

    @property
    def app(self) -> Any:
        """The application, in this process."""
        return self.program.app

    @property
    def program(self) -> Any:
        """The program, in this process."""
        if self._module is None:
            for name in ("NOTES", "BROKER", "QUEUE", "URL", "LEASE", "JOURNAL"):
                os.environ[f"SHOP_{name}"] = self.environment[f"SHOP_{name}"]
            sys.modules.pop("remote.celery_shop", None)
            import remote.celery_shop as module  # it reads the environment

            self._module = module
        return self._module

    def notes(self, text: str) -> list[Note]:
        return [note for note in self.all_notes() if note.text == text]

    def all_notes(self) -> list[Note]:
        lines = [line.split() for line in self.notes_path.read_text(encoding="utf-8").splitlines()]
        return [Note(words[0], int(words[1]), float(words[2])) for words in lines]

    def parents_of_notes(self) -> set[int]:
        """The Celery workers whose processes have called handlers."""
        return {parent_of(note.pid) for note in self.all_notes()}

    def until(self, check: Callable[[], object], *, seconds: float = 60) -> None:
        # Processes are real here: no test clock can speed them up.
        deadline = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < deadline, f"It did not happen in time.\n{self.logs()}"
            time.sleep(0.02)

    def until_completed(self, count: int) -> None:
        self.until(lambda: self.counts().get("completed", 0) >= count, seconds=240)

    def logs(self) -> str:
        logs = sorted(self.folder.glob("log-*"))
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs
        )

    def counts(self) -> dict[str, int]:
        """Count finished runs by status, and unfinished ones as ``unfinished``."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT status, count(*) FROM tickwork_history GROUP BY 1")
            counts: dict[str, int] = dict(rows.fetchall())
            [[unfinished]] = connection.execute("SELECT count(*) FROM tickwork_run").fetchall()
        return {**counts, **({"unfinished": unfinished} if unfinished else {})}
