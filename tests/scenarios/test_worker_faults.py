"""Workers of which a part fails: they go on after one fault, and end when the fault stays."""

import pytest

from tickwork import RunStatus

FAULTS = {
    "pump": ("tickwork._worker.services.pump", "Pump", "step", "Claiming runs"),
    "timer": ("tickwork._worker.services.timer", "Timer", "step", "Firing schedules"),
    "heartbeat": (
        "tickwork._worker.attempts.heartbeat",
        "Heartbeat",
        "step_if_due",
        "Extending leases",
    ),
    "register": (
        "tickwork._worker.services.registration",
        "Registration",
        "step",
        "Writing the row of this worker",
    ),
    "watch": (
        "tickwork._worker.attempts.attempt_runner",
        "AttemptRunner",
        "watch_deadlines",
        "Watching",
    ),
}
"""Services without which a worker cannot work: the method that fails, and what the worker says."""

OPTIONAL = {
    "maintenance": ("tickwork._worker.services.maintenance", "Maintenance", "step"),
    "listener": ("tickwork._worker.services.listener", "NotificationService", "step"),
}

SHOP = """
import importlib
from tickwork._worker import service

service.FAILING_SECONDS = 1.5
failures = 0

def fail(module, kind, method, times):
    owner = getattr(importlib.import_module(module), kind)
    original = getattr(owner, method)

    def step(self, *args, **options):
        global failures
        failures += 1
        if failures <= times:
            raise RuntimeError("injected")
        return original(self, *args, **options)

    setattr(owner, method, step)

@app.job
def work():
    mark("work")

app.schedule("tick", lambda: mark("tick")).every_second()

@app.on_worker_start
def inject():
    fail(*{fault!r})
"""

LASTING = """
@app.job
def lasting():
    mark("lasting")
    time.sleep(60)
"""

SLOW = """
@app.job(lease=2, attempts=3)
def slow(ctx: RunContext):
    mark("begin")
    while not ctx.is_canceled():
        time.sleep(0.01)
    mark("stop noticed")
    time.sleep(1)
"""


def shop(module, kind, method, *_, times):
    return SHOP.replace("{fault!r}", repr((module, kind, method, times)))


class TestFaults:
    """A worker that cannot work says which part fails, and exits for its supervisor."""

    @pytest.mark.parametrize("name", FAULTS)
    def test_a_fault_that_stays_ends_the_worker(self, sqlite_project, name):
        project = sqlite_project
        project.write("shop", shop(*FAULTS[name], times=1_000_000))

        worker = project.work("--drain", "1s", is_ready=False)

        assert worker.wait(60) == 70
        assert f"A part of the worker could not work any more: {FAULTS[name][3]}" in worker.log
        assert worker.log.count("Traceback") <= 7, "the log is limited"

    @pytest.mark.parametrize("name", [*FAULTS, *OPTIONAL])
    def test_after_one_fault_the_worker_goes_on(self, sqlite_project, name):
        project = sqlite_project
        project.write("shop", shop(*{**FAULTS, **OPTIONAL}[name], times=2))
        worker = project.work()
        run = project.dispatch("work")

        assert run.wait(timeout=30) is RunStatus.COMPLETED
        project.marked("tick", 2)
        worker.terminate()
        assert worker.wait() == 0

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_without_some_services_a_worker_still_works(self, sqlite_project, name):
        project = sqlite_project
        project.write("shop", shop(*OPTIONAL[name], times=1_000_000))
        worker = project.work()

        for _ in range(3):
            assert project.dispatch("work").wait(timeout=30) is RunStatus.COMPLETED
        project.marked("tick", 4)

        worker.terminate()
        assert worker.wait() == 0

    def test_doctor_names_the_part_that_fails(self, sqlite_project):
        project = sqlite_project
        project.write("shop", shop(*FAULTS["timer"], times=1_000_000) + LASTING)
        worker = project.work("--drain", "60s")
        project.dispatch("lasting")
        project.marked("lasting")

        def find_check():
            [check] = [each for each in project.app.check_health() if each.name == "workers"]
            return check if "Firing schedules has failed" in check.text else None

        assert project.until(find_check, seconds=60).level == "bad"
        worker.kill()

    def test_an_attempt_learns_that_its_lease_is_lost_before_another_begins(self, sqlite_project):
        project = sqlite_project
        body = shop(*FAULTS["heartbeat"], times=1_000_000).replace("1.5", "60")
        project.write("shop", body + SLOW)
        worker = project.work()
        project.dispatch("slow")

        project.marked("begin", 2)

        assert [mark["word"] for mark in project.marks() if mark["word"] != "tick"][:3] == [
            "begin",
            "stop noticed",
            "begin",
        ]
        worker.terminate()
        worker.wait()


