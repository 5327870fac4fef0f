"""Runs in Dask workers that do not reach the database: their results return with futures."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.dask_cluster import DaskCluster
from tickwork import RunStatus, Tickwork

pytestmark = pytest.mark.timeout(240)

JOBS = """
import asyncio
import logging
import os
import time

from tickwork import RunContext, Tickwork
from tickwork._engines.remote import dask_results

dask_results.POLL_EVERY = 0.005  # polls of some runs time out while results of others are read
app = Tickwork(os.environ["JOBS_URL"])
app.engine_options["dask_results"] = os.environ["DASK_ADDRESS"]


def note_call(what):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{what} {os.getpid()}\\n")


def note_result(ctx, result):
    note_call(f"hook-{result}")


@app.job(engine="dask_results", on_success=note_result)
def double(number: int, seconds: float = 0.0) -> int:
    note_call(number)
    logging.getLogger("jobs").warning("number %d", number)
    time.sleep(seconds)
    return 2 * number


class OutOfPaper(Exception):
    def __init__(self, printer):
        super().__init__(f"{printer} has no paper")
        self.printer = printer

    def __reduce__(self):
        return OutOfPaper, (self.printer,)


class Unsendable(Exception):
    def __reduce__(self):
        raise TypeError("it cannot be pickled")


def note_error(ctx, error):
    note_call(f"error-{type(error).__name__}-{getattr(error, 'printer', '')}")


@app.job(engine="dask_results", on_error=note_error)
def fails() -> None:
    raise OutOfPaper("lp0")


@app.job(engine="dask_results", on_error=note_error)
def fails_unsendably() -> None:
    raise Unsendable("no")


@app.job(engine="dask_results", on_error=note_error, timeout="200ms")
async def is_late() -> None:
    await asyncio.sleep(60)


@app.job(engine="dask_results")
def saves(ctx: RunContext) -> None:
    ctx.checkpoint({"half": True})


@app.job(engine="dask_results")
def leaves() -> None:
    raise SystemExit(3)
