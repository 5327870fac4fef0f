"""Handlers: a callable, a path, a class with ``handle`` or ``execute``, a handler of a job type."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from application import handlers_elsewhere as elsewhere
from tickwork import JobResult, RunContext, RunStatus, Secret, Snooze, Tickwork, current_run
from tickwork._domain.explain import Why
from tickwork.errors import (
    DefinitionError,
    HandlerNotAllowed,
    HandlerNotFound,
    JobNotFound,
)

HERE = "application.handlers_elsewhere"

REFUSED = [
    f"{HERE}:report",
    f"{HERE}:os.system",
    f"{HERE}:JobResult",
    f"{HERE}:instance.handle",
    "os:system",
]
"""Paths that are not allowed in a row: a function, and what the module did not define."""


@pytest.fixture(autouse=True)
def calls() -> list[tuple[str, object]]:
    elsewhere.CALLS.clear()
    return elsewhere.CALLS


class TestKindsOfHandlers:
    """All kinds of handlers can be jobs."""

    def test_a_function(self, app, passes):
        run = app.schedule("add", lambda left, right: left + right).dispatch(1, right=2)
        passes(app)

        assert run.result() == 3

    def test_a_coroutine_function(self, app, passes):
        @app.job
        async def answer() -> int:
            await asyncio.sleep(0)
            return 42

        run = answer.dispatch()
        passes(app)

        assert run.result() == 42

    def test_a_partial_and_a_callable_object(self, app, passes):
        class Doubling:
            def __call__(self, number: int) -> int:
                return 2 * number

        fixed = app.schedule("fixed", partial(pow, exp=2)).dispatch(base=5)
        doubled = app.schedule("doubled", Doubling()).dispatch(number=4)
        passes(app)

        assert (fixed.result(), doubled.result()) == (25, 8)

    @pytest.mark.parametrize("kind", ["Static", "OfClass"])
    def test_a_class_with_a_static_or_class_level_handle(self, app, passes, calls, kind):
        run = app.schedule("it", getattr(elsewhere, kind)).dispatch(number=3)
        passes(app)

        assert run.result() == 3
        assert calls == [(kind, 3)]

    def test_a_class_whose_instance_has_handle_is_constructed_without_arguments(self, app, passes):
        run = app.schedule("it", elsewhere.OnInstance).dispatch(number=3)
        passes(app)

        assert run.result() == "plain 3 1"

    def test_app_construct_makes_the_instances(self, app, passes):
        app.construct = lambda kind: kind("from the container")
        run = app.schedule("it", elsewhere.OnInstance).dispatch(number=3)
        passes(app)

        assert run.result() == "from the container 3 1"

    def test_an_instance_with_handle(self, app, passes):
        run = app.schedule("it", elsewhere.OnInstance("mine")).dispatch(number=3)
        passes(app)

        assert run.result() == "mine 3 1"

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (True, RunStatus.COMPLETED),
            (None, RunStatus.COMPLETED),
            (False, RunStatus.FAILED_PERMANENT),
        ],
    )
    def test_only_false_from_execute_fails(self, app, passes, monkeypatch, answer, status):
        monkeypatch.setattr(elsewhere.Verdict, "answer", answer)
        run = app.schedule("it", elsewhere.Verdict).dispatch()
        passes(app)

        assert run.status is status

    def test_false_from_a_function_is_a_result(self, app, passes):
        run = app.schedule("it", lambda: False).dispatch()
        passes(app)

        assert run.result() is False

    def test_a_path_in_code_is_imported_when_it_is_needed(self, app, passes):
        run = app.schedule("it", f"{HERE}:report").args(kind="weekly").dispatch()
        passes(app)

        assert run.result() == "weekly"

    def test_a_class_without_handle_or_execute_is_refused(self, app):
        with pytest.raises(HandlerNotFound, match="neither handle"):
            app.schedule("it", elsewhere.NothingToCall).dispatch()

    def test_a_wrong_path_suggests_a_similar_name(self, app):
        with pytest.raises(HandlerNotFound, match="Did you mean 'report'"):
            app.schedule("it", f"{HERE}:reprot").dispatch()


class TestHandlersOfJobTypes:
    """``supports(job_type)`` and ``handle(run)``, registered with ``app.handler``."""

    def test_a_registered_handler_runs_the_types_it_supports(self, app, passes):
        class Exports:
            def supports(self, job_type: str) -> bool:
                return job_type.startswith("export.")

            def handle(self, run: RunContext) -> JobResult:
                return JobResult.success([run.job, run.target, run.args])

        app.handler(Exports())
        run = app.draft.target("report-7").dispatch("export.pdf", pages=3)
        passes(app)

        assert run.result() == ["export.pdf", "report-7", {"pages": 3}]

    def test_two_handlers_for_a_type_are_an_error(self, app):
        class Anything:
            def supports(self, job_type: str) -> bool:
                return True

            def handle(self, run: RunContext) -> None: ...

        app.handler(Anything())
        app.handler(Anything())

        with pytest.raises(DefinitionError, match="Two handlers support"):
            app.dispatch("export.pdf")

    def test_an_explicit_callable_comes_first(self, app, passes):
        class Anything:
            def supports(self, job_type: str) -> bool:
                return True

            def handle(self, run: RunContext) -> str:
                return "by type"

        app.handler(Anything())
        mine = app.schedule("mine", lambda: "explicit").dispatch()
        other = app.dispatch("other")
        passes(app)

        assert (mine.result(), other.result()) == ("explicit", "by type")

    def test_a_handler_without_supports_is_refused(self, app):
        with pytest.raises(DefinitionError, match="no supports"):
            app.handler(elsewhere.OnInstance())


class TestHandlersThatRowsName:
    """A row can only cause imports below ``handler_paths``."""

    def test_a_path_below_an_allowed_prefix_is_dispatched_and_run(self, make_app, passes):
        app = make_app(handler_paths=["application"])
        run = app.dispatch(f"{HERE}:OnInstance", number=3)
        passes(app)

        assert run.result() == "plain 3 1"

    def test_another_program_that_may_import_it_runs_it(self, make_app, passes):
        run = make_app(handler_paths=["application"]).dispatch(f"{HERE}:Static", number=3)
        stranger, other = make_app(handler_paths=[]), make_app(handler_paths=[HERE])

        assert passes(stranger) == 0
        assert run.status is RunStatus.PENDING
        assert passes(other) == 1

    @pytest.mark.parametrize("path", ["os:system", "applications.tasks:run"])
    def test_other_paths_are_refused_and_nothing_is_stored(self, make_app, path):
        app = make_app(handler_paths=["application"])

        with pytest.raises(HandlerNotAllowed, match="application"):
            app.dispatch(path, command="true")

        assert list(app.runs.recent()) == []

    @pytest.mark.parametrize("path", REFUSED)
    def test_a_row_with_a_refused_path_is_not_run(self, make_app, passes, calls, path):
        program = make_app()  # it has no job, so it cannot judge names
        program.schedules.register("a", "edited", program.clock.now(), "1h", path)
        app = make_app(handler_paths=["application"])
        run = app.dispatch(f"{HERE}:Static", number=3)
        edit = program.remote(path).dispatch()

        passes(app)

        assert run.status is RunStatus.COMPLETED  # the worker goes on with the rest
        assert edit.status is RunStatus.PENDING
        assert calls == [("Static", 3)]
        with pytest.raises(HandlerNotAllowed):
            app.execute(edit.id)
        with pytest.raises(HandlerNotAllowed):
            app.dispatch(path)

    @pytest.mark.parametrize("path", REFUSED)
    def test_explain_shows_the_refusal(self, make_app, path):
        app = make_app(handler_paths=["application"])
        run = app.remote(path).dispatch()
        app.schedules.register("", "edited", app.clock.now(), "1h", app.remote(path))

        for what in (run.id, path, "edited"):
            found = app.explain(what).causes[0]
            assert found.why is Why.HANDLER_NOT_ALLOWED
            assert path in found.text
            assert found.fix

    def test_explain_shows_the_refusal_while_a_worker_is_up(self, make_app):
        app = make_app(handler_paths=["application"], clock=None)
        app.schedule("other", lambda: None)
        run = app.remote(REFUSED[0]).dispatch()
        with app.running():
            app.dispatch("other").result(timeout=10)
            causes = app.explain(run.id).causes

        assert [cause.why for cause in causes] == [Why.HANDLER_NOT_ALLOWED]

    def test_wrong_arguments_fail_at_dispatch(self, make_app):
        app = make_app(handler_paths=["application"])

        with pytest.raises(TypeError, match="'number' is missing"):
            app.dispatch(f"{HERE}:Static")

    def test_an_unknown_name_suggests_a_close_one(self, app):
        app.schedule("send_email", lambda: None)

        with pytest.raises(JobNotFound, match="Did you mean 'send_email'"):
            app.dispatch("send_emial")


class TestContext:
    """A handler with a RunContext parameter gets the context."""

    def test_it_has_the_fields_of_the_run(self, app, clock, passes):
        seen: list[Any] = []

        @app.job(timeout=30, attempts=3)
        def look(ctx: RunContext, what: str) -> None:
            seen.append((ctx.run_id, ctx.job, ctx.schedule, ctx.nominal_at, ctx.tenant, ctx.target))
            seen.append((ctx.attempt, ctx.attempts_max, ctx.args, (ctx.deadline - clock.now())))

        run = look.tenant("acme").target("order-1").dispatch(what="it")
        passes(app)

        assert seen[0] == (run.id, "look", None, None, "acme", "order-1")
        assert seen[1][:3] == (1, 3, {"what": "it"})
        assert seen[1][3].total_seconds() == 30

    def test_its_token_grows_with_every_claim_even_if_the_attempt_is_refunded(
        self, app, clock, passes
    ):
        seen = []

        @app.job
        def look(ctx: RunContext) -> None:
            seen.append((ctx.token, ctx.attempt))
            if ctx.token < 3:
                raise Snooze(1)

        look.dispatch()
        for _ in range(3):
            passes(app)
            clock.advance(seconds=2)

        assert seen == [(1, 1), (2, 1), (3, 1)]

    def test_a_firing_knows_its_schedule_and_its_instant(self, app, clock, passes):
        seen = []

        def look(ctx: RunContext) -> None:
            seen.append((ctx.schedule, ctx.nominal_at))

        app.schedule("hourly look", look).hourly()
        app.run()
        clock.advance(hours=1, seconds=10)
        passes(app)

        assert seen == [("hourly look", clock.now().replace(second=0))]

    def test_progress_and_checkpoint_are_kept_with_the_run(self, app, passes):
        seen = []

        @app.job(retries={"max": 2, "delay": 0})
        def walk(ctx: RunContext) -> None:
            seen.append(ctx.checkpoint())
            ctx.progress(0.5, note="half way")
            ctx.checkpoint({"page": ctx.attempt})
            if ctx.attempt == 1:
                raise ValueError("tired")

        run = walk.dispatch()
        passes(app)

        assert seen == [None, {"page": 1}]
        assert '"half way"' in (run.read().progress or "")

    def test_coroutines_await_progress_and_checkpoint(self, app, passes):
        seen = []

        @app.job(retries={"max": 2, "delay": 0})
        async def walk(ctx: RunContext) -> None:
            seen.append(ctx.checkpoint())
            await ctx.progress_async(0.5, note="half way")
            await ctx.checkpoint_async({"page": ctx.attempt})
            if ctx.attempt == 1:
                raise ValueError("tired")

        run = walk.dispatch()
        passes(app)

        assert seen == [None, {"page": 1}]
        assert '"half way"' in (run.read().progress or "")

    def test_current_run_returns_it_in_called_functions(self, app, passes):
        def deep() -> str:
            ctx = current_run()
            assert ctx is not None
            return ctx.job

        run = app.schedule("shallow", deep).dispatch()
        passes(app)

        assert run.result() == "shallow"
        assert current_run() is None

    def test_log_records_are_stored_with_the_run(self, app, passes):
        @app.job
        def talk() -> None:
            logging.getLogger("shop").warning("low on %s", "paper")

        run = talk.dispatch()
        logging.getLogger("shop").warning("not in a run")
        passes(app)

        assert [(line.level, line.logger, line.message) for line in run.log()] == [
            ("WARNING", "shop", "low on paper")
        ]

    def test_a_handler_that_returns_after_a_cancel_is_canceled(self, app, passes):
        @app.job
        def work(ctx: RunContext) -> str:
            app.get_run(ctx.run_id).cancel()
            return "stopped" if ctx.is_canceled() else "went on"

        run = work.dispatch()
        passes(app)

        assert run.status is RunStatus.CANCELED


class TestSecrets:
    """Arguments marked Secret, or named in ``redact``, are masked wherever they are shown."""

    def test_handlers_get_them_and_errors_mask_them(self, make_app, passes):
        app = make_app(redact=["password"])
        seen = []

        @app.job
        def log_in(user: str, token: Secret[str], password: str) -> None:
            seen.append((token, password))
            raise ValueError(f"{user}: {token} and {password} are wrong")

        run = log_in.dispatch(user="ann", token="t0ken-1234", password="hunter22")
        passes(app)
        [attempt] = run.attempts()

        assert seen == [("t0ken-1234", "hunter22")]
        assert run.read().reason == "ValueError: ann: *** and *** are wrong"
        assert "hunter22" not in attempt.traceback
        assert log_in.definition.decode_masked_args(run.read().args) == {
            "user": "ann",
            "token": "***",
            "password": "***",
        }


def test_a_job_stays_a_plain_callable():
    app = Tickwork("memory://")

    @app.job(queue="math")
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(21) == 42
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice as much."


def one_by_one(items=()):
    yield from items


async def from_a_stream():
    yield 1


def by_position(source, /):
    pass


def any_number(*sources):
    pass


class Import:
    def handle(self):
        yield 1


class TestRefusedHandlers:
    """A handler that could never run is refused where it is defined; other jobs go on."""

    @pytest.mark.parametrize(
        ("handler", "reason"),
        [
            (one_by_one, "it is a generator function"),
            (partial(one_by_one, items=[1]), "it is a generator function"),
            (from_a_stream, "it is a generator function"),
            (Import, "it is a generator function"),
            (Import(), "it is a generator function"),
            (by_position, "'source' is positional-only"),
            (any_number, "'sources' takes any number"),
        ],
    )
    def test_decorator_and_builder_refuse_it(self, app, passes, handler, reason):
        for define in (app.job(name="it"), partial(app.schedule, "it"), partial(app.adhoc, "it")):
            with pytest.raises(DefinitionError, match=reason):
                define(handler)

        app.schedule("other", lambda: None).dispatch()
        assert passes(app) == 1
