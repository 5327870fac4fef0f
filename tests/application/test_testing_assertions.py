"""``testing.assert_dispatched`` and the other assertions about dispatched runs."""

import re

import pytest

from tickwork import RunStatus, Secret, testing
from tickwork.errors import InvalidOption, JobNotFound, NaiveDatetime


@pytest.fixture
def greet(app):
    return app.schedule("greet", lambda name, times=1: None).queue("emails")


@pytest.fixture
def bill(app):
    return app.schedule("bill", lambda order: None)


def shown(error):
    return str(error.value)


class TestDispatched:
    """``testing.dispatched()`` lists the runs that the program dispatched."""

    def test_runs_are_listed_in_order(self, app, greet, bill, clock):
        greet.dispatch(name="Ann")
        bill.dispatch(order=7)
        clock.advance(hours=1)
        greet.delay(60).dispatch(name="Bob")

        found = testing.dispatched(app)

        assert [(each.job, dict(each.args)) for each in found] == [
            ("greet", {"name": "Ann"}),
            ("bill", {"order": 7}),
            ("greet", {"name": "Bob"}),
        ]
        assert [each.args["name"] for each in testing.dispatched(app, greet)] == ["Ann", "Bob"]

    def test_it_has_queue_time_status_and_the_handle(self, app, greet, clock):
        run = greet.dispatch(name="Ann")
        testing.drain(app)

        [found] = testing.dispatched(app)

        assert (found.queue, found.at) == ("emails", clock.now())
        assert found.status is RunStatus.COMPLETED
        assert found.handle == run

    def test_runs_of_schedules_are_not_included(self, app):
        app.schedule("report", lambda: None).hourly()
        testing.travel(app, hours=2)

        assert testing.dispatched(app) == []

    def test_more_than_a_page(self, app, bill):
        bill.dispatch_many({"order": order} for order in range(1200))

        assert [each.args["order"] for each in testing.dispatched(app)] == list(range(1200))


class TestAssertDispatched:
    """It passes if there is such a run, and otherwise shows the dispatched runs."""

    def test_by_job_by_name_and_by_builder(self, app, greet):
        greet.dispatch(name="Ann")

        for job in ("greet", greet, greet.job):
            assert len(testing.assert_dispatched(app, job)) == 1

    def test_it_returns_what_it_found(self, app, greet):
        greet.dispatch(name="Ann")

        [found] = testing.assert_dispatched(app, greet, times=1)

        assert found.args == {"name": "Ann"}

    def test_before_and_after_the_run_was_executed(self, app, greet):
        greet.dispatch(name="Ann")
        testing.assert_dispatched(app, greet)
        testing.drain(app)
        testing.assert_dispatched(app, greet)

    def test_only_the_given_arguments_are_compared(self, app, greet):
        greet.dispatch(name="Ann", times=3)

        testing.assert_dispatched(app, greet, args={"name": "Ann"})
        testing.assert_dispatched(app, greet, args={"name": "Ann", "times": 3})
        with pytest.raises(AssertionError):
            testing.assert_dispatched(app, greet, args={"name": "Bob"})
        with pytest.raises(AssertionError):
            testing.assert_dispatched(app, greet, args={"colour": None})

    def test_how_often(self, app, greet):
        greet.dispatch(name="Ann")
        greet.dispatch(name="Bob")

        testing.assert_dispatched(app, greet, times=2)
        testing.assert_dispatched(app, greet, times=1, args={"name": "Bob"})
        testing.assert_dispatched(app, greet, times=0, args={"name": "Eve"})
        with pytest.raises(AssertionError, match="'greet' was not dispatched 1 time, but 2"):
            testing.assert_dispatched(app, greet, times=1)

    def test_queue_tenant_and_time(self, app, greet):
        greet.tenant("acme").delay(60).dispatch(name="Ann")

        testing.assert_dispatched(app, greet, queue="emails")
        testing.assert_dispatched(app, greet, at="2026-01-01T01:01:00+01:00")
        testing.assert_dispatched(app, greet, tenant="acme")
        with pytest.raises(AssertionError):
            testing.assert_dispatched(app, greet, queue="slow")
        with pytest.raises(AssertionError):
            testing.assert_dispatched(app, greet, at="2026-01-01T01:00:00+01:00")
        with pytest.raises(AssertionError):
            testing.assert_dispatched(app, greet, tenant="")

    def test_a_time_without_a_zone_is_rejected(self, app, greet):
        with pytest.raises(NaiveDatetime):
            testing.assert_dispatched(app, greet, at="2026-01-01T00:00:00")

    def test_a_value_that_is_no_job_is_rejected(self, app):
        with pytest.raises(InvalidOption, match="must be a job or the name of one"):
            testing.assert_dispatched(app, 42)

    def test_the_message_shows_the_dispatched_runs(self, app, greet, bill):
        greet.delay(60).dispatch(name="Ann")
        bill.job.queue("q").tenant("acme").dispatch(order=7)
        testing.drain(app)

        with pytest.raises(AssertionError) as error:
            testing.assert_dispatched(app, greet, args={"name": "Bob"}, queue="emails")

        assert shown(error).splitlines() == [
            "'greet' with {'name': 'Bob'} in the queue 'emails' was not dispatched.",
            "Dispatched runs:",
            "  greet(name='Ann') in the queue 'emails', due 2026-01-01T00:01:00+00:00, pending",
            "  bill(order=7) for 'acme' in the queue 'q', due 2026-01-01T00:00:00+00:00, completed",
        ]

    def test_the_message_if_no_run_was_dispatched(self, app, greet):
        with pytest.raises(AssertionError, match="No run was dispatched"):
            testing.assert_dispatched(app, greet)

    def test_the_message_counts_runs_of_schedules(self, app):
        app.schedule("report", lambda: None).hourly()
        testing.travel(app, hours=2)

        with pytest.raises(AssertionError, match="Schedules fired it 2 times"):
            testing.assert_dispatched(app, "report")

    def test_the_message_suggests_a_similar_name(self, app, greet):
        greet.dispatch(name="Ann")

        with pytest.raises(AssertionError, match="Did you mean 'greet'"):
            testing.assert_dispatched(app, "gret")

    def test_secrets_stay_secret(self, app):
        def log_in(name: str, password: Secret[str]) -> None:
            pass

        app.schedule("log_in", log_in).dispatch(name="Ann", password="hunter2")

        with pytest.raises(AssertionError) as error:
            testing.assert_dispatched(app, "log_in", args={"name": "Bob"})

        assert "hunter2" not in shown(error)
        assert "hunter2" not in repr(testing.dispatched(app))
        assert re.search(r"password='\*+'", shown(error))

    def test_a_long_list_is_cut(self, app, greet, bill):
        bill.dispatch_many({"order": order} for order in range(30))

        with pytest.raises(AssertionError, match="and 10 more"):
            testing.assert_dispatched(app, greet)


