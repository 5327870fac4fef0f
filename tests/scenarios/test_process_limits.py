"""Workers under unusual conditions: as process 1, beside code that blocks the interpreter, and
started and stopped many times."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.project import Project, Resources, figure
from tickwork import RunStatus, Tickwork

ORPHANS = """
@app.job
def leave_orphans():
    for _ in range(5):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(0.2)
            os._exit(0)
        os.wait()
    mark("left")
"""


def zombies_of(pid: int) -> list[int]:
    """The children of a process that have ended, and that it has not collected."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            state, parent = text.rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == pid:
                found.append(int(folder.name))
    return found


def can_unshare() -> bool:
    return os.geteuid() == 0 and Path("/usr/bin/unshare").exists()


@pytest.mark.skipif(not can_unshare(), reason="a new pid namespace needs root and unshare")
def test_a_supervisor_as_process_1_collects_orphans(sqlite_project):
    project = sqlite_project
    project.write("shop", ORPHANS)
    project.app.install()
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [sys.executable, "-m", "tickwork", "-a", "shop:app", "work", "--processes", "2"]
    outside = project._started([*unshare, *command])
    run = project.dispatch("leave_orphans")
    assert run.wait(30) is RunStatus.COMPLETED, project.render_output()
    [supervisor] = outside.children()
    workers = Path(f"/proc/{supervisor}/task/{supervisor}/children")

    def has_only_workers() -> bool:
        return len(workers.read_text(encoding="ascii").split()) == 2

    project.until(lambda: has_only_workers() and not zombies_of(supervisor), seconds=10)
    os.kill(supervisor, signal.SIGTERM)
    assert outside.wait(20) == 0


@pytest.mark.skipif(not can_unshare(), reason="a new pid namespace needs root and unshare")
@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_process_1_stops_while_it_waits_for_its_database(sqlite_project, words):
    """The kernel ignores a signal for process 1 that this process does not handle."""
    project = sqlite_project
    project.write("shop", 'app = Tickwork("postgresql://shop@127.0.0.1:1/shop")')
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [sys.executable, "-m", "tickwork", "-a", "shop:app", "work", *words]
    outside = project._started([*unshare, *command])
    project.until(lambda: "Waiting for the database" in outside.log, seconds=30)
    [worker] = outside.children()

    os.kill(worker, signal.SIGTERM)

    assert outside.wait(20) == 0, outside.log


BLOCKING = """
def hold_the_interpreter(seconds):
    mark("begun")
    ctypes.PyDLL(None).sleep(seconds)  # PyDLL does not release the interpreter
    mark("done")

@app.job(lease="1s", crashes=2)
def in_a_thread(seconds: int):
    hold_the_interpreter(seconds)

@app.job(lease="1s", engine="process")
def in_a_process(seconds: int):
    hold_the_interpreter(seconds)
"""
BLOCKED_SECONDS = 9
"""Longer than the lease and the five seconds that a live process has to extend it."""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_code_that_blocks_the_interpreter_longer_than_its_lease(sqlite_project):
    """In a thread no heartbeat is sent, so another worker takes the run; in a process it is.

    Each worker loses the run to the other one, and none of them can record its attempt. The limit
    of crashes ends that. A worker that is alone keeps the run.
    """
    project = sqlite_project
    project.write("shop", BLOCKING)

    def attempts_at(run: Any) -> int:
        return sum(mark["run"] == str(run.id) for mark in project.marks("begun"))

    worker = project.work()
    for job, seconds in (("in_a_thread", BLOCKED_SECONDS), ("in_a_process", BLOCKED_SECONDS)):
        run = project.dispatch(job, seconds=seconds)
        assert run.wait(60) is RunStatus.COMPLETED, project.render_output()
        assert attempts_at(run) == 1, job
    other = project.work()

    run = project.dispatch("in_a_process", seconds=BLOCKED_SECONDS)
    assert run.wait(60) is RunStatus.COMPLETED, project.render_output()
    assert attempts_at(run) == 1
    run = project.dispatch("in_a_thread", seconds=2)  # it extends its lease in time afterwards
    assert run.wait(60) is RunStatus.COMPLETED, project.render_output()
    assert attempts_at(run) == 1
    run = project.dispatch("in_a_thread", seconds=BLOCKED_SECONDS)
    assert run.wait(90) is RunStatus.FAILED_PERMANENT, project.render_output()
    assert attempts_at(run) == 2
    assert run.read().crashes == 2
    assert worker.is_alive
    assert other.is_alive


def start_and_stop(app: Tickwork, times: int) -> Resources:
    for _ in range(times):
        with app.running(threads=2):
            assert app.remote("note").dispatch().wait(20) is RunStatus.COMPLETED
    return Resources()


def check_cycles(url: str, times: int) -> None:
    app = Tickwork(url, install=True)
    app.schedule("note", lambda: None)
    before = start_and_stop(app, 5)
    after = start_and_stop(app, times)
    app.close()
    figure(f"{times} cycles: {after.kilobytes - before.kilobytes:+,} kB, {after.files} files")
    assert after.files <= before.files + 1
    assert after.threads <= before.threads
    assert after.kilobytes - before.kilobytes < 8_000


def test_starting_and_stopping_leaks_nothing(sqlite_project: Project):
    check_cycles(sqlite_project.url, 5)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_hundred_starts_and_stops_leak_nothing(project: Project):
    check_cycles(project.url, 100)


MANY = """
@app.job
def note(n: int):
    pass
"""


def check_many_runs(project: Project, count: int, *, kilobytes: int) -> None:
    """A worker that makes many attempts uses no more memory and files than after the first ones."""
    project.write("shop", MANY)
    worker = project.work()
    remote = project.app.remote("note")

    def work_off(runs: int) -> tuple[float, int]:
        for _ in range(0, runs, 500):
            remote.dispatch_many([{"n": n} for n in range(500)])
        last = remote.dispatch(n=1)
        assert last.wait(120) is RunStatus.COMPLETED
        store = project.app._services.store
        project.until(lambda: not store.ready_pairs(), seconds=300)
        return worker.rss_megabytes(), len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))

    before, files = work_off(2_000)
    after, files_after = work_off(count)
    figure(f"{count} runs: {after - before:+.1f} MB, {files_after} files")
    assert (after - before) * 1024 < kilobytes
    assert files_after <= files + 1


def test_memory_is_flat_over_many_runs(sqlite_project):
    check_many_runs(sqlite_project, 4_000, kilobytes=8_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_memory_is_flat_over_two_hundred_thousand_runs(sqlite_project):
    check_many_runs(sqlite_project, 200_000, kilobytes=16_000)
