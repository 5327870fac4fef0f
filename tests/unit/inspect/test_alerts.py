"""The history of alerts is the same on all processes of a database, and survives them."""

from datetime import timedelta

import pytest

from tickwork import ScheduleDefinition, Tickwork
from tickwork._domain.health import Check, Level
from tickwork._domain.identity import WorkerId
from tickwork._stores.contract import WorkerRow
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork._watch.alert_recorder import LOCK_TTL, RECORD_EVERY, AlertRecorder
from tickwork._worker.services.pruner import Pruner
from tickwork.errors import StatementFailed
from tickwork.testing import ManualClock

START = "2026-03-02T12:00:00+00:00"


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


def a_process(store, clock):
    """An application on a shared store, as one server process has it."""
    app = Tickwork("memory://", store=store, clock=clock)

    @app.job(queue="reports")
    def report(is_broken: bool = True) -> None:
        if is_broken:
            raise ValueError("no data")

    app.run()
    return app


@pytest.fixture
def app(store, clock):
    return a_process(store, clock)


def a_worker(clock):
    """A worker that is alive, and does nothing."""
    return WorkerRow(
        id=WorkerId("019b76da-a800-7000-8000-000000000001"),
        host="web-1",
        pid=7,
        boot_id="boot",
        process_started="1",
        started_at=clock.now(),
        beat_at=clock.now(),
        queues=("other",),
        jobs=("other",),
        slots=1,
    )


def names(app):
    return [each.name for each in app.inspect.find_alerts(app.check_health())]


def ended(app):
    return {each.name: each for each in app.inspect.ended_alerts().ended}


def fail(app, *, tenant="", times=3):
    for _ in range(times):
        app.draft.tenant(tenant).dispatch("report")
        app.run()


def recover(app, *, tenant=""):
    app.draft.tenant(tenant).dispatch("report", is_broken=False)
    app.run()


