"""Who did what, and what changed since the last deploy."""

import json

import pytest

from tickwork import Tickwork
from tickwork.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL"


def start(url, clock, *, version=None, hour=2, with_report=False):
    """A version of a program, which writes its definitions."""
    app = Tickwork(url, clock=clock, version=version)

    @app.job
    def clean(token: str = "") -> None: ...

    app.schedule("nightly", clean).daily().hours(hour).args(token=f"secret {hour}")
    if with_report:
        app.schedule("weekly", clean).weekly().mondays()
    app.run()
    return app


def entries(app):
    return [
        (each.actor, each.action, each.subject, json.loads(each.detail))
        for each in app.audit.list()
    ]


class TestChangesByCode:
    def test_a_changed_rule_is_in_the_log_with_both_rules_and_no_arguments(self, url, clock):
        start(url, clock).close()

        with start(url, clock, version="2.0", hour=3) as app:
            [(actor, action, subject, detail)] = entries(app)
            [entry] = app.audit.list()

        assert (actor, action, subject) == ("code", "schedule.change", "schedule/nightly")
        assert entry.source == "version 2.0"
        assert detail["before"]["rule"] == "minutes=0 hours=2"
        assert detail["after"]["rule"] == "minutes=0 hours=3"
        assert "secret" not in entry.detail

    def test_a_new_schedule(self, url, clock):
        start(url, clock).close()

        with start(url, clock, with_report=True) as app:
            assert entries(app) == [("code", "schedule.create", "schedule/weekly", {})]

    def test_the_first_start_and_an_equal_one_add_nothing(self, url, clock):
        start(url, clock).close()

        with start(url, clock) as app:
            assert entries(app) == []


class TestDeploys:
    def run_worker(self, url, clock, version):
        with Tickwork(url, version=version) as app:

            @app.job
            def clean() -> None: ...

            with app.running(threads=1):
                [worker] = app.inspect.workers()
        return worker

    def test_workers_report_the_version_of_the_application(self, url, clock):
        assert self.run_worker(url, clock, "2026.11.3").application == "2026.11.3"
        assert self.run_worker(url, clock, None).application == ""

    def test_the_first_worker_of_a_version_is_a_deploy(self, url, clock):
        for version in ("1.0", "1.0", "1.1", "1.0"):
            self.run_worker(url, clock, version)

        with Tickwork(url) as app:
            found = app.inspect.deploys()

        assert [(each.before, each.version) for each in found] == [
            ("1.1", "1.0"),
            ("1.0", "1.1"),
            ("", "1.0"),
        ]

    def test_what_changed_since_the_last_deploy(self, url, clock):
        with Tickwork(url) as app:
            app.install()
            app.audit.record("queue.pause", "queue/old", actor="ann")
            self.run_worker(url, clock, "1.1")
            app.audit.record("queue.pause", "queue/new", actor="bob")

            found = app.inspect.changes()

        assert found.deploy is not None
        assert found.deploy.version == "1.1"
        assert [each.subject for each in found.entries] == ["queue/new"]

    def test_without_a_version_there_are_none(self, url, clock):
        self.run_worker(url, clock, None)

        with Tickwork(url) as app:
            assert app.inspect.deploys() == []
            assert app.inspect.changes().entries == []
