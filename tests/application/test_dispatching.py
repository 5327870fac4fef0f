"""Dispatching: options, arguments, times, ad hoc jobs, waiting."""

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from application import handlers_elsewhere
from tickwork import RunContext, RunStatus, Tickwork
from tickwork.errors import (
    AlreadyClaimed,
    ArgumentError,
    DefinitionError,
    HandlerNotAllowed,
    InvalidDuration,
    InvalidOption,
    InvalidTransition,
    JobNotFound,
    NaiveDatetime,
    NotSerializable,
    PayloadTooLarge,
    RunError,
    RunNotFound,
    RunUnsuccessful,
    WaitTimeout,
)

UNKNOWN_ID = "019cb0d2-0000-7000-8000-ffffffffffff"


@pytest.fixture
def send(app):
    @app.job
    def send(to: str, subject: str = "hello", *, urgent: bool = False) -> str:
        return f"{subject} to {to}{'!' if urgent else ''}"

    return send


def stored(app: Tickwork) -> int:
    return len(app.runs.recent(limit=1000))


# ---------------------------------------------------------------- ways to dispatch


class TestWaysToDispatch:
    """``job.dispatch(**args)``, ``app.dispatch("name", **args)``, ``app.dispatch("pkg:Cls")``."""

    def test_a_known_job(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        assert run.result() == "hello to ann"

    def test_by_its_name(self, app, send):
        run = app.dispatch("send", to="ann")
        app.run()

        assert run.result() == "hello to ann"

    def test_the_job_itself(self, app, send):
        run = app.dispatch(send, "ann", urgent=True)
        app.run()

        assert run.result() == "hello to ann!"

    def test_a_builder_dispatches_too(self, app):
        builder = app.schedule("send", lambda to: f"to {to}").queue("emails")
        runs = [builder.dispatch(to="ann"), app.dispatch(builder, to="bob")]
        app.run()

        assert [run.result() for run in runs] == ["to ann", "to bob"]
        assert {run.read().queue for run in runs} == {"emails"}

    @pytest.mark.parametrize(
        ("name", "args", "result"),
        [
            ("Static", {"number": 3}, 3),
            ("OfClass", {"number": 3}, 3),
            ("OnInstance", {"number": 3}, "plain 3 1"),
        ],
    )
    def test_a_class_by_its_path(self, make_app, name, args, result):
        app = make_app(handler_paths=["application"])
        run = app.dispatch(f"application.handlers_elsewhere:{name}", **args)
        app.run()

        assert run.result() == result
        assert handlers_elsewhere.CALLS

    def test_a_path_outside_the_allowed_ones_is_refused_and_nothing_is_stored(self, make_app):
        app = make_app(handler_paths=["shop"])

        with pytest.raises(HandlerNotAllowed, match="os:system"):
            app.dispatch("os:system", command="true")
        assert stored(app) == 0

    def test_a_class_that_is_no_job(self, make_app):
        app = make_app(handler_paths=["application"])

        run = app.dispatch(handlers_elsewhere.Static, number=3)
        app.run()

        assert run.read().job == "application.handlers_elsewhere:Static"
        assert run.result() == 3

    def test_a_class_with_a_delay(self, make_app, clock):
        app = make_app(handler_paths=["application"])

        run = app.delay("1h").dispatch(handlers_elsewhere.Static, number=3)

        assert run.read().due_at == clock.now() + timedelta(hours=1)

    def test_the_class_of_a_job_gives_that_job(self, app):
        app.schedule("count", handlers_elsewhere.Static).queue("slow")

        assert app.dispatch(handlers_elsewhere.Static, number=3).read().queue == "slow"

    def test_the_class_of_two_jobs_is_ambiguous(self, app):
        app.schedule("one", handlers_elsewhere.Static)
        app.schedule("two", handlers_elsewhere.Static)

        with pytest.raises(DefinitionError, match="'one' and 'two'") as refused:
            app.dispatch(handlers_elsewhere.Static, number=3)
        assert "app.dispatch('one')" in str(refused.value)

    def test_a_class_outside_the_allowed_paths_is_refused(self, make_app):
        app = make_app(handler_paths=["shop"])

        with pytest.raises(HandlerNotAllowed):
            app.dispatch(handlers_elsewhere.Static, number=3)
        assert app.runs.recent() == []

    def test_a_local_class_is_refused(self, make_app):
        class Local:
            @staticmethod
            def handle() -> None: ...

        with pytest.raises(HandlerNotAllowed, match="inside a function"):
            make_app(handler_paths=["application"]).dispatch(Local)

    def test_a_plain_function_is_refused_with_the_cure(self, make_app):
        app = make_app(handler_paths=["application"])

        with pytest.raises(InvalidOption, match=r"@app\.job"):
            app.dispatch(handlers_elsewhere.report)

    def test_an_unknown_job_suggests_the_close_name(self, app, send):
        with pytest.raises(JobNotFound, match="Did you mean 'send'"):
            app.dispatch("sned", to="ann")
        assert stored(app) == 0

    def test_a_value_that_is_no_job(self, app):
        with pytest.raises(InvalidOption, match="must be a job or the name of one"):
            app.dispatch(print, "ann")


class TestDueTimeOfADispatch:
    """``job.delay(10).dispatch(...)``, ``job.at(when).dispatch(...)``."""

    def test_delay(self, app, clock, send):
        run = send.delay(10).dispatch(to="ann")

        assert app.run() == 0
        clock.advance(seconds=9)
        assert app.run() == 0
        clock.advance(seconds=1)
        assert app.run() == 1
        assert run.status is RunStatus.COMPLETED

    @pytest.mark.parametrize("length", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
    def test_every_form_of_a_length(self, clock, send, length):
        run = send.delay(length).dispatch(to="ann")

        assert run.read().due_at == clock.now() + timedelta(seconds=90)

    def test_at(self, app, clock, send):
        when = clock.now() + timedelta(hours=1)
        run = send.at(when).dispatch(to="ann")

        assert run.read().due_at == when
        assert app.run() == 0
        clock.set(when)
        assert app.run() == 1

    def test_the_last_of_at_and_delay_applies(self, clock, send):
        at = clock.now() + timedelta(days=1)

        assert send.at(at).delay(5).dispatch(to="ann").read().due_at == (
            clock.now() + timedelta(seconds=5)
        )
        assert send.delay(5).at(at).dispatch(to="ann").read().due_at == at


class TestDueTimeBeforeTheJob:
    """``app.delay`` and ``app.at`` come first, the job last."""

    def test_delay(self, app, clock, send):
        run = app.delay(7200).dispatch("send", to="ann")

        assert run.read().due_at == clock.now() + timedelta(hours=2)

    def test_at(self, app, clock, send):
        when = clock.now() + timedelta(days=1)

        assert app.at(when).queue("slow").dispatch(send, to="ann").read().due_at == when


class TestReschedulingARun:
    """``run.at(when)``, ``run.delay(60)``: only while no worker has claimed it."""

    def test_a_waiting_run_is_rescheduled(self, app, clock, send):
        run = send.dispatch(to="ann")
        assert run.delay(60) is run
        assert app.run() == 0
        assert run.at(clock.now()) is run
        assert app.run() == 1

    def test_a_time_in_the_past_is_due_at_once(self, app, clock, send):
        run = send.delay(3600).dispatch(to="ann").at(clock.now() - timedelta(days=1))

        assert run.read().due_at == clock.now()
        assert app.run() == 1

    def test_a_claimed_run_cannot_be_rescheduled(self, app, send):
        refused = []

        @app.job
        def move(ctx: RunContext) -> None:
            run = app.get_run(ctx.run_id)
            for operation in (lambda: run.delay(60), lambda: run.at("2030-01-01T00:00:00Z")):
                with pytest.raises(AlreadyClaimed, match="running") as found:
                    operation()
                refused.append(found.value.status)

        move.dispatch()
        app.run()

        assert refused == ["running", "running"]

    def test_a_finished_run_cannot_be_rescheduled(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        with pytest.raises(AlreadyClaimed, match="completed"):
            run.delay(60)

    def test_a_run_that_waits_for_its_retry_is_rescheduled(self, app, clock):
        @app.job(retries={"max": 2, "delay": 60})
        def fail() -> None:
            raise ValueError

        run = fail.dispatch()
        app.run()

        run.at(clock.now())

        assert app.run() == 1
        assert run.read().attempt == 2

    def test_one_that_is_not_there(self, app):
        with pytest.raises(RunNotFound):
            app.get_run(UNKNOWN_ID).delay(60)


class TestDrafts:
    """``app.args(kind="daily").queue("q").dispatch("name")``: drafts are values."""

    def test_args_first_and_the_job_last(self, app):
        app.schedule("report", lambda kind, size=1: f"{kind} {size}")
        run = app.args(kind="daily").queue("q").dispatch("report", size=2)
        app.run()

        assert run.result() == "daily 2"
        assert run.read().queue == "q"

    def test_nothing_leaks_into_the_next_dispatch(self, app, clock, send):
        draft = send.queue("slow").args(subject="first")
        draft.priority(1).delay(60).tags("x").tenant("acme").target("o-1").expires(5).dispatch("a")
        again = draft.dispatch("b").read()
        plain = send.dispatch("c").read()

        assert (again.queue, again.args) == ("slow", '{"subject":"first","to":"b"}')
        assert (plain.queue, plain.args) == ("default", '{"to":"c"}')
        for run in (again, plain):
            assert (run.priority, run.due_at, run.tags) == (100, clock.now(), ())
            assert (run.tenant, run.target, run.expires_at) == ("", None, None)

    def test_one_draft_can_dispatch_many_times(self, app, send):
        draft = send.delay(60)
        runs = [draft.dispatch(to=name) for name in ("ann", "bob")]

        assert len({run.id for run in runs}) == 2

    def test_every_option_is_stored(self, clock, send):
        run = (
            send.queue("slow")
            .priority(-5)
            .delay("1h")
            .tags("red", "green")
            .tags("red", "blue")
            .tenant("acme")
            .target("order-7")
            .expires("10m")
            .args(to="ann")
            .dispatch()
            .read()
        )

        assert (run.queue, run.priority, run.tenant, run.target) == ("slow", -5, "acme", "order-7")
        assert run.tags == ("red", "green", "blue")
        assert run.due_at == clock.now() + timedelta(hours=1)
        assert run.expires_at == run.due_at + timedelta(minutes=10)

    def test_the_order_of_options_does_not_matter(self, send):
        options: list[Any] = [
            lambda draft: draft.queue("q"),
            lambda draft: draft.delay(5),
            lambda draft: draft.tags("t"),
            lambda draft: draft.args(to="ann"),
        ]
        made = []
        for order in (options, options[::-1]):
            draft = send.draft
            for option in order:
                draft = option(draft)
            run = draft.dispatch().read()
            made.append((run.queue, run.due_at, run.tags, run.args))

        assert made[0] == made[1]

    def test_tags_of_the_job_and_of_the_draft_add_up(self, app):
        job = app.schedule("it", lambda: None).tags("job").job

        assert job.tags("job", "mine").dispatch().read().tags == ("job", "mine")

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("queue", ""),
            ("queue", " padded "),
            ("queue", "a=b"),
            ("priority", "high"),
            ("priority", True),
            ("priority", 40_000),
            ("expires", 0),
            ("tags", ""),
            ("tenant", "\n"),
            ("target", ""),
        ],
    )
    def test_an_invalid_value_is_rejected_by_its_option(self, send, option, value):
        with pytest.raises(InvalidOption, match=option):
            getattr(send, option)(value)

    def test_too_many_tags(self, send):
        with pytest.raises(InvalidOption, match="tags"):
            send.tags(*(f"tag {n}" for n in range(21)))


class TestBulk:
    """``job.dispatch_many(iterable_of_args)``: batched, one transaction."""

    def test_each_set_of_arguments_gives_a_run_in_order(self, app, send, passes):
        runs = send.dispatch_many({"to": name} for name in ("ann", "bob", "cat"))
        passes(app)

        assert [run.result() for run in runs] == [f"hello to {n}" for n in ("ann", "bob", "cat")]

    def test_by_name_and_on_a_draft(self, app, send):
        runs = app.draft.queue("slow").dispatch_many("send", [{"to": "ann"}])
        runs += send.delay(5).dispatch_many([{"to": "bob"}])
        runs += app.schedule("pack", lambda n: n).dispatch_many([{"n": 1}, {"n": 2}])

        assert [run.read().queue for run in runs] == ["slow", "default", "default", "default"]

    def test_no_arguments_give_no_runs(self, send):
        assert send.dispatch_many([]) == []

    def test_many_runs_are_one_batch(self, app, send, monkeypatch):
        app.runs  # noqa: B018  # the store is opened before it is watched
        write, statements = app._services.opened_store._write, []

        def watched(begin, *args, **kwargs):
            def counted(query):
                operation = begin(query, *args, **kwargs)
                statement = next(operation)
                try:
                    while True:
                        statements.append(statement.name)
                        statement = operation.send((yield statement))
                except StopIteration as end:
                    return end.value

            return write(counted)

        monkeypatch.setattr(app._services.opened_store, "_write", watched)
        send.dispatch_many({"to": str(n)} for n in range(1000))

        assert [name for name in statements if name != "notify"] == ["insert_runs"]

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            ({"no": "argument"}, ArgumentError),
            ({}, ArgumentError),
            ({"to": object()}, ArgumentError),
            ({"to": "x" * 100_000}, PayloadTooLarge),
            ("ann", InvalidOption),
        ],
    )
    def test_one_invalid_set_stores_nothing(self, app, send, bad, error):
        with pytest.raises(error):
            send.dispatch_many([{"to": "ann"}, bad, {"to": "bob"}])

        assert stored(app) == 0

    def test_duplicates_return_the_first_run(self, app, send):
        runs = send.unique(by="to").dispatch_many([{"to": "ann"}, {"to": "bob"}, {"to": "ann"}])

        assert [run.is_new for run in runs] == [True, True, False]
        assert runs[0] == runs[2]
        assert stored(app) == 2


