"""Handlers that damage the process of their worker: what its other runs notice of it."""

import pytest

from scenarios.project import is_there
from tickwork import RunStatus

DAMAGE = """
import resource
from tickwork._engines.wire import ProcessRole

DAMAGES = {
    "environment": lambda: os.environ.clear(),
    "executable": lambda: setattr(sys, "executable", ""),
    "path": lambda: sys.path.clear(),
    "recursion": lambda: sys.setrecursionlimit(60),
    "folder": lambda: os.chdir("/"),
    "files": lambda: limit_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    "files for good": lambda: limit_files(50),
}
if ProcessRole.is_child:
    needed = [open(os.devnull) for _ in range(60)]

def limit_files(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, hard))

def leave_no_descriptor():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some for the database; a process needs more.
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 1, hard))
    return soft, hard

@app.job
def damages(what: str):
    DAMAGES[what]()

@app.job
def takes_descriptors(seconds: float):
    limits = leave_no_descriptor()
    mark("taken")
    time.sleep(seconds)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)

@app.job(engine="process")
def double(n: int):
    return 2 * n

@app.job
def triple(n: int):
    return 3 * n

@app.job
async def waits(seconds: float):
    mark("waits")
    await asyncio.sleep(seconds)
    return "waited"

@app.job
async def stops_the_loop(how: str):
    loop = asyncio.get_running_loop()
    if how == "callback":
        loop.call_soon(sys.exit, 3)
    elif how == "task":
        asyncio.create_task(leave())
    else:
        loop.stop()
    await asyncio.sleep(20)

async def leave():
    raise KeyboardInterrupt
"""

BROKEN_IMPORT = """
from tickwork._engines.wire import ProcessRole

@app.job(engine="process")
def double(n: int):
    return 2 * n

if ProcessRole.is_child:
    raise ValueError("only in a child")
"""


@pytest.fixture
def damaged(sqlite_project):
    sqlite_project.write("shop", DAMAGE)
    return sqlite_project


class TestChildrenOfADamagedWorker:
    """Child processes start from what the worker was when it started."""

    @pytest.mark.parametrize(
        "what", ["environment", "executable", "path", "recursion", "folder", "files"]
    )
    def test_they_start_as_before(self, damaged, what):
        worker = damaged.work()
        assert damaged.dispatch("damages", what=what).wait(30) is RunStatus.COMPLETED

        run = damaged.dispatch("double", n=4)

        assert run.wait(30) is RunStatus.COMPLETED, (run.read().reason, damaged.render_output())
        assert run.result() == 8
        worker.terminate()
        assert worker.wait(30) == 0

    def test_a_relative_path_keeps_its_meaning(self, damaged):
        program = damaged.python("""
import sys, shop
assert sys.path[0] == ""
with shop.app.running():
    shop.damages.dispatch(what="folder").result(30)
    print("doubled", shop.double.dispatch(n=4).result(30), flush=True)
""")

        assert program.wait(60) == 0, program.log
        assert "doubled 8" in program.log

    def test_a_child_that_gets_no_descriptor_starts_later(self, damaged):
        damaged.work()
        blocker = damaged.dispatch("takes_descriptors", seconds=0.5)
        damaged.marked("taken")

        run = damaged.dispatch("double", n=4)

        assert run.wait(30) is RunStatus.COMPLETED, (run.read().reason, damaged.render_output())
        assert blocker.wait(30) is RunStatus.COMPLETED
        assert run.read().attempt == 1
        assert {attempt.outcome for attempt in run.attempts()} <= {"interrupted", "succeeded"}

    def test_a_child_that_cannot_import_the_application_is_a_crash(self, sqlite_project):
        sqlite_project.write("shop", BROKEN_IMPORT)
        sqlite_project.work()

        run = sqlite_project.dispatch("double", n=4)

        assert run.wait(30) is RunStatus.FAILED_PERMANENT
        assert "could not load the application: ValueError: only in a child" in run.read().reason
        assert [attempt.outcome for attempt in run.attempts()] == ["crashed"] * 3

    @pytest.mark.parametrize("how", ["no descriptor", "lower limit"])
    def test_without_any_child_its_runs_are_left_to_other_workers(self, damaged, how):
        worker = damaged.work()
        if how == "no descriptor":
            damaged.dispatch("takes_descriptors", seconds=60)
            damaged.marked("taken")
        else:  # the application cannot be imported with it
            damaged.dispatch("damages", what="files for good").wait(30)

        run = damaged.dispatch("double", n=4)

        damaged.until(
            lambda: "process engine of this process can start no" in worker.log, seconds=30
        )
        damaged.until(lambda: run.status is RunStatus.PENDING, seconds=10)
        assert (run.read().attempt, run.read().crashes) == (0, 0)
        damaged.work()
        assert run.wait(30) is RunStatus.COMPLETED
        assert is_there(worker.pid)


class TestStoppedLoop:
    @pytest.mark.parametrize("how", ["callback", "task", "stop"])
    def test_only_the_run_that_stops_the_loop_fails(self, damaged, how):
        worker = damaged.work()
        beside = [damaged.dispatch("waits", seconds=1.0) for _ in range(10)]
        damaged.marked("waits", 10)

        culprit = damaged.dispatch("stops_the_loop", how=how)

        assert culprit.wait(30) is RunStatus.FAILED_PERMANENT
        assert "stop" in culprit.read().reason
        assert [run.result(30) for run in beside] == ["waited"] * 10
        assert {run.read().attempt for run in beside} == {1}
        assert damaged.dispatch("waits", seconds=0.0).result(30) == "waited"
        worker.terminate()
        assert worker.wait(30) == 0
