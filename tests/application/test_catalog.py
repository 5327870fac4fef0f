"""The catalog: programs start, stop and differ, and the stored schedules stay right.

Each application here is a program that was started: ``deploy`` starts one.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunStatus
from tickwork._stores import open_store
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    DuplicateDefinition,
    InvalidSchedule,
)
from tickwork.schedules import Interval
from tickwork.testing import ManualClock

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def send(to: str = "all") -> str:
    return to


@pytest.fixture
def deploy(make_app):
    """Start a program with one job and these schedules of it."""

    def start(*schedules, **settings):
        app = make_app(**settings)
        job = app.job(name="send")(send)
        for build in schedules:
            build(app, job)
        app.run()
        return app

    return start


def hourly(app, job, name="digest"):
    app.schedule(name, job).hourly()


def daily(app, job):
    app.schedule("digest", job).daily_at("12:00")


def statuses(app):
    return [run.status for run in app.runs.recent()]


class TestAbsence:
    """A missing definition retires nothing: another program may have it."""

    def test_a_program_without_a_schedule_leaves_it_alone(self, deploy, clock):
        first = deploy(hourly)
        before = first.schedules.get("digest")

        other = deploy()
        clock.advance(minutes=10)
        other.run()

        assert other.schedules.get("digest") == before
        assert not before.is_retired

    def test_a_program_that_knows_its_job_fires_it(self, deploy, clock):
        deploy(hourly)
        other = deploy()
        clock.advance(hours=1)

        assert other.run() == 1

    def test_a_program_that_does_not_know_its_job_skips_it(self, deploy, make_app, clock):
        first = deploy(hourly)
        stranger = make_app()
        clock.advance(hours=1)

        assert stranger.run() == 0
        assert [view.name for view in stranger.schedules.list()] == ["digest"]
        assert first.run() == 1


class TestRetiring:
    """A schedule that no program has defined for a week does not fire, and is retired."""

    def test_it_fires_for_a_week_and_then_stops(self, deploy, clock):
        deploy(hourly)
        other = deploy()
        clock.advance(days=6, hours=23)
        assert other.run() == 1
        clock.advance(hours=1)
        assert other.run() == 1  # a week to the moment
        clock.advance(hours=1)

        assert other.run() == 0
        assert other.schedules.get("digest").is_retired

    def test_a_start_marks_it_as_seen(self, deploy, clock):
        deploy(hourly)
        clock.advance(days=6)
        again = deploy(hourly)
        clock.advance(days=6)

        assert not again.schedules.get("digest").is_retired

    def test_a_running_program_marks_it_as_seen_every_hour(self, deploy, clock):
        worker = deploy(hourly)
        clock.advance(hours=1)
        worker.run()
        clock.advance(days=7)

        assert not worker.schedules.get("digest").is_retired
        clock.advance(seconds=1)
        assert worker.schedules.get("digest").is_retired

    def test_within_the_hour_nothing_is_written_again(self, deploy, clock):
        worker = deploy(hourly)
        clock.advance(minutes=59)
        worker.run()
        clock.advance(days=6, hours=23, minutes=1, seconds=1)

        assert worker.schedules.get("digest").is_retired

    def test_the_time_is_a_setting(self, deploy, clock):
        app = deploy(hourly, retire_after="1d")
        clock.advance(days=1, seconds=1)

        assert app.schedules.get("digest").is_retired

    def test_with_less_than_an_hour_nothing_retires_that_a_program_defines(self, deploy, clock):
        worker = deploy(hourly, retire_after="10m")
        for _ in range(30):
            clock.advance(minutes=5)
            worker.run()

        assert not worker.schedules.get("digest").is_retired
        assert len(worker.runs.recent()) == 2

    def test_schedules_created_at_run_time_never_retire(self, deploy, clock):
        app = deploy()
        app.schedules.register("", "digest", clock.now(), "1h", "send")
        clock.advance(days=400)

        assert not app.schedules.get("digest").is_retired
        assert app.run() == 1

    def test_if_it_is_defined_again_it_fires(self, deploy, clock):
        deploy(hourly)
        clock.set(MIDNIGHT + timedelta(days=10, minutes=30))

        again = deploy(hourly)

        # As after any outage, the misfire policy decides: see test_dropped_firings.
        assert statuses(again) == [RunStatus.COMPLETED, RunStatus.SKIPPED]
        view = again.schedules.get("digest")
        assert (view.is_retired, view.next_due_at) == (
            False,
            MIDNIGHT + timedelta(days=10, hours=1),
        )

    def test_its_name_can_be_used_at_run_time(self, deploy, clock):
        deploy(hourly)
        clock.advance(days=8)
        app = deploy()

        view = app.schedules.register("", "digest", clock.now(), "30m", "send")

        assert (view.origin, view.is_retired) == ("api", False)
        assert view.next_due_at == clock.now()


class TestTwoDeploys:
    """When two deploys differ, the newest start wins."""

    def test_a_later_start_changes_the_rule(self, deploy):
        old = deploy(hourly)
        deploy(daily)

        assert old.schedules.get("digest").rule == "at 12:00 (UTC)"

    def test_the_older_one_does_not_change_it_back(self, deploy, clock):
        old = deploy(hourly)
        deploy(daily)
        for _ in range(5):
            clock.advance(hours=1)
            old.run()

        assert old.schedules.get("digest").rule == "at 12:00 (UTC)"

    def test_the_older_one_still_marks_it_as_seen(self, deploy, clock):
        old = deploy(hourly)
        deploy(daily)
        clock.advance(days=6)
        old.run()
        clock.advance(days=6)

        assert not old.schedules.get("digest").is_retired

    def test_after_a_restart_the_older_one_is_the_newest(self, deploy):
        deploy(hourly)
        deploy(daily)
        again = deploy(hourly)

        assert again.schedules.get("digest").rule == "every hour (UTC)"

    def test_the_older_one_only_writes_what_it_changes(self, deploy):
        old = deploy(hourly)
        deploy(daily)
        old.schedule("more", send).every_minute()
        old.run()

        rules = {view.name: view.rule for view in old.schedules.list()}
        assert rules == {"digest": "at 12:00 (UTC)", "more": "every minute (UTC)"}

    def test_limits_are_the_newest_ones_too(self, make_app):
        def start(slots):
            app = make_app()
            app.job(name="send", concurrency=slots)(send)
            app.run()
            return app

        old = start(1)
        start(5)
        old.job(name="more")(lambda: None)
        old.run()

        assert [(row.name, row.slots) for row in old.limits.list()] == [("job:send", 5)]


class TestRulesOfAnotherVersion:
    """A rule that this version cannot read is left to others, and not marked as broken."""

    @pytest.fixture
    def app(self, deploy, url):
        app = deploy(hourly, lambda app, job: hourly(app, job, "other"))
        self.write_rule(url, '{"kind":"lunar","phase":"full"}')
        return app

    def write_rule(self, url, rule):
        store = open_store(url)
        row = store.get_schedule("", "digest")
        assert row is not None
        store.change_schedule(
            row, replace(row.spec, rule=rule), now=MIDNIGHT, next_due_at=row.next_due_at
        )
        store.close()

    def test_the_others_fire(self, app, clock):
        clock.advance(hours=1)

        assert app.run() == 1
        assert [run.schedule for run in app.runs.recent()] == ["other"]

    def test_its_next_firing_stays(self, app, clock):
        clock.advance(hours=3)
        app.run()

        view = app.schedules.get("digest")
        assert (view.next_due_at, view.last_fired_at) == (MIDNIGHT + HOUR, None)
        assert "lunar" in view.rule

    def test_a_program_that_can_read_it_fires_it(self, app, url, clock):
        clock.advance(hours=1)
        app.run()
        self.write_rule(url, Interval(length=HOUR, anchor=MIDNIGHT).to_text())

        assert app.run() == 1

    def test_a_scheduler_still_sleeps_until_the_next_firing(self, app, clock):
        clock.advance(hours=1)
        timer = app._services.passes.timer
        rests = []
        for _ in range(10):
            timer.step()
            rests.append(timer.seconds_left(1.0))

        assert rests[-1] >= 0.5

    def test_methods_that_need_the_rule_raise(self, app):
        with pytest.raises(InvalidSchedule, match="newer version"):
            app.schedules.preview("digest")

    def test_it_can_be_paused(self, app):
        assert app.schedules.pause("digest", note="what is this?").is_paused


class TestPauses:
    """Code may change the rule of a paused schedule, never its pause."""

    def test_a_new_rule_leaves_the_pause(self, deploy, clock):
        old = deploy(hourly)
        old.schedules.pause("digest", note="too loud")
        new = deploy(daily)
        clock.advance(days=1)

        view = new.schedules.get("digest")
        assert (view.is_paused, view.paused_note) == (True, "too loud")
        assert view.rule == "at 12:00 (UTC)"
        assert new.run() == 0

    def test_it_continues_with_the_new_rule(self, deploy, clock):
        old = deploy(hourly)
        old.schedules.pause("digest")
        new = deploy(daily)
        clock.advance(days=3)

        assert new.schedules.resume("digest").next_due_at == clock.now() + 12 * HOUR

    def test_a_pause_with_an_end_is_kept(self, deploy, clock):
        old = deploy(hourly)
        old.schedules.pause("digest", until=MIDNIGHT + timedelta(days=2, minutes=1))
        new = deploy(daily)

        assert new.schedules.get("digest").next_due_at == MIDNIGHT + timedelta(days=2, hours=12)
        clock.set(MIDNIGHT + timedelta(days=2, hours=12))
        assert new.run() == 1
        assert statuses(new) == [RunStatus.COMPLETED, RunStatus.SKIPPED]

    def test_a_start_leaves_the_pause(self, deploy, clock):
        deploy(hourly).schedules.pause("digest")
        clock.advance(hours=5)

        assert deploy(hourly).schedules.get("digest").is_paused


class TestAnchors:
    """The start of an interval is set when it is first stored, and kept."""

    @staticmethod
    def quarterly(app, job):
        app.schedule("digest", job).every(minutes=15)

    def test_it_counts_from_when_it_was_first_stored(self, deploy, clock):
        clock.advance(minutes=7)

        app = deploy(self.quarterly)

        assert app.schedules.get("digest").next_due_at == MIDNIGHT + timedelta(minutes=22)

    def test_a_restart_keeps_the_grid(self, deploy, clock):
        clock.advance(minutes=7)
        deploy(self.quarterly)
        clock.advance(minutes=20)

        again = deploy(self.quarterly)

        assert [run.nominal_at for run in again.runs.recent()] == [MIDNIGHT + timedelta(minutes=22)]
        assert again.schedules.get("digest").next_due_at == MIDNIGHT + timedelta(minutes=37)

    def test_another_length_keeps_the_anchor(self, deploy, clock):
        clock.advance(minutes=7)
        deploy(self.quarterly)
        clock.advance(minutes=4)

        again = deploy(lambda app, job: app.schedule("digest", job).every(minutes=20))

        assert again.schedules.get("digest").next_due_at == MIDNIGHT + timedelta(minutes=27)

    @pytest.mark.parametrize("off", [timedelta(hours=-3), timedelta(hours=3, minutes=2)])
    def test_a_program_whose_clock_is_wrong_keeps_the_grid(self, deploy, clock, off):
        clock.advance(minutes=7)
        before = deploy(self.quarterly).schedules.get("digest")

        again = deploy(self.quarterly, clock=ManualClock(clock.now() + off))

        after = again.schedules.get("digest")
        assert after.rule == before.rule
        assert after.next_due_at is not None
        assert after.next_due_at.minute % 15 == 7

    def test_every_second_day_keeps_its_days(self, deploy, clock):
        def second_day(app, job):
            app.schedule("digest", job).daily(interval=2)

        clock.advance(hours=10)
        deploy(second_day)
        clock.advance(days=1)

        view = deploy(second_day).schedules.get("digest")
        assert view.next_due_at == MIDNIGHT + timedelta(days=2)

    def test_max_firings_counts_from_there(self, deploy, clock):
        def thrice(app, job):
            app.schedule("digest", job).hourly().max_firings(3)

        for _ in range(6):
            deploy(thrice)
            clock.advance(hours=1)
        view = deploy(thrice).schedules.get("digest")

        assert view.is_finished
        assert view.last_fired_at == MIDNIGHT + 3 * HOUR  # midnight itself does not count


class TestNextFiring:
    """The next firing stays, unless the rule changes."""

    def test_an_unchanged_schedule_fires_what_is_due(self, deploy, clock):
        deploy(hourly)
        clock.advance(minutes=90)

        again = deploy(hourly)

        assert [run.nominal_at for run in again.runs.recent()] == [MIDNIGHT + HOUR]

    @pytest.mark.parametrize(
        "build",
        [
            lambda builder: builder.args(to="ann"),
            lambda builder: builder.queue("slow"),
            lambda builder: builder.priority(5),
            lambda builder: builder.overlap("allow"),
            lambda builder: builder.tags("news"),
        ],
    )
    def test_any_other_change_keeps_the_next_firing(self, deploy, clock, build):
        deploy(hourly)
        clock.advance(minutes=90)

        again = deploy(lambda app, job: build(app.schedule("digest", job).hourly()))

        assert [run.nominal_at for run in again.runs.recent()] == [MIDNIGHT + HOUR]

    def test_the_run_has_the_new_options(self, deploy, clock):
        deploy(hourly)
        clock.advance(minutes=90)

        again = deploy(
            lambda app, job: app.schedule("digest", job).hourly().args(to="ann").queue("slow")
        )

        [run] = again.runs.recent()
        assert (run.queue, again.get_run(run.id).result()) == ("slow", "ann")

    def test_another_rule_fires_after_now(self, deploy, clock):
        deploy(hourly)
        clock.advance(minutes=90)

        again = deploy(lambda app, job: app.schedule("digest", job).every_thirty_minutes())

        assert statuses(again) == [RunStatus.SKIPPED]  # the instant of the old rule
        assert again.schedules.get("digest").next_due_at == MIDNIGHT + 2 * HOUR

    def test_another_name_is_another_schedule(self, deploy):
        deploy(hourly)

        again = deploy(lambda app, job: hourly(app, job, "summary"))

        assert [view.name for view in again.schedules.list()] == ["digest", "summary"]

    def test_a_schedule_created_at_run_time_is_left_alone(self, deploy, clock, caplog):
        app = deploy()
        made = app.schedules.register("", "digest", clock.now() + HOUR, "2h", "send")

        again = deploy(hourly)

        assert again.schedules.get("digest") == made
        assert "created at run time" in caplog.text


class Own:
    """A rule that cannot be stored: other programs do not know the class."""

    tz = "UTC"

    def next_after(self, after: datetime) -> datetime | None:
        return after + HOUR

    def prev_before(self, before: datetime) -> datetime | None:
        return before - HOUR

    def count_between(self, first: datetime, last: datetime) -> int:
        return (last - first) // HOUR

    def preview(self, count: int, *, after: datetime) -> Sequence[datetime]:
        return []

    def describe(self) -> str:
        return "on and on"

    def to_text(self) -> str:
        return '{"kind":"own"}'


def needs(to: str) -> None:
    pass


class TestErrors:
    """An invalid definition is an error before anything is written."""

    @pytest.mark.parametrize(
        ("build", "error", "message"),
        [
            (lambda app: app.schedule("bad", send).cron("0 0 30 2 *"), InvalidSchedule, "never"),
            (
                lambda app: app.schedule("bad", send).every(minutes=5).weekdays(),
                InvalidSchedule,
                "no calendar fields",
            ),
            (lambda app: app.schedule("bad", send).on(Own()), InvalidSchedule, "not a rule"),
            (lambda app: app.schedule("bad", needs).hourly(), ArgumentError, "'to' is missing"),
            (
                lambda app: app.schedule("bad", send).hourly().args(whom="ann"),
                DefinitionError,
                "'whom'",
            ),
            (
                lambda app: (app.schedule("bad", send).hourly(), app.schedule("bad", send).daily()),
                DuplicateDefinition,
                "'bad'",
            ),
        ],
    )
    def test_the_error_has_the_reason_and_nothing_is_written(self, app, build, error, message):
        app.schedule("good", send).hourly().concurrency(3)
        build(app)

        with pytest.raises(error, match=message) as caught:
            app.run()

        assert "bad" in str(caught.value)
        assert app.schedules.list() == []
        assert app.limits.list() == []

    def test_the_error_has_the_place(self, app):
        app.schedule("bad", send).cron("0 0 30 2 *")

        with pytest.raises(InvalidSchedule, match=r"test_catalog\.py"):
            app.run()
