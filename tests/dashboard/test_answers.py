"""Questions of the person on call, answered by the read models and the API."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tickwork import Tickwork
from tickwork._control.schedule_definition import ScheduleDefinition
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.agenda import AgendaKind
from tickwork._stores.contract import RunFilter
from tickwork.errors import ScheduleNotFound
from tickwork.testing import ManualClock

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NO_PAPER = datetime(2026, 3, 10, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    return ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
def app(clock):
    with Tickwork("memory://", clock=clock) as app:

        @app.job
        def report(seconds: float = 0) -> None:
            if clock.now() == NO_PAPER:
                raise ValueError("no paper")
            clock.advance(seconds=seconds)

        @app.job
        def other() -> None: ...

        app.schedule("nightly", report).daily().hours(2).timezone("Europe/Berlin")
        app.run()
        yield app


def work_until(app, clock, end):
    """Stop the clock at each instant of the schedule, and execute what is due."""
    while (at := app.schedules.get("nightly").next_due_at) <= end:
        clock.advance(at - clock.now())
        app.run()
    clock.advance(end - clock.now())


class TestOutcomes:
    """How did the last firings of this schedule end?"""

    def test_the_last_30_behind_thousands_of_newer_runs(self, app, clock):
        work_until(app, clock, clock.now() + 40 * DAY)
        app.draft.dispatch_many("other", [{}] * 3_000)
        app.draft.dispatch_many("report", [{}] * 3_000)

        found = app.inspect.last_outcomes([("", "nightly"), ("", "unknown")])

        runs = found["", "nightly"]
        assert len(runs) == 30
        assert [run.nominal_at for run in runs] == sorted(run.nominal_at for run in runs)
        assert {run.status for run in runs} == {RunStatus.COMPLETED}
        assert found["", "unknown"] == []

    def test_days_over_months_in_the_zone_of_the_schedule(self, app, clock):
        work_until(app, clock, clock.now() + 40 * DAY)
        app.draft.dispatch_many("report", [{}] * 3_000)

        found = app.inspect.outcome_days("nightly")

        assert found.zone == "Europe/Berlin"
        by_day = {each.day: each.runs for each in found.days}
        assert by_day[date(2026, 3, 2)] == {"completed": 1}
        assert by_day[date(2026, 3, 10)] == {"failed_permanent": 1}
        assert by_day[date(2026, 4, 10)] == {"completed": 1}  # in summer time
        assert len(by_day) == 40
        assert found.complete_since <= datetime(2026, 3, 1, tzinfo=UTC)

    def test_a_day_belongs_to_the_zone_that_is_chosen(self, app, clock):
        work_until(app, clock, clock.now() + 3 * DAY)

        found = app.inspect.outcome_days("nightly", zone="America/New_York")

        assert [each.day.day for each in found.days] == [1, 2, 3]

    def test_a_backfill_counts_on_the_day_of_its_instant(self, app, clock):
        app.schedules.pause("nightly")
        clock.advance(days=5)
        app.schedules.backfill("nightly", since=clock.now() - 3 * DAY, until=clock.now())
        while app.run():
            pass

        days = app.inspect.outcome_days("nightly").days

        completed = [each.day for each in days if each.runs.get("completed")]
        assert completed == [date(2026, 3, 4), date(2026, 3, 5), date(2026, 3, 6)]

    def test_two_tenants_with_a_schedule_of_the_same_name(self, app, clock):
        for tenant in ("acme", "zoo"):
            app.schedules.create(
                ScheduleDefinition(name="hourly", job="other", rule="@hourly", tenant=tenant)
            )
        app.schedules.pause("hourly", tenant="zoo")
        for _ in range(3):
            clock.advance(hours=1)
            app.run()

        found = app.inspect.last_outcomes([("acme", "hourly"), ("zoo", "hourly")])

        assert [len(runs) for runs in found.values()] == [3, 0]

    def test_an_unknown_schedule(self, app):
        with pytest.raises(ScheduleNotFound):
            app.inspect.outcome_days("typo")


class TestPastFirings:
    """The past days of the calendar."""

    def test_they_are_complete_behind_newer_runs(self, app, clock):
        begin = clock.now()
        work_until(app, clock, begin + 10 * DAY)
        app.draft.dispatch_many("report", [{}] * 2_000)

        found = app.inspect.past_firings(
            [("", "nightly")], since=begin + DAY, before=begin + 4 * DAY
        )

        assert [run.nominal_at.day for run in found.runs] == [5, 4, 3]
        assert found.cut == {}

    def test_a_schedule_with_too_many_says_since_when_it_is_complete(self, app, clock, monkeypatch):
        monkeypatch.setattr("tickwork._inspect.outcomes.READ_MAX", 3)
        monkeypatch.setattr("tickwork._inspect.outcomes.LEAST", 3)
        begin = clock.now()
        work_until(app, clock, begin + 10 * DAY)

        found = app.inspect.past_firings([("", "nightly")], since=begin, before=begin + 10 * DAY)

        assert len(found.runs) == 3
        assert found.cut == {("", "nightly"): found.runs[-1].nominal_at}


class TestAgenda:
    """What runs tonight at two, delayed runs too?"""

    def test_firings_delayed_runs_and_retries_in_order(self, app, clock):
        @app.job(attempts=2, delays=["2h"])
        def flaky() -> None:
            raise ValueError("again")

        flaky.dispatch()
        app.run()
        delayed = other_run(app, at=clock.now() + HOUR)
        other_run(app, at=clock.now() + 30 * HOUR)

        found = app.inspect.agenda(until=clock.now() + DAY)

        assert [(each.kind, each.job) for each in found.entries] == [
            (AgendaKind.DELAYED, "other"),
            (AgendaKind.RETRY, "flaky"),
            (AgendaKind.FIRING, "report"),
        ]
        assert found.entries[0].run == delayed.id
        assert found.entries[2].schedule == "nightly"
        assert not found.has_more

    def test_a_span_of_time_of_tonight(self, app, clock):
        at_two = datetime(2026, 3, 2, 1, tzinfo=UTC)
        other_run(app, at=at_two + timedelta(minutes=5))
        other_run(app, at=at_two - timedelta(minutes=5))

        found = app.inspect.agenda(since=at_two, until=at_two + HOUR)

        assert [(each.kind, each.at) for each in found.entries] == [
            (AgendaKind.FIRING, at_two),
            (AgendaKind.DELAYED, at_two + timedelta(minutes=5)),
        ]

    def test_it_says_that_there_is_more(self, app, clock):
        for minutes in (1, 2, 3):
            other_run(app, at=clock.now() + timedelta(minutes=minutes))

        found = app.inspect.agenda(until=clock.now() + HOUR, limit=2)

        assert found.has_more
        assert found.until == found.entries[-1].at == clock.now() + timedelta(minutes=2)

    def test_a_paused_schedule_is_not_in_it(self, app, clock):
        app.schedules.pause("nightly")

        assert app.inspect.agenda(until=clock.now() + 7 * DAY).entries == []


def other_run(app, *, at):
    return app.draft.at(at).dispatch("other")


class TestRetries:
    """Which run repeated this one?"""

    def test_a_run_leads_to_its_retry_and_back(self, app):
        first = app.dispatch("other")
        app.run()
        again = first.retry()

        assert app.inspect.details(first.id).retries == [again.id]
        assert app.inspect.details(again.id).run.retry_of == first.id
        assert app.inspect.details(again.id).retries == []


class TestJobHistory:
    """Which jobs are slow, and slower than last week?"""

    def test_percentiles_by_the_hour_beside_a_week_before(self, app, clock):
        for seconds in (1, 1, 1):
            app.draft.args(seconds=seconds).dispatch("report")
            app.run()
        clock.advance(days=7)
        for seconds in (30, 30):
            app.draft.args(seconds=seconds).dispatch("report")
            app.run()
            clock.advance(hours=2)

        found = app.inspect.job_history("report", days=1)

        assert (found.step_seconds, len(found.spans)) == (3600, 2)
        assert found.total.completed >= 2
        assert 16 < found.spans[-1].runtime.p50 < 64
        assert found.week_before.completed == 3
        assert 0.5 < found.week_before.runtime.p95 < 2.1

    def test_a_month_by_the_day_survives_pruning(self, app, clock):
        work_until(app, clock, clock.now() + 30 * DAY)
        app.prune(days=0)

        found = app.inspect.job_history("report", days=40)

        assert found.step_seconds == 86_400
        assert sum(each.completed for each in found.spans) == found.total.completed == 29
        assert found.total.failed == 1

    def test_a_queue_has_all_of_its_jobs(self, app):
        app.dispatch("report")
        app.dispatch("other")
        app.run()

        assert app.inspect.queue_history("default").total.completed == 2
        assert app.inspect.queue_history("empty").spans == []


class TestErrors:
    """What failed in the last hour, grouped by error?"""

    def test_a_run_that_waited_in_a_backlog_for_hours_and_fails_now(self, app, clock):
        @app.job
        def fetch(number: int) -> None:
            raise ConnectionError(f"host {number} is away")

        for number in range(2):
            fetch.dispatch(number)
        app.run()
        clock.advance(hours=5)  # these two failed too long ago
        for number in range(3):
            fetch.dispatch(number)
        clock.advance(hours=3)
        app.run()
        app.draft.dispatch_many("other", [{}] * 500)

        found = app.inspect.error_groups(RunFilter(since=clock.now() - HOUR))

        assert [(group.text, group.count) for group in found.groups] == [
            ("ConnectionError: host # is away", 3)
        ]

    def test_a_run_that_will_be_retried_is_among_them(self, app, clock):
        @app.job(attempts=2, delays=["9h"])
        def flaky() -> None:
            raise ValueError("again")

        flaky.dispatch()
        app.run()

        assert app.inspect.error_groups(RunFilter(since=clock.now() - HOUR)).groups[0].count == 1
