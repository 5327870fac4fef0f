"""Programs and handlers that fork beside a running worker.

A forked process has its own connections, none of the worker's threads, and the usual signals.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from scenarios.project import Process, Project, is_there
from tickwork import RunStatus
from tickwork._stores.contract import RunFilter
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import StoreUnavailable

FORKS = 12

PROGRAM = """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
fork = multiprocessing.get_context("fork")
FORKS = 12

@app.job
def load(n: int):
    pass

@app.job
def note(n: int):
    mark("note", n=n)

def child(n):
    note.dispatch(n=n)
    mark("child", threads=threading.active_count())

def fork_children(count):
    for n in range(count):
        process = fork.Process(target=child, args=(n,))
        process.start()
        process.join(20)
        if process.exitcode != 0:
            mark("failed", exitcode=process.exitcode)
            process.kill()
            raise RuntimeError(f"child {n}: {process.exitcode}")

@app.job
def parent():
    fork_children(FORKS)

@app.job
def leaks(how: str):
    if os.fork():
        return "the handler"
    mark("forked")
    if how == "sleep":
        time.sleep(60)
    if how == "raise":
        raise ValueError("in the forked process")
    return "the forked process"

@app.job
async def leaks_as_a_coroutine(how: str):
    if os.fork():
        return "the handler"
    mark("forked")
    if how == "raise":
        raise ValueError("in the forked process")
    await asyncio.sleep(0.1)
    return "the forked process"

@app.job(on_success=lambda: mark("hook"), on_error=lambda: mark("hook"))
def leaks_with_hooks(how: str):
    if os.fork():
        return "the handler"
    mark("forked")
    if how == "raise":
        raise ValueError("in the forked process")

def keep_busy():
    while True:
        load.dispatch_many([{"n": n} for n in range(20)])
        time.sleep(0.005)

if __name__ == "__main__":
    app.start()
    threading.Thread(target=keep_busy, daemon=True).start()
    time.sleep(0.3)
    fork_children(FORKS)
    mark("done")
    app.stop()
"""


@pytest.fixture
def shop(project: Project) -> Project:
    project.write("shop", PROGRAM)
    return project


def test_children_of_a_handler_dispatch_with_the_application(shop):
    worker = shop.work()
    shop.python("import shop; shop.keep_busy()")

    run = shop.dispatch("parent")

    assert run.wait(60) is RunStatus.COMPLETED, shop.render_output()
    assert {mark["n"] for mark in shop.marked("note", FORKS)} == set(range(FORKS))
    assert {mark["threads"] for mark in shop.marks("child")} == {1}
    assert worker.is_alive


def test_children_of_a_program_with_a_worker_dispatch_with_the_application(shop):
    program = shop.program("shop.py")

    assert program.wait(60) == 0, shop.render_output()
    assert len(shop.marks("child")) == FORKS
    assert not shop.marks("failed")


JOBS = ["leaks", "leaks_as_a_coroutine", "leaks_with_hooks"]


@pytest.mark.parametrize("how", ["return", "raise"])
@pytest.mark.parametrize("job", JOBS)
def test_a_process_that_leaves_the_handler_ends(sqlite_project, job, how):
    sqlite_project.write("shop", PROGRAM)
    worker = sqlite_project.work()

    run = sqlite_project.dispatch(job, how=how)

    assert run.wait(20) is RunStatus.COMPLETED
    assert run.result() == "the handler"
    [mark] = sqlite_project.marked("forked")
    sqlite_project.until(lambda: not is_there(mark["pid"]), seconds=10)
    assert {mark["pid"] for mark in sqlite_project.marks("hook")} <= {worker.pid}
    assert sqlite_project.dispatch("note", n=1).wait(20) is RunStatus.COMPLETED
    assert worker.is_alive


def test_a_forked_process_ends_on_sigterm_and_the_worker_goes_on(shop):
    worker = shop.work()
    wait_for_connections(shop, worker)
    shop.dispatch("leaks", how="sleep")
    [mark] = shop.marked("forked")

    assert held_descriptors(mark["pid"]) == []
    os.kill(mark["pid"], signal.SIGTERM)

    shop.until(lambda: not is_there(mark["pid"]), seconds=5)
    assert shop.dispatch("note", n=1).wait(20) is RunStatus.COMPLETED
    assert worker.is_alive
    worker.terminate()
    assert worker.wait(20) == 0


def wait_for_connections(project: Project, worker: Process) -> None:
    """Wait until the worker has opened its connections: one that it opens is inherited."""
    counts: deque[int] = deque(maxlen=100)

    def is_stable() -> bool:
        counts.append(len(held_descriptors(worker.pid)))
        return len(counts) == counts.maxlen and len(set(counts)) == 1

    assert project.dispatch("note", n=0).wait(20) is RunStatus.COMPLETED
    project.until(is_stable, seconds=20)


def held_descriptors(pid: int) -> list[str]:
    """The descriptors of the worker that a forked process still has."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(str(path.readlink()))
    return [
        link
        for link in links
        if link.startswith(("socket:", "pipe:", "anon_inode:")) or "jobs.db" in link
    ]


