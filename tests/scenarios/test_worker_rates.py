"""Workers and a rate limit: all workers together keep it, and starts are spread evenly."""

from bisect import bisect_left

from tickwork import RunStatus

JOBS = """
@app.job(rate="20/4s")
def call(number: int):
    mark("call", number=number)

@app.job
def other():
    mark("other")
"""
RUNS = 40
LATE = 2.0
"""Seconds between a claim and the first line of its handler, on a busy machine.

That no claim is made too early, to the microsecond, is what ``test_many_processes`` shows.
"""


def most_within(seconds, starts):
    return max(bisect_left(starts, at + seconds) - place for place, at in enumerate(starts))


def test_two_workers_keep_a_rate_limit_and_other_jobs_are_not_delayed(projects):
    runs = {}
    for project in projects:
        project.write("shop", JOBS)
        for _ in range(2):
            project.work()
    for project in projects:
        job = project.app.remote("call").rate(20, per="4s")
        runs[project] = job.dispatch_many([{"number": number} for number in range(RUNS)])
        turn = project.until(runs[project][-1].turn, seconds=20)
        assert turn.place > 1
        # Runs that wait block no other runs.
        project.dispatch("other").wait(20)
    for project in projects:
        marks = project.marked("call", RUNS, seconds=60)
        assert {run.wait(20) for run in runs[project]} == {RunStatus.COMPLETED}
        starts = sorted(mark["at"] for mark in marks)
        assert most_within(4 - LATE, starts) <= 20
        # Runs that waited start one by one, a fifth of a second apart.
        assert most_within(1.0, starts[20:]) <= 10
        # And none waits for long when it is admitted: 20 of them take four seconds.
        assert starts[-1] - starts[0] < 4 + 4 + 8
