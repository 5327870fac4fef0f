"""Workers that are replaced: after many runs, with too much memory, when the code changes.

And what a service manager sees of them: notifications of systemd, and a liveness probe.
"""

import os
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from scenarios.project import Process, Project
from tickwork import RunStatus
from tickwork._inspect.status import SILENT_AFTER

JOBS = """
kept = []

@app.job
def note(n: int = 0):
    mark("note", n=n)
    return "one"

@app.job
def brief(n: int):
    mark("brief")
    time.sleep(0.03)

@app.job
def slow():
    mark("begun")
    time.sleep(1)
    mark("done")

@app.job
def grow(megabytes: int):
    kept.append(bytearray(os.urandom(1024)) * (megabytes * 1024))
"""
EXIT_RECYCLED = 72


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.write("shop", JOBS)
    return sqlite_project


class TestRecycling:
    def test_a_supervisor_replaces_a_worker_after_its_last_run(self, shop):
        supervisor = shop.work("--processes", "2", "--max-runs", "10", "--slots", "1")

        runs = [shop.dispatch("brief", n=n) for n in range(60)]

        for run in runs:
            assert run.wait(40) is RunStatus.COMPLETED
        pids = {mark["pid"] for mark in shop.marks("brief")}
        assert len(pids) >= 3
        assert len(shop.marks("brief")) == 60
        assert "restarting" not in supervisor.log  # it is no failure
        assert supervisor.is_alive

    def test_a_single_worker_finishes_its_runs_and_exits(self, shop):
        worker = shop.work("--max-runs", "1")
        slow = shop.dispatch("slow")
        shop.marked("begun")
        shop.dispatch("note")

        assert worker.wait(20) == EXIT_RECYCLED
        assert slow.status is RunStatus.COMPLETED
        assert "--max-runs" in worker.log

    def test_a_worker_with_too_much_memory_exits(self, shop):
        worker = shop.work("--max-memory", "200M")
        assert shop.dispatch("note").wait(20) is RunStatus.COMPLETED
        time.sleep(1.5)
        assert worker.is_alive

        run = shop.dispatch("grow", megabytes=250)

        assert worker.wait(20) == EXIT_RECYCLED
        assert run.status is RunStatus.COMPLETED
        assert "--max-memory" in worker.log

    @pytest.mark.parametrize("words", [["--max-runs", "0"], ["--max-memory", "lots"]])
    def test_invalid_limits_are_rejected(self, shop, words):
        process = shop.run("work", *words)

        assert process.wait(20) == 2
        assert words[0] in process.log


SLEEPER = """
@app.job
def lasting():
    mark("begun")
    time.sleep(60)
"""
LOSING = """
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import StatementFailed
from tickwork._worker.services import pump_threads

pump_threads.WRITE_SECONDS = 1.0

def refuse(self, *args, **options):
    raise StatementFailed(URL, "no space", state="full")

SqliteStore.record = refuse
"""
FAILING = """
from tickwork.cli import supervisor

supervisor.RESTART_DELAY_MAX = supervisor.RESTART_DELAY
supervisor.FAILURES_MAX = 3

@app.on_worker_start
def refuse():
    mark("start")
    raise RuntimeError("no")
"""
NO_PROCESSES = """
import subprocess
from tickwork.cli import supervisor

left = [1, 1]

class RefusedProcess(subprocess.Popen):
    def __init__(self, command, *args, **options):
        if "work" in command and left:
            left.pop()
            raise BlockingIOError(11, "Resource temporarily unavailable")
        super().__init__(command, *args, **options)

supervisor.subprocess.Popen = RefusedProcess
"""


def until_draining(shop: Project) -> None:
    shop.until(lambda: any(each.is_draining for each in shop.app.inspect.workers()), seconds=30)


class TestExitCodes:
    """A supervisor does not hide what its workers lost, and does not start them for ever."""

    def test_after_a_stop_without_losses_it_is_0(self, shop):
        supervisor = shop.work("--processes", "2")

        supervisor.terminate()

        assert supervisor.wait(30) == 0

    def test_outcomes_that_could_not_be_written(self, shop):
        shop.write("shop", JOBS + LOSING)
        supervisor = shop.work("--processes", "2", "--drain", "1s")
        shop.dispatch("note")
        shop.marked("note")

        supervisor.terminate()

        assert supervisor.wait(60) == 4, supervisor.log
        assert "1 outcome could not be written" in supervisor.log

    def test_the_second_signal_kills_the_workers(self, shop):
        shop.write("shop", JOBS + SLEEPER)
        supervisor = shop.work("--processes", "2", "--drain", "50s")
        shop.dispatch("lasting")
        shop.marked("begun")

        supervisor.terminate()
        until_draining(shop)
        supervisor.terminate()

        assert supervisor.wait(30) == 130

    def test_a_worker_that_is_killed_while_it_stops(self, shop):
        shop.write("shop", JOBS + SLEEPER)
        supervisor = shop.work("--processes", "1", "--drain", "50s")
        shop.dispatch("lasting")
        [mark] = shop.marked("begun")
        supervisor.terminate()
        until_draining(shop)

        os.kill(mark["pid"], signal.SIGKILL)

        assert supervisor.wait(30) == 70

    def test_workers_that_all_end_soon_after_their_start(self, shop):
        shop.write("shop", FAILING)
        supervisor = shop.run("work", "--processes", "2")

        assert supervisor.wait(60) == 70, supervisor.log
        assert "The supervisor stops: each worker has ended soon after its start" in supervisor.log
        assert 6 <= len(shop.marks("start")) <= 8

    def test_processes_that_cannot_be_started_now(self, shop):
        shop.write("shop", JOBS + NO_PROCESSES)
        supervisor = shop.work("--processes", "2")

        assert shop.dispatch("note").wait(timeout=30) is RunStatus.COMPLETED
        shop.until(lambda: len(supervisor.children()) == 2, seconds=30)
        assert supervisor.log.count("A worker could not be started") == 2
        supervisor.terminate()
        assert supervisor.wait(30) == 0


