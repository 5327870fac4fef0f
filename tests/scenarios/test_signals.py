"""A closed terminal, nohup, and a stop while a worker starts."""

import os
import signal
import sys

import pytest

from tickwork import RunStatus

SLOW = """
@app.job
def slow():
    mark("begun")
    time.sleep(1)
    mark("done")
"""


@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_sighup_drains_a_worker(sqlite_project, words):
    sqlite_project.write("shop", SLOW)
    worker = sqlite_project.work(*words)
    run = sqlite_project.dispatch("slow")
    sqlite_project.marked("begun")

    worker.send(signal.SIGHUP)

    assert worker.wait(20) == 0, worker.log
    assert run.status is RunStatus.COMPLETED
    assert len(sqlite_project.marks("done")) == 1


def test_a_worker_below_nohup_ignores_sighup(sqlite_project):
    sqlite_project.write("shop", SLOW)
    command = [sys.executable, "-m", "tickwork", "-a", "shop:app", "work"]
    # The marks of the process that ignores the signal before it becomes the worker.
    worker = sqlite_project.python(
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        f"os.execv({sys.executable!r}, {command!r})"
    )
    sqlite_project.dispatch("slow")
    sqlite_project.marked("begun")

    os.kill(worker.pid, signal.SIGHUP)

    sqlite_project.marked("done")
    assert sqlite_project.dispatch("slow").wait(20) is RunStatus.COMPLETED
    assert worker.is_alive


STARTING = """
from tickwork.app import worker_composition

build = worker_composition.build_background_worker

def build_late(*arguments, **options):
    mark("starting")  # signals are handled already, and there is no worker yet
    time.sleep(1)
    return build(*arguments, **options)

worker_composition.build_background_worker = build_late
"""


@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_sigterm_while_a_worker_starts_is_not_lost(sqlite_project, words):
    sqlite_project.write("shop", STARTING)
    worker = sqlite_project.work(*words, is_ready=False)
    sqlite_project.marked("starting")

    worker.send(signal.SIGTERM)

    assert worker.wait(20) == 0, worker.log


def test_sigterm_while_a_worker_is_replaced_is_not_lost(sqlite_project):
    sqlite_project.write("shop", STARTING)
    worker = sqlite_project.work("--processes", "1", is_ready=False)
    [first] = sqlite_project.marked("starting")
    os.kill(first["pid"], signal.SIGKILL)
    sqlite_project.marked("starting", 2)

    worker.send(signal.SIGTERM)

    assert worker.wait(20) == 0, worker.log
