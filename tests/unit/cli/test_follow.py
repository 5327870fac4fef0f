from datetime import timedelta

import pytest

from tickwork import RunStatus, testing
from tickwork._stores.contract import RunFilter
from tickwork.cli.follow import PAGE, RunFollower


@pytest.fixture
def app():
    clock = testing.ManualClock()
    with testing.app(clock=clock) as app:
        app.job(name="it")(lambda: None)
        for _ in range(30):
            app.dispatch("it")
            clock.advance(minutes=1)
            app.run()
        yield app


class TestFollow:
    """``runs --follow`` prints the newest runs in order, then only what changes."""

    def test_follow_does_not_replay_history(self, app):
        follower = RunFollower(app, RunFilter(), limit=5)

        shown = [run.id for run in follower.newest]
        assert shown == [run.id for run in app.runs.recent(limit=5)][::-1]
        assert follower.poll() == []

    def test_history_is_in_the_order_of_the_times_shown(self, app):
        late = app.dispatch("it")
        early = app.dispatch("it")
        app.clock.advance(hours=1)
        app.execute(early.id)
        app.clock.advance(hours=1)
        app.execute(late.id)

        shown = [run.id for run in RunFollower(app, RunFilter(), limit=2).newest]

        assert shown == [early.id, late.id]

    def test_an_old_run_that_comes_into_the_newest_page_is_not_printed(self, app):
        app.schedule("many", lambda: None).dispatch_many([{}] * (PAGE + 10))
        app.clock.advance(minutes=1)
        follower = RunFollower(app, RunFilter(statuses=frozenset({RunStatus.PENDING})), limit=5)
        app.clock.advance(timedelta(hours=1))
        app.run(batch=50)

        assert all(run.is_finished for run in follower.poll())

    def test_new_runs_and_changes_are_printed(self, app):
        follower = RunFollower(app, RunFilter(), limit=5)
        run = app.dispatch("it")
        [first] = follower.poll()
        app.run()
        [second] = follower.poll()

        assert (first.id, first.status, second.status) == (run.id, "pending", "completed")
