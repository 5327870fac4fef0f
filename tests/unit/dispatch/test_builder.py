import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from threading import Barrier

import pytest

from tickwork import RunContext, Tickwork
from tickwork._define.options import JOB_OPTIONS, JobOptions
from tickwork._dispatch.builder import OF_ONE_RUN, JobBuilder, ScheduleBuilder
from tickwork._dispatch.dispatch_options import DispatchOptions
from tickwork._dispatch.jobs import Draft
from tickwork._domain.identity import WorkerId
from tickwork._stores.contract import ClaimRequest, RunFilter
from tickwork.errors import ArgumentError, UndispatchedDraft


def nothing(kind: str = "") -> None:
    pass


class TestChains:
    """Each method changes the definition, whether the program keeps what it returns or not."""

    def test_a_chain_whose_result_is_ignored_defines_the_schedule(self, app):
        app.schedule("report", nothing).queue("q").hourly().args(kind="daily").attempts(3)
        job = app.registry.get("report")

        assert [each.name for each in app.registry.schedules()] == ["report"]
        assert (job.spec.queue, job.spec.attempts_max) == ("q", 3)
        assert job.defaults == {"kind": "daily"}

    def test_a_chain_whose_result_is_kept_defines_the_schedule(self, app):
        builder = app.schedule("report", nothing).hourly().queue("q").args(kind="daily")
        runs = [builder.dispatch().read(), app.dispatch("report").read()]

        assert repr(builder) == "<schedule report>"
        assert [(run.queue, run.args) for run in runs] == [("q", '{"kind":"daily"}')] * 2

    def test_statements_define_the_job(self, app):
        builder = app.schedule("report", nothing)
        builder.queue("slow")
        builder.args(kind="daily")
        builder.tags("a")
        builder.tags("b")
        run = builder.dispatch().read()

        assert (run.queue, run.args, run.tags) == ("slow", '{"kind":"daily"}', ("a", "b"))

    def test_the_application_has_the_options_of_the_builder(self, app):
        builder = app.schedule("report", nothing).queue("slow").timeout("5m")

        assert builder.job.definition.spec.queue == "slow"
        assert builder.job.definition.spec.timeout == timedelta(minutes=5)

    def test_preview_and_describe(self, app, clock):
        builder = app.schedule("report", nothing).hourly()

        assert [at - clock.now() for at in builder.preview(2)] == [
            timedelta(hours=1),
            timedelta(hours=2),
        ]
        assert "hour" in builder.describe()


class TestDispatching:
    """A builder dispatches as its job does."""

    @pytest.mark.filterwarnings("ignore::tickwork.errors.UndispatchedDraft")
    def test_options_of_one_dispatch_return_a_draft(self, app):
        builder = app.schedule("report", nothing)
        for draft in (
            builder.delay(5),
            builder.at("2030-01-01T00:00:00Z"),
            builder.tenant("acme"),
            builder.using(object()),
        ):
            assert isinstance(draft, Draft)

    def test_one_and_many(self, app):
        builder = app.schedule("report", nothing)

        assert builder.dispatch("daily").read().args == '{"kind":"daily"}'
        assert len(builder.dispatch_many([{"kind": "a"}, {"kind": "b"}])) == 2

    def test_a_schedule_of_a_job_has_no_dispatch(self, app):
        schedule = app.schedule("another", app.job(nothing))

        assert isinstance(schedule, ScheduleBuilder)
        assert not isinstance(schedule, JobBuilder)
        assert not hasattr(schedule, "dispatch")

    @pytest.mark.parametrize("kind", ["adhoc", "remote"])
    def test_ad_hoc_and_remote_jobs_are_builders(self, app, kind):
        args = ("it", nothing) if kind == "adhoc" else ("it",)
        builder = getattr(app, kind)(*args).queue("slow").priority(3)
        run = builder.delay(60).dispatch(kind="daily").read()

        assert isinstance(builder, JobBuilder)
        assert (run.queue, run.priority) == ("slow", 3)