"""


class ResultsHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "result_jobs.py").write_text(JOBS)
        self.calls_path = folder / "calls"
        self.calls_path.touch()
        url = f"sqlite:///{folder}/jobs.db?synchronous=NORMAL"
        self.app = Tickwork(url, install=True)
        environment = {
            "CALLS": str(self.calls_path),
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
            # The workers of the cluster would notice if they opened it.
            "JOBS_URL": "postgresql://127.0.0.1:9/none",
            "DASK_ADDRESS": "",
        }
        self.cluster = DaskCluster(folder, environment=environment)
        self.environment = {
            **os.environ, **environment, "JOBS_URL": url, "DASK_ADDRESS": self.cluster.address,
        }  # fmt: skip
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> None:
        with (self.folder / "worker.log").open("ab") as log:
            command = ["-m", "tickwork", "-a", "result_jobs:app", "work", "--drain", "1s"]
            self.workers.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env=self.environment,
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                )
            )

    def kill_worker(self) -> None:
        process = self.workers.pop(0)
        process.kill()
        process.wait()

    def dispatch(self, job: str, **args: Any) -> Any:
        return self.app.remote(job).dispatch(**args)

    def calls(self, what: object) -> list[int]:
        lines = [line.split() for line in self.calls_path.read_text().splitlines()]
        return [int(pid) for name, pid in lines if name == str(what)]

    def until(self, check: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not check():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        return (self.folder / "worker.log").read_text()[-3000:] + self.cluster.log()

    def close(self) -> None:
        while self.workers:
            self.kill_worker()
        self.app.close()
        self.cluster.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultsHarness]:
    harness = ResultsHarness(tmp_path_factory.mktemp("results"))
    harness.cluster.start()
    harness.start_worker()
    yield harness
    harness.close()


@pytest.fixture
def harness(shared: ResultsHarness) -> ResultsHarness:
    shared.calls_path.write_text("")
    return shared


def test_results_hooks_and_log_lines_reach_the_database(harness):
    runs = [harness.dispatch("double", number=number) for number in range(10)]

    assert [run.result(timeout=60) for run in runs] == [2 * number for number in range(10)]

    [there] = harness.calls(3)
    [here] = harness.calls("hook-6")
    assert there in {process.pid for process in harness.cluster.workers}
    assert here == harness.workers[0].pid
    assert runs[3].read().external_id is None  # this worker has it all the time
    harness.until(lambda: "number 3" in [line.message for line in runs[3].log()])


def test_polls_of_other_runs_do_not_disturb_the_read_of_a_result(harness):
    runs = [harness.dispatch("double", number=number, seconds=0.05) for number in range(20, 60)]

    assert [run.result(timeout=60) for run in runs] == [2 * number for number in range(20, 60)]


def test_what_needs_the_database_fails_with_the_reason(harness):
    saves, leaves = harness.dispatch("saves"), harness.dispatch("leaves")

    harness.until(lambda: saves.read().is_finished and leaves.read().is_finished)

    assert "needs the database, which this process does not reach" in saves.read().reason
    assert "SystemExit" in leaves.read().reason


def test_hooks_get_the_exception_that_the_handler_raised(harness):
    run = harness.dispatch("fails")

    harness.until(lambda: run.read().is_finished)

    assert harness.calls("error-OutOfPaper-lp0")
    assert run.read().reason == "OutOfPaper: lp0 has no paper"


def test_hooks_get_a_report_of_an_exception_that_cannot_be_sent(harness):
    run = harness.dispatch("fails_unsendably")

    harness.until(lambda: run.read().is_finished)

    assert harness.calls("error-RunUnsuccessful-")
    assert run.read().reason == "Unsendable: no"


def test_hooks_get_attempt_timeout(harness):
    run = harness.dispatch("is_late")

    harness.until(lambda: run.read().is_finished)

    assert harness.calls("error-AttemptTimeout-")


def test_a_run_that_was_submitted_while_no_dask_worker_existed_can_be_canceled(harness):
    for place in reversed(range(len(harness.cluster.workers))):
        harness.cluster.kill_worker(place)
    run = harness.dispatch("double", number=11)
    harness.until(lambda: run.read().status is RunStatus.RUNNING)

    run.cancel()
    harness.until(lambda: run.read().is_finished)
    for _ in range(2):
        harness.cluster.start_worker()

    assert run.read().status is RunStatus.CANCELED
    assert harness.dispatch("double", number=12).result(timeout=60) == 24
    assert harness.calls(11) == []


def test_a_cancel_does_not_drop_a_result_that_a_dask_worker_makes(harness):
    run = harness.dispatch("double", number=13, seconds=1.0)
    harness.until(lambda: harness.calls(13))

    run.cancel()

    assert run.result(timeout=60) == 26


def test_a_dask_worker_is_killed_under_a_run(harness):
    run = harness.dispatch("double", number=7, seconds=1.5)
    harness.until(lambda: harness.calls(7))
    [pid] = harness.calls(7)
    [place] = [n for n, each in enumerate(harness.cluster.workers) if each.pid == pid]

    harness.cluster.kill_worker(place)

    assert run.result(timeout=60) == 14
    harness.cluster.start_worker()
    assert len(harness.calls(7)) >= 2  # Dask decides how often; the outcome is recorded once
    assert len(harness.calls("hook-14")) == 1
    assert run.read().crashes == 0  # Dask has started it again, which is no attempt for tickwork


def test_the_worker_that_waits_for_a_result_is_killed(harness):
    run = harness.dispatch("double", number=8, seconds=1.5)
    harness.until(lambda: harness.calls(8))

    harness.kill_worker()
    harness.start_worker()

    assert run.result(timeout=60) == 16
    assert len(harness.calls("hook-16")) == 1
    assert run.read().crashes == 1


def test_the_scheduler_is_killed(harness):
    run = harness.dispatch("double", number=9, seconds=1.5)
    harness.until(lambda: harness.calls(9))

    harness.cluster.kill_scheduler()
    later = harness.dispatch("double", number=10)
    harness.cluster.restart()

    assert [run.result(timeout=60), later.result(timeout=60)] == [18, 20]
    assert run.read().status is RunStatus.COMPLETED
    assert (run.read().crashes, len(harness.calls("hook-18"))) == (0, 1)
