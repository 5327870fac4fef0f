"""Several programs on one database: each firing happens once, and each run finds its program."""

import itertools
import time
from collections import Counter

import pytest

from scenarios.project import figure, now
from tickwork import RunStatus

COMMON = """
@app.job
def common(n: int = 0):
    mark("common")
    time.sleep(0.01)
"""
ONE = (
    COMMON
    + """
@app.job
def only_one():
    mark("only_one")

app.schedule("every second", lambda: mark("second")).every_second()
app.schedule("of one", lambda: mark("of one")).every_two_seconds()
"""
)
TWO = (
    COMMON
    + """
@app.job
async def only_two():
    mark("only_two")

app.schedule("every second", lambda: mark("second")).every_second()
app.schedule("of two", lambda: mark("of two")).every_two_seconds()
"""
)


def test_three_workers_of_different_jobs_a_collect_and_a_dispatcher(project):
    project.write("shop", ONE)
    project.write("shop_two", TWO)
    first, second = project.work(), project.work(name="shop_two")
    third = project.work(name="shop_two")
    collects = [project.run("collect", "--for", "4s")]
    runs = []
    begun = time.monotonic()
    while time.monotonic() < begun + 6:
        runs += [project.dispatch(name) for name in ("common", "only_one", "only_two", "unknown")]
        time.sleep(0.05)

    for run in runs:
        if run.read().job == "unknown":
            assert run.status is RunStatus.PENDING  # no program knows it
        else:
            assert run.wait(30) is RunStatus.COMPLETED
    assert collects[0].wait(30) == 0
    for word, pids in {"only_one": {first.pid, collects[0].pid}, "only_two": None}.items():
        marks = project.marks(word)
        assert len(marks) == len(runs) // 4
        assert pids is None or {mark["pid"] for mark in marks} <= pids
    assert {mark["pid"] for mark in project.marks("only_two")} <= {second.pid, third.pid}
    for word, every in {"second": 1, "of one": 2, "of two": 2}.items():
        instants = sorted(mark["nominal"] for mark in project.marks(word))
        assert max(Counter(instants).values()) == 1, word
        assert {b - a for a, b in itertools.pairwise(instants)} == {every}, word
        assert len(instants) >= 4 / every
    # No schedule is retired because one program does not define it.
    first.terminate()
    first.wait(20)
    count = len(project.marks("second"))
    project.marked("second", count + 3, seconds=20)
    schedules = {row.spec.name: row for row in project.app._services.store.list_schedules()}
    assert schedules.keys() == {"every second", "of one", "of two"}
    assert not any(row.is_paused for row in schedules.values())


SECONDS = """
app.schedule("every second", lambda: mark("second")).every_second()

@app.job
def load(n: int):
    time.sleep(0.002)
"""


def under_load(project):
    """Two workers that fire each second, while another thread keeps them busy."""
    project.write("shop", SECONDS)
    project.work()
    project.work()
    load = project.python(
        "import shop, time\n"
        "while True:\n"
        "    shop.load.dispatch_many([{'n': n} for n in range(20)])\n"
        "    time.sleep(0.05)\n"
    )
    project.marked("second", 2)
    return load


def fires_each_second(projects, seconds):
    loads = [under_load(project) for project in projects]
    begun = now()
    time.sleep(seconds)
    for load in loads:
        load.kill()
    time.sleep(1)  # runs that have fired by then have time to run
    for project in projects:
        marks = sorted(
            (mark for mark in project.marks("second") if mark["nominal"] > begun),
            key=lambda mark: mark["nominal"],
        )
        check_each_second(project, marks, seconds)


def check_each_second(project, marks, seconds):
    instants = [mark["nominal"] for mark in marks]
    assert len(instants) >= seconds - 1
    assert {b - a for a, b in itertools.pairwise(instants)} == {1.0}
    lateness = [mark["at"] - mark["nominal"] for mark in marks]
    late = sorted(lateness)
    p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
    figure(
        f"{project.url.partition(':')[0]}: {len(late)} firings, late by p50 {p50 * 1000:.1f} ms, "
        f"p99 {p99 * 1000:.1f} ms, at most {late[-1] * 1000:.1f} ms"
    )
    assert late[0] > -0.05
    # Without drift: the end is as late as the beginning.
    half = len(marks) // 2
    assert sorted(lateness[half:])[half // 2] < sorted(lateness[:half])[half // 2] + 0.25


def test_every_second_fires_once_each_second_under_load(projects):
    fires_each_second(projects, 30)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_second_for_five_minutes(projects):
    fires_each_second(projects, 300)


def test_a_short_delay_wakes_an_idle_worker(project):
    project.write("shop", COMMON)
    project.work()
    time.sleep(2)  # by now it polls rarely
    late = []
    for _ in range(5):
        due_at = now() + 0.3
        count = len(project.marks("common"))
        project.dispatch("common", delay=0.3)
        late.append(project.marked("common", count + 1)[-1]["at"] - due_at)

    figure(f"a delayed run begins late by at most {max(late) * 1000:.0f} ms")
    assert min(late) > -0.05
    assert sorted(late)[2] < 0.25


def test_a_dispatch_wakes_an_idle_worker(project):
    project.write("shop", COMMON)
    project.work()
    time.sleep(2)
    late = []
    for _ in range(10):
        begun_at, count = now(), len(project.marks("common"))
        project.dispatch("common")
        late.append(project.marked("common", count + 1)[-1]["at"] - begun_at)
        time.sleep(0.1)

    figure(f"a run begins {sorted(late)[5] * 1000:.1f} ms after its dispatch (p50)")
    assert sorted(late)[5] < 0.1