class TestReload:
    def test_a_changed_module_restarts_the_worker_when_its_runs_are_done(self, shop):
        reloader = shop.work("--reload")
        assert shop.dispatch("note").result(20) == "one"
        slow = shop.dispatch("slow")
        shop.marked("begun")

        # Within the same second and with the same size, as far as bytecode can tell.
        before = (shop.folder / "shop.py").stat().st_mtime_ns
        shop.write("shop", JOBS.replace('"one"', '"two"'))
        os.utime(shop.folder / "shop.py", ns=(before, before + 1))

        shop.until(lambda: shop.dispatch("note").result(20) == "two", seconds=30)
        assert slow.status is RunStatus.COMPLETED
        assert slow.read().attempt == 1
        # A module that cannot be imported is no end: the next change is tried.
        shop.write("shop", JOBS + "\nraise ValueError('broken')\n")
        shop.until(lambda: "broken" in reloader.log, seconds=20)
        shop.write("shop", JOBS.replace('"one"', '"three"'))
        shop.until(lambda: shop.dispatch("note").result(30) == "three", seconds=30)
        reloader.terminate()
        assert reloader.wait(20) == 0


class ServiceManager:
    """Receives what a service sends to systemd."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)

    def wait_for(self, line: str) -> None:
        while line not in self.socket.recv(4096).decode().splitlines():
            pass


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    manager = ServiceManager(tmp_path / "notify")
    yield manager
    manager.socket.close()


def start_service(project: Project, *words: str) -> Process:
    """As systemd starts it: with the variables of the unit, in this very process."""
    command = [sys.executable, "-m", "tickwork", "-a", "shop:app", "work", *words]
    return project.python(
        "import os; os.environ |= dict(WATCHDOG_USEC='400000', WATCHDOG_PID=str(os.getpid()),"
        f" NOTIFY_SOCKET={str(project.folder / 'notify')!r});"
        f" os.execv({sys.executable!r}, {command!r})"
    )


@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_systemd_is_notified(shop, manager, words):
    service = start_service(shop, *words)

    manager.wait_for("READY=1")
    for _ in range(3):
        manager.wait_for("WATCHDOG=1")
    service.terminate()
    manager.wait_for("STOPPING=1")
    assert service.wait(20) == 0


def test_a_single_process_can_be_supervised(shop):
    supervisor = shop.work("--processes", "1")
    [worker] = supervisor.children()

    os.kill(worker, signal.SIGKILL)

    shop.until(lambda: set(supervisor.children()) - {worker}, seconds=30)
    assert shop.dispatch("note", n=1).wait(30) is RunStatus.COMPLETED


def test_each_process_of_a_supervisor_serves_health_checks_and_metrics(shop):
    port = two_free_ports()
    shop.work("--processes", "2", "--http", f"127.0.0.1:{port}")

    for each in (port, port + 1):
        assert shop.until(lambda each=each: answer(each, "/readyz"), seconds=30) == "ready\n"
        assert answer(each, "/healthz") == "running\n"
        assert "tickwork_" in answer(each, "/metrics")


def two_free_ports() -> int:
    """The first of two ports that follow each other."""
    while True:  # ends: most ports are free
        with socket.socket() as first, socket.socket() as second, suppress(OSError, OverflowError):
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            second.bind(("127.0.0.1", port + 1))
            return port


def answer(port: int, path: str) -> str:
    """The answer of a worker; empty while it does not listen, or refuses."""
    with suppress(OSError):
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return str(response.read(), "utf-8")
    return ""


def probe(project: Project) -> tuple[int, str]:
    process = project.run("doctor", "--worker")
    code = process.wait(20)
    return code, process.log


def test_a_liveness_probe(project):
    project.write("shop", JOBS)
    project.app.install()
    code, text = probe(project)
    assert (code, "No worker is running on this machine" in text) == (1, True)
    worker = project.work()
    code, text = probe(project)
    assert (code, str(worker.pid) in text) == (0, True), text

    # Its heartbeat stops, though its process exists.
    worker.send(signal.SIGSTOP)
    store = project.app._services.store
    [row] = store.list_workers()
    old = row.beat_at - SILENT_AFTER - timedelta(seconds=20)
    store.remove_worker(row.id)
    store.beat_worker(replace(row, beat_at=old))
    code, text = probe(project)
    assert (code, "no heartbeat" in text) == (1, True), text
    os.kill(worker.pid, signal.SIGCONT)
    worker.kill()
    code, text = probe(project)
    assert code == 1, text
