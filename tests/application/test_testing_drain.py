"""``testing.drain`` executes everything that is due, as a worker does."""

import logging

import pytest

from tickwork import JobResult, RunStatus, Snooze, testing
from tickwork.errors import InvalidOption, RunUnsuccessful, StillDue


class TestDraining:
    """It ticks, claims, executes and records until nothing is due."""

    def test_dispatched_runs_are_executed_and_their_attempts_returned(self, app):
        @app.job
        def double(number: int) -> int:
            return 2 * number

        runs = double.dispatch_many({"number": number} for number in (1, 2))

        done = testing.drain(app)

        assert [(each.job, each.result, each.status) for each in done] == [
            ("double", 2, RunStatus.COMPLETED),
            ("double", 4, RunStatus.COMPLETED),
        ]
        assert [run.result() for run in runs] == [2, 4]
        assert len(testing.drain(app)) == 0

    def test_more_runs_than_one_batch(self, app):
        note = app.schedule("note", lambda number: None)
        note.dispatch_many({"number": number} for number in range(250))

        assert len(testing.drain(app)) == 250

    def test_runs_that_handlers_dispatch_are_executed(self, app):
        order = []

        def parent(depth: int):
            order.append(depth)
            if depth < 3:
                app.dispatch("parent", depth=depth + 1)

        app.schedule("parent", parent).dispatch(depth=0)

        assert len(testing.drain(app)) == 4
        assert order == [0, 1, 2, 3]

    def test_due_schedules_fire(self, app, clock):
        app.schedule("report", lambda: "sent").hourly()
        testing.drain(app)
        clock.advance(hours=1)

        [done] = testing.drain(app)

        assert (done.schedule, done.nominal_at, done.result) == ("report", clock.now(), "sent")

    def test_runs_that_are_due_later_stay_pending(self, app, clock):
        run = app.schedule("later", lambda: None).delay(10).dispatch()

        assert len(testing.drain(app)) == 0
        assert run.status is RunStatus.PENDING

        clock.advance(seconds=10)
        assert len(testing.drain(app)) == 1

    def test_a_delayed_run_of_a_path_that_was_not_imported_before(self, make_app, clock):
        path = "application.handlers_elsewhere:Static"
        make_app(handler_paths=["application"]).draft.delay(10).dispatch(path, number=3)
        clock.advance(seconds=10)

        [done] = testing.drain(make_app(handler_paths=["application"]))

        assert done.result == 3

    def test_runs_that_wait_for_a_limit_are_executed(self, app):
        builder = app.schedule("one", lambda number: None).concurrency(1)
        builder.dispatch_many({"number": number} for number in range(5))

        assert len(testing.drain(app)) == 5

    def test_log_lines_are_kept_with_the_run(self, app):
        run = app.schedule("it", lambda: logging.getLogger("shop").warning("sold out")).dispatch()

        testing.drain(app)

        assert [line.message for line in run.log()] == ["sold out"]

    def test_runs_of_unknown_jobs_stay_pending(self, app):
        run = app.remote("elsewhere").dispatch()

        assert len(testing.drain(app)) == 0
        assert run.status is RunStatus.PENDING


class TestDrainResult:
    """The result lists every attempt with its outcome; failures raise nothing."""

    def test_failures_are_returned_and_raise_nothing(self, app):
        def fail():
            raise ValueError("no paper")

        app.schedule("print", fail).dispatch()
        app.schedule("fine", lambda: None).dispatch()

        done = testing.drain(app)

        [failure] = done.failures
        assert (failure.job, failure.error) == ("print", "ValueError: no paper")
        assert 'raise ValueError("no paper")' in failure.traceback
        assert failure.status is RunStatus.FAILED_PERMANENT
        assert len(done) == 2

    def test_an_attempt_with_a_retry_has_the_due_time(self, app, clock):
        failing = app.schedule("it", lambda: JobResult.failure("busy"))
        failing.retries(max=2, delay=90).dispatch()

        [attempt] = testing.drain(app)

        assert attempt.status is RunStatus.FAILED
        assert (attempt.due_at - clock.now()).total_seconds() == 90

    def test_a_snooze_is_an_attempt_and_a_filtered_run_is_none(self, app):
        def later():
            raise Snooze(60)

        app.schedule("snoozes", later).dispatch()
        app.schedule("waits", lambda: None).when(lambda: False).dispatch()
        app.schedule("skipped", lambda: None).skip(lambda: True).dispatch()

        done = testing.drain(app)

        assert [each.job for each in done] == ["snoozes"]
        assert {each.job: each.status for each in done.deferred} == {
            "waits": RunStatus.PENDING,
            "skipped": RunStatus.SKIPPED,
        }

    def test_the_attempts_of_one_job(self, app):
        first, second = (app.schedule(name, lambda: None) for name in ("first", "second"))
        for job in (first, second, first):
            job.dispatch()

        done = testing.drain(app)

        assert len(done.of("first")) == len(done.of(first)) == 2
        with pytest.raises(InvalidOption, match="must be a job or the name of one"):
            done.of(42)

    def test_its_repr_lists_the_attempts(self, app):
        def fail():
            raise ValueError("no paper")

        app.schedule("print", fail).dispatch()

        shown = repr(testing.drain(app))

        assert shown.startswith("<1 attempt, 1 failed>")
        assert "<print, attempt 1 at 2026-01-01T00:00:00+00:00, failed: ValueError" in shown


class TestEndlessLoops:
    """A run that is always due raises an error at the limit."""

    def test_a_handler_that_dispatches_itself(self, app):
        app.schedule("ping", lambda: app.dispatch("ping")).dispatch()

        with pytest.raises(StillDue) as error:
            testing.drain(app, limit=50)

        assert error.value.limit == 50
        assert error.value.jobs == ("ping",)

    def test_a_handler_that_snoozes_for_no_time(self, app):
        def again():
            raise Snooze(0)

        app.schedule("again", again).dispatch()

        with pytest.raises(StillDue, match="again"):
            testing.drain(app, limit=50)

    def test_exactly_as_many_runs_as_the_limit(self, app):
        note = app.schedule("note", lambda number: None)
        note.dispatch_many({"number": number} for number in range(50))

        assert len(testing.drain(app, limit=50)) == 50

    def test_a_limit_of_zero_is_rejected(self, app):
        with pytest.raises(InvalidOption, match="limit"):
            testing.drain(app, limit=0)


class TestWithoutAManualClock:
    """It also works with a clock that moves by itself."""

    def test_it_executes_what_is_due_now(self, make_app):
        app = make_app(clock=None)
        run = app.schedule("it", lambda: 42).dispatch()

        assert len(testing.drain(app)) == 1
        assert run.result() == 42

    def test_the_result_of_a_failed_run_raises(self, app):
        run = app.schedule("it", lambda: 1 / 0).dispatch()
        testing.drain(app)

        with pytest.raises(RunUnsuccessful, match="ZeroDivisionError"):
            run.result()
