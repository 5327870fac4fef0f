"""``ctx.step`` and ``ctx.sleep``: runs that continue where they were."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from servers import mariadb
from tickwork import Discard, RetryLater, RunContext, RunStatus, Secret, Snooze, testing
from tickwork._domain.runs.outcome import Suspended
from tickwork._domain.runs.status import Phase
from tickwork.errors import (
    DuplicateStep,
    InvalidStep,
    InvalidTransition,
    NestedStep,
    StepFailed,
    SuspendRun,
)
from tickwork.events import RunFailed, RunSucceeded, RunSuspended

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Charge:
    order_id: int
    amount: int


class CardDeclined(Exception):  # noqa: N818  # as programs name them
    def __init__(self, code: int) -> None:
        super().__init__(f"declined with code {code}")
        self.code = code


class Calls(list[Any]):
    """Functions of steps that note their calls."""

    def charge(self, order_id: int) -> Charge:
        self.append(("charge", order_id))
        return Charge(order_id, 5)

    def ship(self, order_id: int) -> str:
        self.append(("ship", order_id))
        return f"parcel {order_id}"

    def decline(self) -> str:
        self.append("decline")
        raise CardDeclined(7)

    async def call_bank(self, order_id: int) -> Charge:
        await asyncio.sleep(0)
        return self.charge(order_id)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def later(app, clock, passes):
    """Move the clock, and execute what is due."""

    def move(length: timedelta = DAY) -> int:
        clock.advance(length)
        return int(passes(app))

    return move


def last_error(app, run) -> str:
    return str(app.inspect.details(run.id).run.reason)


class TestSteps:
    """A step is called once over all attempts, and its value is what was stored."""

    def test_a_later_attempt_gets_the_stored_value(self, app, passes, later, calls):
        @app.job(attempts=3)
        def order(ctx: RunContext, order_id: int) -> str:
            charge = ctx.step("charge", calls.charge, order_id)
            assert charge == Charge(order_id, 5)
            if ctx.token == 1:
                raise ConnectionError("the shop is closed")
            return str(ctx.step("ship", calls.ship, order_id))

        run = order.dispatch(order_id=42)
        passes(app)
        later()

        assert run.result() == "parcel 42"
        assert calls == [("charge", 42), ("ship", 42)]

    def test_the_version_of_the_application_is_stored(self, make_app, passes):
        app = make_app(version="2026.11")

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.step("charge", int)

        run = order.dispatch()
        passes(app)

        assert [step.version for step in app.inspect.details(run.id).steps] == ["2026.11"]

    def test_coroutines(self, app, passes, later, calls):
        @app.job
        async def order(ctx: RunContext, order_id: int) -> str:
            first, second = await asyncio.gather(
                ctx.aio.step("first", calls.call_bank, order_id),
                ctx.aio.step("second", calls.charge, order_id + 1),
            )
            await ctx.aio.sleep("1d")
            assert (first, second) == (Charge(order_id, 5), Charge(order_id + 1, 5))
            return await ctx.aio.step("ship", calls.ship, order_id)

        run = order.dispatch(order_id=1)
        passes(app)
        later()

        assert run.result() == "parcel 1"
        assert sorted(calls) == [("charge", 1), ("charge", 2), ("ship", 1)]

    def test_the_first_attempt_gets_the_rebuilt_value_too(self, app, passes):
        seen: list[object] = []

        @app.job
        def order(ctx: RunContext) -> None:
            seen.append(ctx.step("pair", lambda: (1, 2)))

        order.dispatch()
        passes(app)

        assert seen == [[1, 2]], "as every later attempt would get it"

    def test_a_name_that_is_used_twice_fails_for_good(self, app, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext) -> None:
            for _ in range(2):
                ctx.step("charge", int)

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "DuplicateStep: The name 'charge' is used twice" in last_error(app, run)

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00"])
    def test_a_name_that_cannot_be_stored(self, app, passes, name):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.step(name, int)

        run = order.dispatch()
        passes(app)

        assert "has a name that is not a printable text" in last_error(app, run)

    def test_a_value_that_cannot_be_stored_fails_for_good(self, app, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext) -> None:
            ctx.step("lock", threading.Lock)

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "InvalidStep: The step 'lock' returned a value that" in last_error(app, run)

    def test_a_value_that_is_too_large_fails_for_good(self, app, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext) -> None:
            ctx.step("page", lambda: "x" * 70_000)

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "cannot be stored" in last_error(app, run)

    def test_a_stored_value_that_does_not_fit_the_changed_function(self, app, passes, later):
        def count() -> int:
            return 4

        def count_pages() -> dict[str, int]:
            return {}

        functions = [count, count_pages]

        @app.job(attempts=3)
        def order(ctx: RunContext) -> None:
            ctx.step("count", functions.pop(0))
            ctx.sleep("1d")

        run = order.dispatch()
        passes(app)
        later()

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "The step 'count' has a stored value that does not fit" in last_error(app, run)

    def test_a_run_has_at_most_a_thousand_steps(self, app, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext, count: int) -> int:
            for number in range(count):
                ctx.step(f"step {number}", int)
            return count

        fits, exceeds = order.dispatch(count=1_000), order.dispatch(count=1_001)
        passes(app)

        assert fits.result() == 1_000
        assert exceeds.status is RunStatus.FAILED_PERMANENT
        assert "has stored 1,000 steps" in last_error(app, exceeds)

    def test_a_step_in_a_step_fails(self, app, passes):
        caught: list[Exception] = []

        @app.job
        def order(ctx: RunContext) -> None:
            def outer() -> None:
                try:
                    ctx.step("inner", int)
                except NestedStep as error:
                    caught.append(error)
                    raise

            ctx.step("outer", outer)

        run = order.dispatch()
        passes(app)

        assert "inside of a step" in str(caught[0])
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_a_sleep_in_a_step_fails(self, app, passes):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.step("outer", lambda: ctx.sleep("1d"))

        run = order.dispatch()
        passes(app)

        assert "NestedStep: ctx.sleep was called inside of a step" in last_error(app, run)

    def test_a_step_in_another_thread_fails(self, app, passes):
        caught: list[Exception] = []

        @app.job
        def order(ctx: RunContext) -> None:
            def work() -> None:
                try:
                    ctx.step("charge", int)
                except NestedStep as error:
                    caught.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        order.dispatch()
        passes(app)

        assert "in another thread than that of the handler" in str(caught[0])

    def test_the_error_of_a_coroutine_names_ctx_aio(self, app, passes):
        @app.job
        async def order(ctx: RunContext) -> None:
            ctx.step("charge", int)

        run = order.dispatch()
        passes(app)

        assert "Write `await ctx.aio.step(...)`" in last_error(app, run)

    def test_a_function_that_calls_a_coroutine_function(self, app, passes, calls):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.step("charge", calls.call_bank, 1)

        run = order.dispatch()
        passes(app)

        assert "calls a coroutine function" in last_error(app, run)

    def test_no_step_after_a_completion(self, app, passes):
        caught: list[Exception] = []

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.note_completed()
            try:
                ctx.step("charge", int)
            except InvalidTransition as error:
                caught.append(error)

        order.dispatch()
        passes(app)

        assert caught

    def test_a_direct_call_has_no_run(self, app, calls):
        @app.job
        def order(ctx: RunContext, order_id: int) -> Charge:
            ctx.sleep("3d")
            charge: Charge = ctx.step("charge", calls.charge, order_id)
            return charge

        assert order(order_id=4) == Charge(4, 5)

    def test_a_direct_call_of_a_coroutine(self, app, calls):
        @app.job
        async def order(ctx: RunContext, order_id: int) -> Charge:
            await ctx.aio.sleep("3d")
            return await ctx.aio.step("charge", calls.call_bank, order_id)

        assert asyncio.run(order(order_id=4)) == Charge(4, 5)

    def test_secret_values_are_not_shown(self, app, passes):
        def read_token() -> Secret[str]:
            return "t0ken-9"

        @app.job
        def order(ctx: RunContext, card: Secret[str]) -> None:
            assert ctx.step("token", read_token) == "t0ken-9"
            ctx.step("echo", lambda: {"of": card})

        run = order.dispatch(card="4711-0815")
        passes(app)

        assert run.result() is None
        steps = app.inspect.details(run.id).steps
        assert [step.value for step in steps] == ["***", {"of": "***"}]


class TestFailedSteps:
    """The exception of a step is for the handler; its result only if the handler goes on."""

    def test_a_failure_that_leaves_the_handler_is_not_stored(self, app, passes, later, calls):
        outcomes = iter([ConnectionError("no"), None])

        def call() -> str:
            calls.append("call")
            error = next(outcomes)
            if error is not None:
                raise error
            return "done"

        @app.job(attempts=2)
        def order(ctx: RunContext) -> str:
            return ctx.step("call", call)

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "done"
        assert calls == ["call", "call"]

    def test_a_failure_that_the_handler_caught_is_the_result(self, app, passes, later, calls):
        seen: list[Exception] = []

        @app.job
        def order(ctx: RunContext) -> str:
            try:
                ctx.step("charge", calls.decline)
            except CardDeclined as error:
                seen.append(error)
                ctx.step("refund", calls.ship, 1)
                ctx.sleep("1d")
                return "refunded"
            return "shipped"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "refunded"
        assert calls == ["decline", ("ship", 1)]
        first, second = seen
        assert isinstance(first, CardDeclined)
        assert isinstance(second, StepFailed)
        assert str(second).startswith("The step 'charge' failed at an earlier attempt: Card")
        assert (second.kind, second.reason) == ("CardDeclined", "declined with code 7")

    def test_it_is_stored_with_a_sleep_as_well(self, app, passes, later, calls):
        @app.job
        async def order(ctx: RunContext) -> str:
            try:
                await ctx.aio.step("charge", calls.decline)
            except CardDeclined:
                await ctx.aio.sleep("1d")
            return "done"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "done"
        assert calls == ["decline"]

    @pytest.mark.parametrize("signal", [RetryLater("1d"), Discard(), Snooze("1d")])
    def test_signals_are_about_the_run(self, app, passes, signal):
        def call() -> None:
            raise signal

        @app.job
        def order(ctx: RunContext) -> None:
            with suppress(RetryLater, Discard, Snooze):
                ctx.step("call", call)
            ctx.step("other", int)

        run = order.dispatch()
        passes(app)

        assert [step.name for step in app.inspect.details(run.id).steps] == ["other"]


class TestRetries:
    """The retry of a failed run continues it; that of a completed one starts again."""

    @pytest.fixture
    def order(self, app, calls):
        is_open = [False]

        @app.job
        def order(ctx: RunContext, order_id: int) -> str:
            ctx.step("charge", calls.charge, order_id)
            ctx.sleep("1h")
            if not is_open.pop():
                is_open.append(True)
                raise ConnectionError("the shop is closed")
            is_open.append(True)
            return str(ctx.step("ship", calls.ship, order_id))

        return order

    def test_it_does_not_repeat_steps_and_sleeps(self, app, passes, later, order, calls):
        run = order.dispatch(order_id=7)
        passes(app)
        later()
        assert run.status is RunStatus.FAILED_PERMANENT

        again = run.retry()
        passes(app)

        assert again.result() == "parcel 7"
        assert calls == [("charge", 7), ("ship", 7)]

    def test_a_fresh_one_repeats_them(self, app, passes, later, order, calls):
        run = order.dispatch(order_id=7)
        passes(app)
        later()

        again = run.retry(fresh=True)
        passes(app)
        later()

        assert again.result() == "parcel 7"
        assert calls == [("charge", 7), ("charge", 7), ("ship", 7)]

    def test_a_completed_run_starts_again(self, app, passes, later, order, calls):
        run = order.dispatch(order_id=7)
        passes(app)
        later()
        completed = run.retry()
        passes(app)
        calls.clear()

        completed.retry()
        passes(app)
        later()

        assert calls == [("charge", 7), ("ship", 7)]


class TestSleeps:
    """A sleep holds no worker, and ends when its time has come."""

    def test_the_run_waits_and_continues(self, app, clock, passes, later, calls):
        @app.job
        def order(ctx: RunContext, order_id: int) -> str:
            ctx.step("charge", calls.charge, order_id)
            assert ctx.has_resumed == (ctx.token > 1)
            ctx.sleep("3d")
            return str(ctx.step("ship", calls.ship, order_id))

        run = order.dispatch(order_id=7)
        assert passes(app) == 1

        row = app.inspect.details(run.id).run
        assert (row.status, row.phase) == (RunStatus.PENDING, Phase.WAITING)
        assert row.due_at == clock.now() + 3 * DAY
        later(2 * DAY)
        assert not run.status.is_final
        later()
        assert run.result() == "parcel 7"
        assert calls == [("charge", 7), ("ship", 7)]

    def test_until_a_moment(self, app, clock, passes, later):
        moment = clock.now() + DAY

        @app.job
        def order(ctx: RunContext) -> str:
            ctx.sleep_until(moment)
            ctx.sleep_until(moment.isoformat(), name="again")
            return "awake"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "awake"

    def test_one_after_the_other(self, app, passes, later):
        @app.job
        def order(ctx: RunContext) -> int:
            for number in range(3):
                ctx.sleep("1d", name=f"day {number}")
            return ctx.token

        run = order.dispatch()
        passes(app)
        for _ in range(3):
            later()

        assert run.result() == 4

    def test_a_repeated_length_needs_a_name(self, app, passes, later):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d")
            ctx.sleep("1d")

        run = order.dispatch()
        passes(app)
        later()

        assert "DuplicateStep: The name 'sleep:1d'" in last_error(app, run)

    def test_a_run_that_is_started_early_sleeps_on(self, app, clock, passes, later):
        @app.job
        def order(ctx: RunContext) -> str:
            ctx.sleep("2d")
            return "awake"

        run = order.dispatch()
        passes(app)
        clock.advance(DAY)

        app.execute(run.id)

        assert app.inspect.details(run.id).run.due_at == clock.now() + DAY
        later()
        assert run.result() == "awake"

    def test_attempts_and_crashes_start_again(self, app, passes, later):
        attempts: list[int] = []

        @app.job(attempts=2)
        def order(ctx: RunContext) -> str:
            attempts.append(ctx.attempt)
            if len(attempts) in {1, 3}:
                raise ConnectionError("no")
            ctx.sleep("1h")
            return "done"

        run = order.dispatch()
        passes(app)
        for _ in range(3):
            later()

        assert run.result() == "done"
        assert attempts == [1, 2, 1, 2]

    def test_a_failed_attempt_with_progress_counts_as_the_first(self, app, passes, later):
        attempts: list[int] = []

        @app.job(attempts=2)
        def order(ctx: RunContext) -> str:
            attempts.append(ctx.attempt)
            ctx.step("a", int)
            if len(attempts) == 1:
                raise ConnectionError("no")
            ctx.step("b", int)
            if len(attempts) in {2, 3}:
                raise ConnectionError("no")
            return "done"

        run = order.dispatch()
        passes(app)
        for _ in range(4):
            later()

        # The second attempt has stored "b", so the third is not the last.
        assert attempts == [1, 2, 2]
        assert run.status is RunStatus.FAILED_PERMANENT

    def test_a_run_that_sleeps_does_not_expire(self, app, passes, later):
        @app.job(expires="1h")
        def order(ctx: RunContext) -> str:
            ctx.sleep("1d")
            return "done"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "done"

    def test_its_limit_is_free(self, app, passes, later):
        @app.job(concurrency=1)
        def order(ctx: RunContext, number: int) -> int:
            ctx.sleep("1d")
            return number

        runs = [order.dispatch(number=number) for number in range(3)]
        passes(app)

        assert len(unfinished(app)) == 3
        later()
        assert [run.result() for run in runs] == [0, 1, 2]

    def test_its_unique_key_is_held(self, app, passes):
        @app.job(unique=True)
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d")

        run = order.dispatch()
        passes(app)

        assert order.dispatch().id == run.id

    def test_a_cancel_ends_it_without_its_code(self, app, passes, later, calls):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d")
            calls.append("awake")

        run = order.dispatch()
        passes(app)
        run.cancel()
        later()

        assert run.status is RunStatus.CANCELED
        assert calls == []

    def test_a_cancel_while_it_falls_asleep(self, app, passes, later):
        @app.job
        def order(ctx: RunContext) -> None:
            run.cancel()
            ctx.sleep("1d")

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.CANCELED

    def test_what_then_added_is_forgotten_with_the_attempt(self, app, passes, later, calls):
        @app.job
        def follow() -> None:
            calls.append("follow")

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.then(follow)
            ctx.sleep("1d")

        order.dispatch()
        passes(app)
        assert calls == []
        later()
        assert calls == ["follow"]

    def test_explain_says_what_it_waits_for(self, app, passes):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d", name="cool down")

        run = order.dispatch()
        passes(app)

        [cause] = [each for each in app.explain(run.id).causes if each.why.value == "sleeping"]
        assert "'cool down'" in cause.text
        assert cause.until == app.inspect.details(run.id).run.due_at


def unfinished(app) -> list[Any]:
    return [run for run in app.runs.recent() if run.status is RunStatus.PENDING]


class TestCodeAroundASuspension:
    """``finally``, ``except``, hooks, filters and middleware."""

    def test_a_step_in_finally_runs_at_the_real_end_only(self, app, passes, later, calls):
        suspending: list[bool] = []

        @app.job
        def order(ctx: RunContext) -> None:
            try:
                ctx.sleep("1d")
            finally:
                suspending.append(ctx.is_suspending)
                ctx.step("clean", calls.append, "clean")

        order.dispatch()
        passes(app)
        assert (suspending, calls) == ([True], [])
        later()
        assert (suspending, calls) == ([True, False], ["clean"])

    def test_except_exception_does_not_see_it(self, app, passes, later):
        @app.job
        def order(ctx: RunContext) -> str:
            try:
                ctx.sleep("1d")
            except Exception:  # noqa: BLE001  # what many handlers do
                return "caught"
            return "slept"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "slept"
        assert not issubclass(SuspendRun, Exception)

    def test_a_handler_that_catches_everything_fails_for_good(self, app, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext) -> str:
            with suppress(BaseException):
                ctx.sleep("1d")
            return "went on"

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "caught SuspendRun" in last_error(app, run)

    def test_another_exception_is_the_outcome(self, app, passes):
        @app.job
        def order(ctx: RunContext) -> None:
            try:
                ctx.sleep("1d")
            finally:
                raise ValueError("the file is gone")

        run = order.dispatch()
        passes(app)

        assert last_error(app, run) == "ValueError: the file is gone"

    def test_groups_of_tasks(self, app, passes, later):
        @app.job
        async def order(ctx: RunContext, fails: bool) -> str:
            async def work() -> None:
                if fails:
                    raise ValueError("no")

            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.aio.sleep("1d", name="first"))
                group.create_task(ctx.aio.sleep("1d", name="second"))
                group.create_task(work())
            return "awake"

        sleeps, fails = order.dispatch(fails=False), order.dispatch(fails=True)
        passes(app)
        assert not sleeps.status.is_final
        assert last_error(app, fails).startswith("ExceptionGroup: unhandled errors")
        for _ in range(2):
            later()
        assert sleeps.result() == "awake"

    def test_hooks(self, app, passes, later):
        seen: list[str] = []

        def order(ctx: RunContext) -> str:
            ctx.sleep("1d")
            return "done"

        builder = app.schedule("order", order)
        builder.on_before(lambda: seen.append("before"))
        builder.on_success(lambda: seen.append("success"))
        builder.on_error(lambda: seen.append("error"))
        builder.on_after(lambda outcome: seen.append(type(outcome).__name__))
        builder.dispatch()
        passes(app)
        assert seen == ["before", Suspended.__name__]
        later()

        assert seen[2:] == ["before", "success", "Succeeded"]

    def test_filters_are_for_the_first_start(self, app, passes, later):
        tokens: list[int] = []

        def is_open(ctx: RunContext) -> bool:
            tokens.append(ctx.token)
            return True

        def order(ctx: RunContext) -> str:
            ctx.sleep("1d")
            return "done"

        run = app.schedule("order", order).when(is_open).dispatch()
        passes(app)
        later()

        assert run.result() == "done"
        assert tokens == [1]

    def test_middleware_sees_the_suspension(self, app, passes, later):
        seen: list[str] = []

        @app.middleware
        def watch(ctx: RunContext):
            try:
                yield
            except BaseException as error:
                seen.append(type(error).__name__)
                raise

        @app.job
        def order(ctx: RunContext) -> str:
            ctx.sleep("1d")
            return "done"

        run = order.dispatch()
        passes(app)
        later()

        assert (run.result(), seen) == ("done", ["SuspendRun"])

    def test_middleware_that_catches_it_fails_the_attempt(self, app, passes):
        @app.middleware
        def swallow(ctx: RunContext):
            with suppress(BaseException):
                yield

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d")

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "middleware caught SuspendRun" in last_error(app, run)

    def test_events(self, app, passes, later):
        seen: list[object] = []
        for kind in (RunSuspended, RunSucceeded, RunFailed):
            app.events.subscribe(kind, seen.append)

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.sleep("1d")

        order.dispatch()
        passes(app)
        later()

        assert [type(event) for event in seen] == [RunSuspended, RunSucceeded]
        assert seen[0].reason == "sleeps: sleep:1d"  # type: ignore[attr-defined]


class TestStepsInTransactionsOfTheCaller:
    """``step_using``: the effects of a step and its value are committed together."""

    @pytest.fixture
    def connect(self, url, database, app):
        app.install()

        def opened() -> Any:
            if database == "postgres":
                return closing(psycopg.connect(url))
            if database == "mariadb":
                return closing(mariadb.connect(url, autocommit=False))
            return closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0]))

        with opened() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)")
            connection.execute("DELETE FROM payments")
            connection.commit()
        return opened

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_both_or_none(self, app, passes, later, connect, is_committed):
        @app.job(attempts=2)
        def order(ctx: RunContext) -> str:
            with connect() as connection:

                def pay() -> int:
                    connection.execute("INSERT INTO payments VALUES (5)")
                    return 5

                assert ctx.step_using(connection, "pay", pay) == 5
                if is_committed or ctx.token > 1:
                    connection.commit()
            if ctx.token == 1:
                raise ConnectionError("no")
            return "done"

        run = order.dispatch()
        passes(app)
        later()

        assert run.result() == "done"
        with connect() as connection:
            assert list(connection.execute("SELECT amount FROM payments")) == [(5,)]


class TestTravel:
    """A flow of days in a test of milliseconds."""

    def test_each_step_at_its_own_time(self):
        with testing.app(start="2026-03-01T09:00:00+00:00") as app:
            times = []

            @app.job
            def trial(ctx: RunContext, user: str) -> str:
                for day in (1, 7, 14):
                    ctx.sleep(f"{day}d", name=f"day {day}")
                    ctx.step(f"mail {day}", lambda: times.append(app.clock.now().day))
                return user

            run = trial.dispatch(user="ann")
            done = testing.travel(app, days=30)

            assert run.result() == "ann"
            assert times == [2, 9, 23]
            assert (len(done), len(done.suspended)) == (1, 3)
            assert testing.steps(app, run) == {
                "day 1": None,
                "mail 1": None,
                "day 7": None,
                "mail 7": None,
                "day 14": None,
                "mail 14": None,
            }


def test_errors_can_be_pickled():
    import pickle

    from tickwork._kernel.clock import SystemClock

    now = SystemClock().now()
    error = pickle.loads(pickle.dumps(SuspendRun("sleeps", until=now, steps=(1,))))
    assert (error.reason, error.until, error.steps) == ("sleeps", now, (1,))
    for each in (DuplicateStep("a", run_id="1"), InvalidStep("a", "is.")):
        assert str(pickle.loads(pickle.dumps(each))) == str(each)