HANGING = """
from tickwork.cli import liveness, supervisor

liveness.INTERVAL = 1.0
supervisor.HANG_SECONDS = supervisor.EXIT_GRACE = 2.0

@app.job(lease=2, crashes=1)
def hang():
    mark("hang")
    ctypes.PyDLL(None).sleep(600)  # it keeps the lock of the interpreter

@app.job
def work():
    mark("work")
"""


class TestHangingProcesses:
    """A process that hangs as a whole cannot end itself: its supervisor replaces it."""

    def test_a_worker_without_a_sign_of_life_is_killed(self, sqlite_project):
        project = sqlite_project
        project.write("shop", HANGING)
        supervisor = project.work("--processes", "2", "--drain", "1s")
        hung = project.dispatch("hang")
        [mark] = project.marked("hang")
        text = f"Worker {mark['pid']} hangs; it is killed."
        project.until(lambda: text in supervisor.log, seconds=60)

        assert hung.wait(timeout=30) is RunStatus.FAILED_PERMANENT
        assert project.dispatch("work").wait(timeout=30) is RunStatus.COMPLETED
        supervisor.terminate()
        assert supervisor.wait() == 0

    def test_a_worker_that_drains_is_not_killed(self, sqlite_project):
        project = sqlite_project
        body = HANGING.replace("ctypes.PyDLL(None).sleep(600)", "time.sleep(8); mark('done')")
        project.write("shop", body.replace("lease=2", "lease=10"))
        supervisor = project.work("--processes", "2", "--drain", "20s")
        project.dispatch("hang")
        project.marked("hang")

        supervisor.terminate()

        assert supervisor.wait() == 0
        assert len(project.marks("done")) == 1
        assert "hangs" not in supervisor.log


LOST_ANSWERS = """
from tickwork._engines.local.threads import ThreadEngine
from tickwork.errors import OutcomeUnknown
from tickwork._stores.sqlite.store import SqliteStore

claim, find_claims = SqliteStore.claim, SqliteStore.find_claims
make_quick_attempts = ThreadEngine.make_quick_attempts
left, is_slow = [1] * 6, [1]

def lose_answer(self, *args, **options):
    claims = claim(self, *args, **options)
    if claims and left:
        left.pop()
        raise OutcomeUnknown("sqlite://", "the answer was lost")
    return claims

def find_slowly(self, **options):
    time.sleep(0.2)
    return find_claims(self, **options)

def look_stuck(self):
    if is_slow:
        is_slow.pop()
        time.sleep(0.35)
        return False
    return make_quick_attempts(self)

SqliteStore.claim, SqliteStore.find_claims = lose_answer, find_slowly
ThreadEngine.make_quick_attempts = look_stuck

@app.job
def work(ctx: RunContext):
    mark("work", token=ctx.token)
"""


class TestLostAnswers:
    """One token, one attempt: also when answers are lost while a thread is replaced."""

    def test_a_claim_is_attempted_once(self, sqlite_project):
        project = sqlite_project
        project.write("shop", LOST_ANSWERS)
        worker = project.work()
        runs = [project.dispatch("work") for _ in range(60)]

        assert {run.wait(timeout=60) for run in runs} == {RunStatus.COMPLETED}

        begun = [(mark["run"], mark["token"]) for mark in project.marks("work")]
        assert len(begun) == len(set(begun)) == 60
        worker.terminate()
        assert worker.wait() == 0