SETTERS = {
    "args": lambda builder: builder.args(kind="special"),
    "debounce": lambda builder: builder.debounce("10s"),
    "expires": lambda builder: builder.expires("5m"),
    "priority": lambda builder: builder.priority(1),
    "queue": lambda builder: builder.queue("slow"),
    "tags": lambda builder: builder.tags("once"),
    "unique": lambda builder: builder.unique("once"),
}


def facts(run):
    read = run.read()
    return (read.args, read.expires_at, read.priority, read.queue, read.tags), run.is_new


class TestValues:
    """For a dispatch a builder is a value: what is set on the way to one is not seen later."""

    def test_every_option_of_a_dispatch_is_tested(self):
        assert SETTERS.keys() == OF_ONE_RUN
        assert JOB_OPTIONS & {each.name for each in fields(DispatchOptions)} == OF_ONE_RUN
        assert {each.name for each in fields(JobOptions)} >= OF_ONE_RUN

    @pytest.mark.parametrize("option", SETTERS)
    @pytest.mark.parametrize("is_first", [True, False])
    def test_an_option_of_one_dispatch_is_not_seen_by_the_next(self, app, option, is_first):
        builder = app.schedule("report", nothing).hourly().tags("always")
        before = builder.job.definition.options
        expected = None if is_first else facts(builder.dispatch())
        SETTERS[option](builder).dispatch()
        expected = expected or facts(app.dispatch("report"))

        assert facts(builder.dispatch()) == facts(app.dispatch("report")) == expected
        assert builder.job.definition.options == before
        assert expected[0] == ("{}", None, 100, "default", ("always",))

    def test_the_dispatch_has_all_options_of_its_chain(self, app):
        builder = app.schedule("report", nothing).tags("always")
        for _ in range(2):
            chain = builder.queue("slow").args(kind="special").tags("a").tags("b").priority(3)
            run = chain.dispatch().read()

            assert (run.queue, run.args, run.priority) == ("slow", '{"kind":"special"}', 3)
            assert sorted(run.tags) == ["a", "always", "b"]

    def test_a_builder_that_is_kept_dispatches_again_with_its_options(self, app):
        builder = app.schedule("report", nothing)
        slow = builder.queue("slow")
        queues = [each.dispatch().read().queue for each in (slow, builder, slow, builder)]

        assert queues == ["slow", "default"] * 2
        assert [run.read().queue for run in slow.dispatch_many([{}])] == ["slow"]
        assert slow.delay(5).dispatch().read().queue == "slow"
        assert slow.args(kind="x").dispatch().read().queue == "slow"
        assert builder.dispatch().read().queue == "default"

    def test_what_was_defined_before_stays(self, app):
        builder = app.schedule("report", nothing).queue("slow")
        builder.args(kind="always")
        builder.queue("fast").args(kind="special").dispatch()
        run = builder.dispatch().read()

        assert (run.queue, run.args) == ("slow", '{"kind":"always"}')

    def test_an_option_that_no_dispatch_has_defines_the_job(self, app):
        builder = app.schedule("report", nothing)
        builder.queue("slow").timeout("5m").hourly().dispatch()
        spec = builder.job.definition.spec

        assert (spec.queue, spec.timeout) == ("default", timedelta(minutes=5))
        assert builder.describe() == "every hour (UTC)"

    def test_after_a_dispatch_an_option_without_a_dispatch_is_reported(self, app):
        builder = app.schedule("report", nothing)
        builder.dispatch()
        with pytest.warns(UndispatchedDraft):
            builder.queue("slow")

        assert builder.dispatch().read().queue == "default"

    def test_a_chain_that_fails_changes_nothing(self, app):
        builder = app.schedule("report", nothing)
        builder.dispatch()
        with pytest.raises(ArgumentError):
            builder.queue("slow").dispatch(unknown=1)

        assert app.dispatch("report").read().queue == "default"

    def test_a_follow_up_has_the_options_of_its_builder(self, app):
        builder = app.schedule("report", nothing)

        @app.job
        def first(ctx: RunContext) -> None:
            ctx.then(builder.queue("slow"), kind="a")
            ctx.then(builder, kind="b")

        first.dispatch()
        app.run()
        runs = [app.runs.read(run_id) for run_id in app.runs.find_ids(RunFilter(job="report"))]

        assert sorted((run.args, run.queue) for run in runs) == [
            ('{"kind":"a"}', "slow"),
            ('{"kind":"b"}', "default"),
        ]

    @pytest.mark.parametrize("kind", ["schedule", "adhoc", "remote"])
    def test_threads_do_not_see_options_of_each_other(self, app, kind):
        args = ("report",) if kind == "remote" else ("report", nothing)
        builder = getattr(app, kind)(*args)
        start = Barrier(4)

        def dispatch(number):
            start.wait(10)
            wrong = 0
            for count in range(50):
                name = f"{number}-{count}"
                own = builder.queue(f"q{name}").args(kind=name).dispatch().read()
                plain = builder.dispatch().read()
                wrong += (own.queue, own.args) != (f"q{name}", f'{{"kind":"{name}"}}')
                wrong += (plain.queue, plain.args) != ("default", "{}")
            return wrong

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(dispatch, range(4))) == [0] * 4


