"""Instants that make no run: each is recorded with its reason."""

from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunStatus, ScheduleDefinition, schedules
from tickwork._domain.tick import MISSED, PAUSED, RULE_CHANGED
from tickwork.events import FiringsSkipped

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def deploy(make_app):
    """Start a program that defines this schedule."""

    def start(frequency="hourly", **options):
        app = make_app(**options)
        getattr(app.schedule("digest", lambda: None), frequency)()
        app.run()
        return app

    return start


def skipped(app):
    """The reason of each skipped row, its first and last hour, and how many instants it counts."""
    found = [run for run in app.runs.recent() if run.status is RunStatus.SKIPPED]
    return [
        (run.reason, hours(run.nominal_at), hours(run.last_nominal_at), run.instants)
        for run in reversed(found)
    ]


def completed(app):
    found = [run for run in app.runs.recent() if run.status is RunStatus.COMPLETED]
    return [hours(run.nominal_at) for run in reversed(found)]


def hours(instant):
    return (instant - MIDNIGHT) / HOUR


class TestOutages:
    """After an outage of any length, the misfire policy decides, and what it drops is recorded."""

    @pytest.mark.parametrize("days", [1, 8, 400])
    def test_a_schedule_of_code_runs_once_and_counts_what_it_missed(self, deploy, clock, days):
        deploy()
        clock.set(MIDNIGHT + timedelta(days=days, minutes=30))

        again = deploy()

        assert completed(again) == [24 * days]
        assert skipped(again) == [(MISSED, 1, 24 * days - 1, 24 * days - 1)]
        assert hours(again.schedules.get("digest").next_due_at) == 24 * days + 1

    def test_a_worker_that_was_suspended_for_long_does_the_same(self, deploy, clock):
        worker = deploy()
        clock.advance(days=8, minutes=30)

        worker.run()

        assert completed(worker) == [8 * 24]
        assert skipped(worker) == [(MISSED, 1, 8 * 24 - 1, 8 * 24 - 1)]


class TestPauses:
    """The instants of a pause make no runs. One row counts them."""

    def test_a_resumed_schedule_shows_what_its_pause_dropped(self, deploy, clock):
        app = deploy()
        seen: list[FiringsSkipped] = []
        app.events.subscribe(FiringsSkipped, seen.append)
        app.schedules.pause("digest")
        clock.advance(hours=5, minutes=30)

        assert hours(app.schedules.resume("digest").next_due_at) == 6

        assert skipped(app) == [(PAUSED, 1, 5, 5)]
        assert [(event.count, event.reason) for event in seen] == [(5, PAUSED)]
        clock.advance(minutes=30)
        app.run()
        assert completed(app) == [6]

    def test_a_pause_that_ends_by_itself_does_the_same(self, deploy, clock):
        app = deploy()
        app.schedules.pause("digest", until=MIDNIGHT + 5 * HOUR)
        clock.advance(hours=6)
        app.run()

        assert skipped(app) == [(PAUSED, 1, 5, 5)]
        assert completed(app) == [6]

    def test_one_that_is_resumed_early_counts_until_then(self, deploy, clock):
        app = deploy()
        app.schedules.pause("digest", until=MIDNIGHT + 5 * HOUR)
        clock.advance(hours=2, minutes=30)
        app.schedules.resume("digest")
        clock.advance(minutes=30)
        app.run()

        assert skipped(app) == [(PAUSED, 1, 2, 2)]
        assert completed(app) == [3]

    def test_a_changed_pause_counts_from_its_first_start(self, deploy, clock):
        app = deploy()
        app.schedules.pause("digest", until=MIDNIGHT + 9 * HOUR)
        clock.advance(hours=2, minutes=30)
        app.schedules.pause("digest")
        clock.advance(hours=1)
        app.schedules.resume("digest")

        assert skipped(app) == [(PAUSED, 1, 3, 3)]

    def test_what_was_due_before_the_pause_is_counted_too(self, deploy, clock):
        app = deploy()
        clock.advance(hours=2, minutes=30)
        app.schedules.pause("digest")
        clock.advance(hours=2)
        app.schedules.resume("digest")

        assert sum(count for *_, count in skipped(app)) == 4
        clock.advance(minutes=30)
        app.run()
        assert completed(app) == [5]

    def test_a_pause_beyond_the_last_instant_counts_the_rest(self, app, clock):
        app.job(name="send")(lambda: None)
        rule = schedules.hourly()
        end = MIDNIGHT + 4 * HOUR
        app.schedules.create(ScheduleDefinition(job="send", name="digest", rule=rule, until=end))
        app.schedules.pause("digest", until=MIDNIGHT + 6 * HOUR)
        clock.advance(hours=7)
        app.run()

        assert skipped(app) == [(PAUSED, 1, 4, 4)]
        assert app.schedules.get("digest").next_due_at is None

    def test_a_pause_without_an_instant_leaves_no_row(self, deploy, clock):
        app = deploy()
        app.schedules.pause("digest")
        clock.advance(minutes=30)
        app.schedules.resume("digest")

        assert skipped(app) == []


class TestNewRules:
    """A new rule starts at its next instant. What was due under the old one is recorded."""

    def test_a_deploy_after_an_outage_records_what_the_old_rule_missed(self, deploy, clock):
        deploy()
        clock.advance(hours=3, minutes=30)

        again = deploy("every_two_hours")

        assert skipped(again) == [(RULE_CHANGED, 1, 3, 3)]
        clock.advance(minutes=30)
        again.run()
        assert completed(again) == [4]

    def test_a_change_at_run_time_does_the_same(self, app, clock):
        app.job(name="send")(lambda: None)
        definition = ScheduleDefinition(job="send", name="digest", rule=schedules.hourly())
        app.schedules.create(definition)
        clock.advance(hours=3, minutes=30)

        app.schedules.update("digest", rule=schedules.every_two_hours())

        assert skipped(app) == [(RULE_CHANGED, 1, 3, 3)]

    def test_a_change_in_time_leaves_no_row(self, deploy, clock):
        deploy()
        clock.advance(minutes=30)

        assert skipped(deploy("every_two_hours")) == []