BROKEN_LOOP = """
from tickwork._engines.local import shared_loop
from tickwork._worker.services import engine_services

engine_services.FAILING_SECONDS = 1.0

@app.on_worker_start
async def keep_breaking():
    loop = asyncio.get_running_loop()

    def exit_again():
        loop.call_later(0.05, exit_again)
        sys.exit(3)

    loop.call_later(0.5, exit_again)

@app.job(attempts=2)
async def wait_long():
    mark("begin")
    await asyncio.sleep(60)

@app.job(engine="process")
def apart():
    mark("apart")
"""

NO_CHILDREN = """
from tickwork._worker.services import engine_services
from tickwork._engines.local import processes

engine_services.FAILING_SECONDS = 1.0

def refuse(*args, **options):
    raise OSError(24, "Too many open files")

processes.Popen = refuse

@app.job(engine="process", attempts=1)
def apart():
    mark("apart")
"""


class TestBrokenEngines:
    """A worker whose engine is broken keeps no runs, says so, and exits."""

    def test_of_coroutines(self, sqlite_project):
        project = sqlite_project
        project.write("shop", BROKEN_LOOP)
        run = project.dispatch("wait_long")

        worker = project.work("--drain", "1s", is_ready=False)

        assert worker.wait(60) == 70, worker.log
        assert "The engine 'async' cannot make attempts any more" in worker.log
        assert not run.status.is_final, "its attempt did not count as failed"

    def test_of_child_processes(self, sqlite_project):
        project = sqlite_project
        project.write("shop", NO_CHILDREN)
        run = project.dispatch("apart")

        worker = project.work("--drain", "1s", is_ready=False)

        assert worker.wait(90) == 70, worker.log
        assert "The engine 'process' cannot make attempts any more" in worker.log
        assert run.status is RunStatus.PENDING
        assert run.read().attempt == 0


CLOSING = """
@app.job(attempts=1)
def close():
    mark("close")
    os.closerange(3, 200)

@app.job
def work():
    mark("work")
"""

EXHAUSTING = """
import resource

@app.job(attempts=1)
def exhaust():
    mark("exhaust")
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 4096))

@app.job(engine="process")
def apart():
    mark("apart")
"""


class TestDescriptors:
    """A handler that takes the descriptors of its worker away does not make it hang."""

    @pytest.mark.timeout(240)  # 25 s on a quiet machine
    def test_a_worker_whose_descriptors_were_closed_ends(self, project):
        project.write("shop", CLOSING)
        worker = project.work("--drain", "2s")
        project.dispatch("close")
        project.marked("close")

        code = worker.wait(110)

        assert code == 70, worker.log
        assert "has closed file descriptors of the worker" in worker.log
        project.work()
        assert project.dispatch("work").wait(timeout=60) is RunStatus.COMPLETED

    def test_it_can_be_stopped_by_a_signal(self, sqlite_project):
        project = sqlite_project
        project.write("shop", CLOSING)
        worker = project.work("--drain", "2s")
        project.dispatch("close")
        project.marked("close")

        worker.terminate()

        assert worker.wait(40) in {0, 4, 70}

    def test_a_worker_without_free_descriptors_leaves_its_runs_to_another(self, sqlite_project):
        project = sqlite_project
        project.write("shop", EXHAUSTING)
        worker = project.work()
        assert project.dispatch("exhaust").wait(timeout=30) is RunStatus.COMPLETED

        run = project.dispatch("apart")

        assert worker.wait(60) == 70, worker.log
        assert "The engine 'process' cannot make attempts any more" in worker.log
        project.work()
        assert run.wait(timeout=60) is RunStatus.COMPLETED
        assert run.read().attempt == 1
