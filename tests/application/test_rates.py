"""``rate(100, per="minute")``: how often a job may start."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunContext, RunStatus
from tickwork.errors import DuplicateDefinition, RunError
from tickwork.testing import drain, travel

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def seconds(done):
    """The times of the attempts, in seconds after midnight."""
    return [round((attempt.at - MIDNIGHT).total_seconds(), 3) for attempt in done]


class TestRates:
    """At most this many runs start in any such period; the others start one by one."""

    def test_runs_within_the_rate_start_at_once_the_others_one_by_one(self, app):
        @app.job(rate="3/minute")
        def call() -> None: ...

        call.dispatch_many([{}] * 8)

        assert seconds(travel(app, minutes=3)) == [0, 0, 0, 60, 80, 100, 120, 140]

    def test_no_more_runs_start_at_that_time(self, app):
        app.schedule("call", lambda: None).rate(2, per="hour")
        app.args().dispatch_many("call", [{}] * 5)

        assert len(drain(app)) == 2
        assert len(drain(app)) == 0

    def test_per_value_of_an_argument(self, app):
        seen = Counter[int]()

        @app.job(rate={"count": 2, "per": "minute", "by": "account"})
        def call(account: int) -> None:
            seen[account] += 1

        call.dispatch_many([{"account": number % 3} for number in range(12)])

        drain(app)
        assert seen == {0: 2, 1: 2, 2: 2}
        travel(app, minutes=2)
        assert seen == {0: 4, 1: 4, 2: 4}

    def test_per_queue_over_several_jobs(self, app):
        jobs = [
            app.schedule(name, lambda: None).queue("api").rate(3, per="minute", by="queue")
            for name in ("one", "two")
        ]
        for job in jobs:
            job.dispatch_many([{}] * 4)

        assert len(drain(app)) == 3

    def test_jobs_that_share_a_rate_must_agree(self, app):
        app.schedule("one", lambda: None).queue("api").rate(3, per="minute", by="queue")
        app.schedule("two", lambda: None).queue("api").rate(5, per="minute", by="queue")

        with pytest.raises(DuplicateDefinition, match="queue/minute:api"):
            app.run()

    def test_several_rates_all_apply(self, app):
        """A hundred a minute, and no more than two of them in a second."""
        job = app.schedule("call", lambda: None).rate(5, per="minute").rate(2, per="second")
        job.dispatch_many([{}] * 7)

        assert seconds(travel(app, minutes=2)) == [0, 0, 1, 1.5, 2, 60, 72]

    def test_a_rate_and_a_limit(self, app):
        running = []

        @app.job(rate="4/minute", concurrency=1)
        def call(ctx: RunContext) -> None:
            running.append(ctx.run_id)

        call.dispatch_many([{}] * 6)

        assert len(drain(app)) == 4
        assert len(travel(app, minutes=2)) == 2
        assert len(set(running)) == 6

    def test_retries_count_as_starts(self, app):
        @app.job(rate="1/minute", retries={"max": 3, "delay": 1})
        def call() -> None:
            raise ValueError("no")

        call.dispatch()

        assert seconds(travel(app, minutes=3)) == [0, 60, 120]

    def test_runs_that_expire_while_waiting_are_skipped(self, app):
        job = app.schedule("call", lambda: None).rate(1, per="minute").expires("30s")
        runs = job.dispatch_many([{}] * 3)
        travel(app, seconds=45)
        runs += job.dispatch_many([{}])
        done = travel(app, seconds=15)

        assert seconds(done) == [60]
        assert [run.status for run in runs] == [
            RunStatus.COMPLETED,
            RunStatus.SKIPPED,
            RunStatus.SKIPPED,
            RunStatus.COMPLETED,
        ]

    def test_it_applies_to_schedules(self, app):
        app.schedule("call", lambda: None).every_second().rate(2, per="minute").overlap("allow")

        assert len(travel(app, minutes=1)) in {2, 3}

    def test_a_job_of_another_program(self, app, make_app):
        made = []
        app.job(name="call", rate="1/minute")(lambda: made.append(1))
        app.run()
        other = make_app()
        remote = other.remote("call").rate(1, per="minute")
        for _ in range(3):
            remote.dispatch()

        drain(app)
        assert made == [1]

    def test_a_paused_run_keeps_its_place(self, app):
        job = app.schedule("call", lambda: None).rate(1, per="minute")
        job.dispatch_many([{}] * 3)
        drain(app)
        app.pause(job="call")
        assert len(travel(app, minutes=5)) == 0
        app.resume(job="call")

        assert len(travel(app, minutes=2)) == 2


class TestTurns:
    """A waiting run knows its rate, and when its turn comes."""

    @pytest.fixture
    def waiting(self, app):
        job = app.schedule("call", lambda: None).rate(2, per="minute")
        runs = job.dispatch_many([{}] * 4)
        drain(app)
        return runs

    def test_it_is_pending_and_names_the_rate(self, app, waiting):
        run = waiting[2].read()

        assert (run.status, run.phase, run.blocked_on) == (
            RunStatus.PENDING,
            "blocked",
            "job/minute:call",
        )

    def test_it_knows_its_turn(self, app, waiting):
        first, second = (run.turn() for run in waiting[2:])

        assert (first.place, first.at) == (1, MIDNIGHT + 60 * SECOND)
        assert (second.place, second.at) == (2, MIDNIGHT + 90 * SECOND)
        assert str(second).startswith(
            "job/minute:call (2 a minute): place 2, not before 2026-01-01"
        )

    def test_a_run_that_does_not_wait_has_no_turn(self, app, waiting):
        assert waiting[0].turn() is None

    def test_execute_names_the_rate_that_is_full(self, app, waiting):
        with pytest.raises(RunError, match="its rate does not admit it yet"):
            app.execute(waiting[2].id)


class TestOperators:
    """Rates can be changed at run time, as limits can."""

    @pytest.fixture
    def job(self, app):
        job = app.schedule("call", lambda: None).rate(2, per="minute")
        job.dispatch_many([{}] * 20)
        drain(app)
        return job

    def test_it_is_among_the_limits(self, app, job):
        [row] = app.limits.list()

        assert (row.name, row.slots, row.in_force) == ("job/minute:call", 2, 2)

    def test_a_rate_can_be_raised(self, app, job):
        app.limits.change("job/minute:call", 5)

        assert len(travel(app, seconds=59)) == 3

    def test_a_rate_can_be_lowered(self, app, job):
        app.limits.change("job/minute:call", 1)

        assert len(travel(app, minutes=10)) == 10

    def test_a_rate_can_be_removed(self, app, job):
        app.limits.change("job/minute:call", 0)

        assert len(drain(app)) == 18
