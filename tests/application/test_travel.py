"""``testing.travel``: the clock moves, and everything is executed when it is due."""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunContext, RunStatus, Snooze, testing
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.lease import LEASE_DEFAULT
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest, Pause, PauseKind, RunFilter
from tickwork.errors import InvalidOption, NaiveDatetime, StillDue
from tickwork.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CALLS_MAX = 1_500
"""Calls of functions for one firing of a schedule and its attempt."""


def minutes_of(done):
    return [(each.at - START) / timedelta(minutes=1) for each in done]


class TestTravelling:
    """The clock moves from one due time to the next, and skips none."""

    def test_every_instant_of_a_schedule_gives_its_run_on_time(self, app, clock):
        seen = []

        def report(ctx: RunContext):
            seen.append((clock.now(), ctx.nominal_at))

        app.schedule("report", report).every_six_hours()

        done = testing.travel(app, days=2)

        assert seen == [(START + timedelta(hours=6 * n),) * 2 for n in range(1, 9)]
        assert len(done) == 8
        assert clock.now() == START + timedelta(days=2)
        assert {run.status for run in app.runs.recent()} == {RunStatus.COMPLETED}

    def test_schedules_and_runs_are_executed_in_order(self, app):
        app.schedule("hourly", lambda: None).hourly()
        app.schedule("often", lambda: None).every_twenty_minutes()
        app.schedule("once", lambda: None).delay("50m").dispatch()

        done = testing.travel(app, hours=1)

        assert [(each.job, minute) for each, minute in zip(done, minutes_of(done), strict=True)][
            :3
        ] == [("often", 20), ("often", 40), ("once", 50)]
        assert {each.job for each in done[3:]} == {"often", "hourly"}

    def test_retries_happen_when_they_are_due(self, app):
        def fail():
            raise ValueError("again")

        job = app.schedule("it", fail).retries(max=4, base=60, cap=3600, jitter="none")
        job.dispatch()

        done = testing.travel(app, hours=2)

        assert minutes_of(done) == [0, 1, 3, 7]
        assert [each.status for each in done][-1] is RunStatus.FAILED_PERMANENT

    def test_snoozed_and_postponed_runs_are_executed_on_time(self, app, clock):
        def snooze():
            if clock.now() < START + timedelta(minutes=10):
                raise Snooze(240)

        def is_open():
            return clock.now() >= START + timedelta(minutes=3)

        app.schedule("snoozing", snooze).dispatch()
        app.schedule("waiting", lambda: None).when(is_open).dispatch()

        done = testing.travel(app, hours=1)

        assert minutes_of(done.of("snoozing")) == [0, 4, 8, 12]
        assert minutes_of(done.of("waiting")) == [3.5]  # after 30, 60 and 120 seconds
        assert len(done.deferred) == 3

    def test_jitter_moves_a_run_and_not_its_instant(self, app):
        app.schedule("report", lambda: None).hourly().jitter(600)

        done = testing.travel(app, hours=3, minutes=30)

        late = [minute % 60 for minute in minutes_of(done)]
        assert [each.nominal_at for each in done] == [START + n * HOUR for n in (1, 2, 3)]
        assert all(0 <= minutes < 10 for minutes in late)
        assert any(late)

    def test_a_run_of_a_dead_worker_goes_on_when_its_lease_expires(self, app, clock):
        run = app.schedule("it", lambda: "done").dispatch()
        app._services.store.claim(
            ClaimRequest(1),
            worker=WorkerId(new_id(clock.now())),
            tag="dead",
            now=clock.now(),
            lease=LEASE_DEFAULT.length,
        )

        done = testing.travel(app, hours=1)

        assert minutes_of(done) == [1]
        assert run.result() == "done"

    def test_a_pause_that_ends_by_itself_ends_on_time(self, app, clock):
        app.schedule("it", lambda: None).dispatch()
        until = clock.now() + timedelta(minutes=5)
        app._services.store.pause(Pause(PauseKind.JOB, "it", clock.now(), until=until))

        done = testing.travel(app, hours=1)

        assert minutes_of(done) == [5]

    def test_a_run_that_is_due_at_the_very_end_is_executed(self, app):
        app.schedule("it", lambda: None).delay(3600).dispatch()

        assert len(testing.travel(app, minutes=59, seconds=59)) == 0
        assert len(testing.travel(app, 1)) == 1

    def test_a_month_of_an_hourly_schedule_is_complete(self, app, database):
        days = 30 if database == "sqlite" else 3
        app.schedule("report", lambda: None).hourly()

        done = testing.travel(app, days=days)

        assert len(done) == 24 * days
        runs = app.runs.recent(RunFilter(statuses=frozenset({RunStatus.SKIPPED})))
        assert runs == []

    def test_daylight_saving_time_changes_on_the_way(self, app):
        report = app.schedule("report", lambda: None)
        report.daily_at("12:00").timezone("Europe/Berlin")
        testing.travel_to(app, "2026-03-28T00:00:00+01:00")

        done = testing.travel(app, days=2)

        assert [each.at.isoformat() for each in done] == [
            "2026-03-28T11:00:00+00:00",
            "2026-03-29T10:00:00+00:00",
        ]

    def test_a_schedule_without_firings_for_a_month_is_not_retired(self, app):
        app.schedule("report", lambda: None).monthly()

        assert len(testing.travel(app, days=100)) == 3