# ---------------------------------------------------------------- the file


def in_a_fork(act: Callable[[], object]) -> int:
    """Call a function in a forked process; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if act() else 1)
        except BaseException:  # noqa: BLE001  # it must not go on as a second test run
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestSqliteFile:
    def test_a_child_has_locks_of_its_own(self, sqlite_project):
        """The last process that closes the file deletes its log: the parent is not the last."""
        app = sqlite_project.app
        app.remote("note").dispatch(n=0)
        (gate_in, gate_out), (back_in, back_out) = os.pipe(), os.pipe()

        def child() -> bool:
            app.remote("note").dispatch(n=1)
            os.write(back_out, b"1")
            os.read(gate_in, 1)  # meanwhile the parent closes the file
            app.remote("note").dispatch(n=2)
            return True

        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(in_a_fork, child)
            os.read(back_in, 1)
            app.remote("note").dispatch(n=3)
            app.close()
            os.write(gate_out, b"1")
            assert ended.result(20) == 0
        for number in (gate_in, gate_out, back_in, back_out):
            os.close(number)

        found = {
            json.loads(run.args)["n"] for run in app._services.store.list_runs(RunFilter()).runs
        }
        assert found == {0, 1, 2, 3}

    def test_a_fork_inside_a_transaction_is_an_error_and_not_a_deadlock(self, tmp_path):
        store = SqliteStore(tmp_path / "jobs.db")
        store.install()

        def child() -> bool:
            with pytest.raises(StoreUnavailable, match="forked in the middle of a transaction"):
                store.list_workers()
            return True

        writer = store._writer
        with writer.transaction():
            code = in_a_fork(child)

        assert code == 0
        assert store.list_workers() == []
        store.close()

    def test_a_child_of_a_store_in_memory_has_a_copy(self):
        store = SqliteStore(":memory:")
        store.install()

        assert in_a_fork(lambda: store.schema_version() > 0) == 0
        store.close()

    def test_two_threads_that_fork_at_once_do_not_wait_for_each_other(self, tmp_path):
        program = tmp_path / "forks.py"
        program.write_text(
            "import os, threading\n"
            "from tickwork import Tickwork\n"
            "app = Tickwork('sqlite:///jobs.db')\n"
            "together = threading.Barrier(4)\n"
            "@app.job\n"
            "def forks() -> int:\n"
            "    together.wait(20)\n"
            "    for _ in range(10):\n"
            "        if (pid := os.fork()) == 0:\n"
            "            os._exit(0)\n"
            "        os.waitpid(pid, 0)\n"
            "    return 10\n"
            "with app.running():\n"
            "    runs = [forks.dispatch() for _ in range(4)]\n"
            "    assert [run.result(20) for run in runs] == [10] * 4\n"
        )

        subprocess.run([sys.executable, program], cwd=tmp_path, timeout=30, check=True)