class TestUniqueness:
    """``.unique(key=…, within=…)``: a duplicate returns the earlier run."""

    def test_by_all_arguments(self, app, send):
        first = send.unique().dispatch(to="ann")
        again = send.unique().dispatch(to="ann")
        other = send.unique().dispatch(to="bob")

        assert (again, again.is_new) == (first, False)
        assert other.is_new
        assert stored(app) == 2

    def test_by_some_arguments(self, send):
        first = send.unique(by=["to"]).dispatch(to="ann", subject="one")

        assert send.unique(by="to").dispatch(to="ann", subject="two") == first

    def test_by_a_key_of_yours(self, send):
        first = send.unique("today").dispatch(to="ann")

        assert send.unique("today").dispatch(to="bob") == first
        assert send.unique("tomorrow").dispatch(to="bob").is_new

    def test_an_argument_that_was_left_out_differs_from_one_that_was_given(self, send):
        assert send.unique(by="subject").dispatch("ann").is_new
        assert send.unique(by="subject").dispatch("ann", "hello").is_new

    def test_the_key_is_free_when_the_run_has_finished(self, app, send):
        send.unique().dispatch(to="ann")
        app.run()

        assert send.unique().dispatch(to="ann").is_new

    def test_a_window_outlives_the_run(self, app, clock, send):
        first = send.unique(within="1h").dispatch(to="ann")
        app.run()
        clock.advance(minutes=59)
        assert send.unique(within="1h").dispatch(to="ann") == first

        clock.advance(minutes=1)
        assert send.unique(within="1h").dispatch(to="ann").is_new

    def test_tenants_never_share_a_key(self, send):
        send.unique("one").tenant("acme").dispatch(to="ann")

        assert send.unique("one").tenant("other").dispatch(to="ann").is_new
        assert send.unique("one").dispatch(to="ann").is_new
        assert not send.unique("one").tenant("acme").dispatch(to="ann").is_new

    def test_jobs_never_share_a_key(self, app, send):
        send.unique("one").dispatch(to="ann")

        assert app.schedule("other", lambda: None).job.unique("one").dispatch().is_new

    def test_as_an_option_of_the_job_it_applies_to_every_dispatch(self, app):
        job = app.schedule("it", lambda to: None).unique(by="to")

        assert job.dispatch(to="ann") == job.dispatch(to="ann")

    def test_a_draft_overrides_the_option_of_the_job(self, app):
        job = app.schedule("it", lambda to: None).unique(by="to").job
        job.dispatch(to="ann")

        assert job.unique("another").dispatch(to="ann").is_new

    def test_a_name_that_the_handler_does_not_take(self, app, send):
        with pytest.raises(DefinitionError, match="Did you mean 'to'"):
            send.unique(by="too").dispatch(to="ann")
        assert stored(app) == 0

    @pytest.mark.parametrize("options", [{"within": 0}, {"within": -1}, {"key": "k", "by": "to"}])
    def test_invalid_options(self, send, options):
        with pytest.raises(InvalidOption):
            send.unique(**options)

    def test_a_very_long_window(self, send):
        assert send.unique(within=timedelta.max).dispatch(to="ann").is_new
        assert not send.unique(within=timedelta.max).dispatch(to="ann").is_new


