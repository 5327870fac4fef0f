"""Only the application's clock is used; no code reads the time of the system."""

import logging
import sys
import threading
from datetime import UTC, datetime, timedelta

from tickwork import RetryLater, RunContext, Snooze, testing
from tickwork._stores.contract import RunFilter

START = datetime(2026, 1, 1, tzinfo=UTC)
ASKING = {
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "date.today",
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
    "time.ctime",
}
# Python's own logging stamps its records. What is kept of them has another stamp.
ALLOWED = {"logging"}


class Watch:
    """Records the callers of functions that return the time of the system."""

    def __init__(self):
        self.seen = set()

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, function):
        if event != "c_call":
            return
        module = getattr(function, "__module__", None)
        name = getattr(function, "__qualname__", "")
        if name in ASKING or f"{module}.{name}" in ASKING:
            caller = frame.f_globals.get("__name__", "?")
            if caller.partition(".")[0] not in ALLOWED:
                self.seen.add(f"{caller}:{frame.f_lineno} calls {name}")


def busy(app, clock):
    """A month with retries, skips, logs, limits and locks."""
    log = logging.getLogger("shop")

    def work(ctx: RunContext):
        log.warning("working")
        ctx.progress(0.5)
        ctx.checkpoint({"at": 1})
        assert not ctx.is_canceled()

    def fail(ctx: RunContext):
        if ctx.attempt == 1:
            raise RetryLater(30)
        if clock.now().hour % 2:
            raise ValueError("odd")

    def snooze():
        if clock.now().minute < 30:
            raise Snooze(600)

    app.schedule("work", work).every_six_hours().timeout(30).jitter(60)
    app.schedule("fail", fail).daily().retries(max=3, base=60)
    app.schedule("snooze", snooze).daily_at("3:00").concurrency(1)
    app.schedule("skip", lambda: None).daily().when(lambda: False)
    app.schedule("unique", lambda n: None).unique(within=3600).expires("1h").args(n=1).daily()
    app.dispatch("work")
    app.schedule("later", lambda: None).delay("20 days").dispatch()
    app.schedule("canceled", lambda: None).delay("20 days").dispatch().cancel("changed my mind")
    with app.lock("nightly"):
        testing.travel(app, days=3)
    testing.travel(app, days=27)
    app.prune(days=365)


class TestOneClock:
    """A month on a manual clock, while calls of the system's clock are recorded."""

    def test_no_code_reads_the_time_of_the_system(self, app, clock, database):
        watch = Watch()
        with watch:
            busy(app, clock)

        assert watch.seen == set()

    def test_the_watch_records_such_a_call(self):
        watch = Watch()
        with watch:
            datetime.now(UTC)  # noqa: TID251  # that is the point

        assert len(watch.seen) == 1

    def test_every_time_in_the_store_is_in_that_month(self, app, clock):
        busy(app, clock)

        store = app._services.store
        stories = [
            store.run_record(run.id) for run in store.list_runs(RunFilter(), limit=1000).runs
        ]
        moments = [
            moment
            for story in stories
            for moment in (
                story.run.created_at,
                story.run.started_at,
                story.run.ended_at,
                *(attempt.ended_at for attempt in story.attempts),
                *(line.at for line in story.log),
            )
        ]
        moments += [row.seen_at for row in store.list_schedules()]
        moments += [row.last_run_at for row in store.list_jobs()]
        known = [moment for moment in moments if moment is not None]

        assert len(known) > 500
        assert sum(len(story.log) for story in stories) > 100
        assert min(known) >= START
        assert max(known) <= START + timedelta(days=30)


def test_ids_contain_the_time_of_the_clock(app, clock):
    app.schedule("work", lambda: None).daily()
    run = app.dispatch("work")
    app.run()
    row = app._services.store.get_schedule("", "work")

    head = f"{int(START.timestamp() * 1000):012x}"
    assert row.id.replace("-", "").startswith(head)
    assert run.id.replace("-", "").startswith(head)
