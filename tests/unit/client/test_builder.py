from datetime import timedelta

import pytest

from tickwork._client.builder import JobBuilder, ScheduleBuilder
from tickwork._client.jobs import Draft


def nothing(kind: str = "") -> None:
    pass


class TestChains:
    """Each method changes the declaration and returns the same builder."""

    def test_each_method_returns_the_same_builder(self, app):
        builder = app.schedule("report", nothing)

        assert builder.queue("q").priority(5).hourly().attempts(3) is builder
        assert (builder.name, repr(builder)) == ("report", "<schedule report>")

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

    def test_options_of_both_change_the_job(self, app):
        builder = app.schedule("report", nothing)

        assert builder.queue("slow") is builder
        assert builder.args(kind="daily") is builder
        assert builder.dispatch().read().queue == "slow"

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
