"""``ctx.then``: runs that are added with the success of the attempt that dispatched them."""

import asyncio
import json

import pytest

from tickwork import Discard, RunContext, RunStatus, Snooze, testing
from tickwork.errors import ArgumentError, InvalidOption, JobNotFound, StillDue
from tickwork.events import RunDispatched


@pytest.fixture
def sent(app):
    """The arguments of the runs of ``send``, a job to follow up with."""
    seen: list[str] = []

    @app.job
    def send(to: str) -> None:
        seen.append(to)

    return seen


def pending(app):
    return [run.job for run in app.runs.recent() if not run.status.is_final]


class TestThen:
    def test_it_runs_after_the_success(self, app, passes, sent):
        @app.job
        def order(ctx: RunContext) -> str:
            ctx.then("send", to="ann")
            assert app.runs.recent()[0].job == "order", "nothing is added before the end"
            return "done"

        run = order.dispatch()
        passes(app)

        assert run.result() == "done"
        assert sent == ["ann"]

    def test_coroutines_classes_and_hooks_can_call_it(self, app, passes, sent):
        async def order(ctx: RunContext) -> None:
            await asyncio.sleep(0)
            ctx.then("send", "ann")

        builder = app.schedule("order", order)
        builder.on_success(lambda ctx: ctx.then("send", "bob")).dispatch()
        passes(app)

        assert sorted(sent) == ["ann", "bob"]

    @pytest.mark.parametrize("error", [ValueError("no"), Discard("no"), Snooze(3600)])
    def test_an_attempt_that_does_not_succeed_adds_none(self, app, passes, sent, error):
        def order(ctx: RunContext) -> None:
            ctx.then("send", to="ann")
            raise error

        app.schedule("order", order).dispatch()
        passes(app)

        assert [run.job for run in app.runs.recent()] == ["order"]

    def test_a_retry_adds_only_its_own(self, app, passes, sent):
        def order(ctx: RunContext) -> None:
            ctx.then("send", to=f"attempt {ctx.attempt}")
            if ctx.attempt < 3:
                raise ValueError

        app.schedule("order", order).retries(max=3, delay=0).dispatch()
        passes(app)

        assert sent == ["attempt 3"]

    def test_a_canceled_attempt_adds_none(self, app, passes, sent):
        def order(ctx: RunContext) -> None:
            app.get_run(ctx.run_id).cancel()
            ctx.then("send", to="ann")
            assert ctx.is_canceled()

        run = app.schedule("order", order).dispatch()
        passes(app)

        assert run.status is RunStatus.CANCELED
        assert sent == []

    def test_drafts_have_their_options(self, app, clock, passes):
        @app.job
        def send(to: str) -> None: ...

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.then(send.delay("5m").queue("slow").tags("paid"), to="ann")
            ctx.then(app.delay("1h"), "send", to="bob")
            ctx.then(send, "cyd")

        order.dispatch()
        app.run(batch=1)

        by_to = {json.loads(run.args)["to"]: run for run in app.runs.recent() if run.job == "send"}
        assert (by_to["ann"].queue, by_to["ann"].tags) == ("slow", ("paid",))
        delays = [(by_to[to].due_at - clock.now()).total_seconds() for to in ("ann", "bob", "cyd")]
        assert delays == pytest.approx([300, 3600, 0], abs=1)

    def test_only_runs_that_were_added_are_reported(self, app, passes, sent):
        app.schedule("report", lambda: None).unique("taken").delay("1h").dispatch()
        seen: list[str] = []

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.then("report")  # its key is taken
            ctx.then(app.delay(0).unique("free"), "send", to="ann")
            ctx.then("send", to="bob")

        order.dispatch()
        app.on(RunDispatched)(lambda event: seen.append(event.run_id))
        passes(app)

        assert sorted(sent) == ["ann", "bob"]
        assert sorted(seen) == sorted(run.id for run in app.runs.recent() if run.job == "send")

    def test_a_taken_unique_key_adds_no_second_run(self, app, passes, sent):
        app.schedule("report", lambda: None).unique("one").delay("1h").dispatch()

        @app.job
        def order(ctx: RunContext) -> None:
            ctx.then("report")
            ctx.then("send", to="ann")

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.COMPLETED
        assert sent == ["ann"]
        assert pending(app) == ["report"]

    def test_wrong_arguments_fail_the_attempt(self, app, passes, sent):
        caught: list[Exception] = []

        @app.job
        def order(ctx: RunContext) -> None:
            for job, args in (("send", {"too": "ann"}), ("sent", {}), (3, {})):
                try:
                    ctx.then(job, **args)  # type: ignore[arg-type]
                except (ArgumentError, JobNotFound, InvalidOption) as error:
                    caught.append(error)

        order.dispatch()
        passes(app)

        assert [type(error) for error in caught] == [ArgumentError, JobNotFound, InvalidOption]

    def test_each_publishes_an_event(self, app, passes, sent):
        jobs: list[str] = []
        app.on(RunDispatched)(lambda event: jobs.append(event.job))
        order = app.schedule("order", lambda ctx: None)
        order.on_success(lambda ctx: ctx.then("send", to="ann"))
        order.dispatch(ctx=1)
        passes(app)

        assert jobs == ["order", "send"]

    def test_a_direct_call_adds_none(self, app, sent):
        @app.job
        def order(ctx: RunContext) -> str:
            ctx.then("send", to="ann")
            return "done"

        assert order() == "done"
        assert app.runs.recent() == []

    def test_execute_adds_them(self, app, passes, sent):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.then("send", to="ann")

        app.execute(order.dispatch().id)

        assert pending(app) == ["send"]


class TestTesting:
    def test_drain_and_immediately(self):
        with testing.app() as app:
            seen: list[int] = []

            @app.job
            def count(ctx: RunContext, left: int) -> None:
                seen.append(left)
                if left:
                    ctx.then(count, left - 1)

            count.dispatch(2)
            testing.drain(app)
            with testing.immediately(app):
                count.dispatch(1)

            assert seen == [2, 1, 0, 1, 0]

    def test_an_endless_chain_is_an_error(self):
        with testing.app() as app:

            @app.job
            def again(ctx: RunContext) -> None:
                ctx.then(again)

            with testing.immediately(app), pytest.raises(StillDue):
                again.dispatch()
