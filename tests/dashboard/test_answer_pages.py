"""The pages of a queue, a job and a schedule answer why, how far behind and how slow."""

import pytest
from starlette.testclient import TestClient

from tickwork import Tickwork


@pytest.fixture
def show(admin: TestClient):
    def load(path: str) -> str:
        response = admin.get(path)
        assert response.status_code == 200, response.text
        return response.text

    return load


class TestNeverRan:
    def test_the_page_of_a_schedule_that_never_fired_says_why(self, show):
        text = show("/schedules/nightly")

        assert "Why has it not run?" in text
        assert "The schedule has never fired." in text or "No worker is running." in text

    def test_the_page_of_a_job_that_never_ran_says_why(self, show):
        assert "No worker is running." in show("/jobs/fails")

    def test_a_job_in_a_paused_queue(self, show, app: Tickwork):
        app.dispatch("send_email", "ann@example.org")
        app.pause(queue="emails", note="provider is down")

        assert "provider is down" in show("/jobs/send_email")

    @pytest.mark.parametrize("path", ["/jobs/unknown", "/queues/unknown"])
    def test_unknown_names(self, admin, path):
        assert admin.get(path).status_code == 404


class TestQueuePage:
    def test_it_has_the_backlog_limits_and_percentiles(self, show, app: Tickwork):
        app.dispatch("send_email", "ann@example.org")
        app.run()
        app.dispatch("send_email", "bob@example.org")

        text = show("/queues/emails")

        assert "no live worker" in text
        assert "job:send_email" in text
        assert "Runtime p50" in text
        assert 'href="/queues/emails"' in show("/queues")

    def test_who_paused_it_and_why(self, show, admin, app: Tickwork):
        app.dispatch("send_email", "ann@example.org")
        admin.post("/api/v1/queues/emails/pause", json={"note": "provider is down"})

        text = show("/queues/emails")

        assert "by admin ann" in text
        assert "provider is down" in text

    @pytest.mark.parametrize("days", ["1", "7", "35", "90", "x", "-1"])
    def test_every_length_of_its_history(self, show, days):
        assert "A week before" in show(f"/queues/emails?days={days}")


class TestSchedulePage:
    def test_outcomes_by_day(self, show, app: Tickwork):
        app.schedules.run_now("nightly")
        app.run()

        text = show("/schedules/nightly")

        assert "1 completed" in text
        assert "a column for each week" in text

    def test_the_list_has_outcomes_behind_newer_runs(self, show, app: Tickwork):
        app.schedules.run_now("nightly")
        app.run()
        app.draft.dispatch_many("fails", [{}] * 1_200)

        assert "oldest first: completed" in show("/schedules")


class TestRunPage:
    def test_a_run_links_to_its_retry(self, show, app: Tickwork):
        first = app.dispatch("send_email", "ann@example.org")
        app.run()
        again = first.retry()

        assert f"/runs/{again.id}" in show(f"/runs/{first.id}")
        assert f"/runs/{first.id}" in show(f"/runs/{again.id}")
