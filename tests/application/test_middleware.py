"""``@app.middleware``: what can be one, and where it applies."""

import pytest

from tickwork import testing
from tickwork.errors import DefinitionError


def plain(ctx): ...


async def coroutine(ctx): ...


def two(ctx, call):
    yield


class Instance:
    def __init__(self, seen):
        self.seen = seen

    def __call__(self, ctx):
        self.seen.append(ctx.job)
        yield


async def asynchronous(ctx):
    yield


class TestDefinition:
    @pytest.mark.parametrize("function", [plain, coroutine, 3])
    def test_what_does_not_yield_is_refused(self, app, function):
        with pytest.raises(DefinitionError, match="it does not yield"):
            app.middleware(function)

    def test_it_takes_one_argument(self, app):
        with pytest.raises(DefinitionError, match="it must take one argument"):
            app.middleware(two)

    def test_an_instance_can_be_one(self, app, passes):
        seen: list[str] = []
        app.middleware(Instance(seen))
        app.schedule("it", lambda: None).dispatch()
        passes(app)

        assert seen == ["it"]


class TestScope:
    def test_jobs_that_were_defined_and_used_before_have_it_too(self, app, passes):
        seen: list[str] = []
        job = app.schedule("it", lambda: None)
        job.dispatch()
        passes(app)

        app.middleware(Instance(seen))
        job.dispatch()
        passes(app)

        assert seen == ["it"]

    def test_filters_come_before_it(self, app, passes):
        seen: list[str] = []
        app.middleware(Instance(seen))
        app.schedule("it", lambda: None).skip(lambda: True).dispatch()
        passes(app)

        assert seen == []

    def test_it_wraps_each_attempt(self, app, passes):
        def fail():
            raise ValueError

        seen: list[str] = []
        app.middleware(Instance(seen))
        app.schedule("it", fail).retries(max=3, delay=0).dispatch()
        passes(app)

        assert seen == ["it"] * 3

    def test_execute_and_the_testing_kit_have_it(self):
        seen: list[str] = []
        with testing.app() as app:
            app.middleware(Instance(seen))
            job = app.schedule("it", lambda: None)
            app.execute(job.dispatch().id)
            with testing.immediately(app):
                job.dispatch()

        assert seen == ["it", "it"]

    def test_a_direct_call_has_not(self, app):
        seen: list[str] = []
        app.middleware(Instance(seen))

        @app.job
        def report() -> str:
            return "done"

        assert report() == "done"
        assert seen == []


def test_the_traceback_of_a_function_begins_with_its_own_error(app, passes):
    def work():
        raise KeyError("price")

    app.middleware(asynchronous)
    run = app.schedule("it", work).dispatch()
    passes(app)

    (attempt,) = run.attempts()
    assert "KeyError: 'price'" in attempt.traceback
    assert "During handling of the above exception" not in attempt.traceback