class TestTheClock:
    """Only a manual clock can be moved, and only forward."""

    def test_to_a_moment_as_a_datetime_or_as_text(self, app, clock):
        testing.travel_to(app, START + timedelta(hours=1))
        testing.travel_to(app, "2026-01-01T03:00:00+01:00")

        assert clock.now() == START + timedelta(hours=2)

    def test_a_moment_that_has_passed_is_refused(self, app, clock):
        with pytest.raises(InvalidOption, match="must not be negative"):
            testing.travel_to(app, START - timedelta(seconds=1))
        with pytest.raises(InvalidOption, match="must not be negative"):
            testing.travel(app, days=-1)

        assert clock.now() == START

    def test_a_moment_without_a_zone_is_refused(self, app):
        with pytest.raises(NaiveDatetime):
            testing.travel_to(app, datetime(2026, 1, 2))

    def test_a_clock_that_moves_by_itself_is_refused(self, make_app):
        with pytest.raises(InvalidOption, match=r"testing\.swap"):
            testing.travel(make_app(clock=None), days=1)

    def test_a_clock_that_a_handler_moved_is_not_set_back(self, app, clock):
        app.schedule("slow", lambda: clock.advance(hours=2)).every(minutes=30, starting=START)

        done = testing.travel(app, hours=1)

        assert len(done) == 1
        assert clock.now() == START + timedelta(hours=2, minutes=30)


class TestObstacles:
    """A run that cannot start now does not hide later ones."""

    def test_a_schedule_that_cannot_be_fired(self, app, clock):
        for name in ("broken", "sound"):
            app.schedule(name, lambda: None).hourly()
        app.run()
        store = app._services.store
        row = store.get_schedule("", "broken")
        broken = replace(row.spec, rule="no rule at all")
        store.change_schedule(row, broken, now=clock.now(), next_due_at=row.next_due_at)

        done = testing.travel(app, hours=3)

        assert [each.job for each in done] == ["sound"] * 3

    def test_a_run_that_this_process_cannot_claim(self, app):
        app.remote("elsewhere").dispatch()
        app.schedule("report", lambda: None).hourly()

        assert len(testing.travel(app, hours=3)) == 3

    def test_a_run_that_is_always_due(self, app):
        app.schedule("ping", lambda: app.dispatch("ping")).delay(60).dispatch()

        with pytest.raises(StillDue):
            testing.travel(app, hours=1, limit=20)


class TestSpeed:
    """The work for one firing is limited, and does not grow with the number of firings.

    It is counted in calls of functions: a time would depend on the machine, on its load, and on
    coverage. `benchmarks/travel.py` measures the time.
    """

    def count_calls(self, hours):
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in {"call", "c_call"}

        with testing.app() as app:
            app.schedule("report", lambda: None).every_minute()
            testing.travel(app, hours=1)  # what happens once
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                done = testing.travel(app, hours=hours)
            finally:
                sys.setprofile(before)
        assert len(done) == 60 * hours
        return calls

    def test_a_firing_takes_few_calls(self):
        assert self.count_calls(hours=2) / 120 < CALLS_MAX

    def test_later_firings_take_as_many_as_earlier_ones(self):
        short, long = self.count_calls(hours=2), self.count_calls(hours=8)

        assert long < 1.1 * 4 * short


def test_a_manual_clock_may_start_anywhere():
    with testing.app(clock=ManualClock(datetime(2030, 5, 17, 8, tzinfo=UTC))) as app:
        app.schedule("report", lambda: None).daily_at("9:00")

        [done] = testing.travel(app, hours=2)

        assert done.at == datetime(2030, 5, 17, 9, tzinfo=UTC)