class TestCanceling:
    """``run.cancel()``."""

    def test_a_waiting_run_is_canceled_at_once(self, app, send):
        run = send.dispatch(to="ann")

        assert run.cancel("not needed")
        assert (run.status, run.read().reason) == ("canceled", "not needed")
        assert app.run() == 0

    def test_the_worker_of_a_running_run_is_notified(self, app):
        seen = []

        @app.job
        def work(ctx: RunContext) -> None:
            assert app.get_run(ctx.run_id).cancel()
            seen.append(ctx.is_canceled())

        run = work.dispatch()
        app.run()

        assert seen == [True]
        assert run.status == "canceled"

    def test_a_finished_run_stays_as_it_is(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        assert not run.cancel()
        assert run.status == "completed"

    def test_one_that_is_not_there(self, app):
        with pytest.raises(RunNotFound):
            app.get_run(UNKNOWN_ID).cancel()


class TestRetrying:
    """``run.retry()``: a finished run is run again, as a new run."""

    def test_a_new_run_with_the_same_arguments(self, app):
        broken = [True]

        @app.job(queue="slow", priority=3, tags=["red"])
        def work(number: int) -> int:
            if broken.pop() if broken else False:
                raise ValueError
            return number

        first = work.target("order-1").tenant("acme").dispatch(7)
        app.run()
        again = first.retry()
        app.run()

        assert first.status == "failed_permanent"
        assert again.result() == 7
        found = again.read()
        assert (found.retry_of, found.args) == (first.id, '{"number":7}')
        assert (found.queue, found.priority, found.tags) == ("slow", 3, ("red",))
        assert (found.target, found.tenant) == ("order-1", "acme")

    def test_an_unfinished_run_cannot_be_retried(self, send):
        with pytest.raises(RunError, match="pending"):
            send.dispatch(to="ann").retry()


# ---------------------------------------------------------------- arguments


class TestArguments:
    """Stored by parameter name and passed as keywords; checked after merging."""

    def test_dispatch_binds_positionals(self, app, send):
        run = send.dispatch("ann", "good news", urgent=True)

        assert run.read().args == '{"to":"ann","subject":"good news","urgent":true}'

    def test_dispatch_takes_exactly_the_handlers_own_arguments(self, app, send):
        wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((), {}),
            (("ann", "b", "c"), {}),
            (("ann",), {"to": "bob"}),
            ((), {"to": "ann", "delay": 10}),
            (("ann",), {"queue": "slow"}),
        ]
        for args, kwargs in wrong:
            with pytest.raises(ArgumentError, match="send"):
                send.dispatch(*args, **kwargs)
        assert stored(app) == 0

    def test_the_error_shows_what_the_handler_takes(self, send):
        with pytest.raises(ArgumentError) as found:
            send.dispatch(too="ann")

        assert "it takes no argument 'too'" in found.value.what
        assert "(to: str, subject: str = 'hello', *, urgent: bool = False)" in found.value.why

    def test_arguments_of_the_definition_are_overridden_key_by_key(self, app):
        job = app.schedule("it", lambda a, b=0, c=0: [a, b, c]).args(a=1, b=2)
        runs = [
            job.dispatch(),
            job.dispatch(b=20),
            job.job.args(a=10, c=30).dispatch(c=300),
            job.dispatch(7),
        ]
        app.run()

        assert [run.result() for run in runs] == [
            [1, 2, 0],
            [1, 20, 0],
            [10, 2, 300],
            [7, 2, 0],
        ]

    def test_they_are_checked_after_merging(self, app):
        job = app.schedule("it", lambda a, b: a + b).args(a=1)
        run = job.dispatch(b=2)
        app.run()

        assert run.result() == 3
        with pytest.raises(ArgumentError, match="'b' is missing"):
            job.dispatch()

    def test_args_of_the_definition_that_the_handler_does_not_take(self, app):
        job = app.schedule("it", lambda a: a).args(b=1)

        with pytest.raises(DefinitionError, match="'b'"):
            job.dispatch(a=1)

    @pytest.mark.parametrize(
        "handler", [lambda a, /: a, lambda *args: args], ids=["positional-only", "any number"]
    )
    def test_positional_only_parameters_are_rejected_at_definition(self, app, handler):
        with pytest.raises(DefinitionError, match="cannot be a handler"):
            app.job(name="it")(handler)

    def test_old_arguments_with_a_new_signature(self, app, make_app, passes):
        old = make_app()
        old.schedule("it", lambda to, cc: None)
        run = old.dispatch("it", to="ann", cc="bob")
        app.schedule("it", lambda to: to)
        passes(app)

        assert run.status == "failed_permanent"
        assert "takes no argument 'cc'" in run.read().reason

    def test_old_arguments_with_a_handler_that_takes_any(self, app, make_app, passes):
        old = make_app()
        old.schedule("it", lambda to, cc: None)
        run = old.dispatch("it", to="ann", cc="bob")
        app.schedule("it", lambda to, **rest: rest)
        passes(app)

        assert run.result() == {"cc": "bob"}

    def test_the_context_is_no_argument(self, app):
        @app.job
        def work(ctx: RunContext, number: int) -> int:
            return number + ctx.attempt

        run = work.dispatch(41)
        app.run()

        assert run.result() == 42
        with pytest.raises(ArgumentError, match="ctx"):
            work.dispatch(ctx=None, number=1)

    def test_values_come_back_as_they_were(self, app):
        given = {
            "moment": datetime(2026, 3, 1, 9, tzinfo=UTC),
            "length": timedelta(seconds=1.5),
            "data": b"\x00\xff",
            "many": [1, 2.5, None, True, "é", {"a": []}],
        }
        seen = []
        job = app.schedule("it", lambda **args: seen.append(args))
        job.dispatch(**given)
        app.run()

        assert seen == [given]

    @pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), {1: 2}])
    def test_a_value_without_an_exact_encoding_is_rejected(self, app, value):
        job = app.schedule("it", lambda value: None)

        with pytest.raises(NotSerializable, match="value"):
            job.dispatch(value=value)
        assert stored(app) == 0

    def test_arguments_that_are_too_large_are_rejected(self, app, make_app):
        small = make_app(payload_max=100)
        job = small.schedule("it", lambda text: None)

        job.dispatch(text="x" * 80)
        with pytest.raises(PayloadTooLarge, match="100"):
            job.dispatch(text="x" * 101)
        assert stored(app) == 1

    def test_changing_arguments_after_the_dispatch_has_no_effect(self, app):
        numbers = [1, 2]
        job = app.schedule("it", lambda numbers: numbers)
        run = job.dispatch(numbers=numbers)
        numbers.append(3)
        app.run()

        assert run.result() == [1, 2]


