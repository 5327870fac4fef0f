"""Jobs with engine=process: a child process can be killed, and no other run is affected."""

from datetime import date

import pytest

from scenarios.project import is_there
from tickwork import RunStatus

JOBS = """
@app.job(engine="process")
def double(n: int, ctx: RunContext):
    mark("double")
    logging.getLogger("shop").warning("doubling %d", n)
    ctx.progress(0.5)
    print("handlers may print")
    return 2 * n

@app.job(engine="process")
async def double_async(n: int):
    await asyncio.sleep(0.01)
    return 2 * n

import dataclasses, datetime

@dataclasses.dataclass
class Order:
    sku: str
    day: datetime.date

@app.job(engine="process")
def ship(order: Order) -> Order:
    return dataclasses.replace(order, day=order.day + datetime.timedelta(days=1))

@app.job(engine="process", crashes=2, on_error=lambda ctx, error: mark("on_error"))
def segfaults():
    mark("segfaults")
    logging.getLogger("shop").warning("last words")
    ctypes.string_at(0)

@app.job(engine="process", attempts=2)
def raises(kind: str):
    mark("raises")
    raise {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt()}[kind]

@app.job(engine="process", timeout=0.5, on_error=lambda ctx, error: mark("on_error"))
def spins():
    mark("spins")
    try:
        while True:
            pass
    finally:
        mark("cleaned up")

@app.job(engine="process", timeout=0.5)
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mark("deaf")
    while True:
        time.sleep(1)

@app.job(engine="process", on_after=lambda ctx, outcome: mark("after " + type(outcome).__name__))
def sleeps(seconds: float = 60):
    mark("sleeps")
    time.sleep(seconds)

@app.job
def plain():
    mark("plain")
"""


@pytest.fixture
def worker(project):
    project.write("shop", JOBS)
    return project.work()


def test_attempts_in_child_processes_have_results_logs_and_progress(project, worker):
    runs = [project.dispatch("double", n=n) for n in range(10)]
    others = [project.dispatch("double_async", n=n) for n in range(5)]

    assert [run.result(60) for run in runs] == [2 * n for n in range(10)]
    assert [run.result(60) for run in others] == [2 * n for n in range(5)]
    pids = {mark["pid"] for mark in project.marks("double")}
    assert worker.pid not in pids
    assert 1 <= len(pids) <= 2
    assert [line.message for line in runs[3].log()] == ["doubling 3"]
    assert runs[3].read().progress is not None
    worker.terminate()
    assert worker.wait(30) == 0
    assert not any(map(is_there, pids))


def test_a_child_rebuilds_arguments_and_checks_them(project, worker):
    run = project.dispatch("ship", order={"sku": "a", "day": "2026-02-28"})
    wrong = project.dispatch("ship", order={"sku": "a"})

    assert run.result(60) == {"sku": "a", "day": date(2026, 3, 1)}
    assert wrong.wait(60) is RunStatus.FAILED_PERMANENT
    assert "order lacks 'day'" in wrong.read().reason


def test_a_child_that_dies_is_a_crash_of_its_run_alone(project, worker):
    run = project.dispatch("segfaults")
    beside = [project.dispatch("double", n=n) for n in range(5)]

    assert run.wait(60) is RunStatus.FAILED_PERMANENT

    found = run.read()
    assert found.crashes == 2
    assert "SIGSEGV" in found.reason
    assert [attempt.outcome for attempt in run.attempts()] == ["crashed", "crashed"]
    assert "last words" in {line.message for line in run.log()}
    assert len(project.marks("on_error")) == 2
    assert [each.result(60) for each in beside] == [0, 2, 4, 6, 8]
    assert worker.is_alive


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_an_exception_in_a_child_is_a_failed_attempt(project, worker, kind):
    run = project.dispatch("raises", kind=kind)

    assert run.wait(60) is RunStatus.FAILED_PERMANENT

    assert kind in run.read().reason
    assert len(project.marks("raises")) == 2


@pytest.mark.parametrize("job", ["spins", "deaf"])
def test_a_child_that_exceeds_its_timeout_is_killed(project, worker, job):
    run = project.dispatch(job)

    assert run.wait(60) is RunStatus.FAILED_PERMANENT

    assert "AttemptTimeout" in run.read().reason
    pid = project.marks(job)[0]["pid"]
    project.until(lambda: not is_there(pid), seconds=10)
    if job == "spins":
        assert project.marks("cleaned up")
        assert project.marks("on_error")
    assert project.dispatch("double", n=4).result(60) == 8


def test_a_child_whose_run_is_canceled_is_killed(project, worker):
    run = project.dispatch("sleeps")
    pid = project.marked("sleeps", seconds=30)[0]["pid"]

    run.cancel()

    assert run.wait(30) is RunStatus.CANCELED
    assert project.marks("after Canceled")
    project.until(lambda: not is_there(pid), seconds=10)


def test_children_end_with_their_parent(project, worker):
    project.dispatch("sleeps")
    pid = project.marked("sleeps", seconds=30)[0]["pid"]

    worker.kill()

    project.until(lambda: not is_there(pid), seconds=10)


def test_a_stopped_worker_releases_the_runs_of_its_children(project):
    project.write("shop", JOBS)
    worker = project.work("--drain", "0.2s")
    run = project.dispatch("sleeps")
    pid = project.marked("sleeps", seconds=30)[0]["pid"]

    worker.terminate()

    assert worker.wait(30) == 0
    assert not is_there(pid)
    found = run.read()
    assert (found.status, found.attempt, found.crashes) == (RunStatus.PENDING, 0, 0)


def test_children_import_a_program_that_was_started_as_a_file(sqlite_project):
    project = sqlite_project
    project.write(
        "program",
        JOBS
        + """
if __name__ == "__main__":
    with app.running():
        print("doubled", double.dispatch(n=4).result(50), flush=True)
""",
    )

    program = project.program("program.py")

    assert program.wait(60) == 0, program.log
    assert "doubled 8" in program.log


def test_an_application_that_cannot_be_imported_is_rejected_at_the_start(sqlite_project):
    project = sqlite_project
    program = project.python(
        "from tickwork import Tickwork\n"
        "def f():\n"
        f"    app = Tickwork({project.url!r})\n"
        "    app.job(name='x', engine='process')(print_it)\n"
        "    app.start()\n"
        "def print_it(): pass\n"
        "f()\n"
    )

    assert program.wait(30) == 1
    assert "that no module holds" in program.log


RUN_ONCE = """
import os
from shop import app

runs = [app.dispatch("double", n=21), app.dispatch("spins"), app.dispatch("segfaults")]
while app.run():
    pass
print(os.getpid(), runs[0].result(), runs[1].status, runs[1].read().reason, runs[2].read().crashes)
"""


def test_a_single_pass_uses_child_processes(sqlite_project):
    project = sqlite_project
    project.write("shop", JOBS)
    program = project.python(RUN_ONCE)

    assert program.wait(60) == 0, program.log
    assert " 42 failed_permanent AttemptTimeout" in program.log
    assert program.log.strip().endswith(" 2")
    pids = {mark["pid"] for mark in project.marks("double")}
    assert program.pid not in pids
    assert not any(map(is_there, pids))
    assert len(project.marks("cleaned up")) == 1