class TestLimitsOfRemoteJobs:
    """A job of another program has the limits that its workers have stored."""

    @pytest.fixture
    def other(self, store, clock):
        """The program that defines the job, with the same database."""
        with Tickwork("memory://", store=store, clock=clock) as made:
            made.schedule("render", nothing).concurrency(1).concurrency(2, per="kind").rate(
                5, per="minute"
            )
            made.schedule("other", nothing).queue("o").concurrency(1).concurrency(3, per="queue")
            made.run()  # it stores its limits
            yield made

    KEYS = ("job/minute:render", "job:render", 'kind:render="a"')

    def test_a_dispatch_counts_against_them(self, app, other):
        run = app.remote("render").dispatch(kind="a").read()

        assert sorted(run.limit_keys) == sorted(self.KEYS)

    def test_they_are_those_that_its_program_would_use(self, app, other):
        expected = other.dispatch("render", kind="a").read().limit_keys

        assert sorted(app.remote("render").dispatch(kind="a").read().limit_keys) == sorted(expected)

    def test_a_limit_on_the_builder_is_not_added_twice(self, app, other):
        run = app.remote("render").concurrency(9).dispatch(kind="a").read()

        assert sorted(run.limit_keys) == sorted(self.KEYS)

    def test_a_limit_of_its_queue_counts_too(self, app, other):
        runs = app.remote("render").queue("o").dispatch_many([{"kind": "a"}])
        keys = [sorted(run.read().limit_keys) for run in runs]

        assert keys == [sorted({*self.KEYS, "queue:o"})]

    def test_no_more_run_at_a_time_than_may(self, app, other, store, clock):
        for _ in range(4):
            app.remote("other").dispatch()
        claims = store.claim(
            ClaimRequest(4),
            worker=WorkerId("ann"),
            tag="",
            now=clock.now(),
            lease=timedelta(seconds=60),
        )

        assert len(claims) == 1

    def test_a_limit_that_is_defined_later_is_known_after_a_while(self, app, store, clock):
        runs = [app.remote("render").dispatch()]
        store.set_limits({"job:render": 1})
        clock.advance(seconds=10)
        runs.append(app.remote("render").dispatch())

        assert [run.read().limit_keys for run in runs] == [(), ("job:render",)]

    def test_a_name_that_is_no_limit_is_ignored(self, app, store):
        store.set_limits({"job/never:render": 1, "a b:render": 1, "x": 1})

        assert app.remote("render").dispatch().read().limit_keys == ()

    def test_an_async_dispatch_counts_against_them(self, app, other):
        run = asyncio.run(app.remote("render").aio.dispatch(kind="a"))

        assert sorted(run.read().limit_keys) == sorted(self.KEYS)
