"""``update``, ``pause`` and ``resume``: changes to a schedule that exists."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwork import RunContext, RunStatus, ScheduleDefinition, schedules
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    InvalidOption,
    InvalidSchedule,
    JobNotFound,
    NaiveDatetime,
    ScheduleNotFound,
)

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def seen():
    """The instants and arguments of the runs."""
    return []


@pytest.fixture(autouse=True)
def sync(app, seen):
    @app.job
    def sync(ctx: RunContext, folder: str = "/") -> None:
        seen.append((ctx.nominal_at, folder))

    return sync


@pytest.fixture
def files(app, sync):
    """An hourly schedule."""
    return app.schedules.create(
        ScheduleDefinition(job="sync", name="files", tenant="acme", rule=schedules.hourly())
    )


@pytest.fixture
def berlin(app, sync):
    """A schedule in a time zone of its own."""
    return app.schedules.create(
        ScheduleDefinition(job="sync", name="berlin", rule="0 9 * * *", timezone="Europe/Berlin")
    )


class TestZone:
    """A new rule keeps the time zone of the schedule, unless it has one."""

    @pytest.mark.parametrize(
        ("changes", "zone"),
        [
            ({"rule": "0 10 * * *"}, "Europe/Berlin"),
            ({"rule": schedules.daily_at("10:00")}, "Europe/Berlin"),
            ({"rule": "0 10 * * *", "timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
            ({"rule": schedules.daily_at("10:00").timezone("Asia/Tokyo")}, "Asia/Tokyo"),
            ({"rule": "0 10 * * *", "timezone": None}, "UTC"),
        ],
    )
    def test_a_new_rule_keeps_the_zone(self, app, berlin, changes, zone):
        app.schedules.update("berlin", **changes)

        first = app.schedules.preview("berlin", 1)[0]
        assert (first.hour, str(first.tzinfo)) == (10, zone)


@pytest.fixture
def update(app, files):
    def change(**changes):
        return app.schedules.update("files", tenant="acme", **changes)

    return change


class TestUpdating:
    """Some options are changed; the others stay."""

    def test_another_rule(self, update, clock):
        clock.advance(minutes=90)

        view = update(rule="*/20 * * * *")

        assert view.rule == "every 20 minutes (UTC)"
        assert view.next_due_at == MIDNIGHT + timedelta(minutes=100)

    def test_other_arguments_do_not_move_the_next_firing(self, app, update, seen, clock, passes):
        clock.advance(minutes=90)
        update(args={"folder": "/tmp"})
        passes(app)

        assert seen == [(MIDNIGHT + HOUR, "/tmp")]

    def test_several_options_at_once(self, app, update, clock, passes):
        view = update(queue="slow", priority=3, overlap="allow", target="disk-1", tags=["a"])
        clock.advance(hours=1)
        passes(app)

        [run] = app.runs.recent()
        assert (run.queue, run.priority, run.target, run.tags) == ("slow", 3, "disk-1", ("a",))
        assert view.overlap == "allow"

    def test_none_resets_an_option(self, update):
        update(queue="slow", until=MIDNIGHT + DAY, overlap="allow", target="disk-1")

        view = update(queue=None, until=None, overlap=None, target=None)

        assert (view.queue, view.until, view.overlap, view.target) == (None, None, "skip", None)

    def test_another_end(self, app, update, seen, clock, passes):
        update(until=MIDNIGHT + 2 * HOUR)
        for _ in range(5):
            clock.advance(hours=1)
            passes(app)

        assert len(seen) == 2

    def test_max_firings_counts_from_now(self, app, update, seen, clock, passes):
        clock.advance(hours=5, minutes=30)
        passes(app)
        update(max_firings=2)
        for _ in range(5):
            clock.advance(hours=1)
            passes(app)

        assert [at for at, _ in seen[1:]] == [MIDNIGHT + 6 * HOUR, MIDNIGHT + 7 * HOUR]

    def test_a_new_rule_with_max_firings_counts_from_now(self, app, update, seen, clock, passes):
        clock.advance(hours=5, minutes=10)
        passes(app)
        seen.clear()
        update(rule=schedules.every_thirty_minutes(), max_firings=2)
        for _ in range(5):
            clock.advance(minutes=30)
            passes(app)

        assert [at for at, _ in seen] == [MIDNIGHT + 5.5 * HOUR, MIDNIGHT + 6 * HOUR]

    def test_a_new_interval_keeps_its_start(self, app, update, clock):
        clock.advance(minutes=10)

        assert update(rule=schedules.every(minutes=45)).next_due_at == MIDNIGHT + 0.75 * HOUR

    def test_another_job(self, app, update, clock, passes):
        app.job(name="copy")(lambda: "copied")

        assert update(job="copy").job == "copy"
        clock.advance(hours=1)
        passes(app)
        assert app.get_run(app.runs.recent()[0].id).result() == "copied"

    def test_another_instant_for_once(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "once", MIDNIGHT + HOUR, None, sync)
        app.schedules.update("once", tenant="acme", at=MIDNIGHT + 3 * HOUR)
        for _ in range(4):
            clock.advance(hours=1)
            passes(app)

        assert seen == [(MIDNIGHT + 3 * HOUR, "/")]

    def test_a_finished_single_firing_can_be_scheduled_again(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "once", MIDNIGHT, None, sync)
        passes(app)
        view = app.schedules.update("once", tenant="acme", at=MIDNIGHT + HOUR)
        assert not view.is_finished
        clock.advance(hours=1)
        passes(app)

        assert [at for at, _ in seen] == [MIDNIGHT, MIDNIGHT + HOUR]

    def test_equal_options_change_nothing(self, files, update, clock):
        clock.advance(minutes=90)

        assert update() == files
        assert update(rule=schedules.hourly()) == files

    def test_a_schedule_whose_job_is_unknown_here_can_be_changed(self, make_app, files):
        web = make_app()

        view = web.schedules.update("files", tenant="acme", args={"whatever": 1}, queue="slow")

        assert (view.job, view.queue) == ("sync", "slow")

    def test_the_pause_stays(self, app, update):
        app.schedules.pause("files", tenant="acme", note="full disk")

        view = update(rule="*/20 * * * *")

        assert (view.is_paused, view.paused_note) == (True, "full disk")

    def test_a_pause_with_an_end_is_kept(self, app, update, clock):
        app.schedules.pause("files", tenant="acme", until=MIDNIGHT + 5 * HOUR)

        assert update(rule="*/20 * * * *").next_due_at == MIDNIGHT + timedelta(hours=5, minutes=20)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"rule": "0 0 30 2 *"}, InvalidSchedule, "never fire"),
            ({"rule": None}, InvalidOption, "rule must be"),
            ({"until": MIDNIGHT - DAY}, InvalidSchedule, "never fire"),
            ({"until": datetime(2027, 1, 1)}, NaiveDatetime, "no time zone"),
            ({"at": MIDNIGHT + DAY}, InvalidSchedule, "Pass the rule, too"),
            ({"timezone": "Asia/Tokyo"}, InvalidSchedule, "Pass the rule, too"),
            ({"args": {"fodler": 1}}, ArgumentError, "'fodler'"),
            ({"job": "snyc"}, JobNotFound, "Did you mean 'sync'"),
            ({"overlap": "never"}, InvalidOption, "overlap"),
            ({"prioritty": 1}, InvalidOption, "Did you mean 'priority'"),
            ({"colour": "red"}, InvalidOption, "has no option"),
        ],
    )
    def test_invalid_options_change_nothing(self, files, update, changes, error, message):
        with pytest.raises(error, match=message):
            update(**changes)

        assert update() == files

    def test_new_arguments_must_fit_the_new_job(self, app, files, update):
        app.job(name="needs")(lambda to: None)

        with pytest.raises(ArgumentError, match="'to' is missing"):
            update(job="needs")

        assert update(job="needs", args={"to": "ann"}).job == "needs"

    def test_a_schedule_from_code_cannot_be_changed(self, app, sync):
        app.schedule("nightly", sync).daily()
        app.run()

        with pytest.raises(DefinitionError, match="Change it in code"):
            app.schedules.update("nightly", queue="slow")

    def test_an_unknown_schedule_is_an_error_with_a_close_name(self, app, files):
        with pytest.raises(ScheduleNotFound, match="Did you mean 'files'"):
            app.schedules.update("flies", tenant="acme", queue="slow")

    def test_the_error_for_a_schedule_that_no_worker_has_stored_yet(self, app, sync):
        app.schedule("nightly", sync).daily()

        with pytest.raises(ScheduleNotFound, match="first worker that starts"):
            app.schedules.pause("nightly")


class TestPausing:
    """A paused schedule does not fire until it is resumed, or until an instant."""

    def test_it_does_not_fire(self, app, files, clock):
        view = app.schedules.pause("files", tenant="acme", note="full disk")
        clock.advance(hours=5)

        assert app.run() == 0
        assert (view.is_paused, view.paused_at, view.paused_note) == (True, MIDNIGHT, "full disk")
        assert not view.is_finished

    def test_other_schedules_fire(self, app, files, sync, clock):
        app.schedules.register("bell", "files", clock.now(), "1h", sync)
        app.schedules.pause("files", tenant="acme")

        assert app.run() == 1

    def test_a_resumed_one_continues_at_the_next_instant(self, app, files, seen, clock, passes):
        app.schedules.pause("files", tenant="acme")
        clock.advance(hours=5, minutes=30)
        view = app.schedules.resume("files", tenant="acme")

        assert view.next_due_at == MIDNIGHT + 6 * HOUR
        assert passes(app) == 0
        clock.advance(minutes=30)
        assert passes(app) == 1
        statuses = [run.status for run in app.runs.recent()]
        assert statuses == [RunStatus.COMPLETED, RunStatus.SKIPPED]  # and those of the pause
        assert not view.is_paused

    def test_until_an_instant(self, app, files, seen, clock, passes):
        app.schedules.pause("files", tenant="acme", until=MIDNIGHT + timedelta(hours=2, minutes=30))
        for _ in range(8):
            clock.advance(minutes=30)
            passes(app)

        assert [at for at, _ in seen] == [MIDNIGHT + 3 * HOUR, MIDNIGHT + 4 * HOUR]
        assert not app.schedules.get("files", tenant="acme").is_paused

    def test_it_is_not_paused_after_that_instant(self, app, files, clock):
        app.schedules.pause("files", tenant="acme", until=MIDNIGHT + HOUR, note="later")
        clock.advance(hours=1)

        view = app.schedules.get("files", tenant="acme")
        assert (view.is_paused, view.paused_note, view.paused_until) == (False, "", None)

    def test_a_pause_with_an_end_can_be_resumed_sooner(self, app, files, clock):
        app.schedules.pause("files", tenant="acme", until=MIDNIGHT + DAY)
        clock.advance(minutes=90)

        assert app.schedules.resume("files", tenant="acme").next_due_at == MIDNIGHT + 2 * HOUR

    def test_resume_without_a_pause_changes_nothing(self, app, files, clock):
        clock.advance(minutes=90)

        assert app.schedules.resume("files", tenant="acme") == files

    def test_resume_after_the_end_of_a_pause_loses_no_firing(self, app, files, seen, clock):
        app.schedules.pause("files", tenant="acme", until=MIDNIGHT + timedelta(minutes=30))
        clock.advance(hours=1, seconds=10)
        app.schedules.resume("files", tenant="acme")
        app.run()

        assert [at for at, _ in seen] == [MIDNIGHT + HOUR]

    def test_a_second_pause_replaces_the_note(self, app, files):
        app.schedules.pause("files", tenant="acme", note="one", until=MIDNIGHT + HOUR)

        view = app.schedules.pause("files", tenant="acme", note="two")

        assert (view.paused_note, view.paused_until) == ("two", None)

    def test_an_instant_may_be_a_string_with_an_offset(self, app, files):
        view = app.schedules.pause("files", tenant="acme", until="2026-01-01T03:00:00+01:00")

        assert view.paused_until == MIDNIGHT + 2 * HOUR

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"until": MIDNIGHT}, InvalidOption),
            ({"until": datetime(2027, 1, 1)}, NaiveDatetime),
            ({"note": "x" * 2_000}, InvalidOption),
        ],
    )
    def test_invalid_values_are_refused(self, app, files, options, error):
        with pytest.raises(error):
            app.schedules.pause("files", tenant="acme", **options)

        assert app.schedules.get("files", tenant="acme") == files

    @pytest.mark.parametrize("operation", ["pause", "resume", "get", "preview", "run_now"])
    def test_an_unknown_schedule_is_an_error_with_a_close_name(self, app, files, operation):
        with pytest.raises(ScheduleNotFound, match="Did you mean 'files'"):
            getattr(app.schedules, operation)("file", tenant="acme")


class TestNotification:
    """A scheduler that sleeps is notified if a schedule may fall due sooner."""

    @pytest.fixture
    def notified(self, app):
        notified: list[Any] = []
        app._services.schedule_rows.on_scheduled = notified.extend
        return notified

    def test_of_schedules_that_are_created_changed_or_resumed(self, app, sync, notified, clock):
        app.schedules.register("acme", "files", clock.now(), "1h", sync)
        app.schedules.register("acme", "files", clock.now(), "2h", sync)
        app.schedules.update("files", tenant="acme", rule=schedules.hourly())
        app.schedules.pause("files", tenant="acme")
        assert len(notified) == 3
        app.schedules.resume("files", tenant="acme")

        assert [row.spec.name for row in notified] == ["files"] * 4

    @pytest.mark.parametrize("change", ["add", "register", "update", "resume", "resume a queue"])
    def test_other_processes_are_notified_too(self, app, make_app, sync, change):
        def register(name="files", every="1h"):
            app.schedules.register("acme", name, MIDNIGHT, every, sync)

        register()
        app.schedules.pause("files", tenant="acme")
        app.pause(queue="slow")
        listener = make_app()._services.store.listen()
        listener.wait(0)
        {
            "add": lambda: register("other"),
            "register": lambda: register(every="2h"),
            "update": lambda: app.schedules.update("files", tenant="acme", priority=3),
            "resume": lambda: app.schedules.resume("files", tenant="acme"),
            "resume a queue": lambda: app.resume(queue="slow"),
        }[change]()

        assert listener.wait(10)
        listener.close()

    def test_not_of_schedules_that_stay_the_same(self, app, sync, notified, clock):
        app.schedules.register("acme", "files", MIDNIGHT, "1h", sync)
        notified.clear()

        app.schedules.register("acme", "files", MIDNIGHT, "1h", sync)
        app.schedules.update("files", tenant="acme")
        app.schedules.resume("files", tenant="acme")

        assert notified == []

    def test_run_now_notifies_workers_as_a_dispatch_does(self, app, sync, clock):
        app.schedules.register("acme", "files", clock.now() + HOUR, "1h", sync)
        woken: list[Any] = []
        app._services.inserter.on_added = woken.extend

        run = app.schedules.run_now("files", tenant="acme")

        assert [new.id for new in woken] == [run.id]
