"""``app.schedules.register``: schedules of tenants, at run time, idempotent."""

from datetime import UTC, datetime, timedelta

import pytest

from application import handlers_elsewhere as elsewhere
from tickwork import RunContext, RunStatus
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    HandlerNotAllowed,
    InvalidDuration,
    InvalidOption,
    InvalidSchedule,
    JobNotFound,
    NaiveDatetime,
    PayloadTooLarge,
    ScheduleNotFound,
)

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


@pytest.fixture
def seen():
    """What the job was called with: tenant, schedule, nominal time, arguments."""
    return []


@pytest.fixture
def sync(app, seen):
    @app.job
    def sync(ctx: RunContext, folder: str = "/") -> None:
        seen.append((ctx.tenant, ctx.schedule, ctx.nominal_at, folder))

    return sync


class TestRegistering:
    """A job runs for a tenant from an instant on, on a fixed grid."""

    def test_it_fires_on_the_grid_for_its_tenant(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", MIDNIGHT + QUARTER, QUARTER, sync)
        for _ in range(3):
            clock.advance(QUARTER)
            passes(app)

        assert seen == [("acme", "files", MIDNIGHT + n * QUARTER, "/") for n in (1, 2, 3)]

    def test_it_returns_the_schedule(self, app, sync):
        view = app.schedules.register("acme", "files", MIDNIGHT + QUARTER, "15m", sync)

        assert (view.tenant, view.name, view.job, view.origin) == ("acme", "files", "sync", "api")
        assert view.rule == "every 15m, counted from 2026-01-01 00:15:00 UTC"
        assert (view.next_due_at, view.last_fired_at) == (MIDNIGHT + QUARTER, None)
        assert (view.is_paused, view.is_retired, view.is_finished) == (False, False, False)

    def test_with_a_start_in_the_past_it_fires_at_the_next_instant_of_its_grid(self, app, sync):
        start = MIDNIGHT - timedelta(days=3, minutes=7)

        view = app.schedules.register("acme", "files", start, QUARTER, sync)

        assert view.next_due_at == MIDNIGHT + timedelta(minutes=8)

    @pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=59)])
    def test_a_start_that_has_just_passed_still_fires(self, app, sync, seen, clock, late):
        start = clock.now()
        clock.advance(late)
        app.schedules.register("acme", "files", start, QUARTER, sync)

        assert app.run() == 1
        assert seen[0][2] == start

    def test_every_none_is_once(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", MIDNIGHT + QUARTER, None, sync)
        for _ in range(4):
            clock.advance(QUARTER)
            passes(app)

        assert [at for _, _, at, _ in seen] == [MIDNIGHT + QUARTER]
        assert app.schedules.get("files", tenant="acme").is_finished

    def test_once_in_the_past_is_due_at_once(self, app, sync, seen):
        app.schedules.register("acme", "files", MIDNIGHT - timedelta(days=9), None, sync)

        assert app.run() == 1
        assert seen[0][2] == MIDNIGHT - timedelta(days=9)

    def test_an_instant_may_be_a_string_with_an_offset(self, app, sync):
        view = app.schedules.register("acme", "files", "2026-01-01T09:00:00+01:00", "1h", sync)

        assert view.next_due_at == MIDNIGHT + timedelta(hours=8)

    @pytest.mark.parametrize("every", [900, 900.0, "15m", QUARTER])
    def test_the_interval_may_be_any_length_of_time(self, app, sync, every):
        view = app.schedules.register("acme", "files", MIDNIGHT + QUARTER, every, sync)

        assert view.rule.startswith("every 15m,")

    def test_options_are_those_of_a_definition(self, app, sync, seen, clock):
        app.schedules.register(
            "acme",
            "files",
            clock.now(),
            "1h",
            sync,
            args={"folder": "/tmp"},
            queue="slow",
            priority=5,
            target="disk-1",
            tags=["nightly"],
        )
        app.run()

        [run] = app.runs.recent()
        assert (run.queue, run.priority, run.target, run.tags) == (
            "slow",
            5,
            "disk-1",
            ("nightly",),
        )
        assert seen[0][3] == "/tmp"


class TestRegisteringAgain:
    """Equal options change nothing, changed ones make another grid."""

    def test_equal_options_change_nothing(self, app, sync, clock):
        def register():
            return app.schedules.register("acme", "files", MIDNIGHT + QUARTER, QUARTER, sync)

        before = register()
        clock.advance(minutes=20)  # past the first instant, which has not fired yet

        assert register() == before

    def test_a_program_registers_it_at_every_start(self, make_app, seen, clock, passes):
        for _ in range(4):
            app = make_app()

            @app.job
            def sync(ctx: RunContext) -> None:
                seen.append(ctx.nominal_at)

            app.schedules.register("acme", "files", MIDNIGHT + QUARTER, QUARTER, sync)
            passes(app)
            clock.advance(QUARTER)

        assert seen == [MIDNIGHT + n * QUARTER for n in (1, 2, 3)]

    def test_a_finished_single_firing_does_not_fire_again(self, app, sync, seen, clock, passes):
        for _ in range(3):
            app.schedules.register("acme", "files", MIDNIGHT, None, sync)
            passes(app)
            clock.advance(QUARTER)

        assert len(seen) == 1

    def test_another_start_is_another_grid(self, app, sync, clock):
        app.schedules.register("acme", "files", MIDNIGHT, QUARTER, sync)
        clock.advance(minutes=1)

        view = app.schedules.register("acme", "files", MIDNIGHT + 2 * QUARTER, QUARTER, sync)

        assert view.next_due_at == MIDNIGHT + 2 * QUARTER
        assert view.rule.endswith("counted from 2026-01-01 00:30:00 UTC")

    def test_another_length_is_another_grid(self, app, sync, clock):
        app.schedules.register("acme", "files", MIDNIGHT, QUARTER, sync)
        app.run()
        clock.advance(minutes=2)

        view = app.schedules.register("acme", "files", MIDNIGHT, "10m", sync)

        assert view.next_due_at == MIDNIGHT + timedelta(minutes=10)

    def test_an_instant_that_has_fired_does_not_fire_again(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", MIDNIGHT, QUARTER, sync)
        passes(app)
        clock.advance(seconds=30)
        app.schedules.register("acme", "files", MIDNIGHT, "10m", sync)  # its start just passed
        passes(app)

        assert [at for _, _, at, _ in seen] == [MIDNIGHT]

    def test_other_arguments_do_not_move_the_next_firing(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", MIDNIGHT + QUARTER, QUARTER, sync)
        clock.advance(minutes=20)
        app.schedules.register(
            "acme", "files", MIDNIGHT + QUARTER, QUARTER, sync, args={"folder": "/tmp"}
        )
        passes(app)

        assert seen == [("acme", "files", MIDNIGHT + QUARTER, "/tmp")]

    def test_a_pause_stays(self, app, sync, clock):
        app.schedules.register("acme", "files", MIDNIGHT, QUARTER, sync)
        app.schedules.pause("files", tenant="acme", note="full disk")

        view = app.schedules.register("acme", "files", MIDNIGHT, "10m", sync)

        assert (view.is_paused, view.paused_note) == (True, "full disk")

    def test_a_schedule_from_code_cannot_be_registered(self, app, sync):
        app.schedule("files", sync).hourly()
        app.run()

        with pytest.raises(DefinitionError, match="defined in code"):
            app.schedules.register("", "files", MIDNIGHT, QUARTER, sync)

        assert app.schedules.get("files").rule == "every hour (UTC)"


class TestTenants:
    """Programs serve every tenant in the database, and tenants do not see each other."""

    def test_two_tenants_may_use_the_same_id(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", clock.now(), "1h", sync, args={"folder": "/a"})
        app.schedules.register("bell", "files", clock.now(), "1h", sync, args={"folder": "/b"})
        passes(app)

        assert sorted((tenant, folder) for tenant, _, _, folder in seen) == [
            ("acme", "/a"),
            ("bell", "/b"),
        ]

    def test_a_program_fires_for_tenants_it_does_not_know(self, make_app, app, sync, clock):
        other = make_app()
        other.schedules.register("acme", "files", clock.now(), "1h", "sync")

        assert app.run() == 1

    def test_all_tenants_are_listed(self, make_app, app, sync, clock):
        for tenant in ("acme", "bell", ""):
            app.schedules.register(tenant, "files", clock.now(), "1h", sync)
        other = make_app()

        assert [view.tenant for view in other.schedules.list()] == ["", "acme", "bell"]
        assert [view.tenant for view in other.schedules.list(tenant="acme")] == ["acme"]
        assert [view.tenant for view in other.schedules.list(tenant="")] == [""]

    def test_a_schedule_of_another_tenant_cannot_be_removed_by_its_id(self, app, sync, clock):
        app.schedules.register("acme", "files", clock.now(), "1h", sync)

        with pytest.raises(ScheduleNotFound, match="for the tenant 'bell'"):
            app.schedules.unregister("bell", "files")


class TestTheJob:
    """The handler is a job, its name, or a path; an unknown one is refused."""

    def test_by_name(self, app, sync, clock):
        assert app.schedules.register("a", "files", clock.now(), "1h", "sync").job == "sync"

    def test_by_an_alias(self, app, clock):
        app.job(name="sync", aliases=["copy"])(lambda: None)

        assert app.schedules.register("a", "files", clock.now(), "1h", "copy").job == "sync"

    def test_by_its_builder(self, app, clock):
        builder = app.schedule("sync", lambda: None)

        assert app.schedules.register("a", "files", clock.now(), "1h", builder).job == "sync"

    def test_by_path(self, make_app, clock):
        app = make_app(handler_paths=["application"])
        path = "application.handlers_elsewhere:Static"

        app.schedules.register("a", "files", clock.now(), "1h", path, args={"number": 3})

        assert app.run() == 1
        assert app.get_run(app.runs.recent()[0].id).result() == 3

    def test_a_path_outside_the_allowed_ones_is_refused(self, app, sync, clock):
        with pytest.raises(HandlerNotAllowed):
            app.schedules.register("a", "files", clock.now(), "1h", "os:remove")

        assert app.schedules.list() == []

    def test_an_unknown_name_is_refused_with_a_close_one(self, app, sync, clock):
        with pytest.raises(JobNotFound, match="Did you mean 'sync'"):
            app.schedules.register("a", "files", clock.now(), "1h", "snyc")

        assert app.schedules.list() == []

    def test_a_job_of_another_program_is_given_with_remote(self, app, make_app, sync, clock):
        web = make_app()
        web.job(name="unrelated")(lambda: None)
        with pytest.raises(JobNotFound, match="unrelated"):
            web.schedules.register("a", "files", clock.now(), "1h", "sync")

        view = web.schedules.register("a", "files", clock.now(), "1h", web.remote("sync"))

        assert view.job == "sync"
        assert (web.run(), app.run()) == (0, 1)

    def test_options_of_a_remote_job_are_used(self, app, make_app, sync, seen, clock):
        web = make_app()
        remote = web.remote("sync").queue("slow").args(folder="/tmp")
        web.schedules.register("a", "files", clock.now(), "1h", remote)
        app.run()

        assert seen[0][3] == "/tmp"
        assert app.runs.recent()[0].queue == "slow"

    def test_a_program_without_jobs_may_use_any_name(self, app, make_app, sync, clock):
        web = make_app()

        web.schedules.register("a", "files", clock.now(), "1h", "sync")

        assert (web.run(), app.run()) == (0, 1)

    def test_a_schedule_of_an_unknown_job_stays_and_is_shown(self, make_app, clock):
        web = make_app()
        web.schedules.register("a", "files", clock.now(), "1h", "sync")
        clock.advance(hours=3)
        web.run()

        view = web.schedules.get("files", tenant="a")
        assert (view.job, view.next_due_at) == ("sync", MIDNIGHT)
        assert web.runs.recent() == []

    def test_an_ad_hoc_job_cannot_have_a_schedule(self, app, clock):
        job = app.adhoc("process-42", lambda: None)

        with pytest.raises(DefinitionError, match="outlives"):
            app.schedules.register("a", "files", clock.now(), "1h", job)

    def test_a_value_that_is_no_job_is_refused(self, app, clock):
        with pytest.raises(InvalidOption, match="Define it"):
            app.schedules.register("a", "files", clock.now(), "1h", 42)


class TestErrors:
    """Invalid options are errors, and nothing is stored."""

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"start_at": datetime(2026, 1, 1)}, NaiveDatetime, "no time zone"),
            ({"start_at": "2026-01-01T09:00"}, NaiveDatetime, "no time zone"),
            ({"start_at": "tomorrow"}, InvalidOption, "start_at"),
            ({"every": 0}, InvalidSchedule, "positive whole number"),
            ({"every": -60}, InvalidSchedule, "positive whole number"),
            ({"every": 0.5}, InvalidSchedule, "whole number of seconds"),
            ({"every": "soon"}, InvalidDuration, "soon"),
            ({"id": ""}, InvalidOption, "id must"),
            ({"tenant": None}, InvalidOption, "tenant"),
            ({"args": {"fodler": "/"}}, ArgumentError, "'fodler'"),
            ({"args": {"folder": object()}}, ArgumentError, "folder"),
            ({"args": {"folder": "x" * 70_000}}, PayloadTooLarge, "limit"),
            ({"args": ["/"]}, InvalidOption, "must map names to values"),
            ({"queue": "a=b"}, InvalidOption, "queue"),
            ({"priority": "high"}, InvalidOption, "priority"),
            ({"priority": 40_000}, InvalidOption, "priority"),
            ({"overlap": "skipp"}, InvalidOption, "Did you mean 'skip'?"),
            ({"misfire": "none"}, InvalidOption, "misfire"),
            ({"grace": "-1s"}, InvalidDuration, "-1s"),
            ({"jitter": "2d"}, InvalidOption, "jitter"),
            ({"expires": 0}, InvalidOption, "expires"),
            ({"until": "2025-01-01T00:00Z"}, InvalidSchedule, "never fire"),
            ({"until": datetime(2027, 1, 1)}, NaiveDatetime, "no time zone"),
            ({"max_firings": 0}, InvalidSchedule, "max_firings"),
            ({"tags": ["a", "a"]}, InvalidOption, "tags"),
            ({"target": ""}, InvalidOption, "target"),
            ({"prioritty": 3}, InvalidOption, "Did you mean 'priority'?"),
            ({"rule": "0 9 * * *"}, InvalidOption, "has no option"),
        ],
    )
    def test_invalid_options(self, app, sync, options, error, message):
        given = {"tenant": "acme", "id": "files", "start_at": MIDNIGHT, "every": "1h"}

        with pytest.raises(error, match=message):
            app.schedules.register(**{**given, "handler": sync, **options})

        assert app.schedules.list() == []


