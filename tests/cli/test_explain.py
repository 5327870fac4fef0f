"""``explain`` finds the reason from rows alone, in a program that did not cause it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cli.conftest import Cli, a_worker, claimed
from tickwork import Discard, RetryLater, RunContext, Snooze
from tickwork._domain.explain import Why
from tickwork.errors import AmbiguousRun, JobNotFound, RunNotFound

SECOND = timedelta(seconds=1)


@pytest.fixture
def why(other_app):
    """The reasons that another program finds."""

    def found(what, **options):
        return list(other_app.explain(str(what), **options).reasons)

    return found


def cause_of(other_app, what, reason):
    """The cause with this reason."""
    return next(cause for cause in other_app.explain(str(what)).causes if cause.why is reason)


class TestAWaitingRun:
    """Why a run has not started."""

    def test_its_queue_is_paused(self, app, other_app, why):
        a_worker(app)
        run = app.dispatch("send_email", to="ann")
        app.pause(queue="emails", note="the provider is down", until=app.clock.now() + 60 * SECOND)

        assert why(run.id)[0] is Why.PAUSED_QUEUE
        cause = cause_of(other_app, run.id, Why.PAUSED_QUEUE)
        assert "provider is down" in cause.text
        assert cause.fix == "tickwork resume --queue emails"
        assert cause.until == app.clock.now() + 60 * SECOND

    def test_its_job_is_paused(self, app, why):
        a_worker(app)
        run = app.dispatch("report")
        app.pause(job="report")

        assert why(run.id) == [Why.PAUSED_JOB]

    def test_another_run_holds_the_slot(self, app, other_app, why):
        worker = a_worker(app)
        first = app.dispatch("send_email", to="ann")
        app._services.catalog.refresh()  # writes the limits
        claimed(app, worker)
        second = app.dispatch("send_email", to="bob")

        assert why(second.id) == [Why.LIMITED]
        cause = cause_of(other_app, second.id, Why.LIMITED)
        assert cause.runs == (first.id,)
        assert "'job:send_email'" in cause.text
        claimed(app, worker)  # now it is blocked, and the reason is the same
        assert other_app.get_run(second.id).read().phase.value == "blocked"
        assert why(second.id) == [Why.LIMITED]

    def test_its_rate_limit_is_reached(self, app, other_app, why):
        @app.job(rate="1/minute")
        def seldom() -> None: ...

        for _ in range(2):
            seldom.dispatch()
        run = seldom.dispatch()
        app.run()
        app.run()
        a_worker(app, "seldom")

        assert why(run.id) == [Why.RATE_LIMITED]
        cause = cause_of(other_app, run.id, Why.RATE_LIMITED)
        assert "allows 1 a minute" in cause.text
        assert "number 2 in the queue" in cause.text
        assert cause.until is not None
        assert cause.until > app.clock.now()

    def test_it_waits_for_its_retry(self, app, other_app, why):
        a_worker(app)
        run = app.dispatch("send_email", to="unknown")
        app.run()

        assert why(run.id) == [Why.RETRYING]
        cause = cause_of(other_app, run.id, Why.RETRYING)
        assert cause.until == run.read().due_at
        assert "no such address" in cause.text

    def test_it_was_dispatched_for_later(self, app, other_app, why):
        a_worker(app)
        run = app.draft.delay("1h").dispatch("report")

        assert why(run.id) == [Why.DELAYED]
        assert cause_of(other_app, run.id, Why.DELAYED).until == app.clock.now() + timedelta(
            hours=1
        )

    def test_its_schedule_has_jitter(self, app, clock, why):
        @app.job
        def spread() -> None: ...

        app.schedule("spreading", spread).hourly().jitter(1800)
        app.run()
        clock.advance(hours=1)
        app.run()
        a_worker(app, "spread")
        waiting = [run for run in app.runs.recent() if run.job == "spread" and not run.is_finished]

        assert [why(run.id) for run in waiting] == [[Why.NOT_DUE]]

    def test_a_filter_postponed_it(self, app, other_app, why):
        @app.job(when=lambda: False)
        def picky() -> None: ...

        run = picky.dispatch()
        app.run()
        a_worker(app, "picky")

        assert why(run.id) == [Why.POSTPONED]
        assert "once" in cause_of(other_app, run.id, Why.POSTPONED).text

    def test_its_handler_snoozed_it(self, app, other_app, why):
        @app.job
        def sleepy() -> None:
            raise Snooze(60, "the shop is closed")

        run = sleepy.dispatch()
        app.run()
        a_worker(app, "sleepy")

        assert why(run.id) == [Why.SNOOZED]
        assert "the shop is closed" in cause_of(other_app, run.id, Why.SNOOZED).text

    def test_it_sleeps(self, app, other_app, why):
        @app.job
        def trial(ctx: RunContext) -> None:
            ctx.sleep("3d", name="trial period")

        run = trial.dispatch()
        app.run()
        a_worker(app, "trial")

        assert why(run.id) == [Why.SLEEPING]
        cause = cause_of(other_app, run.id, Why.SLEEPING)
        assert "'trial period'" in cause.text
        assert cause.until == run.read().due_at

    def test_its_handler_requested_a_retry(self, app, why):
        @app.job
        def asks() -> None:
            raise RetryLater(30, "busy")

        run = asks.dispatch()
        app.run()
        a_worker(app, "asks")

        assert why(run.id) == [Why.RETRYING]

    def test_it_expired_while_it_waited(self, app, clock, why):
        run = app.draft.expires("1m").dispatch("report")
        clock.advance(minutes=5)
        a_worker(app)

        assert why(run.id)[0] is Why.EXPIRED

    def test_no_worker_is_up(self, app, other_app, why):
        run = app.dispatch("report")

        assert why(run.id) == [Why.NO_WORKER]
        a_worker(app, silent_for=timedelta(minutes=5))
        assert why(run.id) == [Why.NO_WORKER]
        assert (
            "1 worker stopped sending heartbeats" in cause_of(other_app, run.id, Why.NO_WORKER).text
        )

    def test_no_worker_knows_its_job(self, app, why):
        a_worker(app, "something_else")
        run = app.dispatch("report")

        assert why(run.id) == [Why.UNKNOWN_JOB]

    def test_no_worker_takes_its_queue(self, app, why):
        a_worker(app, queues=("emails",))
        run = app.dispatch("report")

        assert why(run.id) == [Why.UNSERVED_QUEUE]

    def test_other_runs_are_ahead_of_it(self, app, other_app, why):
        a_worker(app)
        app.dispatch("report")
        run = app.dispatch("report")

        assert why(run.id) == [Why.BUSY]
        assert "1 run will start first" in cause_of(other_app, run.id, Why.BUSY).text

    def test_all_slots_are_taken(self, app, why):
        a_worker(app, running=10, slots=10)
        run = app.dispatch("report")

        assert why(run.id) == [Why.BUSY]

    def test_nothing_prevents_it(self, app, why):
        a_worker(app)
        run = app.dispatch("report")

        assert why(run.id) == [Why.ABOUT_TO_START]


class TestAClaimedRun:
    """Which worker has it, and whether that worker is alive."""

    def test_it_runs(self, app, other_app, why):
        worker = a_worker(app)
        run = app.dispatch("report")
        claimed(app, worker)

        assert why(run.id) == [Why.RUNNING]
        assert "process 4711 on web-1" in cause_of(other_app, run.id, Why.RUNNING).text

    def test_a_stop_was_requested(self, app, why):
        worker = a_worker(app)
        run = app.dispatch("report")
        claimed(app, worker)
        run.cancel()

        assert why(run.id) == [Why.CANCELING]

    def test_its_worker_is_silent(self, app, other_app, clock, why):
        worker = a_worker(app)
        run = app.dispatch("report")
        claimed(app, worker, minutes=10)
        clock.advance(minutes=5)

        assert why(run.id) == [Why.WORKER_DOWN]
        cause = cause_of(other_app, run.id, Why.WORKER_DOWN)
        assert cause.until == run.read().lease_until
        assert cause.worker == worker

    def test_its_worker_is_gone(self, app, why):
        worker = a_worker(app)
        run = app.dispatch("report")
        claimed(app, worker)
        app._services.store.remove_worker(worker)

        assert why(run.id) == [Why.WORKER_DOWN]

    def test_its_lease_expired_and_it_was_not_reaped(self, app, other_app, clock, why):
        worker = a_worker(app)
        run = app.dispatch("report")
        claimed(app, worker)
        clock.advance(minutes=5)

        assert why(run.id) == [Why.LEASE_EXPIRED]
        assert "tickwork work" in cause_of(other_app, run.id, Why.LEASE_EXPIRED).fix


class TestAFinishedRun:
    """How it ended."""

    def test_it_completed(self, app, why):
        run = app.dispatch("report")
        app.run()

        assert why(run.id) == [Why.COMPLETED]

    def test_it_failed_permanently(self, app, other_app, why):
        run = app.dispatch("breaks")
        app.run()

        assert why(run.id) == [Why.FAILED_PERMANENT]
        cause = cause_of(other_app, run.id, Why.FAILED_PERMANENT)
        assert cause.text.endswith("it broke 0 times")
        assert cause.fix == f"tickwork retry {run.id}"

    def test_its_handler_discarded_it(self, app, why):
        @app.job(attempts=5)
        def discards() -> None:
            raise Discard("no such user")

        run = discards.dispatch()
        app.run()

        assert why(run.id) == [Why.FAILED_PERMANENT]

    def test_it_was_canceled(self, app, other_app, why):
        run = app.dispatch("report")
        run.cancel("not needed")

        assert why(run.id) == [Why.CANCELED]
        assert "not needed" in cause_of(other_app, run.id, Why.CANCELED).text

    def test_a_filter_skipped_it(self, app, other_app, why):
        @app.job(skip=lambda: True)
        def skips() -> None: ...

        run = skips.dispatch()
        app.run()

        assert why(run.id) == [Why.FILTERED]
        assert "skip:" in cause_of(other_app, run.id, Why.FILTERED).text

    def test_it_expired(self, app, clock, why):
        run = app.draft.expires("1m").dispatch("report")
        clock.advance(minutes=5)
        app.run()

        assert why(run.id) == [Why.EXPIRED]


class TestASchedule:
    """Why a schedule has created no run."""

    @pytest.fixture(autouse=True)
    def written(self, app):
        app._services.catalog.refresh()

    def test_it_is_not_due(self, app, other_app, why):
        a_worker(app)

        assert why("nightly") == [Why.NOT_DUE]
        row = app._services.store.get_schedule("", "nightly")
        assert cause_of(other_app, "nightly", Why.NOT_DUE).until == row.next_due_at

    def test_it_is_not_due_and_no_worker_is_up(self, app, why):
        assert why("nightly") == [Why.NO_WORKER, Why.NOT_DUE]

    def test_it_is_paused(self, app, other_app, why):
        a_worker(app)
        app.schedules.pause("nightly", note="moving")

        assert why("nightly") == [Why.PAUSED_SCHEDULE]
        assert cause_of(other_app, "nightly", Why.PAUSED_SCHEDULE).fix == (
            "tickwork resume --schedule nightly"
        )

    def test_no_program_defines_it_any_more(self, app, clock, why):
        clock.advance(days=8)
        a_worker(app)

        assert why("nightly") == [Why.RETIRED]

    def test_it_has_no_instant_left(self, app, clock, why):
        @app.job
        def once() -> None: ...

        app.schedule("just once", once).once(clock.now() + 60 * SECOND)
        app.run()
        clock.advance(minutes=1)
        app.run()
        a_worker(app, "once")

        assert why("just once") == [Why.ENDED]

    def test_this_version_cannot_read_its_rule(self, app, other_app, why):
        store = app._services.store
        row = store.get_schedule("", "nightly")
        spec = replace(row.spec, rule='{"kind": "lunar"}')
        assert store.change_schedule(row, spec, now=app.clock.now(), next_due_at=row.next_due_at)
        a_worker(app)

        assert why("nightly") == [Why.UNREADABLE]

    def test_it_is_due_and_no_worker_is_up(self, app, clock, why):
        clock.advance(minutes=2)

        assert why("tick") == [Why.NO_WORKER]

    def test_it_is_due_and_no_worker_knows_its_job(self, app, clock, why):
        clock.advance(minutes=2)
        a_worker(app, "something_else")

        assert why("tick") == [Why.UNKNOWN_JOB]

    def test_it_is_due_and_will_fire(self, app, clock, why):
        clock.advance(minutes=2)
        a_worker(app)

        assert why("tick") == [Why.ABOUT_TO_START]

    def test_the_previous_run_has_not_finished(self, app, other_app, clock, why):
        clock.advance(minutes=1)
        fired = app.due()
        clock.advance(minutes=1)
        app.due()
        a_worker(app)

        assert why("tick") == [Why.NOT_DUE, Why.OVERLAPPED, Why.UNFINISHED_RUN]
        assert cause_of(other_app, "tick", Why.UNFINISHED_RUN).runs == (fired[0].id,)
        assert [part.name for part in other_app.explain("tick").parts] == [fired[0].id]

    def test_another_run_is_already_waiting(self, app, other_app, clock, why):
        @app.job(overlap="queue_one")
        def queues() -> None: ...

        app.schedule("queueing", queues).every_minute()
        app.due()
        clock.advance(minutes=1)
        app.due()
        clock.advance(minutes=1)
        app.due()
        a_worker(app, "queues")

        assert why("queueing") == [Why.NOT_DUE, Why.OVERLAPPED, Why.UNFINISHED_RUN]
        assert "The next runs wait" in cause_of(other_app, "queueing", Why.UNFINISHED_RUN).text

    def test_a_run_with_the_same_key_exists(self, app, clock, why):
        @app.job(unique=True, overlap="allow")
        def alone() -> None: ...

        app.schedule("alone again", alone).every_minute()
        app.run()
        alone.delay("1d").dispatch()
        clock.advance(minutes=1)
        app.due()
        a_worker(app, "alone")

        assert why("alone again") == [Why.NOT_DUE, Why.NOT_UNIQUE]

    def test_it_was_missed_while_no_worker_was_up(self, app, clock, why):
        @app.job(misfire="skip")
        def strict() -> None: ...

        app.schedule("strictly", strict).hourly()
        app.run()
        clock.advance(hours=3, minutes=30)
        app.run()
        a_worker(app, "strict")

        assert why("strictly") == [Why.NOT_DUE, Why.MISSED]

    def test_a_filter_skipped_its_last_firing(self, app, clock, why):
        @app.job(when=lambda: False)
        def picky() -> None: ...

        app.schedule("pickily", picky).every_minute()
        app.run()
        clock.advance(minutes=1)
        app.run()
        a_worker(app, "picky")

        assert why("pickily") == [Why.NOT_DUE, Why.FILTERED]


class TestAJob:
    """Why a job has not run."""

    def test_it_has_no_schedule_and_no_run(self, app, why):
        app._services.catalog.refresh()
        a_worker(app)

        assert why("send_email") == [Why.NO_RUNS]

    def test_it_is_not_in_the_database_yet(self, app):
        assert app.explain("send_email").reasons[0] is Why.NOT_STORED

    def test_it_keeps_failing(self, app, other_app, why):
        for _ in range(2):
            app.dispatch("breaks")
        app.run()
        a_worker(app)

        assert why("breaks") == [Why.FAILING, Why.NO_RUNS]
        assert "The last 2 runs failed" in cause_of(other_app, "breaks", Why.FAILING).text

    def test_its_schedules_and_runs_are_explained_too(self, app, other_app):
        app._services.catalog.refresh()
        a_worker(app)
        run = app.draft.delay("1h").dispatch("report")
        app.pause(job="report", note="moving")

        found = other_app.explain("report")

        assert found.reasons == (Why.PAUSED_JOB,)
        assert [(part.kind, part.name) for part in found.parts] == [
            ("schedule", "tick"),  # it is due first
            ("schedule", "nightly"),
            ("run", run.id),
        ]

    def test_only_a_few_of_many_are_explained(self, app, other_app):
        for number in range(8):
            app.schedules.register("", f"one more {number}", app.clock.now(), "1h", "breaks")
        app.run()
        for _ in range(9):
            app.draft.delay("1h").dispatch("breaks")

        found = other_app.explain("breaks")

        assert len(found.parts) == 5 + 3
        assert found.left_out == 3 + 6
        assert "and 9 more (schedules and runs)" in Cli(other_app).text("explain", "breaks")


class TestNames:
    """Names take precedence over ids."""

    def test_an_unknown_name_suggests_a_similar_one(self, app):
        with pytest.raises(JobNotFound, match="Did you mean 'send_email'"):
            app.explain("send_emial")

    def test_an_unknown_id(self, app):
        with pytest.raises(RunNotFound):
            app.explain("0123abcd-ffff")

    def test_the_first_characters_of_an_id(self, app, other_app):
        run = app.dispatch("report")

        assert other_app.explain(run.id[:30]).name == run.id

    def test_an_ambiguous_id(self, app, other_app):
        runs = [app.dispatch("report") for _ in range(2)]

        with pytest.raises(AmbiguousRun) as caught:
            other_app.explain(runs[0].id[:8])
        assert set(caught.value.candidates) == {run.id for run in runs}


class TestTheCommand:
    """``tickwork explain``, for people and for programs."""

    def test_each_reason_has_its_cure(self, app, other_app):
        a_worker(app)
        run = app.dispatch("send_email", to="ann")
        app.pause(queue="emails", note="the provider is down")

        lines = Cli(other_app).text("explain", run.id).splitlines()

        assert lines == [
            f"run {run.id}",
            "  - The queue 'emails' is paused (the provider is down).",
            "    → tickwork resume --queue emails",
        ]

    def test_json(self, app, other_app):
        run = app.dispatch("report")

        found = Cli(other_app).json("explain", run.id)

        assert (found["kind"], found["name"]) == ("run", run.id)
        assert [cause["why"] for cause in found["causes"]] == ["no_worker"]

    def test_an_unknown_name_exits_with_3(self, app):
        done = Cli(app)("explain", "send_emial", code=3)

        assert "Did you mean 'send_email'?" in done.stderr
