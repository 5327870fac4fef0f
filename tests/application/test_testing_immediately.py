"""``testing.immediately``: each run is executed before its dispatch returns."""

import logging
import threading

import pytest

from tickwork import JobResult, RetryLater, RunContext, RunStatus, Snooze, testing
from tickwork.errors import AttemptTimeout, RunUnsuccessful, StillDue


@pytest.fixture
def at_once(app):
    with testing.immediately(app):
        yield app


@pytest.fixture
def raising(app):
    with testing.immediately(app, raising=True):
        yield app


class TestImmediately:
    """The run is added, claimed, executed and recorded, not just called."""

    def test_a_dispatch_returns_a_finished_run(self, at_once):
        run = at_once.schedule("double", lambda number: 2 * number).dispatch(number=21)

        assert run.status is RunStatus.COMPLETED
        assert run.result() == 42

    def test_the_run_is_stored_as_usual(self, at_once):
        def work(ctx: RunContext):
            found = at_once.get_run(ctx.run_id).read()
            logging.getLogger("shop").warning("working")
            return [found.status.value, found.attempt, found.token]

        run = at_once.schedule("work", work).dispatch()

        assert run.result() == ["running", 1, 1]
        assert [line.message for line in run.log()] == ["working"]

    def test_dispatch_many(self, at_once):
        runs = at_once.schedule("it", lambda n: n).dispatch_many({"n": n} for n in range(3))

        assert [run.result() for run in runs] == [0, 1, 2]

    def test_by_name_by_path_and_as_a_coroutine(self, app):
        app.registry.handler_paths = ("application",)
        path = "application.handlers_elsewhere:Static"

        async def later() -> str:
            return "awaited"

        app.schedule("later", later)
        with testing.immediately(app):
            assert app.dispatch("later").result() == "awaited"
            assert app.dispatch(path, number=3).result() == 3

    def test_runs_that_handlers_dispatch_are_executed_inside_them(self, at_once):
        order = []

        def outer():
            order.append("outer begins")
            answer = at_once.dispatch("inner", n=1).result()
            order.append("outer ends")
            return answer

        def inner(n: int):
            order.append("inner")
            return n + 1

        at_once.schedule("inner", inner)
        run = at_once.schedule("outer", outer).dispatch()

        assert order == ["outer begins", "inner", "outer ends"]
        assert run.result() == 2

    def test_runs_that_are_due_later_stay_pending(self, at_once, clock):
        run = at_once.schedule("later", lambda: None).delay(10).dispatch()

        assert run.status is RunStatus.PENDING
        clock.advance(seconds=10)
        assert len(testing.drain(at_once)) == 1

    def test_runs_from_before_are_not_executed(self, app):
        job = app.schedule("it", lambda: None)
        before = job.dispatch()

        with testing.immediately(app):
            inside = job.dispatch()

        assert before.status is RunStatus.PENDING
        assert inside.status is RunStatus.COMPLETED

    def test_after_the_block_dispatched_runs_stay_pending(self, app):
        job = app.schedule("it", lambda: None)
        with testing.immediately(app):
            pass

        assert job.dispatch().status is RunStatus.PENDING

    def test_filters_apply(self, at_once):
        skipped = at_once.schedule("skipped", lambda: None).skip(lambda: True).dispatch()
        put_off = at_once.schedule("put_off", lambda: None).when(lambda: False).dispatch()
        snoozed = at_once.schedule("snoozed", _snooze).dispatch()

        assert skipped.status is RunStatus.SKIPPED
        assert put_off.status is snoozed.status is RunStatus.PENDING

    def test_a_job_of_another_program_stays_pending(self, at_once):
        assert at_once.remote("elsewhere").dispatch().status is RunStatus.PENDING

    def test_a_retry_without_a_delay_is_made_at_once(self, at_once):
        attempts = []

        def fail_twice():
            attempts.append(1)
            if len(attempts) < 3:
                raise RetryLater(0)

        run = at_once.schedule("it", fail_twice).dispatch()

        assert run.status is RunStatus.COMPLETED
        assert len(attempts) == 3

    def test_a_run_that_waits_for_a_limit_is_executed_when_a_slot_is_free(self, at_once):
        seen = []

        def work(depth: int):
            if depth:
                seen.append(at_once.dispatch("work", depth=depth - 1).status)

        at_once.schedule("work", work).concurrency(1).dispatch(depth=1)

        assert seen == [RunStatus.PENDING]  # its parent had the only slot
        assert {each.status for each in testing.dispatched(at_once)} == {RunStatus.COMPLETED}

    def test_dispatches_from_threads(self, at_once):
        job = at_once.schedule("it", lambda: threading.current_thread().name)
        results = []
        thread = threading.Thread(target=lambda: results.append(job.dispatch().result()), name="t")
        thread.start()
        thread.join()

        assert results == ["t"]

    def test_assertions_see_executed_runs(self, at_once):
        at_once.schedule("greet", lambda name: None).dispatch(name="Ann")

        [found] = testing.assert_dispatched(at_once, "greet", args={"name": "Ann"})
        assert found.status is RunStatus.COMPLETED


