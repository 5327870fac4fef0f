"""The time zone of the pages: of the browser, UTC, or of the schedule; one choice for all pages."""

import re

import pytest

from tickwork import Tickwork
from tickwork.testing import ManualClock


@pytest.fixture
def client(client_of, tmp_path):
    clock = ManualClock("2026-03-02T12:00:00+00:00")
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db?synchronous=NORMAL", clock=clock) as app:

        @app.job
        def work() -> None: ...

        app.schedule("tokyo", work).daily().hours(2).timezone("Asia/Tokyo")
        app.run()
        app.schedules.run_now("tokyo")
        client = client_of(of=app)
        client.headers["Accept"] = "text/html"
        self_run = app.runs.recent()[0]
        client.run_path = f"/runs/{self_run.id}"
        yield client


def choose(client, zone):
    csrf = re.findall(r'name="csrf" value="(\w+)"', client.get("/").text)[0]
    return client.post("/zone", data={"csrf": csrf, "zone": zone, "next": "/audit"})


def as_of(client, path="/queues"):
    return re.findall(r'id="as-of"[^>]*>([^<]+)<', client.get(path).text)[0]


def test_without_a_choice_it_is_the_zone_of_the_browser(client):
    assert as_of(client) == "2026-03-02 12:00:00 UTC"  # the first page of a browser

    client.cookies.set("tickwork_browser_zone", "America%2FNew_York")
    for path in ("/queues", "/runs", "/audit", "/alerts"):
        assert as_of(client, path) == "2026-03-02 07:00:00 EST"


def test_a_choice_holds_for_all_pages(client):
    client.cookies.set("tickwork_browser_zone", "America%2FNew_York")
    answer = choose(client, "utc")

    assert answer.headers["location"] == "/audit"
    assert as_of(client) == as_of(client, "/runs") == "2026-03-02 12:00:00 UTC"
    choose(client, "browser")
    assert as_of(client) == "2026-03-02 07:00:00 EST"


def test_times_of_a_schedule_are_in_its_zone(client):
    choose(client, "schedule")

    assert "2026-03-02 21:00:00 JST" in client.get(client.run_path).text
    assert as_of(client) == "2026-03-02 12:00:00 UTC"  # it belongs to no schedule


@pytest.mark.parametrize("name", ["Nowhere/City", "../../etc/passwd", "", "x" * 5000, "%00"])
def test_a_zone_that_does_not_exist_is_left_out(client, name):
    client.cookies.set("tickwork_browser_zone", name)

    assert as_of(client) == "2026-03-02 12:00:00 UTC"


def test_another_choice_is_refused(client):
    assert choose(client, "mars").status_code == 422
