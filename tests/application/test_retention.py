"""Workers prune history by themselves: per job, in batches, one worker at a time."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from cli.conftest import a_worker
from tickwork import JobDefaults, RunStatus, Tickwork
from tickwork._worker.services import pruner as pruning
from tickwork.errors import ResultExpired


def prune(app):
    """Do what a worker does in the background, until nothing is left."""
    pruner = app._services.worker_context.build_pruner()
    for _ in range(100):
        if not pruner.step():
            return
    raise AssertionError("It never ends.")


def fail():
    raise ValueError("no")


@pytest.fixture
def finish(app, passes):
    """Dispatch a job, and execute it."""

    def finish(job):
        run = job.dispatch()
        passes(app)
        assert run.read().is_finished
        return run

    return finish


def is_left(app, run):
    return bool(app.runs.get_many([run.id]))


class TestHistory:
    """Finished runs are deleted after 30 days, or after the history of their job."""

    def test_thirty_days_by_default(self, app, clock, finish):
        old = finish(job := app.schedule("it", lambda: 1))
        clock.advance(days=20)
        new = finish(job)
        clock.advance(days=11)

        prune(app)

        assert (is_left(app, old), is_left(app, new)) == (False, True)

    def test_each_job_has_its_own(self, app, clock, finish):
        short = finish(app.schedule("short", lambda: 1).history("7d"))
        usual = finish(app.schedule("usual", lambda: 1))
        forever = finish(app.job(name="audit", history="forever")(lambda: 1))
        none = finish(app.job(name="none", history=None)(lambda: 1))

        clock.advance(days=8)
        prune(app)
        assert [is_left(app, run) for run in (short, usual, forever, none)] == [False, *[True] * 3]

        clock.advance(days=400)
        prune(app)
        assert [is_left(app, run) for run in (usual, forever, none)] == [False, True, True]

    def test_failures_can_be_kept(self, app, clock, finish):
        failed = finish(app.schedule("fails", fail).keep("failures"))
        done = finish(app.schedule("works", lambda: 1).keep("failures"))
        clock.advance(days=31)

        prune(app)

        assert (is_left(app, failed), is_left(app, done)) == (True, False)
        assert len(failed.attempts()) == 1

    def test_a_default_of_the_application(self, make_app, clock, passes):
        app = make_app(defaults=JobDefaults(history="1d"))
        run = app.schedule("it", lambda: 1).dispatch()
        kept = app.schedule("other", lambda: 1).history("2d").dispatch()
        passes(app)
        clock.advance(days=1, hours=1)

        prune(app)

        assert (is_left(app, run), is_left(app, kept)) == (False, True)

    def test_unfinished_runs_stay(self, app, clock, passes):
        waiting = app.schedule("it", lambda: 1).delay("90d").dispatch()
        clock.advance(days=60)

        prune(app)

        assert waiting.status is RunStatus.PENDING


class TestResults:
    """A result can go before its run."""

    def test_an_expired_result_is_an_error(self, app, clock, finish):
        run = finish(app.schedule("it", lambda: [1, 2]).results("1d"))
        other = finish(app.schedule("other", lambda: [3]))
        clock.advance(days=1, hours=1)

        prune(app)

        assert run.status is RunStatus.COMPLETED
        with pytest.raises(ResultExpired, match="expired"):
            run.result()
        assert other.result() == [3]


class TestWorkers:
    """A running worker prunes in the background."""

    def test_a_worker_prunes(self, app, url, clock, finish):
        clock.set(datetime.now(UTC) - timedelta(days=31))  # noqa: TID251
        old = finish(app.schedule("it", lambda: 1))
        clock.advance(days=2)
        new = finish(app.schedule("other", lambda: 1))

        with Tickwork(url) as worker, worker.running():
            worker.schedule("it", lambda: 1)
            deadline = time.monotonic() + 30
            while is_left(app, old):
                assert time.monotonic() < deadline, "It was not pruned in time."
                time.sleep(0.05)

        assert is_left(app, new)


class TestOtherPrograms:
    """What another program defines is left to that program."""

    def test_a_job_that_a_live_worker_knows_is_never_pruned(self, app, make_app, clock, passes):
        other = make_app()
        run = other.schedule("theirs", lambda: 1).history(None).dispatch()
        passes(other)
        clock.advance(days=400)
        a_worker(app, "theirs")

        prune(app)

        assert is_left(app, run)

    def test_nor_is_one_that_a_program_has_defined_lately(self, app, make_app, clock, passes):
        other = make_app()
        run = other.schedule("theirs", lambda: 1).history(None).dispatch()
        passes(other)
        clock.advance(days=400)
        other._services.catalog.refresh()

        prune(app)

        assert is_left(app, run)

    def test_a_job_that_no_program_defines_any_more_has_the_default(
        self, app, make_app, clock, passes
    ):
        other = make_app()
        run = other.schedule("theirs", lambda: 1).dispatch()
        passes(other)
        clock.advance(days=31)

        prune(app)

        assert not is_left(app, run)


class TestBatches:
    """The work of one step is bounded, and only one worker does it at a time."""

    def test_a_step_deletes_a_few_batches(self, app, clock, monkeypatch):
        monkeypatch.setattr(pruning, "BATCH", 2)
        monkeypatch.setattr(pruning, "BATCHES_MAX", 2)
        app.schedule("it", lambda: 1).dispatch_many([{}] * 9)
        app.run()
        clock.advance(days=31)
        pruner = app._services.worker_context.build_pruner()

        left = []
        while pruner.step():
            left.append(len(app.runs.recent()))

        assert left == [5, 1]
        assert app.runs.recent() == []

    def test_it_starts_again_after_a_minute(self, app, clock, finish):
        pruner = app._services.worker_context.build_pruner()
        pruner.step()
        run = finish(app.schedule("it", lambda: 1))
        clock.advance(days=31)
        assert not pruner.step()

        assert not is_left(app, run)

    def test_one_worker_at_a_time(self, app, make_app, clock, finish):
        run = finish(app.schedule("it", lambda: 1))
        clock.advance(days=31)
        other = make_app()
        other.schedule("it", lambda: 1)
        assert other._services.worker_context.build_pruner()._begin(timedelta(minutes=5))

        prune(app)
        assert is_left(app, run)

        clock.advance(minutes=6)
        prune(app)
        assert not is_left(app, run)

    def test_collect_prunes_once_an_hour(self, app, clock, finish):
        job = app.schedule("it", lambda: 1).history("1m")
        left = []
        for minutes in (2, 2, 60):
            finish(job)
            clock.advance(minutes=minutes)
            app.collect()
            left.append(len(app.runs.recent()))

        assert left == [0, 1, 0]
