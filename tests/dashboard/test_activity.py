"""How fast runs arrive and finish, and how long the audit log is kept."""

from datetime import timedelta

import pytest

from tickwork import Tickwork
from tickwork._stores.contract import RunFilter
from tickwork.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(clock):
    with Tickwork("memory://", clock=clock) as app:

        @app.job
        def work(seconds: float = 0) -> None:
            clock.advance(seconds=seconds)

        @app.job
        def fails() -> None:
            raise ValueError("no")

        yield app


class TestActivity:
    def test_nothing_has_happened(self, app):
        found = app.inspect.activity()

        assert (found.success_share, found.wait, found.runtime) == (None, None, None)
        assert (found.drain_seconds, found.oldest_ready_at) == (0.0, None)
        assert len(found.minutes) == 60

    def test_delays_and_success(self, app, clock):
        for seconds in (1, 2, 3):
            app.dispatch("work", seconds=seconds)
            clock.advance(seconds=10)
            app.run()
        app.dispatch("fails")
        app.run()

        found = app.inspect.activity()
        assert found.success_share == 0.75
        assert 2 < found.runtime.p95 < 4.1  # estimated
        assert 8 < found.wait.p99 < 16.4
        assert (found.completed, found.failed) == (3, 1)

    def test_runs_of_earlier_hours_do_not_count(self, app, clock):
        app.dispatch("work")
        app.run()
        clock.advance(hours=2)
        app.dispatch("work")

        found = app.inspect.activity()
        assert found.completed == 0
        assert sum(minute.created for minute in found.minutes) == 1

    def test_a_backlog_that_grows_has_no_end(self, app, clock):
        due = clock.now()
        for _ in range(3):
            app.dispatch("work")
        clock.advance(minutes=1)

        found = app.inspect.activity()
        assert (found.ready, found.drain_seconds) == (3, None)
        assert found.oldest_ready_at == due

    def test_what_finishes_is_counted_behind_newer_runs_that_wait(self, app, clock):
        for _ in range(20):
            app.dispatch("work")
        app.run(batch=100)
        app.delay(3600).dispatch_many("work", [{}] * 1_200)
        clock.advance(minutes=1)

        found = app.inspect.activity()

        assert (found.completed, found.success_share) == (20, 1.0)
        assert found.finished_per_minute > 3

    def test_pruned_runs_stay_counted(self, app, clock):
        for _ in range(5):
            app.dispatch("work")
        app.run()
        clock.advance(minutes=2)
        app.prune(days=0)

        assert app.inspect.list_runs(RunFilter(), limit=10).runs == []
        assert app.inspect.activity().completed == 5

    def test_a_paused_backlog_is_none(self, app):
        app.dispatch("work")
        app.pause(job="work")

        assert app.inspect.activity().drain_seconds == 0.0


class TestAuditLog:
    def test_it_is_kept_for_a_year_whatever_is_pruned(self, app, clock):
        app.audit.record("queue.pause", "queue/a", actor="ann")
        clock.advance(timedelta(days=364))
        app.prune(days=0)
        assert len(app.audit.list()) == 1

        clock.advance(timedelta(days=2))
        app.prune(days=0)
        assert app.audit.list() == []

    def test_odd_characters_and_long_texts_lose_no_entry(self, app):
        app.audit.record("a\x00b", "\ud800" + "x" * 1000, actor="é" * 1000)

        [entry] = app.audit.list()
        assert (entry.action, len(entry.subject), len(entry.actor)) == ("ab", 512, 255)
