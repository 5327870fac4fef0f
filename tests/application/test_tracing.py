"""The tracer of an application: what it gives to runs at their dispatch, their attempts get."""

import asyncio
import sqlite3
from contextlib import closing, contextmanager

import aiosqlite
import pytest

from tickwork import RunContext, Tickwork
from tickwork.events import AttemptFailed, RunsClaimed, RunStarted, RunSucceeded


class Recorder:
    """A tracer that numbers dispatches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.is_open = False

    @contextmanager
    def dispatching(self, runs):
        self.batches.append(len(runs))
        self.is_open = True
        yield [run._replace(trace=f"dispatch-{len(self.batches)}") for run in runs]
        self.is_open = False


@pytest.fixture
def app(tmp_path):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True) as app:
        yield app


@pytest.fixture
def tracer(app):
    app.tracer = Recorder()
    return app.tracer


@pytest.fixture
def work(app):
    @app.job
    def work(ctx: RunContext, number: int = 0) -> str | None:
        return ctx.trace

    return work


def test_without_a_tracer_a_run_has_no_trace(app, work):
    run = work.dispatch()
    app.run()

    assert run.result() is None


def test_a_dispatch(app, tracer, work):
    run = work.dispatch()
    app.run()

    assert run.result() == "dispatch-1"
    assert (tracer.batches, tracer.is_open) == ([1], False)


def test_several_runs_are_one_dispatch(app, tracer, work):
    runs = work.dispatch_many([{"number": 1}, {"number": 2}])
    app.run()

    assert tracer.batches == [2]
    assert {run.result() for run in runs} == {"dispatch-1"}


def test_a_dispatch_of_a_coroutine(app, tracer, work):
    run = asyncio.run(work.aio.dispatch())
    app.run()

    assert run.result() == "dispatch-1"


def test_on_a_connection_of_the_caller(app, tracer, work, tmp_path):
    app.install()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        run = work.using(connection).dispatch()
        connection.commit()
    app.run()

    assert run.result() == "dispatch-1"


def test_on_an_async_connection_of_the_caller(app, tracer, work, tmp_path):
    async def main():
        await app.aio.install()
        async with aiosqlite.connect(tmp_path / "jobs.db") as connection:
            run = await work.using(connection).dispatch()
            await connection.commit()
        return run

    run = asyncio.run(main())
    app.run()

    assert run.result() == "dispatch-1"


def test_a_follow_up_and_a_retry(app, tracer, work):
    @app.job
    def first(ctx: RunContext) -> None:
        ctx.then(work)

    first.dispatch()
    app.collect()
    [follow_up] = app.runs.find_ids(_of("work"))
    app.get_run(follow_up).retry()
    app.collect()

    results = [app.get_run(run_id).result() for run_id in app.runs.find_ids(_of("work"))]
    assert results == ["dispatch-2", "dispatch-3"]


def test_events_carry_what_metrics_need(app, work):
    seen: list[object] = []
    for kind in (RunStarted, RunSucceeded, RunsClaimed, AttemptFailed):
        app.on(kind)(seen.append)

    @app.job(queue="mail")
    def fail() -> None:
        raise ValueError("no paper")

    run = fail.dispatch()
    app.run()

    claimed, started, failed = seen
    assert isinstance(claimed, RunsClaimed)
    assert claimed.count == 1
    assert isinstance(started, RunStarted)
    assert (started.queue, started.schedule, started.due_at) == ("mail", None, run.read().due_at)
    assert isinstance(failed, AttemptFailed)
    assert failed.started_at == started.at


def _of(job):
    from tickwork import RunFilter

    return RunFilter(job=job)