# ---------------------------------------------------------------- times


class TestTimes:
    """Instants have a time zone; past ones are due at once; late runs may expire."""

    def test_a_past_at_is_due_at_once(self, app, clock, send):
        run = send.at(clock.now() - timedelta(days=1)).dispatch(to="ann")

        assert run.read().due_at == clock.now()
        assert app.run() == 1

    @pytest.mark.parametrize("when", [datetime(2030, 1, 1), "2030-01-01T00:00:00"])
    def test_naive_datetimes_are_refused(self, app, send, when):
        for operation in (send.at, send.dispatch(to="ann").at):
            with pytest.raises(NaiveDatetime):
                operation(when)

    @pytest.mark.parametrize(
        "when",
        [
            "2030-01-01T12:00:00+02:00",
            "2030-01-01T10:00:00Z",
            "2030-01-01 10:00+00:00",
            datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
        ],
    )
    def test_iso_strings_with_an_offset_are_accepted(self, send, when):
        run = send.at(when).dispatch(to="ann")

        assert run.read().due_at == datetime(2030, 1, 1, 10, tzinfo=UTC)

    @pytest.mark.parametrize("when", ["tomorrow", "", 5, None, "9999-12-31T23:59:59-12:00"])
    def test_an_invalid_time_is_rejected(self, send, when):
        with pytest.raises(InvalidOption, match="at must be"):
            send.at(when)

    @pytest.mark.parametrize("length", [-1, "-5s", timedelta(seconds=-1), "soon", "5"])
    def test_negative_and_invalid_delays_are_rejected(self, send, length):
        for operation in (send.delay, send.dispatch(to="ann").delay):
            with pytest.raises(InvalidDuration):
                operation(length)

    def test_times_beyond_the_calendar_are_refused(self, send):
        with pytest.raises(InvalidDuration, match="a delay must be at most 36,500 days"):
            send.delay(timedelta.max)
        with pytest.raises(InvalidOption, match="must be a time between the years 2 and 9998"):
            send.at("9999-12-31T23:59:59Z")

    def test_an_expired_run_does_not_start(self, app, clock, send):
        run = send.expires(60).dispatch(to="ann")
        on_time = send.expires(60).dispatch(to="bob")
        clock.advance(seconds=60)
        assert app.run(batch=1) == 1  # exactly in time
        clock.advance(seconds=1)
        app.run()

        assert {run.status, on_time.status} == {RunStatus.COMPLETED, RunStatus.SKIPPED}
        [late] = [each for each in (run, on_time) if each.status is RunStatus.SKIPPED]
        assert "did not start in time" in late.read().reason

    def test_expires_counts_from_the_due_time(self, app, clock, send):
        run = send.delay("1h").expires("1m").dispatch(to="ann")
        clock.advance(hours=1)
        app.run()

        assert run.status is RunStatus.COMPLETED


