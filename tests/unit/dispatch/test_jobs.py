import asyncio
import inspect
import warnings
from dataclasses import FrozenInstanceError

import pytest

from tickwork import RunContext
from tickwork._dispatch.dispatch_options import NO_DISPATCH_OPTIONS
from tickwork._dispatch.jobs import Draft, Job
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    InvalidOption,
    UndispatchedDraft,
)


@pytest.fixture
def send(app):
    @app.job
    def send(to: str, subject: str = "hello") -> str:
        """Send it."""
        return f"{subject} {to}"

    return send


class TestJobs:
    """A job is still callable as the function that it was."""

    def test_it_is_called_as_before(self, send):
        assert send("ann") == "hello ann"
        assert send(to="ann", subject="bye") == "bye ann"

    def test_name_and_docstring_are_those_of_the_function(self, send):
        assert isinstance(send, Job)
        assert (send.__name__, send.__doc__, send.name) == ("send", "Send it.", "send")
        assert repr(send) == "<job send>"

    def test_a_coroutine_function_stays_one(self, app):
        @app.job
        async def fetch(url: str) -> str:
            return url

        assert asyncio.run(fetch("a")) == "a"


class Mail:
    """Sends it."""

    name = "an attribute of its own"

    def __init__(self, server: str = "localhost") -> None:
        self.server = server

    def handle(self, to: str) -> str:
        return f"{self.server} {to}"


class Report:
    def __repr__(self) -> str:
        return "report"

    def handle(self, run: RunContext, account: int, kind: str = "daily") -> list[object]:
        return [run.run_id, run.job, dict(run.args), account, kind]


class TestDirectCalls:
    """Calling a job calls its handler here, without a run."""

    def test_a_handler_class_is_instantiated(self, app):
        mail = app.job(Mail)

        assert mail("ann") == "localhost ann"
        app.construct = lambda kind: kind("example.org")
        assert mail(to="ann") == "example.org ann"

    def test_attributes_of_the_class_are_not_copied(self, app):
        mail = app.job(Mail)

        assert (mail.name, mail.__name__, mail.__doc__) == ("Mail", "Mail", "Sends it.")
        assert not hasattr(mail, "handle")

    def test_a_path(self, app):
        mail = app.schedule("mail", "unit.dispatch.test_jobs:Mail")

        assert mail.job("ann") == "localhost ann"

    def test_outside_a_run_the_context_belongs_to_no_run(self, app):
        @app.job
        def report(ctx: RunContext, account: int, kind: str = "daily") -> list[object]:
            ctx.progress(0.5)
            ctx.checkpoint("page 7")
            ctx.complete(connection=None)
            return [ctx.job, account, kind, ctx.checkpoint(), ctx.is_canceled(), ctx.attempt]

        expected = ["report", 7, "daily", "page 7", False, 1]
        assert report(7) == report(account=7) == report(7, "daily") == expected
        assert app.runs.recent() == []

    def test_a_context_that_is_passed_is_used(self, app):
        @app.job
        def which(ctx: RunContext) -> RunContext:
            return ctx

        mine = which()
        assert which(mine) is mine
        assert which(ctx=mine) is mine

    def test_inside_a_run_the_context_is_that_of_the_run(self, app):
        @app.job
        def inner(ctx: RunContext) -> str:
            return ctx.run_id

        @app.job
        def outer() -> object:
            return inner()

        run = outer.dispatch()
        app.run()

        assert run.result() == run.id

    @pytest.mark.parametrize("handler", [Report, Report(), Report().handle], ids=repr)
    def test_inside_a_run_the_arguments_are_those_of_the_call(self, app, handler):
        report = app.schedule("report", handler).job

        @app.job
        def outer(account: int) -> list[object]:
            return [report(7), report(account=8, kind="weekly"), report(9, "monthly")]

        run = outer.dispatch(account=1)
        app.run()

        assert run.result() == [
            [run.id, "outer", {"account": 1}, 7, "daily"],
            [run.id, "outer", {"account": 1}, 8, "weekly"],
            [run.id, "outer", {"account": 1}, 9, "monthly"],
        ]

    def test_arguments_that_do_not_fit_are_rejected(self, app):
        @app.job
        def inner(ctx: RunContext) -> None: ...

        with pytest.raises(ArgumentError):
            inner(7)
        with pytest.raises(TypeError):
            inner(account=7)

    def test_a_coroutine_with_a_context(self, app):
        @app.job
        async def fetch(ctx: RunContext, url: str) -> str:
            await ctx.complete_async(connection=None)
            return url

        assert asyncio.run(fetch("a")) == "a"

    def test_a_remote_job_cannot_be_called(self, app):
        with pytest.raises(DefinitionError, match="does not have its handler"):
            app.remote("elsewhere").job()