class TestFailures:
    """Failures are recorded; with ``raising``, the dispatch raises them."""

    def test_without_raising_a_failure_is_only_recorded(self, at_once):
        run = at_once.schedule("it", lambda: 1 / 0).dispatch()

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "ZeroDivisionError" in run.read().reason

    def test_with_raising_the_exception_is_raised_as_it_was(self, raising):
        def fail():
            raise LookupError("tray 2")

        with pytest.raises(LookupError, match="tray 2") as error:
            raising.schedule("print", fail).dispatch()

        assert error.traceback[-1].name == "fail"
        [found] = testing.dispatched(raising)
        assert found.status is RunStatus.FAILED_PERMANENT

    def test_it_is_raised_even_if_the_run_will_be_retried(self, raising):
        with pytest.raises(ZeroDivisionError):
            raising.schedule("it", lambda: 1 / 0).retries(max=5, base=60).dispatch()

        [found] = testing.dispatched(raising)
        assert found.status is RunStatus.FAILED

    def test_a_reported_failure_is_raised_with_its_reason(self, raising):
        with pytest.raises(RunUnsuccessful, match="no paper"):
            raising.schedule("it", lambda: JobResult.failure("no paper")).dispatch()

    def test_a_timeout_is_raised(self, raising, clock):
        with pytest.raises((RunUnsuccessful, AttemptTimeout), match="exceeded its timeout of 1s"):
            raising.schedule("it", lambda: clock.advance(seconds=2)).timeout(1).dispatch()

    def test_a_nested_failure_reaches_the_handler_and_then_the_caller(self, raising):
        raising.schedule("inner", lambda: 1 / 0)

        with pytest.raises(ZeroDivisionError):
            raising.schedule("outer", lambda: raising.dispatch("inner")).dispatch()

        assert {each.status for each in testing.dispatched(raising)} == {RunStatus.FAILED_PERMANENT}

    def test_dispatch_many_executes_all_and_raises_the_first_failure(self, raising):
        def fail(n: int):
            if n:
                raise ValueError(f"number {n}")

        with pytest.raises(ValueError, match="number 1"):
            raising.schedule("it", fail).dispatch_many({"n": n} for n in range(3))

        statuses = [each.status.value for each in testing.dispatched(raising)]
        assert statuses == ["completed", "failed_permanent", "failed_permanent"]

    def test_the_hooks_of_the_job_are_called(self, raising):
        seen = []
        job = raising.schedule("it", lambda: 1 / 0).on_error(lambda ctx, error: seen.append(error))

        with pytest.raises(ZeroDivisionError):
            job.dispatch()

        assert len(seen) == 1


class TestEndlessLoops:
    """A handler that dispatches itself raises an error."""

    @pytest.mark.parametrize("is_raising", [False, True])
    def test_a_handler_that_dispatches_itself(self, app, is_raising):
        app.schedule("ping", lambda: app.dispatch("ping"))

        with testing.immediately(app, raising=is_raising), pytest.raises(StillDue, match="ping"):
            app.dispatch("ping")

    def test_a_handler_that_snoozes_for_no_time(self, app):
        def again():
            raise Snooze(0)

        with testing.immediately(app), pytest.raises(StillDue, match="again"):
            app.schedule("again", again).dispatch()


def _snooze() -> None:
    raise Snooze(60)
