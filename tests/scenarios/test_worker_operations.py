"""What users do with workers: cancel, wait, lock, inspect, embed."""

import json
import logging
import signal
import subprocess
import sys
import threading
import time

import pytest

from scenarios.project import figure
from tickwork import RunStatus, Tickwork
from tickwork._domain.health import WorkerState
from tickwork.app import worker_composition
from tickwork.errors import AlreadyStarted

JOBS = """
@app.job
def watchful(ctx: RunContext):
    mark("begun")
    while not ctx.is_canceled():
        time.sleep(0.01)
    mark("saw it")

@app.job(on_after=lambda ctx, outcome: mark("after " + type(outcome).__name__))
async def dreamer():
    mark("begun")
    try:
        await asyncio.sleep(60)
    finally:
        mark("ended")

@app.job
def talks(ctx: RunContext):
    logging.getLogger("shop").warning("here we are")
    ctx.progress(0.5, note="half way")
    mark("begun")
    time.sleep(0.2)
    ctx.log.warning("and done")
    return "logged"

@app.job
def fails():
    raise ValueError("no")
"""


@pytest.mark.parametrize(("job", "word"), [("watchful", "saw it"), ("dreamer", "ended")])
def test_a_running_run_is_canceled(project, job, word):
    project.write("shop", JOBS)
    project.work()
    run = project.dispatch(job)
    project.marked("begun")

    assert run.cancel()

    begun = time.monotonic()
    assert run.wait(20) is RunStatus.CANCELED
    figure(f"canceled after {time.monotonic() - begun:.2f} s")
    assert project.marks(word)
    if job == "dreamer":
        assert project.marks("after Canceled")


def test_log_lines_and_progress_are_visible_while_a_run_runs(project):
    project.write("shop", JOBS)
    project.work()
    run = project.dispatch("talks")
    project.marked("begun")

    assert json.loads(run.read().progress)["note"] == "half way"
    assert run.result(20) == "logged"
    assert [line.message for line in run.log()] == ["here we are", "and done"]


def test_the_second_exclusive_worker_is_rejected_with_the_name_of_the_first(project):
    project.write("shop", JOBS)
    first = project.work("--exclusive")

    second = project.run("work", "--exclusive")

    assert second.wait(20) == 1
    assert str(first.pid) in second.log
    assert "Traceback" not in second.log
    first.terminate()
    assert first.wait(20) == 0
    third = project.work("--exclusive")
    assert third.is_alive


def test_after_kill_9_the_next_exclusive_worker_of_the_machine_starts_at_once(sqlite_project):
    sqlite_project.write("shop", JOBS)
    sqlite_project.work("--exclusive").kill()

    second = sqlite_project.work("--exclusive")

    assert second.is_alive


def test_the_exit_code_of_collect_is_whether_a_run_failed(project):
    project.write("shop", JOBS)
    good = project.dispatch("talks")
    assert project.run("collect").wait(20) == 0
    assert good.status is RunStatus.COMPLETED

    project.dispatch("fails")

    bad = project.run("collect")
    assert bad.wait(20) == 1
    assert "1 attempt failed." in bad.log


def test_status_shows_the_workers(project):
    project.write("shop", JOBS)
    worker = project.work()

    shown = subprocess.run(
        [sys.executable, "-m", "tickwork", "-a", "shop:app", "status", "--json"],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        check=True,
        timeout=30,
    )

    found = json.loads(shown.stdout)
    assert [each["pid"] for each in found["workers"]] == [worker.pid]
    worker.terminate()
    worker.wait(20)
    assert project.app.status()["workers"] == []


def test_an_idle_worker_needs_little_cpu_time(projects):
    workers = []
    for project in projects:
        project.write("shop", JOBS)
        workers.append(project.work())
    time.sleep(4)
    before, begun = [worker.cpu_seconds() for worker in workers], time.monotonic()

    time.sleep(10)

    for project, worker, spent in zip(projects, workers, before, strict=True):
        share = (worker.cpu_seconds() - spent) / (time.monotonic() - begun)
        size = worker.rss_megabytes()
        figure(f"{project.url.partition(':')[0]}, idle: {share:.2%} of a core, {size:.1f} MB")
        assert share < 0.03
        assert size < 60


