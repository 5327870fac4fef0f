"""How far behind is a queue: true numbers behind any backlog."""

from datetime import timedelta

import pytest

from dashboard.conftest import API
from tickwork import Tickwork
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.status import Phase
from tickwork._inspect.queues import Backlog
from tickwork._stores.contract import WorkerRow
from tickwork.dashboard import AccessToken, Role, asgi
from tickwork.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(clock):
    with Tickwork("memory://", clock=clock) as app:

        @app.job(queue="emails", concurrency=3)
        def send() -> None: ...

        @app.job(queue="reports", rate="100/minute")
        def report() -> None: ...

        app.install()
        yield app


def add_worker(app, clock, *, queues=None, age=0):
    store = app._services.store
    row = WorkerRow(
        id=WorkerId("019b76da-a800-7000-8000-000000000001"),
        host="web-1",
        pid=42,
        boot_id="boot",
        process_started="1",
        started_at=clock.now(),
        beat_at=clock.now() - timedelta(seconds=age),
        queues=queues,
        jobs=("send", "report"),
        slots=8,
    )
    store.beat_worker(row)


def drain(app, clock, number):
    """Execute runs at the pace of ten a minute."""
    for _ in range(number // 10):
        app.run(batch=10)
        clock.advance(minutes=1)


class TestQueueDetails:
    def test_a_backlog_of_3500_in_one_queue_hides_no_other_queue(self, app):
        app.draft.queue("bulk").dispatch_many("send", [{}] * 3_500)
        app.dispatch("report")

        status = app.inspect.status(cap=2_500)

        counted = {each.name: (each.ready, each.capped) for each in status.queues}
        assert counted == {"bulk": (2_500, (Phase.READY,)), "reports": (1, ())}
        assert status.capped == (Phase.READY,)

    def test_the_age_of_the_oldest_run(self, app, clock):
        due = clock.now()
        app.dispatch("send")
        clock.advance(hours=2)
        app.draft.priority(1).dispatch("send")

        [found] = app.inspect.queue_details(["emails"])

        assert found.oldest_due_at == due

    def test_a_queue_that_shrinks_says_when_it_is_empty(self, app, clock):
        app.draft.dispatch_many("report", [{}] * 100)
        clock.advance(minutes=10)
        add_worker(app, clock)
        drain(app, clock, 50)
        add_worker(app, clock)

        [found] = app.inspect.queue_details(["reports"])

        assert found.backlog is Backlog.SHRINKS
        assert found.created_per_minute == 0
        assert found.finished_per_minute == 10
        assert found.drain_seconds == 5 * 60

    def test_a_queue_into_which_more_comes_than_goes_grows(self, app, clock):
        app.draft.dispatch_many("report", [{}] * 50)
        add_worker(app, clock)

        [found] = app.inspect.queue_details(["reports"])

        assert (found.backlog, found.drain_seconds) == (Backlog.GROWS, None)
        assert found.created_per_minute > 0

    def test_arrivals_are_those_of_the_queue_behind_100_times_as_many_in_others(self, app, clock):
        clock.advance(minutes=5)
        app.draft.dispatch_many("report", [{}] * 5)
        app.draft.dispatch_many("send", [{}] * 5_000)
        clock.advance(minutes=1)

        [found] = app.inspect.queue_details(["reports"])

        assert found.created_per_minute == pytest.approx(5 / 4.9, rel=0.3)

    def test_a_queue_that_no_worker_serves_says_so(self, app, clock):
        app.dispatch("send")
        add_worker(app, clock, queues=("reports",))

        emails, reports = app.inspect.queue_details(["emails", "reports"])

        assert (emails.backlog, emails.workers) == (Backlog.UNSERVED, [])
        assert (reports.backlog, reports.drain_seconds) == (Backlog.EMPTY, 0.0)
        assert [each.host for each in reports.workers] == ["web-1"]

    def test_a_frozen_worker_does_not_serve(self, app, clock):
        app.dispatch("send")
        add_worker(app, clock, age=300)

        [found] = app.inspect.queue_details(["emails"])

        assert found.backlog is Backlog.UNSERVED
        assert [each.is_silent for each in found.workers] == [True]

    def test_limits_and_rates_with_their_use(self, app, clock):
        app.draft.dispatch_many("report", [{}] * 7)
        app.run(batch=7)

        emails, reports = app.inspect.queue_details(["emails", "reports"])

        assert [(each.name, each.taken) for each in emails.limits] == [("job:send", 0)]
        assert [(each.name, each.started) for each in reports.limits] == [("job/minute:report", 7)]
        clock.advance(minutes=2)
        [reports] = app.inspect.queue_details(["reports"])
        assert reports.limits[0].started == 0


class TestQueueEndpoint:
    @pytest.fixture
    def admin(self, app):
        from starlette.testclient import TestClient

        token = AccessToken(name="ann", secret="a-secret-of-these-tests", role=Role.ADMIN)
        with TestClient(
            asgi(app, tokens=[token]),
            base_url="http://127.0.0.1:8737",
            headers={"Authorization": "Bearer a-secret-of-these-tests"},
        ) as client:
            yield client

    def test_it_says_who_paused_it_and_why(self, admin, app):
        app.dispatch("send")
        admin.post(f"{API}/queues/emails/pause", json={"note": "provider is down"})

        found = admin.get(f"{API}/queues/emails").json()

        assert found["backlog"] == "paused"
        [pause] = found["pauses"]
        assert (pause["actor"], pause["note"]) == ("ann", "provider is down")
        assert admin.get(f"{API}/pauses").json() == [pause]

    def test_the_pause_of_a_job_is_shown_with_its_queue(self, admin):
        admin.post(f"{API}/jobs/send/pause", json={"note": "bug 7"})

        found = admin.get(f"{API}/queues/emails").json()

        assert [(each["kind"], each["name"]) for each in found["pauses"]] == [("job", "send")]
        assert admin.get(f"{API}/queues/reports").json()["pauses"] == []

    def test_an_unknown_queue(self, admin):
        assert admin.get(f"{API}/queues/typo").status_code == 404

    def test_pausing_an_unknown_queue_asks_back(self, admin, app):
        refused = admin.post(f"{API}/queues/emials/pause", json={})
        assert refused.status_code == 409
        assert "confirm" in refused.json()["fix"]
        assert app.pauses() == []
        assert app.audit.list() == []

        assert admin.post(f"{API}/queues/emials/pause", json={"confirm": True}).status_code == 200
        assert [pause.name for pause in app.pauses()] == ["emials"]