# ---------------------------------------------------------------- ad hoc


class TestAdHoc:
    """Ad hoc jobs exist only in this process; remote jobs in another one."""

    def test_an_ad_hoc_job_runs_here(self, app):
        builder = app.adhoc("process-42", lambda: "done").queue("uploads")
        run = builder.dispatch()
        app.run()

        assert run.result() == "done"
        assert run.read().queue == "uploads"

    def test_no_other_process_can_run_it_and_it_stays_visible(self, app, make_app):
        run = app.adhoc("process-42", lambda: "done").dispatch()
        other = make_app()

        assert other.run() == 0
        assert other.get_run(run.id).status is RunStatus.PENDING

    def test_it_may_be_defined_again(self, app):
        app.adhoc("process-42", lambda: 1)
        run = app.adhoc("process-42", lambda: 2).dispatch()
        app.run()

        assert run.result() == 2

    def test_its_definition_is_marked_as_ad_hoc(self, app):
        assert app.adhoc("process-42", lambda: None).job.definition.is_adhoc

    def test_a_remote_job_is_run_by_the_program_that_defines_it(self, app, make_app):
        worker = make_app()
        worker.schedule("resize", lambda path, size: f"{path} {size}")

        run = app.remote("resize").dispatch(path="a.png", size=3)

        assert app.run() == 0  # this one does not know it
        assert worker.run() == 1
        assert run.result() == "a.png 3"

    def test_options_of_a_remote_job_apply(self, app):
        remote = app.remote("resize").queue("images").priority(5)
        run = remote.delay(60).dispatch(path="a.png").read()

        assert (run.queue, run.priority) == ("images", 5)

    def test_its_arguments_are_checked_where_it_runs(self, app, make_app, passes):
        worker = make_app()
        worker.schedule("resize", lambda path: path)
        run = app.remote("resize").dispatch(no="path")
        passes(worker)

        assert run.status == "failed_permanent"
        assert "takes no argument 'no'" in run.read().reason


