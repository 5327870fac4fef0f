"""Locks, pruning, events and logging."""

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from tickwork import RunStatus, Tickwork
from tickwork._domain.tick import STILL_RUNNING
from tickwork.errors import InvalidOption, LockHeld, SchemaMissing
from tickwork.events import (
    AttemptFailed,
    Event,
    FiringsMissed,
    FiringsSkipped,
    RunDispatched,
    RunFailed,
    RunsClaimed,
    RunStarted,
    RunSucceeded,
    ScheduleFired,
)


def nothing() -> None:
    pass


class TestLocks:
    """One holder across all processes; the error names host and pid."""

    def test_a_second_holder_gets_an_error_that_names_the_first(self, make_app):
        first, second = make_app(), make_app()

        with first.lock("nightly"), pytest.raises(LockHeld) as caught, second.lock("nightly"):
            pass

        assert caught.value.pid
        assert caught.value.host

    def test_it_is_free_after_the_block(self, make_app):
        first, second = make_app(), make_app()
        with first.lock("nightly"):
            pass

        with second.lock("nightly") as lock:
            assert not lock.is_lost

    def test_a_lock_whose_holder_is_gone_is_free_after_its_ttl(self, make_app, clock):
        first, second = make_app(), make_app()
        held = first.lock("nightly", ttl=30)
        held.__enter__()
        clock.advance(seconds=31)

        with second.lock("nightly", ttl=30):
            pass
        held.__exit__(None, None, None)

    def test_a_process_that_lost_the_lock_does_not_release_it(self, make_app, clock):
        first, second, third = make_app(), make_app(), make_app()
        lost = first.lock("nightly", ttl=30)
        lost.__enter__()
        clock.advance(seconds=31)
        with second.lock("nightly", ttl=30):
            lost.__exit__(None, None, None)

            with pytest.raises(LockHeld), third.lock("nightly"):
                pass

    def test_a_very_short_ttl_is_rejected(self, app):
        with pytest.raises(InvalidOption, match="ttl"), app.lock("nightly", ttl=0.1):
            pass


class TestPruning:
    """Pruning deletes old finished runs, their attempts, and unused definitions."""

    def test_only_old_finished_runs_are_deleted(self, app, clock, passes):
        job = app.schedule("it", nothing)
        old = job.dispatch()
        passes(app)
        clock.advance(days=40)
        young = job.dispatch()
        passes(app)

        pruned = app.prune(days=30)

        assert pruned.runs == 1
        assert [run.id for run in app.runs.recent()] == [young.id]
        assert old.id != young.id

    def test_unfinished_runs_are_never_deleted(self, app, clock):
        run = app.schedule("it", nothing).delay("300d").dispatch()
        clock.advance(days=200)

        app.prune(days=30)

        assert run.status is RunStatus.PENDING

    def test_an_unused_definition_is_deleted(self, make_app, clock):
        old = make_app()
        old.schedule("gone", nothing).hourly()
        old.run()
        clock.advance(days=40)
        new = make_app()
        new.schedule("kept", nothing).hourly()
        new.run()

        new.prune(days=30)

        assert [row["name"] for row in new.status()["schedules"]] == ["kept"]

    @pytest.mark.parametrize("minutes", [1, 59, 90])
    def test_pruning_everything_keeps_the_schedules_of_a_live_worker(
        self, make_app, clock, passes, minutes
    ):
        worker, person = make_app(), make_app()
        worker.schedule("report", nothing).daily()
        passes(worker)
        clock.advance(minutes=minutes)

        pruned = person.prune(days=0)

        assert (pruned.jobs, pruned.schedules) == (0, 0)
        clock.advance(days=1)
        assert passes(worker) == 1

    def test_a_schedule_whose_row_is_missing_is_written_again(self, app, clock, passes):
        app.schedule("report", nothing).daily()
        passes(app)
        store = app._services.store
        store.remove_schedule(store.get_schedule("", "report").id)

        clock.advance(hours=1)
        passes(app)
        clock.advance(days=1)

        assert passes(app) == 1

    @pytest.mark.parametrize("days", [-1, -0.001, float("nan"), float("inf"), 1e9])
    def test_days_that_make_no_sense_are_refused(self, app, days):
        for call in (app.prune, app.cancel_orphans):
            with pytest.raises(InvalidOption, match="days must be between 0 and 36500, got"):
                call(days)


