"""``run()`` makes one tick and one claim, and executes the runs in the calling process."""

import asyncio
import threading
import time
from contextvars import ContextVar
from datetime import timedelta

import pytest

from tickwork import RunContext, RunStatus, Tickwork
from tickwork._domain.identity import WorkerId
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest
from tickwork._worker.options import WorkerOptions


class TestRun:
    """It returns the attempts made, failed ones included."""

    def test_a_dispatched_run_is_executed_and_its_result_kept(self, app):
        @app.job
        def double(number: int) -> int:
            return 2 * number

        run = double.dispatch(21)

        assert run.status is RunStatus.PENDING
        assert app.run() == 1
        assert run.result() == 42
        assert app.run() == 0

    def test_it_claims_at_most_a_batch(self, app):
        @app.job
        def note(number: int) -> None:
            pass

        note.dispatch_many({"number": number} for number in range(5))

        assert [app.run(batch=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_failed_attempts_count(self, app):
        @app.job
        def fail() -> None:
            raise ValueError("as expected")

        run = fail.dispatch()

        assert app.run() == 1
        assert run.status is RunStatus.FAILED_PERMANENT
        assert run.read().reason == "ValueError: as expected"


class TestTimeouts:
    """A function that exceeds its timeout is a failed attempt, as in a worker."""

    @pytest.fixture
    def app(self, url):
        with Tickwork(url, install=True) as app:
            yield app

    def test_an_attempt_that_returns_too_late_has_failed(self, app):
        hooks = []

        @app.job(
            timeout=0.05,
            on_success=lambda: hooks.append("success"),
            on_error=lambda ctx, error: hooks.append(type(error).__name__),
        )
        def late() -> str:
            time.sleep(0.2)
            return "too late"

        run = late.dispatch()

        assert app.run() == 1
        assert "AttemptTimeout" in run.read().reason
        assert hooks == ["AttemptTimeout"]

    def test_a_handler_that_polls_learns_that_its_timeout_has_passed(self, app):
        @app.job(timeout=0.1)
        def patient(ctx: RunContext) -> None:
            while not ctx.is_canceled():
                time.sleep(0.01)

        run = patient.dispatch()

        assert app.run() == 1
        assert "AttemptTimeout" in run.read().reason

    def test_a_handler_that_ignores_its_timeout_does_not_block_the_caller(self, app):
        release, finished = threading.Event(), threading.Event()

        @app.job(timeout=0.05)
        def stuck() -> None:
            release.wait(30)
            finished.set()

        @app.job
        def other() -> str:
            return "done"

        app._services.passes.options = WorkerOptions(timeout_grace=timedelta(seconds=0.1))
        run, beside = stuck.dispatch(), other.dispatch()

        assert app.run() == 2
        assert not finished.is_set()
        assert "AttemptTimeout" in run.read().reason
        assert beside.result() == "done"
        release.set()
        assert finished.wait(30)
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_a_cancel_reaches_a_handler_that_polls(self, app):
        @app.job(timeout=30)
        def patient(ctx: RunContext) -> None:
            app.get_run(ctx.run_id).cancel()
            while not ctx.is_canceled():
                time.sleep(0.01)

        run = patient.dispatch()

        assert app.run() == 1
        assert run.status is RunStatus.CANCELED

    def test_a_job_with_a_timeout_sees_the_context_variables_of_the_caller(self, app):
        tenant = ContextVar("tenant", default="")

        @app.job(timeout=30)
        def who() -> str:
            return tenant.get()

        run = who.dispatch()
        tenant.set("acme")
        app.run()

        assert run.result() == "acme"

    def test_a_coroutine_is_cancelled(self, app):
        ended = []

        @app.job(timeout=0.05)
        async def late() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                ended.append(True)

        run = late.dispatch()

        assert app.run() == 1
        assert "AttemptTimeout" in run.read().reason
        assert ended == [True]


class TestTimeoutsOnATestClock:
    """While a test moves the clock, every attempt happens in the thread of the test."""

    @pytest.mark.parametrize(("seconds", "hook"), [(9, "success"), (10, "error")])
    def test_the_handler_moves_the_clock(self, app, clock, seconds, hook):
        hooks, threads = [], []

        @app.job(
            timeout=10,
            on_success=lambda: hooks.append("success"),
            on_error=lambda: hooks.append("error"),
        )
        def work() -> None:
            threads.append(threading.current_thread())
            clock.advance(seconds=seconds)

        work.dispatch()

        assert app.run() == 1
        assert hooks == [hook]
        assert threads == [threading.current_thread()]

    def test_a_handler_that_polls_learns_that_its_timeout_has_passed(self, app, clock):
        @app.job(timeout=10)
        def patient(ctx: RunContext) -> None:
            while not ctx.is_canceled():
                clock.advance(seconds=1)

        run = patient.dispatch()

        assert app.run() == 1
        assert "AttemptTimeout" in run.read().reason


class TestCrashedRuns:
    def test_the_hooks_of_a_run_whose_worker_died_are_called(self, app, clock):
        errors = []

        @app.job(on_error=lambda ctx, error: errors.append(str(error)))
        def work() -> str:
            return "done"

        run = work.dispatch()
        app._services.store.claim(
            ClaimRequest(1, jobs=("work",), is_starting=True),
            worker=WorkerId(new_id(clock.now())),
            tag="1",
            now=clock.now(),
            lease=timedelta(minutes=1),
            lease_by_job={},
        )
        clock.advance(minutes=2)

        assert app.run() == 1
        assert run.result() == "done"
        assert run.read().crashes == 1
        assert len(errors) == 1
