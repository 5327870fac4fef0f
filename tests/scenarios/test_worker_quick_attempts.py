"""The threads that claim runs also make quick attempts, and are replaced when one is not quick."""

import threading
import time
from typing import Any

import pytest

from tickwork import RunHandle, RunStatus, Tickwork


@pytest.fixture
def app(tmp_path):
    app = Tickwork(f"sqlite:///{tmp_path}/jobs.db")
    app.install()
    yield app
    app.close()


class Blocker:
    """A job that is quick unless its argument makes it wait, and the threads that ran it."""

    def __init__(self, app: Tickwork) -> None:
        self.may_return = threading.Event()
        self.threads: list[str] = []

        @app.job
        def work(n: int, *, is_blocking: bool = False) -> int:
            self.threads.append(threading.current_thread().name)
            if is_blocking:
                assert self.may_return.wait(30)
            return n

        self.job = work

    def warm_up(self) -> None:
        """Run the job until the worker knows that it is quick."""
        deadline = time.monotonic() + 30
        while "tickwork-pump" not in self.threads[-50:]:
            assert time.monotonic() < deadline, self.threads[-50:]
            self.wait_for(self.job.dispatch_many([{"n": n} for n in range(100)]))

    def wait_for(self, handles: list[RunHandle[Any]]) -> list[RunStatus]:
        return [handle.wait(timeout=30) for handle in handles]


def test_a_quick_job_is_run_by_the_thread_that_claimed_it(app):
    blocker = Blocker(app)
    with app.running(threads=4):
        blocker.warm_up()


def test_a_handler_that_blocks_does_not_keep_others_from_finishing(app):
    blocker = Blocker(app)
    with app.running(threads=4):
        blocker.warm_up()
        stuck = blocker.job.dispatch(n=-1, is_blocking=True)
        others = blocker.job.dispatch_many([{"n": n} for n in range(200)])

        done = blocker.wait_for(others)

        assert set(done) == {RunStatus.COMPLETED}
        assert stuck.status is RunStatus.RUNNING
        blocker.may_return.set()
        assert stuck.wait(timeout=30) is RunStatus.COMPLETED


def test_a_new_pump_makes_quick_attempts_while_another_is_stuck(app):
    blocker = Blocker(app)
    with app.running(threads=4):
        blocker.warm_up()
        stuck = blocker.job.dispatch(n=-1, is_blocking=True)
        blocker.wait_for(blocker.job.dispatch_many([{"n": n} for n in range(200)]))
        blocker.threads.clear()
        blocker.threads.append("")

        blocker.warm_up()

        assert stuck.status is RunStatus.RUNNING
        blocker.may_return.set()


def test_a_stop_waits_for_the_attempt_that_blocks_its_thread(app):
    blocker = Blocker(app)
    with app.running(threads=4):
        blocker.warm_up()
        stuck = blocker.job.dispatch(n=-1, is_blocking=True)
        blocker.wait_for([blocker.job.dispatch(n=1)])
        threading.Timer(0.3, blocker.may_return.set).start()

    assert stuck.status is RunStatus.COMPLETED


def test_a_quick_run_waits_while_all_slots_are_taken(app):
    blocker = Blocker(app)
    with app.running(threads=1):
        blocker.warm_up()
        blocker.job.dispatch(n=-1, is_blocking=True)
        others = blocker.job.dispatch_many([{"n": n} for n in range(5)])
        time.sleep(0.5)  # the handler that blocks has the only slot: nothing may start

        assert not any(run.status.is_final for run in others)

        blocker.may_return.set()
        assert set(blocker.wait_for(others)) == {RunStatus.COMPLETED}
