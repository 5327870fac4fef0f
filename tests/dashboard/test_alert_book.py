"""Alerts: one for each cause, since when, counted, muted, ended; and advice as a button."""

import re
from datetime import timedelta

import pytest

from tickwork import Tickwork
from tickwork._domain.identity import WorkerId
from tickwork._stores.contract import WorkerRow
from tickwork.dashboard.advice import advise
from tickwork.dashboard.alert_book import AlertBook, link_of
from tickwork.errors import ReadTimeout
from tickwork.testing import ManualClock

HTML = {"Accept": "text/html"}


@pytest.fixture
def clock():
    return ManualClock("2026-03-02T12:00:00+00:00")


@pytest.fixture
def app(tmp_path, clock):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL", clock=clock) as app:

        @app.job(queue="reports")
        def report() -> None:
            raise ValueError("no data")

        @app.job
        def clean() -> None: ...

        for name in ("one", "two", "three"):
            app.schedule(name, clean).hourly()
        app.schedule("nightly", report).hourly()
        app.run()
        yield app


@pytest.fixture
def book(app):
    return AlertBook(app, app.check_health)


def a_worker_row(app):
    """A worker that is alive, and does nothing."""
    now = app.clock.now()
    return WorkerRow(
        id=WorkerId("019b76da-a800-7000-8000-000000000001"),
        host="web-1",
        pid=7,
        boot_id="boot",
        process_started="1",
        started_at=now,
        beat_at=now,
        queues=("default",),
        jobs=("clean",),
        slots=1,
    )


def current(book):
    book.forget()
    return {each.name: each for each in book.current()}


def fail(app, times=3):
    for _ in range(times):
        app.dispatch("report")
        app.run()


class TestCauses:
    def test_without_a_worker_there_is_one_alert(self, app, book, clock):
        app.dispatch("clean")
        clock.advance(hours=3)
        found = current(book)

        assert list(found) == ["check/workers"]
        assert "No worker is running." in found["check/workers"].text
        shown = " ".join(found["check/workers"].effects)
        assert "one should have fired" in shown
        assert "oldest has waited" in shown

    def test_a_job_that_fails_is_one_alert_since_its_first_failure(self, app, book, clock):
        with app.running(threads=1):
            began = clock.now()
            for _ in range(3):
                app.dispatch("report").wait(30)
                clock.advance(seconds=1)
            alert = current(book)["failing//report"]

        assert "report failed 3 times in a row: ValueError: no data" in alert.text
        assert alert.since == began
        assert link_of(alert)[0] == "/runs?job=report&status=failed_permanent"

    def test_a_link_names_the_tenant(self, app, book):
        for _ in range(3):
            app.draft.tenant("a/b").dispatch("report")
            app.run()

        path, _ = link_of(current(book)["failing/a/b/report"])
        assert path == "/runs?job=report&status=failed_permanent&tenant=a%2Fb"

    def test_a_late_schedule_belongs_to_the_pause_of_its_queue(self, app, book, clock):
        app.pause(queue="reports", note="moving")
        clock.advance(hours=3)
        app._services.store.beat_worker(a_worker_row(app))
        found = current(book)

        assert "schedule//nightly" not in found
        assert any("nightly" in each for each in found["paused/queue/reports"].effects)


