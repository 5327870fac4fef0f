"""Runs with steps whose processes are killed: no stored step is repeated, and none is left out."""

from collections import Counter

from tickwork import RunStatus

JOBS = """
def effect(number):
    mark("effect", number=number)
    return number

@app.job(engine="process", crashes=50)
def order(ctx: RunContext, count: int) -> int:
    total = 0
    for number in range(count):
        total += ctx.step(f"step {number}", effect, number)
        if number == ctx.token - 1 and number % 2:
            os.kill(os.getpid(), signal.SIGKILL)  # after a step that this attempt has stored
        if number == ctx.token - 1:
            ctx.sleep(0.05, name=f"pause {number}")
    return total

@app.job(crashes=50)
async def drink(ctx: RunContext, count: int) -> int:
    for number in range(count):
        await ctx.aio.step(f"step {number}", effect, number)
        await asyncio.sleep(0.05)
    return count
"""


class TestKilled:
    def test_a_child_process_after_each_step(self, project):
        project.write("shop", JOBS)
        project.work()

        run = project.dispatch("order", count=8)

        project.until(lambda: run.read().status.is_final, seconds=60)
        assert run.read().status is RunStatus.COMPLETED, run.read().reason
        assert run.result() == sum(range(8))
        effects = Counter(mark["number"] for mark in project.marks("effect"))
        assert effects == dict.fromkeys(range(8), 1)

    def test_the_worker_itself(self, project):
        project.write("shop", JOBS)
        worker = project.work()
        run = project.dispatch("drink", count=40)

        for count in (5, 15):
            project.marked("effect", count, seconds=60)
            worker.kill()
            worker = project.work()

        project.until(lambda: run.read().status.is_final, seconds=60)
        assert run.read().status is RunStatus.COMPLETED, run.read().reason
        # A kill between an effect and its write repeats that step: at least once.
        steps = project.app.inspect.details(run.id).steps
        assert [step.name for step in steps] == [f"step {number}" for number in range(40)]
        effects = Counter(mark["number"] for mark in project.marks("effect"))
        assert effects.keys() == set(range(40))
        assert effects.total() <= 42