class TestUnregistering:
    """A removed schedule does not fire, and its pending runs are canceled."""

    def test_it_does_not_fire_any_more(self, app, sync, seen, clock, passes):
        app.schedules.register("acme", "files", clock.now(), QUARTER, sync)
        passes(app)
        app.schedules.unregister("acme", "files")
        clock.advance(hours=1)
        passes(app)

        assert len(seen) == 1
        assert app.schedules.list() == []

    def test_its_pending_runs_are_canceled(self, app, sync, clock):
        app.schedules.register("acme", "files", clock.now(), QUARTER, sync, overlap="allow")
        app.pause(queue="default")
        for _ in range(3):
            app.run()
            clock.advance(QUARTER)

        assert app.schedules.unregister("acme", "files") == 3
        assert {run.status for run in app.runs.recent()} == {RunStatus.CANCELED}
        assert app.runs.recent()[0].reason == "The schedule was removed."

    def test_runs_of_other_schedules_stay(self, app, sync, clock):
        app.pause(queue="default")
        for tenant, name in (("acme", "files"), ("acme", "other"), ("bell", "files")):
            app.schedules.register(tenant, name, clock.now(), QUARTER, sync)
        app.run()

        assert app.schedules.unregister("acme", "files") == 1
        assert [run.status for run in app.runs.recent()].count(RunStatus.PENDING) == 2

    def test_an_unknown_id_is_an_error_with_a_close_one(self, app, sync, clock):
        app.schedules.register("acme", "files", clock.now(), QUARTER, sync)

        with pytest.raises(ScheduleNotFound, match="Did you mean 'files'"):
            app.schedules.unregister("acme", "flies")

    def test_its_id_can_be_used_again(self, app, sync, clock):
        app.schedules.register("acme", "files", clock.now(), QUARTER, sync)
        app.schedules.unregister("acme", "files")

        view = app.schedules.register("acme", "files", clock.now(), "1h", sync)

        assert view.rule.startswith("every 1h")

    def test_a_schedule_from_code_cannot_be_removed(self, app, sync):
        app.schedule("files", sync).hourly()
        app.run()

        with pytest.raises(DefinitionError, match="defined in code"):
            app.schedules.unregister("", "files")

        assert not app.schedules.get("files").is_paused

    def test_a_schedule_that_code_no_longer_defines_can_be_removed(self, app, make_app, sync):
        app.schedule("files", sync).hourly()
        app.run()
        other = make_app()

        assert other.schedules.unregister("", "files") == 0
        assert other.schedules.list() == []


