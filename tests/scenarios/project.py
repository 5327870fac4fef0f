"""A user's project in a folder, and the processes that run in it.

project.write("shop", '''...''')      a module that defines `app`; the URL is in SHOP_URL
worker = project.work("shop")          python -m tickwork -a shop:app work
worker.kill(), worker.terminate(), worker.wait(), worker.log
project.app                            an application on the same database, for asking

Handlers write down what happens with `mark(word, **facts)`, one line of JSON each, in a file
that outlives whatever kills them.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from tickwork import Tickwork
from tickwork._kernel.clock import SystemClock
from tickwork._kernel.processes import read_process_start

T = TypeVar("T")

HEAD = """
import asyncio, ctypes, json, logging, os, signal, sys, threading, time
from tickwork import *
from tickwork import Tickwork, RunContext, current_run

URL = os.environ["SHOP_URL"]

def mark(word, **facts):
    run = current_run()
    line = {"word": word, "at": time.time(), "pid": os.getpid(), **facts}
    if run is not None:
        line |= {"run": run.run_id, "job": run.job, "attempt": run.attempt}
        if run.nominal_at is not None:
            line["nominal"] = run.nominal_at.timestamp()
    file = os.open(os.environ["SHOP_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps(line) + "\\n").encode())
    os.close(file)

app = Tickwork(URL, install=True, handler_paths=["shop"])
"""


class Process:
    """One command of ours, in a group of its own."""

    def __init__(self, command: list[str], *, folder: Path, log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        """Kill it and its children."""
        if not self.is_alive:
            return
        children = self.children()
        self.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in path.read_text(encoding="ascii").split()]

    # ------------------------------------------------------------ resources

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def rss_megabytes(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError(self.pid)


class Project:
    """A folder with modules, a database, and the processes on them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.marks_path = folder / "marks"
        self._processes: list[Process] = []
        self._apps: list[Tickwork] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()
        for app in self._apps:
            app.close()

    @property
    def app(self) -> Tickwork:
        """An application without definitions: it reads, and dispatches by name."""
        if not self._apps:
            self._apps.append(Tickwork(self.url, install=True))
        return self._apps[0]

    def write(self, name: str, body: str) -> None:
        (self.folder / f"{name}.py").write_text(HEAD + body, encoding="utf-8")

    def dispatch(self, job: str, *, delay: float = 0, **args: Any) -> Any:
        draft = self.app.remote(job)
        return (draft.delay(delay) if delay else draft).dispatch(**args)

    # ------------------------------------------------------------ processes

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "SHOP_URL": self.url, "SHOP_MARKS": str(self.marks_path)}

    def run(self, *words: str, name: str = "shop") -> Process:
        command = [sys.executable, "-m", "tickwork", "-a", f"{name}:app", *words]
        return self._started(command)

    def command(self, *words: str) -> Process:
        """A command without ``-a``: it reads ``tickwork.toml``."""
        return self._started([sys.executable, "-m", "tickwork", *words])

    def python(self, code: str) -> Process:
        return self._started([sys.executable, "-c", code])

    def program(self, file: str) -> Process:
        return self._started([sys.executable, file])

    def work(self, *words: str, name: str = "shop", is_ready: bool = True) -> Process:
        """Start a worker, and wait until it has begun by default."""
        known = {worker.id for worker in self.app._services.store.list_workers()}
        process = self.run("work", *words, name=name)
        if is_ready:
            self.until(
                lambda: (
                    not process.is_alive
                    or any(
                        worker.id not in known for worker in self.app._services.store.list_workers()
                    )
                ),
                seconds=30,
            )
            assert process.is_alive, process.log
        return process

    def _started(self, command: list[str]) -> Process:
        log = self.folder / f"process-{len(self._processes)}.log"
        process = Process(command, folder=self.folder, log=log, env=self.env)
        self._processes.append(process)
        return process

    # ------------------------------------------------------------ reading

    def marks(self, word: str | None = None) -> list[dict[str, Any]]:
        if not self.marks_path.exists():
            return []
        lines = self.marks_path.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return [mark for mark in found if word is None or mark["word"] == word]

    def until(self, check: Callable[[], T], *, seconds: float) -> T:
        """Wait for a true result of ``check``. The limit is five times what it needs."""
        deadline = time.monotonic() + seconds
        while True:
            found = check()
            if found:
                return found
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"It did not happen within {seconds} s.\n{self.render_output()}"
                )
            time.sleep(0.01)

    def marked(self, word: str, count: int = 1, *, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait for so many marks of this name, and return them."""

        def enough() -> list[dict[str, Any]] | None:
            found = self.marks(word)
            return found if len(found) >= count else None

        return self.until(enough, seconds=seconds) or []

    def render_output(self) -> str:
        logs = "\n".join(f"--- {p._log.name} ({p.pid})\n{p.log[-3000:]}" for p in self._processes)
        marks = "\n".join(map(str, self.marks()[-20:]))
        return f"marks:\n{marks}\n{logs}"


def now() -> float:
    """The current time in the unit of marks."""
    return SystemClock().now().timestamp()


def figure(text: str) -> None:
    """Print a measurement, visible with ``-s`` or when the test fails."""
    sys.stdout.write(f"{text}\n")


class Resources:
    """What this process uses now."""

    def __init__(self) -> None:
        gc.collect()
        self.files = len(list(Path("/proc/self/fd").iterdir()))
        self.threads = threading.active_count()
        status = Path("/proc/self/status").read_text(encoding="ascii")
        [self.kilobytes] = [
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
        ]


def is_there(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    return bool(read_process_start(pid))