class TestDueAndExecute:
    """A loop of your own: ``for run in app.due(): app.execute(run.id)``."""

    def test_due_lists_runs_in_their_order(self, app, clock, send):
        later = send.delay(60).dispatch(to="later")
        low = send.priority(200).dispatch(to="low")
        high = send.priority(1).dispatch(to="high")

        assert [run.id for run in app.due()] == [high.id, low.id]
        assert [run.id for run in app.due(limit=1)] == [high.id]
        clock.advance(seconds=60)
        assert [run.id for run in app.due()] == [high.id, later.id, low.id]

    def test_due_starts_nothing(self, app, send):
        run = send.dispatch(to="ann")
        app.due()
        app.due()

        assert run.status is RunStatus.PENDING
        assert app.run() == 1
        assert app.due() == []

    def test_due_lists_only_jobs_of_this_process(self, app):
        app.remote("elsewhere").dispatch()

        assert app.due() == []

    def test_due_lists_nothing_that_is_paused(self, app, send):
        send.dispatch(to="ann")
        app.pause(queue="default")

        assert app.due() == []

    def test_due_and_execute_are_a_scheduler(self, app, clock):
        seen = []
        app.schedule("tick", lambda: seen.append(clock.now())).every_minute()
        app.due()
        for _ in range(3):
            clock.advance(minutes=1)
            for run in app.due():
                app.execute(run.id)

        assert len(seen) == 3

    def test_execute_runs_exactly_this_run(self, app, send):
        first, second = send.dispatch(to="ann"), send.dispatch(to="bob")

        run = app.execute(second.id)

        assert run == second
        assert run.result() == "hello to bob"
        assert first.status is RunStatus.PENDING

    def test_execute_runs_a_run_that_is_not_due(self, app, send):
        assert app.execute(send.delay("1h").dispatch(to="ann").id).status == "completed"

    def test_one_that_waits_for_its_retry(self, app):
        @app.job(retries={"max": 2, "delay": 3600})
        def work(ctx: RunContext) -> int:
            if ctx.attempt == 1:
                raise ValueError
            return ctx.attempt

        run = work.dispatch()
        app.run()

        assert app.execute(run.id).result() == 2

    def test_a_failure_is_recorded_and_not_raised(self, app):
        @app.job
        def fail() -> None:
            raise ValueError("on purpose")

        run = app.execute(fail.dispatch().id)

        assert run.status == "failed_permanent"
        assert run.read().reason == "ValueError: on purpose"

    def test_a_path_that_only_a_row_names(self, app, make_app):
        dispatcher = make_app(handler_paths=["application"])
        run = dispatcher.draft.delay(60).dispatch("application.handlers_elsewhere:Static", number=3)
        worker = make_app(handler_paths=["application"])

        assert worker.execute(run.id).result() == 3

    def test_a_claimed_run_is_an_error(self, app):
        refused = []

        @app.job
        def work(ctx: RunContext) -> None:
            with pytest.raises(InvalidTransition, match="is running") as found:
                app.execute(ctx.run_id)
            refused.append(found.value)

        run = work.dispatch()
        app.run()

        assert run.status == "completed"
        assert len(refused) == 1

    def test_a_finished_run_is_an_error(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        with pytest.raises(InvalidTransition, match="is completed"):
            app.execute(run.id)

    @pytest.mark.parametrize("run_id", [UNKNOWN_ID, "no id at all"])
    def test_an_unknown_run_is_an_error(self, app, run_id):
        with pytest.raises(RunNotFound):
            app.execute(run_id)

    def test_a_run_whose_job_is_unknown_is_not_claimed(self, app):
        run = app.remote("elsewhere").dispatch()

        with pytest.raises(JobNotFound):
            app.execute(run.id)
        assert run.status == "pending"

    def test_a_paused_run_names_the_pause(self, app, clock, send):
        run = send.dispatch(to="ann")
        app.pause(job="send", until=clock.now() + timedelta(hours=1))

        with pytest.raises(RunError, match="job 'send' is paused"):
            app.execute(run.id)
        clock.advance(hours=1)
        assert app.execute(run.id).status == "completed"

    def test_a_full_limit_is_named(self, app):
        refused = []

        @app.job(concurrency=1)
        def work(other: str) -> None:
            if other:
                with pytest.raises(RunError, match="job:work") as found:
                    app.execute(other)
                refused.append(found.value)

        waiting = work.dispatch("")
        app.execute(work.dispatch(waiting.id).id)

        assert len(refused) == 1
        assert waiting.status == "pending"
        assert app.run() == 1

    @pytest.mark.parametrize("limit", [0, -1, 10_001])
    def test_the_limit_of_due_is_checked(self, app, limit):
        with pytest.raises(InvalidOption, match="limit"):
            app.due(limit)


# ---------------------------------------------------------------- wait


class TestWaiting:
    """``wait`` returns the final status or raises on timeout; ``result`` returns the value."""

    def test_it_returns_the_final_status(self, app, send):
        run = send.dispatch(to="ann")
        worker = threading.Timer(0.05, app.run)
        worker.start()

        assert run.wait(timeout=10) is RunStatus.COMPLETED
        worker.join()

    def test_it_returns_at_once_when_it_has_finished(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        assert run.wait(timeout=0) is RunStatus.COMPLETED

    @pytest.mark.parametrize("timeout", [0, 0.01, "10ms", timedelta(milliseconds=10)])
    def test_it_raises_on_timeout_and_the_run_goes_on(self, app, send, timeout):
        run = send.dispatch(to="ann")

        with pytest.raises(WaitTimeout, match="it is pending") as found:
            run.wait(timeout)
        assert isinstance(found.value, TimeoutError)
        assert app.run() == 1

    def test_result_returns_the_output(self, app, send):
        run = send.dispatch(to="ann")
        app.run()

        assert run.result() == "hello to ann"

    def test_result_raises_if_the_run_failed(self, app):
        @app.job
        def fail() -> None:
            raise ValueError("on purpose")

        run = fail.dispatch()
        canceled = fail.dispatch()
        canceled.cancel("not needed")
        app.run()

        assert run.wait() is RunStatus.FAILED_PERMANENT
        with pytest.raises(RunUnsuccessful, match="on purpose") as found:
            run.result()
        assert found.value.status == "failed_permanent"
        with pytest.raises(RunUnsuccessful, match="not needed"):
            canceled.result()

    def test_a_run_that_is_not_there(self, app):
        with pytest.raises(RunNotFound):
            app.get_run(UNKNOWN_ID).wait()

    def test_a_handle_in_another_process_waits_as_well(self, app, make_app, send):
        run = send.dispatch(to="ann")
        app.run()

        assert make_app().get_run(run.id).result() == "hello to ann"

    def test_handles_of_one_run_are_equal(self, app, send):
        run = send.dispatch(to="ann")

        assert app.get_run(run.id) == run
        assert len({run, app.get_run(run.id)}) == 1
        assert run.id in repr(run)