class TestRegisteringAFunction:
    """``register`` takes a function of the application's package, which then is a job."""

    def test_it_runs_in_this_program(self, make_app, clock, passes):
        app = make_app(handler_paths=["application"])
        elsewhere.CALLS.clear()

        view = app.schedules.register(
            "acme", "r-1", clock.now(), QUARTER, elsewhere.report, args={"kind": "weekly"}
        )
        clock.advance(minutes=15)
        passes(app)

        assert view.job == "application.handlers_elsewhere:report"
        assert elsewhere.CALLS == [("report", "weekly")]

    def test_registering_it_again_changes_nothing(self, make_app, clock):
        app = make_app(handler_paths=["application"])
        first = app.schedules.register("acme", "r-1", clock.now(), QUARTER, elsewhere.report)
        again = app.schedules.register("acme", "r-1", clock.now(), QUARTER, elsewhere.report)

        assert again == first

    def test_another_program_runs_it_after_it_registered_it_too(self, make_app, clock, passes):
        one = make_app(handler_paths=["application"])
        two = make_app(handler_paths=["application"])
        elsewhere.CALLS.clear()
        one.schedules.register("acme", "r-1", clock.now(), QUARTER, elsewhere.report)
        clock.advance(minutes=15)

        passes(two)
        assert elsewhere.CALLS == []

        two.schedules.register("acme", "r-2", clock.now() + QUARTER, QUARTER, elsewhere.report)
        passes(two)
        assert elsewhere.CALLS == [("report", "daily")]

    def test_the_function_of_a_job_gives_that_job(self, make_app, clock):
        app = make_app(handler_paths=["application"])
        app.schedule("reporting", elsewhere.report).queue("slow")

        view = app.schedules.register("acme", "r-1", clock.now(), QUARTER, elsewhere.report)

        assert view.job == "reporting"

    @pytest.mark.parametrize(
        "function",
        [pytest.param(lambda: None, id="lambda"), pytest.param(print, id="builtin")],
    )
    def test_a_function_that_a_row_cannot_name_is_refused(self, make_app, clock, function):
        app = make_app(handler_paths=["application"])

        with pytest.raises(DefinitionError, match="cannot be registered") as refused:
            app.schedules.register("acme", "r-1", clock.now(), QUARTER, function)
        assert "@app.job" in str(refused.value)
        assert app.schedules.list() == []