class TestEmbedded:
    @pytest.fixture
    def app(self, tmp_path):
        with Tickwork(f"sqlite:///{tmp_path}/jobs.db") as app:
            yield app

    def test_running_runs_for_as_long_as_the_block(self, app):
        @app.job
        def double(n: int) -> int:
            return 2 * n

        with app.running():
            assert double.dispatch(n=4).result(20) == 8
            with pytest.raises(AlreadyStarted):
                app.start()

        later = double.dispatch(n=5)
        time.sleep(0.3)
        assert later.status is RunStatus.PENDING
        with app.running():
            assert later.result(20) == 10

    def test_stop_returns_at_once(self, app):
        has_begun, is_free = threading.Event(), threading.Event()

        @app.job
        def waits():
            has_begun.set()
            is_free.wait(20)

        app.start()
        run = waits.dispatch()
        assert has_begun.wait(20)

        begun = time.monotonic()
        app.stop()

        assert time.monotonic() - begun < 0.5
        is_free.set()
        assert app.join() == 0
        assert run.status is RunStatus.COMPLETED
        app.stop()  # there is nothing to stop
        assert app.join() == 0

    @pytest.mark.timeout(60)
    def test_a_signal_during_the_start_stops_it(self, app, monkeypatch):
        build, stop = worker_composition.build_background_worker, app.stop
        has_stopped = threading.Event()

        def build_late(*args, **options):
            signal.raise_signal(signal.SIGTERM)
            assert has_stopped.wait(10)
            return build(*args, **options)

        def stop_and_notify() -> None:
            stop()
            has_stopped.set()

        monkeypatch.setattr(app, "stop", stop_and_notify)
        monkeypatch.setattr(worker_composition, "build_background_worker", build_late)

        app.forever()

        assert app.worker_state is WorkerState.ABSENT

    def test_forever_can_be_ended_by_a_handler(self, app):
        @app.job
        def last():
            app.stop()

        run = last.dispatch()

        app.forever()

        assert run.status is RunStatus.COMPLETED

    def test_it_can_be_started_again_when_the_first_start_failed(self, app, monkeypatch):
        store = app._services.store

        def away(*_):
            raise ConnectionError("no server")

        with monkeypatch.context() as patched:
            patched.setattr(store, "beat_worker", away)
            with pytest.raises(ConnectionError):
                app.start()

        with app.running():
            pass

    def test_a_pass_beside_the_worker_leaves_its_log_alone(self, app, caplog):
        @app.job
        def talks():
            logging.getLogger("shop").warning("here")

        with app.running():
            app.run()
            run = talks.dispatch()
            run.wait(20)
        assert [line.message for line in run.log()] == ["here"]

    def test_attempts_that_outlast_the_drain_are_counted(self, app):
        has_begun, is_free = threading.Event(), threading.Event()

        @app.job
        def stubborn():
            has_begun.set()
            is_free.wait(20)

        app.start(drain=0.1)
        run = stubborn.dispatch()
        assert has_begun.wait(20)
        app.stop()

        assert app.join() == 1

        assert run.status is RunStatus.PENDING
        assert run.read().attempt == 0
        is_free.set()


def test_a_fork_of_a_program_with_a_worker_has_no_worker(sqlite_project):
    project = sqlite_project
    project.write(
        "program",
        """
@app.job
def where():
    return os.getpid()

with app.running():
    assert where.dispatch().result(20) == os.getpid()
    pid = os.fork()
    if pid == 0:
        app.stop()
        app.join()  # this process has no worker
        run = where.dispatch()
        assert run.result(20) == os.getppid()
        os._exit(5)
    assert os.waitpid(pid, 0)[1] >> 8 == 5
    assert where.dispatch().result(20) == os.getpid()
print("all is well", flush=True)
""",
    )

    program = project.program("program.py")

    assert program.wait(60) == 0, program.log
    assert "all is well" in program.log


def test_a_collect_that_is_stopped_gives_back_runs_that_have_not_started(project):
    project.write(
        "shop",
        """
@app.job
def slow():
    mark("slow")
    time.sleep(1)
""",
    )
    runs = [project.dispatch("slow") for _ in range(5)]
    collect = project.run("collect")
    project.marked("slow")

    collect.terminate()

    assert collect.wait(20) == 0
    statuses = [run.status for run in runs]
    assert statuses.count(RunStatus.COMPLETED) == len(project.marks("slow"))
    assert statuses.count(RunStatus.PENDING) == 5 - len(project.marks("slow"))
    assert len(project.marks("slow")) < 3


def test_exclusive_applies_to_all_processes_of_a_supervisor(sqlite_project):
    project = sqlite_project
    project.write("shop", JOBS)
    first = project.work("--processes", "2", "--exclusive")
    project.until(lambda: len(first.children()) == 2, seconds=20)

    second = project.run("work", "--exclusive")

    assert second.wait(20) == 1
    project.until(lambda: len(project.app.status()["workers"]) == 2, seconds=20)
