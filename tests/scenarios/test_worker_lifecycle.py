"""Start and stop functions of whole programs, and follow-ups of workers that are killed."""

from tickwork import RunStatus

LIFECYCLE = """

clients = []

@app.on_worker_start
async def connect():
    clients.append(asyncio.get_running_loop())
    mark("connected")

@app.on_worker_stop
async def disconnect():
    mark("disconnected", same=clients[0] is asyncio.get_running_loop())

@app.job
async def work():
    mark("work", same=clients[0] is asyncio.get_running_loop())

@app.job(engine="process")
async def work_apart():
    mark("work_apart", same=clients[0] is asyncio.get_running_loop())
"""

BROKEN = """
@app.on_worker_start
def connect():
    raise OSError("no route to host")

@app.job
def work():
    mark("work")
"""

CHAIN = """
@app.job
def first(ctx: RunContext, is_slow: bool):
    ctx.then(second, n=ctx.token)
    mark("first")
    if is_slow and ctx.token == 1:
        time.sleep(60)

@app.job
def second(n: int):
    mark("second", n=n)
"""


class TestLifecycle:
    def test_each_process_calls_the_functions(self, sqlite_project):
        project = sqlite_project
        project.write("shop", LIFECYCLE)
        supervisor = project.work("--processes", "2")
        project.marked("connected", 2)
        project.dispatch("work")
        project.dispatch("work_apart")

        assert project.marked("work")[0]["same"]
        assert project.marked("work_apart")[0]["same"]
        assert len(project.marks("connected")) == 3  # two workers, one child process

        supervisor.terminate()
        supervisor.wait()

        assert [mark["same"] for mark in project.marked("disconnected", 2)] == [True, True]

    def test_a_start_function_that_fails_ends_the_program(self, sqlite_project):
        project = sqlite_project
        project.write("shop", BROKEN)
        project.dispatch("work")

        worker = project.work(is_ready=False)

        assert worker.wait() not in {0, None}
        assert "shop:connect raised an exception" in worker.log
        assert "no route to host" in worker.log
        assert "Traceback" not in worker.log
        assert project.marks("work") == []


class TestFollowUps:
    def test_a_killed_worker_leaves_none_and_the_next_attempt_one(self, project):
        project.write("shop", CHAIN)
        worker = project.work()
        run = project.dispatch("first", is_slow=True)
        project.marked("first")

        worker.kill()
        assert project.marks("second") == []
        project.work()

        [mark] = project.marked("second", seconds=30)
        assert mark["n"] == 2  # of the second claim
        assert run.status is RunStatus.COMPLETED
        assert [each.job for each in project.app.runs.recent()] == ["second", "first"]