@pytest.mark.filterwarnings("ignore::tickwork.errors.UndispatchedDraft")
class TestDrafts:
    """An option returns a new draft and leaves the old one as it was."""

    def test_an_option_returns_a_new_draft(self, send):
        draft = send.draft
        for option in (
            lambda: draft.queue("q"),
            lambda: draft.delay(5),
            lambda: draft.tags("t"),
            lambda: draft.args(to="ann"),
            lambda: draft.tenant("acme"),
            lambda: draft.unique("k"),
        ):
            assert option()._options != NO_DISPATCH_OPTIONS
            assert draft._options is NO_DISPATCH_OPTIONS

    def test_its_options_cannot_be_changed(self, send):
        with pytest.raises(FrozenInstanceError):
            send.draft._options.queue = "slow"

    def test_args_are_copied(self, send):
        given = {"to": "ann"}
        draft = send.args(**given)
        given["to"] = "bob"

        assert draft.dispatch().read().args == '{"to":"ann"}'

    def test_a_job_has_every_option_of_a_draft(self):
        options = {name for name in dir(Draft) if not name.startswith("_")}

        assert options <= {name for name in dir(Job) if not name.startswith("_")}

    def test_every_option_of_a_job_returns_a_draft(self, send):
        options = {
            "at": ("2030-01-01T00:00:00Z",),
            "delay": (5,),
            "queue": ("q",),
            "priority": (5,),
            "unique": ("k",),
            "debounce": ("10s",),
            "expires": (5,),
            "tags": ("a", "b"),
            "tenant": ("acme",),
            "target": ("o-1",),
            "using": (object(),),
        }
        for option, args in options.items():
            assert isinstance(getattr(send, option)(*args), Draft), option
        assert isinstance(send.args(to="ann"), Draft)

    def test_an_empty_tenant_is_allowed(self, send):
        assert send.tenant("acme").tenant("").dispatch("ann").read().tenant == ""

    def test_dispatch_many_takes_only_mappings(self, send):
        with pytest.raises(InvalidOption, match="mapping"):
            send.dispatch_many([("to", "ann")])


class TestDefinitionsThatChange:
    """A job is looked up when it is dispatched, so later changes apply."""

    def test_later_changes_of_the_builder_apply(self, app):
        builder = app.schedule("it", lambda: None)
        job, draft = builder.job, builder.job.draft
        builder.queue("slow")

        assert job.dispatch().read().queue == "slow"
        assert draft.dispatch().read().queue == "slow"


class TestContexts:
    """The worker passes the context; it is not an argument of a dispatch."""

    def test_the_context_may_be_any_parameter(self, app):
        @app.job
        def first(ctx: RunContext, number: int) -> int:
            return number + ctx.attempt

        @app.job
        def last(number: int, *, ctx: RunContext) -> int:
            return number + ctx.attempt

        runs = [first.dispatch(1), last.dispatch(1)]
        app.run()

        assert [run.result() for run in runs] == [2, 2]


class TestUndispatchedDrafts:
    """A draft with options that is dropped without a dispatch warns, at the line that made it."""

    @pytest.fixture
    def warned(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield caught

    @pytest.mark.parametrize(
        "make",
        [
            lambda app, send: send.delay(5),
            lambda app, send: send.queue("slow").tags("a"),
            lambda app, send: app.delay(5),
            lambda app, send: app.args(to="ann"),
            lambda app, send: app.schedule("send", lambda: None).delay(5),
            lambda app, send: send.aio.delay(5),
            lambda app, send: send.delay(5).aio,
        ],
    )
    def test_it_warns_once(self, app, warned, make):
        make(app, app.job(name="mail")(lambda to: None))

        [found] = warned
        assert found.category is UndispatchedDraft
        assert issubclass(UndispatchedDraft, UserWarning)
        assert found.filename == __file__
        assert "never dispatched" in str(found.message)
        assert ".dispatch(" in str(found.message)

    def test_the_line_is_that_of_the_draft(self, send, warned):
        draft = send.delay(5)
        line = inspect.stack(0)[0].lineno - 1
        del draft

        [found] = warned
        assert found.lineno == line

    def test_a_draft_that_is_dispatched_does_not_warn(self, app, send, warned):
        send.delay(5).queue("slow").dispatch("ann")
        slow = send.queue("slow")
        slow.dispatch("ann")
        slow.delay(5).dispatch("ann")
        send.delay(5).dispatch_many([{"to": "ann"}])
        app.delay(5).dispatch(send, "ann")
        app.delay(5).dispatch("send", "ann")
        asyncio.run(send.aio.delay(5).dispatch("ann"))
        asyncio.run(send.delay(5).aio.dispatch_many([{"to": "ann"}]))
        del slow

        assert list(warned) == []

    def test_nor_does_one_whose_dispatch_fails_or_that_has_no_options(self, app, send, warned):
        with pytest.raises(ArgumentError):
            send.delay(5).dispatch("ann", wrong=1)
        _ = send.draft, app.draft, send.aio

        assert list(warned) == []


class TestCallsOfOtherLibraries:
    """``delay`` takes a length of time; arguments of the handler belong to ``dispatch``."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda send: send.delay(to="ann"),
            lambda send: send.delay("10s", to="ann"),
            lambda send: send.delay("10s", "ann"),
            lambda send: send.delay(),
        ],
    )
    def test_the_error_has_the_call_to_write(self, send, call):
        with pytest.raises(InvalidOption, match=r'\.delay\("10s"\)\.dispatch\('):
            call(send)
