"""The clock of the machine is set forward or back while workers run.

No test changes the real clock: the program adds an offset from a file to the only function that
reads it. The monotonic clock stays as it is.
"""

import itertools
import re

import pytest

from scenarios.project import Process, Project
from tickwork import RunStatus

PROGRAM = """
from datetime import timedelta
from pathlib import Path
from tickwork._kernel.clock import SystemClock

offset = Path(__file__).with_name("offset")
real_now = SystemClock.now
SystemClock.now = lambda clock: real_now(clock) + timedelta(
    seconds=int(offset.read_text()) if offset.exists() else 0
)

@app.job
def slow(seconds: float):
    mark("begun")
    time.sleep(seconds)
    mark("done")

@app.job(engine="process")
def slow_in_a_process(seconds: float):
    mark("begun")
    time.sleep(seconds)
    mark("done")

app.schedule("every second", lambda: mark("second")).every_second()
"""
HOUR = 3600
STEP = re.compile(r"was set (forward|back) by (1h|59m 5\ds)")


@pytest.fixture
def shop(sqlite_project: Project) -> Project:
    sqlite_project.write("shop", PROGRAM)
    return sqlite_project


def set_clock(project: Project, seconds: int) -> None:
    new = project.folder / "offset.new"
    new.write_text(str(seconds))
    new.rename(project.folder / "offset")


def gaps_of(project: Project) -> list[float]:
    nominal = sorted(mark["nominal"] for mark in project.marks("second"))
    return [b - a for a, b in itertools.pairwise(nominal)] or [0.0]


def output(process: Process) -> str:
    assert process.wait(30) in {0, 1}, process.log
    return re.sub(r"\s+", " ", process.log)


def test_a_clock_that_is_set_forward(shop):
    workers = [shop.work(), shop.work()]
    runs = [shop.dispatch(job, seconds=6) for job in ("slow", "slow_in_a_process")]
    shop.marked("begun", 2)
    shop.marked("second", 1)

    set_clock(shop, HOUR)
    output(shop.run("collect", "--for", "1s"))

    # It ends no lease of a live worker.
    shop.marked("done", 2, seconds=30)
    for run in runs:
        shop.until(lambda run=run: run.status is RunStatus.COMPLETED, seconds=20)
        assert run.read().attempt == 1
    assert len(shop.marks("begun")) == 2
    for worker in workers:
        # A slow measurement finds a little less than the hour.
        shop.until(lambda worker=worker: STEP.search(worker.log), seconds=30)
    # For schedules it counts as an hour without workers: the missed instants are made up for
    # once, not 3600 times.
    shop.until(lambda: max(gaps_of(shop)) > HOUR - 120, seconds=30)
    nominal = [mark["nominal"] for mark in shop.marks("second")]
    assert len(nominal) < HOUR / 10
    assert len(nominal) == len(set(nominal))


def test_a_clock_that_is_set_back_stops_schedules_and_doctor_warns(shop):
    worker = shop.work()
    shop.marked("second", 3)

    set_clock(shop, -HOUR)

    shop.until(lambda: STEP.search(worker.log), seconds=30)
    count = len(shop.marks("second"))
    found = output(shop.run("doctor"))
    assert "The clock was set back: 1 schedule has fired for a time that is still to come" in found
    assert "every second" in found
    assert len(shop.marks("second")) <= count + 1
    # An instant fires once: when the clock gets there again, the schedule goes on.
    set_clock(shop, 0)
    shop.marked("second", count + 3)
    nominal = [mark["nominal"] for mark in shop.marks("second")]
    assert len(nominal) == len(set(nominal))