class TestAssertNotDispatched:
    """It fails if there is such a run, and if there is no such job."""

    def test_it_passes_without_such_a_run(self, app, greet, bill):
        bill.dispatch(order=7)
        greet.dispatch(name="Ann")

        testing.assert_not_dispatched(app, greet, args={"name": "Bob"})
        testing.assert_not_dispatched(app, "bill", queue="slow")

    def test_it_fails_with_such_a_run(self, app, greet):
        greet.dispatch(name="Ann")

        with pytest.raises(
            AssertionError, match=r"'greet' was dispatched.\n.*\n  greet\(name='Ann"
        ):
            testing.assert_not_dispatched(app, greet)

    def test_an_unknown_name_is_an_error(self, app, greet):
        with pytest.raises(JobNotFound, match="Did you mean 'greet'"):
            testing.assert_not_dispatched(app, "gret")

    def test_a_job_of_another_program_can_be_named(self, app):
        there = app.remote("elsewhere")

        testing.assert_not_dispatched(app, there)
        there.dispatch()
        testing.assert_dispatched(app, "elsewhere")

    def test_assert_nothing_dispatched(self, app, greet):
        testing.assert_nothing_dispatched(app)
        greet.dispatch(name="Ann")
        with pytest.raises(AssertionError, match="Runs were dispatched"):
            testing.assert_nothing_dispatched(app)


class TestWatching:
    """Inside the block, runs from before it are ignored."""

    def test_only_runs_of_the_block_are_listed(self, app, greet):
        greet.dispatch(name="before")

        with testing.watching(app):
            testing.assert_nothing_dispatched(app)
            greet.dispatch(name="inside")
            [found] = testing.dispatched(app)

        assert found.args == {"name": "inside"}
        assert len(testing.dispatched(app)) == 2

    def test_also_when_time_has_passed(self, app, greet, clock):
        greet.dispatch(name="before")
        clock.advance(hours=1)

        with testing.watching(app):
            clock.advance(hours=1)
            greet.dispatch(name="inside")
            testing.drain(app)

            assert [each.args["name"] for each in testing.dispatched(app)] == ["inside"]

    def test_blocks_can_be_nested(self, app, greet):
        with testing.watching(app):
            greet.dispatch(name="outer")
            with testing.watching(app):
                greet.dispatch(name="inner")
                assert len(testing.dispatched(app)) == 1
            assert len(testing.dispatched(app)) == 2
