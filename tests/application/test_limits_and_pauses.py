"""``app.limits``, ``app.pause`` and ``app.resume``: changes at run time."""

from datetime import UTC, datetime, timedelta

import pytest

from tickwork import RunContext, RunStatus
from tickwork.errors import InvalidOption, JobNotFound, NaiveDatetime

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class TestLimits:
    """An override of a limit applies until it is reset."""

    @pytest.fixture
    def start(self, make_app):
        """A program with a job that has a limit."""

        def start(slots=2):
            app = make_app()
            app.job(name="send", concurrency=slots, queue="emails")(lambda: None)
            app.run()
            return app

        return start

    def test_the_limit_in_code_is_the_default(self, start):
        app = start(2)

        [row] = app.limits.list()
        assert (row.name, row.slots, row.override, row.in_force) == ("job:send", 2, None, 2)

    def test_an_override_replaces_the_limit_in_code(self, start):
        row = start(2).limits.change("job:send", 5)

        assert (row.slots, row.override, row.in_force) == (2, 5, 5)

    def test_an_override_survives_a_restart(self, start):
        start(2).limits.change("job:send", 5)

        [row] = start(3).limits.list()

        assert (row.slots, row.in_force) == (3, 5)

    def test_reset_removes_the_override(self, start):
        app = start(2)
        app.limits.change("job:send", 5)

        assert app.limits.reset("job:send").in_force == 2

    def test_it_applies_to_the_next_claim(self, app, clock):
        running: list[str] = []

        @app.job(concurrency=1)
        def send(ctx: RunContext) -> None:
            if not running:
                running.append(ctx.run_id)
                assert app.run() == 0  # the one slot is taken
                app.limits.change("job:send", 2)
                assert app.run() == 1

        send.dispatch_many([{}, {}])

        assert app.run() == 1
        assert {run.status for run in app.runs.recent()} == {RunStatus.COMPLETED}

    def test_a_limit_that_is_not_in_the_database_yet_can_be_changed(self, app):
        app.job(name="send", concurrency=2)(lambda: None)
        app.limits.change("job:send", 7)
        app.run()

        [row] = app.limits.list()
        assert (row.slots, row.in_force) == (2, 7)

    def test_an_unknown_name_is_rejected_and_a_similar_one_suggested(self, start):
        app = start()

        with pytest.raises(InvalidOption, match="Did you mean 'job:send'"):
            app.limits.change("send", 5)

        assert len(app.limits.list()) == 1

    @pytest.mark.parametrize("slots", [-1, 1.5, True, 10**7, "3"])
    def test_invalid_slots_are_rejected(self, start, slots):
        app = start(2)

        with pytest.raises(InvalidOption, match="slots"):
            app.limits.change("job:send", slots)

        assert app.limits.list()[0].in_force == 2


class TestPauses:
    """The runs of a paused queue or job wait, and none is lost."""

    @pytest.fixture
    def jobs(self, app):
        fast = app.job(name="fast", queue="fast")(lambda: None)
        slow = app.job(name="slow", queue="slow")(lambda: None)
        return fast, slow

    @pytest.mark.parametrize("what", [{"queue": "slow"}, {"job": "slow"}])
    def test_its_runs_wait_and_others_go_on(self, app, jobs, what):
        app.pause(**what)
        fast, slow = (job.dispatch() for job in jobs)

        assert app.run() == 1
        assert (fast.status, slow.status) == (RunStatus.COMPLETED, RunStatus.PENDING)

    @pytest.mark.parametrize("what", [{"queue": "slow"}, {"job": "slow"}])
    def test_after_a_resume_they_run(self, app, jobs, what):
        app.pause(**what)
        jobs[1].dispatch()
        app.run()

        assert app.resume(**what)
        assert app.run() == 1

    def test_a_pause_until_an_instant(self, app, jobs, clock):
        app.pause(queue="slow", until=MIDNIGHT + HOUR)
        jobs[1].dispatch()
        assert app.run() == 0
        clock.advance(hours=1)

        assert app.run() == 1
        assert app.pauses() == []

    def test_pauses_show_their_start_and_note(self, app, jobs):
        app.pause(job="slow", note="too loud", until="2026-01-01T02:00:00+01:00")

        [pause] = app.pauses()
        assert (pause.kind, pause.name, pause.note) == ("job", "slow", "too loud")
        assert (pause.paused_at, pause.until) == (MIDNIGHT, MIDNIGHT + HOUR)

    def test_resume_returns_false_if_it_was_not_paused(self, app, jobs):
        assert not app.resume(queue="slow")

    def test_a_pause_applies_to_every_program(self, app, make_app, jobs):
        make_app().pause(queue="slow")
        jobs[1].dispatch()

        assert app.run() == 0

    def test_an_alias_names_the_job(self, app):
        app.job(name="send", aliases=["mail"])(lambda: None).dispatch()
        app.pause(job="mail")

        assert app.run() == 0
        assert app.resume(job="mail")

    def test_an_unknown_job_is_rejected_and_a_similar_name_suggested(self, app, jobs):
        with pytest.raises(JobNotFound, match="Did you mean 'slow'"):
            app.pause(job="slwo")

        assert app.pauses() == []

    def test_a_job_of_another_program_is_known_from_the_database(self, app, make_app, jobs):
        app.run()
        other = make_app()
        other.job(name="unrelated")(lambda: None)

        assert other.pause(job="slow").name == "slow"

    def test_a_program_that_defines_no_job_may_name_any(self, make_app):
        assert make_app().pause(job="whatever").name == "whatever"

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({}, InvalidOption),
            ({"queue": "slow", "job": "slow"}, InvalidOption),
            ({"queue": ""}, InvalidOption),
            ({"queue": "slow", "until": MIDNIGHT}, InvalidOption),
            ({"queue": "slow", "until": datetime(2027, 1, 1)}, NaiveDatetime),
            ({"queue": "slow", "note": "x" * 2_000}, InvalidOption),
        ],
    )
    def test_invalid_options_are_rejected(self, app, jobs, options, error):
        with pytest.raises(error):
            app.pause(**options)

        assert app.pauses() == []
