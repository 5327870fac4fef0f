"""Handlers that misbehave: the worker survives or is replaced, and the run has an outcome."""

import pytest

from tickwork import RunStatus

WORST = """
import resource

@app.job
def fine(n: int = 0):
    mark("fine")
    return n

@app.job
async def fine_async(n: int = 0):
    return n

@app.job(crashes=2)
def exits():
    mark("exits")
    os._exit(3)

@app.job(crashes=2)
def segfaults():
    mark("segfaults")
    ctypes.string_at(0)

@app.job
def raises(kind: str):
    raise {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt(),
           "GeneratorExit": GeneratorExit(), "CancelledError": asyncio.CancelledError(),
           "BaseException": BaseException("the worst")}[kind]

@app.job
async def raises_async(kind: str):
    raise {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt(),
           "GeneratorExit": GeneratorExit(), "CancelledError": asyncio.CancelledError(),
           "BaseException": BaseException("the worst")}[kind]

@app.job
def hungry():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), hard))
    try:
        kept = []
        while True:
            kept.append(bytearray(8 << 20))
    finally:
        kept = None
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

@app.job(lease=2)
async def blocks_the_loop(seconds: float):
    mark("blocking")
    time.sleep(seconds)
    mark("unblocked")
    return "done"

@app.job(timeout=0.3, attempts=2)
def slow():
    mark("slow")
    time.sleep(0.8)

@app.job(timeout=0.3)
def looks(ctx: RunContext):
    while not ctx.is_canceled():
        time.sleep(0.01)
    mark("saw it")

@app.job(timeout=0.3)
async def slow_async():
    try:
        await asyncio.sleep(10)
    finally:
        mark("ended")

@app.job(timeout=0.3)
async def stubborn():
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        mark("no")
    await asyncio.sleep(0.5)
    return "all the same"
"""

KINDS = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "BaseException"]


@pytest.fixture
def worker(project):
    project.write("shop", WORST)
    return project.work()


def test_whatever_a_handler_raises_is_a_failed_attempt(project, worker):
    runs = {
        (job, kind): project.dispatch(job, kind=kind)
        for job in ("raises", "raises_async")
        for kind in KINDS
    }

    for (job, kind), run in runs.items():
        assert run.wait(30) is RunStatus.FAILED_PERMANENT, (job, kind)
        assert kind in run.read().reason, (job, kind)

    assert project.dispatch("fine", n=1).result(20) == 1
    assert project.dispatch("fine_async", n=2).result(20) == 2
    assert worker.is_alive


@pytest.mark.parametrize("job", ["exits", "segfaults"])
def test_a_run_that_kills_its_worker_fails_at_its_limit_of_crashes(project, job):
    project.write("shop", WORST)
    project.work("--processes", "2")
    run = project.dispatch(job)
    beside = [project.dispatch("fine", n=n) for n in range(20)]

    assert run.wait(60) is RunStatus.FAILED_PERMANENT

    assert len(project.marks(job)) == 2
    found = run.read()
    assert found.crashes == 2
    assert "died 2 times" in found.reason
    assert [each.result(30) for each in beside] == list(range(20))


def test_a_handler_that_runs_out_of_memory_fails(project, worker):
    run = project.dispatch("hungry")

    assert run.wait(30) is RunStatus.FAILED_PERMANENT

    assert "MemoryError" in run.read().reason
    assert project.dispatch("fine", n=1).result(20) == 1


def test_a_coroutine_that_blocks_the_loop_costs_no_lease(project, worker):
    other = project.work()

    run = project.dispatch("blocks_the_loop", seconds=5)

    assert run.result(30) == "done"
    assert len(project.marks("blocking")) == 1
    found = run.read()
    assert (found.attempt, found.crashes, found.token) == (1, 0, 1)
    assert other.is_alive


def test_a_thread_that_takes_too_long_has_failed_and_is_tried_again(project, worker):
    run = project.dispatch("slow")

    assert run.wait(30) is RunStatus.FAILED_PERMANENT

    assert len(project.marks("slow")) == 2
    assert [attempt.outcome for attempt in run.attempts()] == ["failed", "failed"]
    assert "AttemptTimeout" in run.read().reason


def test_a_function_that_polls_learns_that_its_timeout_has_passed(project, worker):
    run = project.dispatch("looks")

    assert run.wait(20) is RunStatus.FAILED_PERMANENT

    assert project.marks("saw it")
    assert "AttemptTimeout" in run.read().reason


@pytest.mark.parametrize("job", ["slow_async", "stubborn"])
def test_a_coroutine_that_takes_too_long_is_cancelled(project, worker, job):
    run = project.dispatch(job)

    assert run.wait(20) is RunStatus.FAILED_PERMANENT

    assert "AttemptTimeout" in run.read().reason


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_function_that_ignores_its_timeout_ends_its_worker(sqlite_project, kind):
    project = sqlite_project
    project.write(
        "shop",
        WORST
        + """
@app.job(timeout=0.2)
def thread():
    mark("stuck")
    time.sleep(600)

@app.job(timeout=0.2)
async def loop():
    mark("stuck")
    time.sleep(600)
""",
    )
    worker = project.python(
        "import os, shop\n"
        "shop.app.forever(drain=0.5, timeout_grace=0.5)\n"
        "print('stuck', shop.app.stats.is_stuck, flush=True)\n"
        "os._exit(0)"
    )
    run = project.app.remote(kind).dispatch()

    assert run.wait(30) is RunStatus.FAILED_PERMANENT

    assert "AttemptTimeout" in run.read().reason
    assert worker.wait(30) == 0
    assert "stuck True" in worker.log
    assert len(project.marks("stuck")) == 1