class TestPage:
    @pytest.fixture
    def client(self, client_of, app):
        client = client_of(of=app)
        client.headers.update(HTML)
        return client

    def count(self, client):
        client.app.state.pages.alert_book.forget()
        found = re.search(
            r'id="alert-count"><span class="sr">: </span>(\d+)<', client.get("/").text
        )
        return int(found[1]) if found else 0

    def send(self, client, path, **data):
        csrf = re.findall(r'name="csrf" value="(\w+)"', client.get("/alerts").text)[0]
        return client.post(path, data={"csrf": csrf, "next": "/alerts", **data})

    def test_the_navigation_of_every_page_has_the_count(self, client, app):
        assert self.count(client) == 1  # no worker is running
        fail(app)
        assert self.count(client) == 2
        app.pause(queue="reports")  # the decision of a person
        assert self.count(client) == 2

    def test_a_muted_alert_is_shown_and_not_counted_until_its_time(self, client, app, clock):
        fail(app)
        self.send(client, "/alerts/failing//report/mute", length="1h", note="known since Monday")

        assert self.count(client) == 1
        page = client.get("/alerts").text
        assert "Muted by" in page
        assert "known since Monday" in page

        clock.advance(hours=1, seconds=1)
        assert self.count(client) == 2

    def test_a_mute_ends_by_hand(self, client, app):
        fail(app)
        self.send(client, "/alerts/failing//report/mute")
        self.send(client, "/alerts/failing//report/unmute")

        assert self.count(client) == 2

    def test_a_page_is_shown_when_alerts_cannot_be_found(self, client, app, monkeypatch):
        assert self.count(client) == 1
        book = client.app.state.pages.alert_book
        calls = []

        def fail_to_find():
            calls.append(1)
            raise ReadTimeout("sqlite://", limit=timedelta(seconds=5))

        monkeypatch.setattr(book, "_find", fail_to_find)
        monkeypatch.setattr("tickwork.dashboard.alert_book.ALERTS_SECONDS", 0)
        for _ in range(3):
            assert 'id="alert-count"' in client.get("/audit").text
        assert calls == [1]  # pages do not wait for it again and again
        assert client.get("/alerts").status_code == 503

    def test_what_ended_is_the_same_on_every_server(self, client, client_of, app, clock):
        app.pause(queue="reports", note="moving")
        self.count(client)
        clock.advance(minutes=5)
        app.resume(queue="reports")
        self.count(client)

        other = client_of(of=app)
        for server in (client, other):
            page = server.get("/alerts", headers=HTML).text.partition("<h2>Ended</h2>")[2]
            assert "The queue reports is paused. moving" in page
            assert 'data-label="Took">5m<' in page

    def test_ended_alerts_come_in_pages(self, client, app, clock):
        for number in range(41):
            app.pause(queue=f"queue {number:02}")
        self.count(client)
        for number in range(41):
            app.resume(queue=f"queue {number:02}")
        self.count(client)

        first = client.get("/alerts").text
        older = re.findall(r'rel="next" href="(/alerts\?cursor=[^"]+)"', first)[0]
        second = client.get(older).text
        shown = [re.findall(r"The queue queue (\d\d) is paused", page) for page in (first, second)]
        assert (len(shown[0]), len(shown[1])) == (40, 1)
        assert len({*shown[0], *shown[1]}) == 41
        assert client.get("/alerts?cursor=x").status_code == 422

    def test_advice_is_a_button(self, client, app):
        app.pause(queue="reports")
        page = client.get("/alerts").text
        assert 'action="/queues/reports/resume"' in page
        assert "tickwork resume" not in page
        assert "`" not in page.partition('<div id="live"')[2]


@pytest.mark.parametrize(
    ("text", "shown", "path", "action"),
    [
        ("tickwork resume --queue emails", "", "/queues/emails/resume", "queue.resume"),
        ("tickwork resume --schedule a/b", "", "/schedules/a%2Fb/resume", "schedule.resume"),
        ("Start one: tickwork work --queue x", "Start one.", "/workers", ""),
        ("Start one: python manage.py tickwork work", "Start one.", "/workers", ""),
        (
            "tickwork runs --job a --status failed_permanent",
            "",
            "/runs?job=a&status=failed_permanent",
            "",
        ),
        ("tickwork dispatch report", "", "/dispatch?job=report", ""),
        ("Read `tickwork doctor`", "Read.", "/alerts", ""),
    ],
)
def test_commands_become_steps(text, shown, path, action):
    found = advise(text)

    assert found.text == shown
    assert [(step.path, step.action) for step in found.steps] == [(path, action)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "`tickwork explain SCHEDULE` shows why.",
            "",
        ),
        ("Synchronize both with NTP.", "Synchronize both with NTP."),
        ("They do not fire. `tickwork prune` removes them.", "They do not fire. removes them."),
    ],
)
def test_other_commands_are_left_out(text, shown):
    assert advise(text).steps == []
    assert "`" not in advise(text).text