class TestEvents:
    """A worker publishes events; an error of a subscriber does not affect the run."""

    def test_a_run_publishes_events_from_dispatch_to_success(self, app, passes):
        events: list[Any] = []
        app.on(Event)(events.append)
        run = app.schedule("it", nothing).dispatch()
        passes(app)

        dispatched, claimed, started, succeeded = events
        assert isinstance(claimed, RunsClaimed)
        assert claimed.count == 1
        about_run = [dispatched, started, succeeded]
        assert [type(event) for event in about_run] == [RunDispatched, RunStarted, RunSucceeded]
        assert {event.run_id for event in about_run} == {run.id}

    def test_the_last_failed_attempt_publishes_two_events(self, app, passes):
        events: list[Any] = []
        app.on(AttemptFailed)(events.append)
        app.on(RunFailed)(events.append)

        def fail():
            raise ValueError("no")

        app.schedule("it", fail).retries(max=2, delay=0).dispatch()
        passes(app)

        assert [(type(event), event.attempt) for event in events] == [
            (AttemptFailed, 1),
            (AttemptFailed, 2),
            (RunFailed, 2),
        ]
        assert [event.retry_at is None for event in events[:2]] == [False, True]
        assert events[2].error == "ValueError: no"
        assert [type(event.exception) for event in events] == [ValueError] * 3
        assert events[1].exception is events[2].exception

    def test_a_firing_publishes_an_event(self, app, clock, passes):
        events: list[Any] = []
        app.on(ScheduleFired)(events.append)
        app.schedule("it", nothing).hourly()
        app.run()
        clock.advance(hours=1)
        passes(app)

        [event] = events
        assert (event.schedule, event.job, event.nominal_at) == ("it", "it", clock.now())

    def test_missed_firings_publish_one_event_and_a_warning(self, app, clock, passes, caplog):
        events: list[Any] = []
        app.on(FiringsMissed)(events.append)
        app.schedule("it", nothing).hourly().misfire("skip")
        app.run()
        start = clock.now()
        clock.advance(hours=3, minutes=30)
        passes(app)

        [event] = events
        assert (event.schedule, event.job, event.count) == ("it", "it", 3)
        assert event.first_at == start + timedelta(hours=1)
        assert event.last_at == start + timedelta(hours=3)
        assert "3 firings of the schedule it" in caplog.text

    def test_firings_that_another_run_prevented_publish_an_event(self, app, clock):
        events: list[Any] = []
        app.on(FiringsSkipped)(events.append)
        app.schedule("it", nothing).hourly()
        app.run()
        for _ in range(2):
            clock.advance(hours=1)
            app.due()  # fires, and starts no run

        [event] = events
        assert (event.schedule, event.count, event.reason) == ("it", 1, STILL_RUNNING)
        assert event.first_at == event.last_at == clock.now()

    def test_a_failing_subscriber_affects_nothing_else(self, app, passes, caplog):
        @app.on(RunSucceeded)
        def broken(event: RunSucceeded) -> None:
            raise ValueError("in a subscriber")

        run = app.schedule("it", nothing).dispatch()
        passes(app)

        assert run.status is RunStatus.COMPLETED
        assert "A subscriber to RunSucceeded failed." in caplog.text

    def test_unsubscribing_ends_the_calls(self, app, passes):
        events: list[Event] = []
        end = app.events.subscribe(Event, events.append)
        end()
        app.schedule("it", nothing).dispatch()
        passes(app)

        assert events == []


class TestLogging:
    """Log records of a handler name the run, and are kept with it, up to a limit."""

    def test_records_made_in_a_handler_carry_run_job_and_attempt(self, app, passes, caplog):
        def talk():
            logging.getLogger("shop").warning("low on paper")

        run = app.schedule("it", talk).dispatch()
        passes(app)

        [record] = [each for each in caplog.records if each.name == "shop"]
        fields = vars(record)
        assert (fields["run_id"], fields["job"], fields["attempt"]) == (run.id, "it", 1)

    def test_the_number_of_lines_is_limited(self, app, passes):
        def chatter():
            for number in range(700):
                logging.getLogger("shop").warning("%d", number)

        run = app.schedule("it", chatter).dispatch()
        passes(app)

        assert len(run.log()) == 500

    def test_records_of_other_threads_are_not_kept(self, app, passes):
        def talk():
            thread = threading.Thread(target=logging.getLogger("shop").warning, args=["elsewhere"])
            thread.start()
            thread.join()

        run = app.schedule("it", talk).dispatch()
        passes(app)

        assert run.log() == []


class TestInstalling:
    """SQLite is installed at the first use, a server only on request."""

    def test_a_server_without_tables_raises_with_the_cure(self, postgres_url):
        with Tickwork(postgres_url) as app:
            with pytest.raises(SchemaMissing, match="tickwork install"):
                app.schedule("it", nothing).dispatch()
            assert app.install() >= 1
            assert app.schedule("other", nothing).dispatch().status is RunStatus.PENDING
