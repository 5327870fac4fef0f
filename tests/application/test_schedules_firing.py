"""Firings of schedules, on time and late, with ``app.schedule`` and ``run``.

To test what happens while a run is running, its handler moves the clock and lets another
worker, which knows the same jobs, make a pass.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunContext, RunStatus, ScheduleDefinition, schedules
from tickwork._domain.runs.transitions import EXPIRED
from tickwork._domain.tick import MISSED, STILL_RUNNING, STILL_WAITING

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def seen():
    """The instants of the runs, in order."""
    return []


@pytest.fixture
def note(seen):
    def note(ctx: RunContext) -> None:
        seen.append(ctx.nominal_at)

    return note


def quarters(*numbers):
    return [MIDNIGHT + number * QUARTER for number in numbers]


def skipped(app):
    """Skipped runs: the first instant, the last, how many, the reason."""
    return [
        (run.nominal_at, run.last_nominal_at, run.instants, run.reason)
        for run in reversed(app.runs.recent(limit=5_000))
        if run.status is RunStatus.SKIPPED
    ]


def advance(app, clock, passes, length, *, step):
    """Let time pass in steps, and run what is due."""
    passes(app)
    for _ in range(length // step):
        clock.advance(step)
        passes(app)


class TestTheGrid:
    """Firings stay on the grid ``starting + k * every``."""

    def test_each_instant_fires_once(self, app, note, seen, clock, passes):
        app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
        advance(app, clock, passes, HOUR, step=MINUTE)

        assert seen == quarters(1, 2, 3, 4)

    def test_late_ticks_do_not_shift_it(self, app, note, seen, clock, passes):
        app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
        passes(app)
        for late in (7, 13, 31, 46):
            clock.advance(QUARTER + timedelta(seconds=late))
            passes(app)

        assert seen == quarters(1, 2, 3, 4)

    def test_a_restart_does_not_shift_it(self, make_app, note, seen, clock, passes):
        for _ in range(4):
            app = make_app()
            app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
            passes(app)
            clock.advance(minutes=15, seconds=20)

        assert seen == quarters(1, 2, 3)

    def test_a_slow_run_does_not_shift_it(self, app, clock, passes):
        seen = []

        def slow(ctx: RunContext) -> None:
            seen.append(ctx.nominal_at)
            clock.advance(minutes=14)

        app.schedule("it", slow).every(minutes=15, starting=MIDNIGHT + QUARTER)
        app.run()
        clock.set(MIDNIGHT + QUARTER)
        for _ in range(3):
            passes(app)
            clock.advance(minutes=1)

        assert seen == quarters(1, 2, 3)

    def test_two_workers_fire_an_instant_once(self, make_app, note, seen, clock, passes):
        workers = [make_app(), make_app()]
        for worker in workers:
            worker.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
            passes(worker)
        for _ in range(3):
            clock.advance(QUARTER)
            for worker in workers:
                passes(worker)

        assert seen == quarters(1, 2, 3)

    def test_a_clock_that_jumps_back_fires_nothing_twice(self, app, note, seen, clock, passes):
        app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
        advance(app, clock, passes, HOUR, step=QUARTER)
        clock.set(MIDNIGHT + QUARTER)
        advance(app, clock, passes, HOUR, step=QUARTER)

        assert seen == quarters(1, 2, 3, 4, 5)


class TestMisfires:
    """Instants that passed without a worker follow the misfire policy."""

    @pytest.fixture
    def missed(self, app, note, clock, passes):
        """An hour and eight minutes without a worker: four instants are missed."""

        def miss(*args, **named):
            builder = app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER)
            builder.overlap("queue_all")
            if args:
                builder.misfire(*args, **named)
            passes(app)
            clock.advance(minutes=68)
            passes(app)

        return miss

    def test_one_run_for_all_of_them_is_the_default(self, app, missed, seen):
        missed()

        assert seen == quarters(4)
        assert skipped(app) == [(*quarters(1, 3), 3, MISSED)]

    def test_one(self, app, missed, seen):
        missed("one")

        assert seen == quarters(4)
        assert skipped(app) == [(*quarters(1, 3), 3, MISSED)]

    def test_skip(self, app, missed, seen):
        missed("skip")

        assert seen == []
        assert skipped(app) == [(*quarters(1, 4), 4, MISSED)]

    def test_all(self, app, missed, seen):
        missed("all")

        assert seen == quarters(1, 2, 3, 4)
        assert skipped(app) == []

    def test_an_instant_within_the_grace_is_not_missed(self, app, missed, seen):
        missed("skip", grace="40m")

        assert seen == quarters(2, 3, 4)
        assert skipped(app) == [(*quarters(1, 1), 1, MISSED)]

    def test_the_grace_is_a_minute(self, app, note, seen, clock, passes):
        app.schedule("it", note).hourly().misfire("skip")
        passes(app)
        clock.advance(hours=1, seconds=60)
        passes(app)
        clock.advance(hours=1, seconds=1)
        passes(app)

        assert seen == [MIDNIGHT + HOUR]
        assert skipped(app) == [(MIDNIGHT + 2 * HOUR, MIDNIGHT + 2 * HOUR, 1, MISSED)]

    @pytest.mark.parametrize("policy", ["one", "skip", "all"])
    def test_it_continues_at_the_next_instant_of_its_grid(self, app, missed, clock, policy):
        missed(policy)
        clock.set(MIDNIGHT + 5 * QUARTER)

        assert app.run() == 1
        assert app.runs.recent()[0].nominal_at == MIDNIGHT + 5 * QUARTER

    def test_of_too_many_the_newest_thousand_run(self, app, note, seen, clock):
        app.schedule("it", note).every_minute().misfire("all").overlap("allow")
        app.run()
        clock.advance(minutes=1_210, seconds=1)
        while app.run(batch=500):
            pass

        assert len(seen) == 1_001  # and the one that is on time
        assert min(seen) == MIDNIGHT + 210 * MINUTE
        assert skipped(app)[0][:3] == (MIDNIGHT + MINUTE, MIDNIGHT + 209 * MINUTE, 209)

    def test_under_overlap_skip_only_the_first_of_them_runs(self, app, note, seen, clock, passes):
        app.schedule("it", note).every(minutes=15, starting=MIDNIGHT + QUARTER).misfire("all")
        passes(app)
        clock.advance(minutes=68)
        passes(app)

        assert seen == quarters(1)
        assert skipped(app) == [(*quarters(2, 4), 3, STILL_RUNNING)]


class TestOverlaps:
    """What happens when a schedule is due again before its last run has finished."""

    @pytest.fixture
    def workers(self, make_app, clock, passes):
        """Two workers: the first is busy with the first run while the second one ticks.

        The second run comes due after a minute, the third after two.
        """
        seen: list[datetime | None] = []
        states: list[RunStatus] = []

        def start(policy):
            apps = [make_app(), make_app()]

            def long(ctx: RunContext) -> str:
                seen.append(ctx.nominal_at)
                if len(seen) > 1:
                    return "short"
                for _ in range(2):
                    clock.advance(minutes=1)
                    passes(apps[1])
                states.extend(run.status for run in reversed(apps[1].runs.recent()))
                return "stopped" if ctx.is_canceled() else "finished"

            for app in apps:
                app.schedule("it", long).every_minute().overlap(policy).lease("1h")
                passes(app)
            clock.advance(minutes=1)
            passes(apps[0])
            return apps[0], seen, states

        return start

    def test_skip_is_the_default(self, app):
        app.schedule("it", lambda: None).hourly()
        app.run()

        assert app.schedules.get("it").overlap == "skip"

    def test_skip(self, workers):
        app, seen, states = workers("skip")

        assert seen == [MIDNIGHT + MINUTE]
        assert states == [RunStatus.RUNNING, RunStatus.SKIPPED]
        assert skipped(app) == [(MIDNIGHT + 2 * MINUTE, MIDNIGHT + 3 * MINUTE, 2, STILL_RUNNING)]

    def test_queue_one(self, workers, passes):
        app, seen, states = workers("queue_one")

        assert states == [RunStatus.RUNNING, RunStatus.PENDING, RunStatus.SKIPPED]
        assert seen == [MIDNIGHT + MINUTE, MIDNIGHT + 2 * MINUTE]
        assert skipped(app) == [(MIDNIGHT + 3 * MINUTE, MIDNIGHT + 3 * MINUTE, 1, STILL_WAITING)]

    def test_queue_all(self, workers):
        app, seen, states = workers("queue_all")

        assert states == [RunStatus.RUNNING, RunStatus.PENDING, RunStatus.PENDING]
        assert seen == [MIDNIGHT + n * MINUTE for n in (1, 2, 3)]
        assert skipped(app) == []

    def test_cancel_running(self, workers):
        app, seen, _ = workers("cancel_running")

        *_, second, first = app.runs.recent()
        assert (first.nominal_at, first.status) == (MIDNIGHT + MINUTE, RunStatus.CANCELED)
        assert (second.nominal_at, second.status) == (MIDNIGHT + 2 * MINUTE, RunStatus.CANCELED)
        assert seen == [MIDNIGHT + MINUTE, MIDNIGHT + 3 * MINUTE]
        assert skipped(app) == []

    def test_allow(self, workers):
        _, seen, states = workers("allow")

        assert seen == [MIDNIGHT + n * MINUTE for n in (1, 2, 3)]
        assert states == [RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.COMPLETED]

    @pytest.mark.parametrize(
        ("policy", "made"), [("skip", 1), ("queue_one", 2), ("queue_all", 4), ("allow", 4)]
    )
    def test_a_run_that_waits_for_a_retry_is_unfinished(self, app, clock, policy, made):
        def fail() -> None:
            raise ValueError

        app.schedule("it", fail).every_minute().overlap(policy).retries(max=2, delay="1h")
        app.run()
        for _ in range(4):
            clock.advance(minutes=1)
            app.run()

        runs = [run for run in app.runs.recent() if run.status is not RunStatus.SKIPPED]
        assert len(runs) == made
        assert sum(run.attempt for run in runs) == (4 if policy == "allow" else 1)

    def test_a_further_schedule_of_a_job_may_have_its_own_policy(self, app):
        job = app.job(name="it", overlap="allow", misfire="all", jitter=5)(lambda: None)
        app.schedule("same", job).hourly()
        app.schedule("own", job).hourly().overlap("queue_one").misfire("skip")
        app.run()

        policies = {view.name: (view.overlap, view.misfire) for view in app.schedules.list()}
        assert policies == {"same": ("allow", "all"), "own": ("queue_one", "skip")}

    def test_a_dispatch_is_not_affected(self, app, clock):
        job = app.schedule("it", lambda: None).hourly()
        app.run()
        app.pause(queue="default")
        clock.advance(hours=1)
        app.run()

        run = job.dispatch()
        app.resume(queue="default")
        app.run()

        assert (run.is_new, run.status) == (True, RunStatus.COMPLETED)


class TestJitter:
    """Jitter delays runs, not instants, and every worker computes the same delay."""

    def test_runs_are_spread_over_the_given_time(self, app, clock):
        job = app.job(name="it")(lambda: None)
        for number in range(30):
            app.schedule(f"it-{number}", job).hourly().jitter(600)
        app.run()
        clock.advance(hours=1)
        app.run()

        runs = app.runs.recent()
        delays = [(run.due_at - (MIDNIGHT + HOUR)).total_seconds() for run in runs]
        assert len(runs) == 30
        assert all(0 <= delay < 600 for delay in delays)
        assert len(set(delays)) == 30
        assert max(delays) - min(delays) > 300

    def test_a_run_starts_after_its_delay(self, app, note, seen, clock, passes):
        app.schedule("it", note).hourly().jitter("10m")
        passes(app)
        clock.advance(hours=1)
        assert passes(app) == 0
        [run] = app.runs.recent()
        clock.set(run.due_at)

        assert passes(app) == 1
        assert seen == [MIDNIGHT + HOUR]

    def test_the_schedule_keeps_its_instants(self, app, note, seen, clock, passes):
        app.schedule("it", note).hourly().jitter("10m")
        advance(app, clock, passes, 4 * HOUR, step=timedelta(minutes=5))

        assert seen == [MIDNIGHT + n * HOUR for n in (1, 2, 3)]
        assert app.schedules.get("it").next_due_at == MIDNIGHT + 5 * HOUR


# A rule, and the hours of the first two days at which it fires.
RULES = {
    "between": (lambda it: it.hourly().between("09:00", "12:00"), [9, 10, 11, 12, 33, 34, 35, 36]),
    "past midnight": (
        lambda it: it.hourly().between("22:00", "01:00"),
        [1, 22, 23, 24, 25, 46, 47, 48],
    ),
    "unless": (
        lambda it: it.every_six_hours().unless_between("05:00", "13:00"),
        [18, 24, 42, 48],
    ),
    "except": (lambda it: it.every_six_hours().except_on("2026-01-02"), [6, 12, 18, 48]),
    "until": (lambda it: it.twice_daily(1, 13).until(MIDNIGHT + 13 * HOUR), [1, 13]),
    "starting": (lambda it: it.every_six_hours().starting(MIDNIGHT + DAY), [24, 30, 36, 42, 48]),
    "max": (lambda it: it.every_four_hours().max_firings(3), [4, 8, 12]),
    "refined": (lambda it: it.daily().hours([9, 12]), [9, 12, 33, 36]),
    "weekday": (lambda it: it.hours(9).fridays(), [33]),
    "pattern": (lambda it: it.pattern(minutes=0, hours="*/10", wday="4"), [10, 20]),
    "symbol": (lambda it: it.symbol("EVERY_WEEK"), []),
    "once": (lambda it: it.once(MIDNIGHT + 5 * HOUR), [5]),
    "cron": (lambda it: it.cron("0 */20 * * *"), [20, 24, 44, 48]),
    "second day": (lambda it: it.daily(interval=2).timezone("Asia/Tokyo"), [39]),
    "rule": (lambda it: it.on(schedules.every_six_hours().weekends()), [48]),
}


class TestWindowsAndEnds:
    """Windows, exclusions and ends apply to firings, not only to previews."""

    def test_firings_of_two_days(self, app, clock, passes):
        seen: dict[str | None, list[int]] = {}

        def note(ctx: RunContext) -> None:
            assert ctx.nominal_at is not None
            seen.setdefault(ctx.schedule, []).append((ctx.nominal_at - MIDNIGHT) // HOUR)

        job = app.job(name="note")(note)
        for name, (build, _) in RULES.items():
            build(app.schedule(name, job))
        advance(app, clock, passes, 2 * DAY, step=HOUR)

        assert seen == {name: hours for name, (_, hours) in RULES.items() if hours}

    def test_a_fixed_time_in_a_gap_fires_once_after_it(self, app, note, seen, clock, passes):
        clock.set(datetime(2026, 3, 28, 12, tzinfo=UTC))
        app.schedule("it", note).daily_at("02:30").timezone("Europe/Berlin")
        advance(app, clock, passes, 2 * DAY, step=timedelta(minutes=30))

        assert [f"{at:%d %H:%M}" for at in seen] == ["29 01:00", "30 00:30"]

    def test_a_fixed_time_in_a_fold_fires_once(self, app, note, seen, clock, passes):
        clock.set(datetime(2026, 10, 24, 12, tzinfo=UTC))
        app.schedule("it", note).daily_at("02:30").timezone("Europe/Berlin")
        advance(app, clock, passes, DAY, step=timedelta(minutes=30))

        assert [f"{at:%d %H:%M}" for at in seen] == ["25 00:30"]

    def test_every_half_hour_runs_in_both_passes_of_a_fold(self, app, note, seen, clock, passes):
        clock.set(datetime(2026, 10, 24, 23, tzinfo=UTC))
        app.schedule("it", note).cron("*/30 2 * * *").timezone("Europe/Berlin")
        advance(app, clock, passes, 4 * HOUR, step=timedelta(minutes=30))

        assert [f"{at:%H:%M}" for at in seen] == ["00:00", "00:30", "01:00", "01:30"]


class TestExpiry:
    """A run that could not start in time is skipped, with a reason."""

    def test_it_is_skipped_with_the_reason(self, app, note, seen, clock, passes):
        app.schedule("it", note).hourly().expires("5m")
        app.pause(queue="default")
        app.run()
        clock.advance(hours=1)
        app.run()
        clock.advance(minutes=5, seconds=1)
        app.resume(queue="default")
        passes(app)

        [run] = app.runs.recent()
        assert (run.status, run.reason, seen) == (RunStatus.SKIPPED, EXPIRED, [])

    def test_a_run_that_starts_in_time_runs(self, app, note, seen, clock, passes):
        app.schedule("it", note).hourly().expires("5m")
        app.pause(queue="default")
        app.run()
        clock.advance(hours=1)
        app.run()
        clock.advance(minutes=5)
        app.resume(queue="default")
        passes(app)

        assert seen == [MIDNIGHT + HOUR]

    def test_a_further_schedule_of_a_job_may_have_its_own_expiry(self, app, clock):
        job = app.job(name="it", expires="5m")(lambda: None)
        app.schedule("own", job).hourly().expires("1h")
        app.schedule("same", job).hourly()
        app.run()
        app.pause(queue="default")
        clock.advance(hours=1)
        app.run()

        lengths = {run.schedule: run.expires_at - run.due_at for run in app.runs.recent()}
        assert lengths == {"own": HOUR, "same": 5 * MINUTE}


class TestMaxFirings:
    """``max_firings`` counts instants that can fire, also if the clock stands on one now."""

    @pytest.mark.parametrize(
        "late", [timedelta(0), timedelta(milliseconds=1), timedelta(minutes=1)]
    )
    def test_a_schedule_in_code_fires_that_often(self, app, clock, passes, late):
        clock.advance(late)
        made = []
        app.schedule("hourly", lambda: made.append("hourly")).hourly().max_firings(3)
        app.schedule("interval", lambda: made.append("interval")).every(hours=1).max_firings(3)
        app.schedule("days", lambda: made.append("days")).daily(interval=1, max_firings=3)
        passes(app)
        for _ in range(24 * 5):
            clock.advance(hours=1)
            passes(app)

        assert {name: made.count(name) for name in made} == {"hourly": 3, "interval": 3, "days": 3}

    def test_a_schedule_created_or_changed_at_run_time_fires_that_often(self, app, clock, passes):
        made = []
        app.job(name="it")(lambda: made.append(clock.now()))
        app.schedules.create(ScheduleDefinition(job="it", name="a", rule="@hourly", max_firings=2))
        app.schedules.create(ScheduleDefinition(job="it", name="b", rule="@hourly"))
        app.schedules.update("b", max_firings=3)
        for _ in range(9):
            clock.advance(hours=1)
            passes(app)

        assert len(made) == 5
