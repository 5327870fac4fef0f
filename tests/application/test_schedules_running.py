"""``run_now`` and ``backfill``: runs of a schedule that a caller requests."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwork import RunContext, RunStatus, ScheduleDefinition, schedules
from tickwork._dispatch.runs import RunHandle
from tickwork.errors import InvalidOption, JobNotFound, NaiveDatetime, ScheduleNotFound

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def seen():
    """The instants of the runs."""
    return []


@pytest.fixture(autouse=True)
def sync(app, seen):
    @app.job
    def sync(ctx: RunContext, folder: str = "/") -> None:
        seen.append(ctx.nominal_at)

    return sync


@pytest.fixture
def make(app):
    """An hourly schedule."""

    def make(**options):
        given = {"job": "sync", "name": "files", "rule": schedules.hourly(), **options}
        return app.schedules.create(ScheduleDefinition(**given))

    return make


def hours(*numbers):
    return [MIDNIGHT + number * HOUR for number in numbers]


class TestRunningNow:
    """It adds a run as a firing at this moment would; the next firing stays the same."""

    def test_it_is_a_run_of_the_schedule_at_this_moment(self, app, make, seen, clock):
        make(tenant="acme", queue="slow", target="disk-1", args={"folder": "/tmp"}, tags=["x"])
        clock.advance(minutes=17)

        run = app.schedules.run_now("files", tenant="acme")
        app.run()

        done = run.read()
        assert (done.schedule, done.tenant, done.queue) == ("files", "acme", "slow")
        assert (done.target, done.args, done.tags) == ("disk-1", '{"folder":"/tmp"}', ("x",))
        assert seen == [clock.now()]

    def test_the_next_firing_stays_the_same(self, app, make, clock, passes):
        before = make()
        clock.advance(minutes=17)
        app.schedules.run_now("files")
        passes(app)

        assert app.schedules.get("files") == before

    def test_the_schedule_still_fires_at_its_next_instant(self, app, make, seen, clock, passes):
        make()
        clock.advance(minutes=59, seconds=59)
        app.schedules.run_now("files")
        passes(app)
        clock.advance(seconds=1)
        passes(app)

        assert seen == [MIDNIGHT + HOUR - timedelta(seconds=1), MIDNIGHT + HOUR]

    def test_twice_at_the_same_moment_is_two_runs(self, app, make, seen, passes):
        make(overlap="allow")

        assert app.schedules.run_now("files") != app.schedules.run_now("files")
        assert passes(app) == 2

    def test_jitter_does_not_delay_it(self, app, make):
        make(jitter="1h")

        run = app.schedules.run_now("files")

        assert run.read().due_at == MIDNIGHT

    def test_under_skip_an_unfinished_run_is_returned(self, app, make):
        make()
        first = app.schedules.run_now("files")

        second = app.schedules.run_now("files")

        assert (second, second.is_new) == (first, False)

    def test_under_skip_the_next_firing_is_skipped_because_of_it(self, app, make, clock):
        make()
        app.pause(queue="default")
        app.schedules.run_now("files")
        clock.advance(hours=1)
        app.run()

        assert [run.status for run in app.runs.recent()] == [RunStatus.SKIPPED, RunStatus.PENDING]

    def test_under_cancel_running_the_other_run_is_canceled(self, app, make_app, clock):
        manual: list[RunHandle[Any]] = []

        @app.job
        def long(ctx: RunContext) -> None:
            if not manual:
                manual.append(app.schedules.run_now("long"))
                assert ctx.is_canceled()

        app.schedules.create(
            ScheduleDefinition(job=long, name="long", at=clock.now(), overlap="cancel_running")
        )
        app.run()

        [first] = [run for run in app.runs.recent() if run.id != manual[0].id]
        assert first.status is RunStatus.CANCELED
        assert manual[0].read().status is RunStatus.PENDING
        assert app.run() == 1
        assert manual[0].wait() is RunStatus.COMPLETED

    def test_it_works_on_a_paused_schedule(self, app, make, passes):
        make()
        app.schedules.pause("files")

        run = app.schedules.run_now("files")
        passes(app)

        assert run.status is RunStatus.COMPLETED
        assert app.schedules.get("files").is_paused

    def test_it_works_on_a_schedule_from_code(self, app, sync, passes):
        app.schedule("nightly", sync).daily()
        app.run()

        app.schedules.run_now("nightly")

        assert passes(app) == 1

    def test_limits_and_retries_of_the_job_apply(self, app, clock):
        app.schedule("limited", lambda: None).concurrency(1).attempts(4).hourly()
        app.run()

        run = app.schedules.run_now("limited").read()

        assert (run.limit_keys, run.attempts_max) == (("job:limited",), 4)

    def test_it_is_refused_where_the_job_is_not_defined(self, make_app, make):
        make()
        web = make_app()

        with pytest.raises(JobNotFound, match="sync"):
            web.schedules.run_now("files")

        assert web.runs.recent() == []


class TestBackfilling:
    """It adds a run for each instant of a span that has none yet."""

    def test_instants_before_the_schedule_was_created(self, app, make, seen, clock, passes):
        make()
        clock.set(MIDNIGHT + timedelta(minutes=30))

        handles = app.schedules.backfill("files", since=MIDNIGHT - 3 * HOUR, until=MIDNIGHT)
        passes(app)

        assert len(handles) == 4  # both ends included
        assert seen == hours(-3, -2, -1, 0)

    def test_instants_that_have_a_run_are_left_out(self, app, make, seen, clock, passes):
        make()
        for _ in range(3):
            clock.advance(hours=1)
            passes(app)
        seen.clear()

        app.schedules.backfill("files", since=MIDNIGHT - HOUR, until=clock.now())
        passes(app)

        assert seen == hours(-1, 0)

    def test_a_second_backfill_adds_nothing(self, app, make, clock, passes):
        make()
        span = {"since": MIDNIGHT - 3 * HOUR, "until": MIDNIGHT}
        assert len(app.schedules.backfill("files", **span)) == 4
        assert app.schedules.backfill("files", **span) == []  # they wait
        passes(app)

        assert app.schedules.backfill("files", **span) == []  # they are done

    def test_missed_instants_are_backfilled_including_the_first(
        self, app, make, seen, clock, passes
    ):
        make(misfire="skip")
        clock.advance(hours=5, minutes=30)
        passes(app)  # 1 to 5 o'clock were missed: one row says so, under the id of the first
        assert seen == []

        app.schedules.backfill("files", since=MIDNIGHT + HOUR, until=clock.now())
        passes(app)

        assert seen == hours(1, 2, 3, 4, 5)
        assert app.schedules.backfill("files", since=MIDNIGHT + HOUR, until=clock.now()) == []

    def test_instants_skipped_by_overlap_are_backfilled(self, app, make, seen, clock, passes):
        make()
        app.pause(queue="default")
        for _ in range(3):
            clock.advance(hours=1)
            app.run()
        app.resume(queue="default")
        passes(app)

        app.schedules.backfill("files", since=MIDNIGHT + HOUR, until=clock.now())
        passes(app)

        assert seen == hours(1, 2, 3)

    def test_failed_instants_are_left_out(self, app, clock, passes):
        def fail() -> None:
            raise ValueError

        app.schedule("fail", fail).hourly()
        app.run()
        clock.advance(hours=1)
        passes(app)

        assert app.schedules.backfill("fail", since=MIDNIGHT + HOUR, until=clock.now()) == []

    def test_instants_that_will_still_fire_are_left_out(self, app, make, seen, clock, passes):
        make(misfire="all", overlap="queue_all")
        clock.advance(hours=3)

        handles = app.schedules.backfill("files", since=MIDNIGHT, until=clock.now())
        passes(app)

        assert len(handles) == 1  # midnight
        assert sorted(seen) == hours(0, 1, 2, 3)

    def test_instants_within_a_pause_can_be_backfilled(self, app, make, seen, clock, passes):
        make()
        app.schedules.pause("files")
        clock.advance(hours=3)

        app.schedules.backfill("files", since=MIDNIGHT + HOUR, until=clock.now())
        app.schedules.resume("files")
        passes(app)

        assert seen == hours(1, 2, 3)

    def test_instants_after_its_end_are_left_out(self, app, make, seen, clock, passes):
        make(until=MIDNIGHT + 2 * HOUR)
        clock.advance(hours=6)
        passes(app)
        seen.clear()

        app.schedules.backfill("files", since=MIDNIGHT - HOUR, until=clock.now())
        passes(app)

        assert seen == hours(-1, 0, 1)

    def test_the_runs_run_one_after_another(self, app, make, seen, passes):
        make()
        app.schedules.backfill("files", since=MIDNIGHT - 3 * HOUR, until=MIDNIGHT)

        assert app.run() == 1
        assert passes(app) == 3

    def test_they_run_together_if_overlap_is_allowed(self, app, make):
        make(overlap="allow")
        app.schedules.backfill("files", since=MIDNIGHT - 3 * HOUR, until=MIDNIGHT)

        assert app.run() == 4

    def test_they_are_due_now_and_expire_from_now_on(self, app, make, clock):
        make(expires="10m", jitter="30m")

        [handle] = app.schedules.backfill("files", since=MIDNIGHT - DAY, until=MIDNIGHT - DAY)

        run = handle.read()
        assert (run.due_at, run.nominal_at) == (MIDNIGHT, MIDNIGHT - DAY)
        assert run.expires_at == MIDNIGHT + timedelta(minutes=10)

    def test_the_next_firing_stays_the_same(self, app, make, clock, passes):
        before = make()
        clock.advance(minutes=30)
        app.schedules.backfill("files", since=MIDNIGHT - DAY, until=clock.now())
        passes(app)

        assert app.schedules.get("files") == before

    def test_for_a_tenant_with_strings_for_instants(self, app, make, clock):
        make(tenant="acme")

        handles = app.schedules.backfill(
            "files", tenant="acme", since="2025-12-31T22:00:00Z", until="2026-01-01T00:00:00+01:00"
        )

        assert [handle.read().tenant for handle in handles] == ["acme", "acme"]

    def test_both_passes_of_a_repeated_hour(self, app, make, seen, clock, passes):
        clock.set(datetime(2026, 10, 26, tzinfo=UTC))
        make(rule="*/30 2 * * *", timezone="Europe/Berlin")
        since = datetime(2026, 10, 25, tzinfo=UTC)

        app.schedules.backfill("files", since=since, until=since + 6 * HOUR)
        passes(app)

        assert seen == [since + n * HOUR / 2 for n in range(4)]

    def test_an_interval_has_no_instants_before_its_start(self, app, sync):
        app.schedules.register("", "grid", MIDNIGHT - 2 * HOUR, "1h", sync)

        assert len(app.schedules.backfill("grid", since=MIDNIGHT - DAY, until=MIDNIGHT)) == 3

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"until": MIDNIGHT + HOUR}, InvalidOption, "must not be in the future"),
            ({"since": MIDNIGHT + HOUR}, InvalidOption, "later than until"),
            ({"since": datetime(2025, 1, 1)}, NaiveDatetime, "no time zone"),
            ({"limit": 23}, InvalidOption, "must be at least 25"),
            ({"limit": 0}, InvalidOption, "limit"),
            ({"limit": 10**9}, InvalidOption, "limit"),
        ],
    )
    def test_invalid_spans_add_nothing(self, app, make, options, error, message):
        make()

        with pytest.raises(error, match=message):
            app.schedules.backfill(
                "files", **{"since": MIDNIGHT - DAY, "until": MIDNIGHT, **options}
            )

        assert app.runs.recent() == []

    def test_an_unknown_schedule_is_an_error_with_a_close_name(self, app, make):
        make()

        with pytest.raises(ScheduleNotFound, match="Did you mean 'files'"):
            app.schedules.backfill("file", since=MIDNIGHT - DAY, until=MIDNIGHT)

    def test_it_is_refused_where_the_job_is_not_defined(self, make_app, make):
        make()
        web = make_app()

        with pytest.raises(JobNotFound, match="sync"):
            web.schedules.backfill("files", since=MIDNIGHT - DAY, until=MIDNIGHT)