class TestHistory:
    def test_begin_end_duration_and_cause(self, app, clock):
        fail(app)
        began_at = clock.now()
        clock.advance(minutes=7)
        assert "failing//report" in names(app)
        clock.advance(minutes=5)
        recover(app)
        assert "failing//report" not in names(app)

        found = ended(app)["failing//report"]
        assert (found.began_at, found.ended_at) == (began_at, clock.now())
        assert found.duration == timedelta(minutes=12)
        assert found.text == "report failed 3 times in a row: ValueError: no data"
        assert (found.kind, found.level) == ("failing", "bad")

    def test_it_survives_the_process_that_found_it(self, app, store, clock):
        app.pause(queue="reports")
        assert "paused/queue/reports" in names(app)
        clock.advance(minutes=5)

        other = a_process(store, clock)  # after a restart, or on another server
        other.resume(queue="reports")
        assert "paused/queue/reports" not in names(other)

        for process in (app, other, a_process(store, clock)):
            assert ended(process)["paused/queue/reports"].duration == timedelta(minutes=5)

    def test_an_alert_has_one_begin_on_all_processes(self, app, store, clock):
        began_at = clock.now()
        assert "check/workers" in names(app)  # no worker is running
        clock.advance(minutes=5)

        other = a_process(store, clock)
        for process in (app, other):
            found = process.inspect.find_alerts(process.check_health())
            assert {each.name: each.since for each in found}["check/workers"] == began_at

    def test_several_processes_make_one_row(self, app, store, clock):
        processes = [app, *(a_process(store, clock) for _ in range(3))]
        fail(app)
        for process in processes:
            names(process)
        recover(app)
        for process in processes:
            names(process)

        history = app.inspect.ended_alerts().ended
        assert [each.name for each in history] == ["failing//report"]

    def test_a_process_that_was_slow_ends_no_alert_that_another_one_added(self, app, store, clock):
        slow = a_process(store, clock)
        finder = slow.inspect._alerts
        read = finder._read_status

        def read_slowly():
            status = read()  # without the failures
            fail(app)
            names(app)
            return status

        finder._read_status = read_slowly
        names(slow)

        assert "failing//report" in {row.name for row in store.list_open_alerts()}

    def test_tenants_with_a_job_of_one_name_have_alerts_of_their_own(self, app, clock):
        fail(app, tenant="acme")
        fail(app, tenant="other")
        texts = {each.name: each.text for each in app.inspect.find_alerts(app.check_health())}
        assert texts["failing/acme/report"].startswith("report of acme failed 3 times")

        recover(app, tenant="acme")
        names(app)
        assert list(ended(app)) == ["failing/acme/report"]

    def test_the_failures_of_one_tenant_do_not_hide_a_late_schedule_of_another(
        self, app, store, clock
    ):
        for tenant in ("acme", "other"):
            app.schedules.create(
                ScheduleDefinition(name="nightly", tenant=tenant, job="report", rule="@hourly")
            )
        fail(app, tenant="acme")
        clock.advance(hours=3)
        store.beat_worker(a_worker(clock))

        found = {each.name: each for each in app.inspect.find_alerts(app.check_health())}
        assert "schedule/other/nightly" in found
        assert "schedule/acme/nightly" not in found
        assert "nightly of acme" in found["failing/acme/report"].effects[0]

    def test_the_first_failure_is_found_behind_a_backlog(self, app, clock):
        fail(app)
        began_at = clock.now()
        clock.advance(hours=1)
        for _ in range(200):
            app.delay("1d").dispatch("report")

        found = {each.name: each for each in app.inspect.find_alerts(app.check_health())}
        assert found["failing//report"].since == began_at

    def test_a_check_of_this_machine_has_no_history(self, app, store):
        slow = Check("connection", Level.WARN, "The database answers in 2s.")
        found = app.inspect.find_alerts([slow, *app.check_health()])
        assert "check/connection" in {each.name for each in found}
        assert "check/connection" not in {row.name for row in store.list_open_alerts()}

        app.inspect.find_alerts(app.check_health())
        assert ended(app) == {}

    def test_checks_that_could_not_be_made_end_no_alert(self, app, store):
        names(app)  # no worker is running
        app.inspect.find_alerts([Check("tables", Level.BAD, "The read took too long.")])

        assert [row.name for row in store.list_open_alerts()] == ["check/workers"]

    def test_a_process_that_may_not_write_shows_alerts(self, app, store, monkeypatch, caplog):
        def refuse(*_, **__):
            raise StatementFailed("memory://", "permission denied", state="42501")

        monkeypatch.setattr(store, "change_alerts", refuse)
        for _ in range(2):
            assert "check/workers" in names(app)
        assert caplog.text.count("writes no history of alerts") == 1

    def test_pages_of_ended_alerts(self, app, clock):
        for _ in range(5):
            fail(app)
            names(app)
            recover(app)
            names(app)
            clock.advance(minutes=10)

        found, cursor = [], None
        while True:
            page = app.inspect.ended_alerts(cursor=cursor, limit=2)
            found += page.ended
            cursor = page.cursor
            if cursor is None:
                break
        assert len({each.id for each in found}) == 5
        times = [each.ended_at for each in found]
        assert times == sorted(times, reverse=True)

    def test_old_alerts_are_pruned(self, app, clock):
        fail(app)
        names(app)
        recover(app)
        names(app)
        clock.advance(days=364)
        app.prune(days=7)
        assert len(ended(app)) == 1

        clock.advance(days=2)
        app.prune(days=7)
        assert ended(app) == {}

    def test_workers_prune_old_alerts(self, app, store, clock):
        app.pause(queue="reports")
        names(app)
        app.resume(queue="reports")
        names(app)
        clock.advance(days=366)
        default = app.registry.defaults.retention
        year = timedelta(days=365)
        Pruner(store=store, clock=clock, specs=dict, default=default, retire_after=year).step()

        assert ended(app) == {}


class TestRecorder:
    """Workers and watchers find alerts also while no page is open: one of them at a time."""

    @pytest.fixture
    def rounds(self):
        return []

    def a_recorder(self, store, clock, rounds, name):
        return AlertRecorder(store=store, clock=clock, find=lambda: rounds.append(name))

    def test_one_process_finds_alerts_at_a_time(self, store, clock, rounds):
        store.install()
        first, second = (self.a_recorder(store, clock, rounds, name) for name in "ab")
        for _ in range(3):
            assert first.step() == second.step() == RECORD_EVERY
            clock.advance(seconds=RECORD_EVERY)

        assert rounds == ["a", "a", "a"]

    def test_another_process_goes_on_after_its_death(self, store, clock, rounds):
        store.install()
        self.a_recorder(store, clock, rounds, "a").step()
        second = self.a_recorder(store, clock, rounds, "b")
        second.step()
        clock.advance(seconds=LOCK_TTL.total_seconds())
        second.step()

        assert rounds == ["a", "b"]

    def test_a_database_that_does_not_answer_is_no_problem_of_the_worker(self, store, clock):
        store.install()

        def fail_to_find():
            raise StatementFailed("memory://", "it is away", state="57014")

        recorder = AlertRecorder(store=store, clock=clock, find=fail_to_find)
        assert recorder.step() == RECORD_EVERY

    def test_every_worker_has_one(self, app, store, monkeypatch):
        monkeypatch.setattr(AlertRecorder, "first_wait", 0.0)
        fail(app)
        with app.running():
            while not store.list_open_alerts():  # ends: the recorder has no wait
                pass

        assert "failing//report" in {row.name for row in store.list_open_alerts()}
