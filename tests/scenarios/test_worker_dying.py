"""Workers that are killed, suspended or stopped: what it costs, and how soon others continue."""

import os
import signal
import time

import pytest

from scenarios.project import figure, is_there, now
from tickwork import RunStatus
from tickwork._kernel.signals import SAME_WITHIN

SLEEPERS = """
@app.job(on_error=lambda ctx, error: mark("on_error", error=str(error)))
def sleeper(seconds: float = 30.0):
    mark("begun")
    time.sleep(seconds)
    mark("ended")

@app.job(lease=2)
def brief(seconds: float = 30.0):
    mark("begun")
    time.sleep(seconds)
    mark("ended")

@app.job
async def dreamer(seconds: float = 30.0):
    mark("begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        mark("cancelled")
        raise
    mark("ended")
"""


class TestKilled:
    def test_another_worker_on_the_machine_continues_within_three_seconds(self, project):
        project.write("shop", SLEEPERS)
        first = project.work()
        run = project.dispatch("sleeper", seconds=30)
        project.marked("begun")
        project.work()
        killed_at = now()

        first.kill()

        again = project.marked("begun", 2, seconds=15)[1]
        figure(f"began again after {again['at'] - killed_at:.2f} s")
        assert again["at"] - killed_at < 3
        assert again["attempt"] == 1  # a crash is not an attempt
        assert run.read().crashes == 1
        assert "without an outcome" in project.marked("on_error")[0]["error"]

    def test_with_a_supervisor_a_new_worker_continues(self, project):
        project.write("shop", SLEEPERS)
        supervisor = project.work("--processes", "2")
        project.dispatch("sleeper", seconds=30)
        first = project.marked("begun")[0]
        killed_at = now()

        os.kill(first["pid"], signal.SIGKILL)

        again = project.marked("begun", 2, seconds=15)[1]
        assert again["at"] - killed_at < 3
        project.until(lambda: len(supervisor.children()) == 2, seconds=15)

    def test_on_another_machine_the_lease_decides(self, project):
        # A worker on another machine, according to its row.
        project.write("shop", "import socket\nsocket.gethostname = lambda: 'elsewhere'" + SLEEPERS)
        first = project.work()
        project.dispatch("brief", seconds=30)
        project.marked("begun")
        project.write("shop", SLEEPERS)
        project.work()
        killed_at = now()

        first.kill()

        again = project.marked("begun", 2, seconds=20)[1]
        figure(f"began again after {again['at'] - killed_at:.2f} s of a lease of 2 s")
        assert again["at"] - killed_at < 2 + 2

    def test_a_run_that_was_claimed_and_never_started_costs_nothing(self, project):
        project.write(
            "shop",
            SLEEPERS
            + """
@app.job
def quick():
    mark("quick")
""",
        )
        # The worker learns that attempts are quick: from then on it claims in advance.
        runs = [project.dispatch("quick") for _ in range(30)]
        first = project.work("--threads", "1")
        for run in runs:
            run.wait(20)
        project.dispatch("sleeper")
        project.marked("begun")  # it has the only thread: nothing else starts from here on
        later = [project.dispatch("quick") for _ in range(20)]
        project.until(lambda: any(is_running(run) for run in later), seconds=10)

        first.kill()

        project.work("--threads", "4")
        for run in later:
            assert run.wait(20) is RunStatus.COMPLETED
            found = run.read()
            assert (found.crashes, found.attempt) == (0, 1)


def is_running(run):
    return run.status is RunStatus.RUNNING


class TestFrozen:
    def test_a_worker_that_was_suspended_past_its_lease_cannot_write(self, project):
        project.write("shop", SLEEPERS)
        first = project.work()
        run = project.dispatch("brief", seconds=3)
        project.marked("begun")
        first.send(signal.SIGSTOP)
        second = project.work()
        again = project.marked("begun", 2, seconds=30)[1]
        assert again["pid"] == second.pid

        first.send(signal.SIGCONT)

        assert run.wait(30) is RunStatus.COMPLETED
        ended = project.marked("ended", 1, seconds=20)
        found = run.read()
        assert found.crashes == 1
        assert found.token == 2
        story = run.attempts()
        assert [attempt.outcome for attempt in story] == ["crashed", "succeeded"]
        assert ended
        assert first.is_alive


class TestStopped:
    @pytest.mark.parametrize("job", ["sleeper", "dreamer"])
    def test_attempts_that_end_within_the_drain_are_written(self, project, job):
        project.write("shop", SLEEPERS)
        worker = project.work()
        run = project.dispatch(job, seconds=1)
        project.marked("begun")

        worker.terminate()

        assert worker.wait(20) == 0
        assert run.status is RunStatus.COMPLETED
        assert " stopped after " in worker.log
        assert "1 attempt, 0 failed" in worker.log

    @pytest.mark.parametrize("job", ["sleeper", "dreamer"])
    def test_other_runs_are_given_back_and_continue_within_a_second(self, project, job):
        project.write("shop", SLEEPERS)
        first = project.work("--drain", "0.5")
        run = project.dispatch(job, seconds=30)
        waiting = [project.dispatch(job, seconds=0) for _ in range(3)]
        project.marked("begun")
        project.work()
        for each in waiting:
            each.wait(20)
        count = len(project.marks("begun"))

        first.terminate()
        assert first.wait(20) == 0
        ended_at = now()

        again = project.marked("begun", count + 1, seconds=10)[-1]
        assert again["run"] == run.id
        assert again["at"] - ended_at < 1
        assert again["attempt"] == 1
        found = run.read()
        assert (found.crashes, found.attempt) == (0, 1)
        assert [attempt.outcome for attempt in run.attempts()] == ["interrupted"]

    def test_a_signal_that_does_not_wake_the_main_thread_is_handled(self, sqlite_project):
        # As one that comes just before that thread falls asleep: the system has delivered it, and
        # Python calls its handler only when the main thread wakes up.
        project = sqlite_project
        project.write(
            "shop",
            """
@app.job
def signal_itself():
    mark("signaled")
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
""",
        )
        worker = project.work()
        project.dispatch("signal_itself")
        project.marked("signaled")

        assert worker.wait(30) == 0

    def test_the_second_signal_ends_it_at_once(self, project):
        project.write("shop", SLEEPERS)
        worker = project.work()
        project.dispatch("sleeper", seconds=60)
        project.marked("begun")

        worker.terminate()
        time.sleep(5 * SAME_WITHIN)
        assert worker.is_alive
        worker.terminate()

        assert worker.wait(30) == -signal.SIGTERM

    def test_the_children_of_a_supervisor_end_with_it(self, sqlite_project):
        project = sqlite_project
        project.write("shop", SLEEPERS)
        supervisor = project.work("--processes", "2")
        children = project.until(supervisor.children, seconds=10)

        supervisor.kill()

        project.until(lambda: not any(map(is_there, children)), seconds=20)

    def test_a_supervisor_that_is_stopped_stops_its_children(self, sqlite_project):
        project = sqlite_project
        project.write("shop", SLEEPERS)
        supervisor = project.work("--processes", "2")
        children = project.until(
            lambda: kids if len(kids := supervisor.children()) == 2 else None, seconds=10
        )
        run = project.dispatch("sleeper", seconds=1)
        project.marked("begun")

        supervisor.terminate()

        assert supervisor.wait(20) == 0
        assert not any(map(is_there, children))
        assert run.status is RunStatus.COMPLETED
