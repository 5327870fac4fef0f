"""``ctx.call`` and ``ctx.gather``: runs that call other runs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tickwork import RunContext, RunStatus, testing
from tickwork._domain.explain import Why
from tickwork.errors import FlowChanged, SubRunFailed


@dataclass(frozen=True)
class Label:
    number: int


@pytest.fixture
def made():
    """What the handlers of called runs have done."""
    return []


@pytest.fixture
def label(app, made):
    @app.job
    def label(number: int) -> Label:
        made.append(number)
        if number < 0:
            raise ValueError(f"no label {number}")
        return Label(number)

    return label


class TestCall:
    """A call is a run of its own: added once, and its result is typed."""

    def test_its_result(self, app, passes, label, made):
        @app.job
        def order(ctx: RunContext) -> int:
            found = ctx.call(label, 7)
            assert isinstance(found, Label)
            return found.number

        run = order.dispatch()
        passes(app)

        assert (run.result(), made) == (7, [7])
        assert len(app.runs.recent()) == 2

    def test_it_is_added_once_however_often_the_caller_is_attempted(
        self, app, clock, passes, label, made
    ):
        attempts = []

        @app.job(attempts=3)
        def order(ctx: RunContext) -> int:
            found: Label = ctx.call(label, number=7)
            attempts.append(found)
            if len(attempts) < 3:
                raise ValueError("try again")
            return found.number

        run = order.dispatch()
        for _ in range(5):
            passes(app)
            clock.advance(timedelta(hours=1))
        passes(app)

        assert (run.result(), made, len(attempts)) == (7, [7], 3)

    @pytest.mark.parametrize("kind", ["job", "draft", "name", "named"])
    def test_what_can_be_called(self, app, passes, label, kind):
        make: dict[str, Any] = {
            "job": lambda: label,
            "draft": lambda: label.queue("slow").tags("urgent"),
            "name": lambda: "label",
            "named": lambda: label.named("first"),
        }

        @app.job
        def order(ctx: RunContext) -> int:
            number: int = ctx.call(make[kind](), 7).number
            return number

        run = order.dispatch()
        passes(app)

        assert run.result() == 7
        [child] = [each for each in app.runs.recent() if each.job == "label"]
        assert child.queue == ("slow" if kind == "draft" else "default")
        assert list(testing.steps(app, run)) == ["first" if kind == "named" else "label"]

    def test_in_a_coroutine(self, app, passes, label):
        @app.job
        async def double(number: int) -> int:
            return 2 * number

        @app.job
        async def order(ctx: RunContext) -> list[Any]:
            one = await ctx.aio.call(label, 7)
            two = await ctx.aio.call(double, 4)
            both = await ctx.aio.gather(double.plan(1), double.plan(2))
            by_key = await ctx.aio.gather({"a": double.plan(5)}, name="more")
            return [one.number, two, both, by_key]

        run = order.dispatch()
        passes(app)

        assert run.result() == [7, 8, [2, 4], {"a": 10}]

    def test_recursion_with_one_slot(self, app, passes):
        @app.job(concurrency=1)
        def factorial(ctx: RunContext, number: int) -> int:
            if number < 2:
                return 1
            rest: int = ctx.call("factorial", number - 1)
            return number * rest

        run = factorial.dispatch(number=5)
        passes(app)

        assert run.result() == 120

    def test_between_steps_and_sleeps(self, app, clock, passes, label, made):
        steps: list[str] = []

        @app.job
        def order(ctx: RunContext) -> int:
            ctx.step("charge", steps.append, "charge")
            found: Label = ctx.call(label, 7)
            ctx.sleep("3d")
            ctx.step("ship", steps.append, "ship")
            return found.number

        run = order.dispatch()
        passes(app)
        clock.advance(timedelta(days=3))
        passes(app)

        assert (run.result(), steps, made) == (7, ["charge", "ship"], [7])

    def test_other_arguments_under_the_same_name(self, app, clock, passes, label):
        numbers = iter([1, 2, 3])

        @app.job
        def order(ctx: RunContext) -> int:
            found: Label = ctx.call(label, next(numbers))
            return found.number

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert FlowChanged.__name__ in run.read().reason

    def test_a_direct_call(self, app, label):
        @app.job
        def order(ctx: RunContext) -> list[int]:
            one = ctx.call(label, 7)
            both = ctx.gather(label.plan(1), label.plan(number=2))
            return [one.number, *(each.number for each in both)]

        assert order() == [7, 1, 2]


class TestGather:
    """Several runs at once."""

    def test_results_in_the_order_of_the_calls(self, app, passes, label, made):
        @app.job
        def order(ctx: RunContext) -> list[int]:
            return [each.number for each in ctx.gather(*(label.plan(it) for it in range(20)))]

        run = order.dispatch()
        passes(app)

        assert run.result() == list(range(20))
        assert sorted(made) == list(range(20))

    def test_by_key(self, app, passes, label):
        @app.job
        def order(ctx: RunContext) -> dict[str, int]:
            found = ctx.gather({"a": label.plan(1), "b": label.plan(2)}, name="labels")
            return {key: each.number for key, each in found.items()}

        run = order.dispatch()
        passes(app)

        assert run.result() == {"a": 1, "b": 2}
        assert list(testing.steps(app, run)) == ["labels[a]", "labels[b]"]

    @pytest.mark.parametrize("nothing", [(), ({},)], ids=["calls", "mapping"])
    def test_nothing(self, app, passes, nothing):
        @app.job
        def order(ctx: RunContext) -> Any:
            return ctx.gather(*nothing)

        run = order.dispatch()
        passes(app)

        assert not run.result()

    def test_one_fails(self, app, passes, label, made):
        @app.job
        def order(ctx: RunContext) -> list[Any]:
            try:
                ctx.gather(label.plan(1), label.plan(-2), label.plan(-3))
            except SubRunFailed as error:
                return [error.job, error.status, error.reason, len(error.others)]
            return []

        run = order.dispatch()
        passes(app)

        assert sorted(made) == [-3, -2, 1]
        job, status, reason, others = run.result()
        assert (job, status, others) == ("label", "failed_permanent", 1)
        assert "no label -2" in reason

    def test_another_number_of_calls(self, app, passes, label):
        sizes = iter([2, 3])

        @app.job
        def order(ctx: RunContext) -> Any:
            ctx.gather(*(label.plan(it) for it in range(next(sizes))))

        run = order.dispatch()
        passes(app)

        assert FlowChanged.__name__ in run.read().reason


class TestFailures:
    """A run that did not complete raises at the line of its call."""

    def test_it_raises_at_each_later_attempt(self, app, clock, passes, label):
        caught = []

        @app.job
        def order(ctx: RunContext) -> str:
            try:
                ctx.call(label, -1)
            except SubRunFailed as error:
                caught.append(error.run_id)
                ctx.sleep("1d")
                return "refunded"
            return "shipped"

        run = order.dispatch()
        passes(app)
        clock.advance(timedelta(days=1))
        passes(app)

        assert run.result() == "refunded"
        assert len(caught) == 2
        assert len(set(caught)) == 1

    def test_uncaught_it_fails_the_caller(self, app, passes, label):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.call(label, -1)

        run = order.dispatch()
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "no label -1" in run.read().reason

    def test_a_retry_calls_only_what_failed(self, app, passes, made):
        broken = [True]

        @app.job
        def part(number: int) -> int:
            made.append(number)
            if number == 2 and broken:
                raise ValueError("broken")
            return number

        @app.job
        def order(ctx: RunContext) -> list[int]:
            return ctx.gather(part.plan(1), part.plan(2))

        run = order.dispatch()
        passes(app)
        broken.clear()
        again = run.retry()
        passes(app)

        assert again.result() == [1, 2]
        assert sorted(made) == [1, 2, 2]


class TestCancel:
    """A cancel goes down."""

    def test_of_the_caller(self, app, clock, passes, label):
        @app.job
        def middle(ctx: RunContext) -> Any:
            return ctx.gather(label.delay("1d").plan(1), label.delay("1d").plan(2))

        @app.job
        def order(ctx: RunContext) -> Any:
            return ctx.call(middle)

        run = order.dispatch()
        passes(app)
        run.cancel()
        passes(app)

        assert {each.status for each in app.runs.recent()} == {RunStatus.CANCELED}
        assert len(app.runs.recent()) == 4

    def test_of_a_called_run(self, app, passes, label):
        @app.job
        def order(ctx: RunContext) -> str:
            try:
                ctx.call(label.delay("1d"), 1)
            except SubRunFailed as error:
                return error.status
            return ""

        run = order.dispatch()
        passes(app)
        [child] = [each for each in app.runs.recent() if each.job == "label"]
        app.runs.cancel(child.id)
        passes(app)

        assert run.result() == "canceled"


class TestViews:
    """What a caller waits for."""

    @pytest.fixture
    def run(self, app, passes, label):
        @app.job
        def order(ctx: RunContext) -> list[Label]:
            return ctx.gather(label.plan(1), label.delay("1d").plan(2))

        run = order.dispatch()
        passes(app)
        return run

    def test_explain(self, app, run):
        cause = app.explain(run.id).causes[0]

        assert cause.why is Why.WAITS_FOR_RUNS
        assert "1 run that it has called" in cause.text
        [child] = [each for each in app.runs.recent() if not each.is_finished and each.id != run.id]
        assert cause.runs == (child.id,)

    def test_inspect(self, app, run):
        details = app.inspect.details(run.id)

        assert [(each.step, each.job, each.status) for each in details.children] == [
            ("gather[0]", "label", RunStatus.COMPLETED),
            ("gather[1]", "label", RunStatus.PENDING),
        ]
        assert [step.run for step in details.steps] == [each.id for each in details.children]
        for child in details.children:
            assert app.inspect.details(child.id).callers == [run.id]

    def test_travel(self, app, clock, passes, run):
        clock.advance(timedelta(days=1))
        passes(app)

        assert run.result() == [Label(1), Label(2)]
