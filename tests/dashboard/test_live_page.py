"""Live pages keep what a person does, and state when they are stale; other ways to see a page."""

import re

import pytest
from playwright.sync_api import expect

from dashboard.browser import chromium, serve, signed_in
from tickwork import RunStatus, ScheduleDefinition, Tickwork

pytestmark = [pytest.mark.servers("chromium")]
expect.set_options(timeout=20_000)  # the machine may be busy


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('live')}/jobs.db?synchronous=NORMAL"
    with Tickwork(url) as app:

        @app.job(queue="emails", tags=["mail"])
        def send(to: str) -> str:
            if to.startswith("bad"):
                raise ConnectionError(f"refused {to}")
            return to

        app.schedule("nightly", send).daily().hours(2).timezone("Asia/Tokyo").args(to="team")
        app.dispatch("send", to="bad-1")
        app.run()
        for number in range(50):
            app.delay("3h").dispatch("send", to=f"later{number}")
        yield app


@pytest.fixture(scope="module")
def link(app):
    with serve(app) as link:
        yield link


@pytest.fixture
def open_page(browser, link):
    contexts = []

    def open_one(**options):
        contexts.append(signed_in(browser, link, **options))
        contexts[-1].set_default_timeout(30_000)
        return contexts[-1].new_page()

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    return open_page(viewport={"width": 1280, "height": 700})


def is_live(page):
    expect(page.locator("[data-live-toggle]")).to_have_text("Live")


def tell_of_a_change(page, app, text):
    """Make a change, and wait until the page shows it."""
    run = app.delay("3h").dispatch("send", to=text)
    expect(page.locator("#live")).to_contain_text(text)
    return run


class TestWhatAPersonDoes:
    def test_a_selection_and_the_focus_stay(self, page, app):
        page.goto("/runs?queue=emails")
        is_live(page)
        third = page.locator("input[name=id]").nth(2)
        chosen = third.get_attribute("value")
        third.check()
        assert page.evaluate("document.activeElement.value") == chosen

        tell_of_a_change(page, app, "selection")

        assert page.locator("input[name=id]:checked").count() == 1
        expect(page.locator(f"input[value='{chosen}']")).to_be_checked()
        assert page.evaluate("document.activeElement.value") == chosen
        expect(page.locator("[data-chosen]")).to_have_text("1")
        expect(page.locator("[data-selection]")).to_be_visible()

    def test_opened_details_stay(self, page, app):
        app.pause(queue="emails", note="moving")
        try:
            page.goto("/alerts")
            is_live(page)
            row = page.locator("tr", has_text="The queue emails is paused").first
            row.locator("summary").click()
            field = row.get_by_label("Note")
            field.fill("known since")
            app.pause(queue="reports", note="another pause")

            expect(page.locator("#live")).to_contain_text("another pause")
            expect(field).to_be_visible()
            assert field.input_value() == "known since"
            assert page.evaluate("document.activeElement.name") == "note"
        finally:
            app.resume(queue="emails")
            app.resume(queue="reports")

    def test_the_scroll_position_stays(self, page, app):
        page.goto("/runs")
        is_live(page)
        row = page.locator("tr[id^=run-]").nth(20)
        chosen = row.get_attribute("id")
        page.evaluate("scrollTo(0, 400)")
        place = row.bounding_box()["y"]

        tell_of_a_change(page, app, "scrolled")

        # The row of which it was the place stays there: a browser scrolls by what comes above it.
        after = page.locator(f"tr[id='{chosen}']").bounding_box()["y"]
        assert abs(after - place) <= 2

    def test_typed_text_stays(self, page, app):
        app.pause(queue="emails")
        page.goto("/queues")
        try:
            page.goto("/runs")
            is_live(page)
            page.get_by_label("Queue", exact=True).fill("emai")
            tell_of_a_change(page, app, "typed")
            assert page.get_by_label("Queue", exact=True).input_value() == "emai"
        finally:
            app.resume(queue="emails")


class TestOthers:
    def test_a_pause_by_another_person_appears(self, page, app):
        page.goto("/queues")
        is_live(page)
        app.pause(queue="emails", note="The bank moves.")
        try:
            expect(page.locator("#live")).to_contain_text("The bank moves.")
        finally:
            app.resume(queue="emails")
        expect(page.locator("#live")).not_to_contain_text("The bank moves.")


class TestStale:
    def test_a_paused_page_states_its_age(self, page, app):
        page.add_init_script("""
            const real = Date.now; let ahead = 0;
            Date.now = () => real() + ahead;
            window.moveOn = (seconds) => { ahead += seconds * 1000; };
        """)
        page.goto("/runs")
        is_live(page)
        expect(page.locator("#stale")).to_be_hidden()
        page.locator("[data-live-toggle]").click()
        page.evaluate("moveOn(120)")

        expect(page.locator("#stale")).to_contain_text("Live updates are paused.")
        expect(page.locator("#stale")).to_contain_text(re.compile(r"2m( \d+s)? old"))
        run = app.delay("3h").dispatch("send", to="after the pause")
        page.get_by_role("button", name="Load again").click()
        expect(page.locator("#live")).to_contain_text("after the pause")
        expect(page.locator("#stale")).to_be_hidden()
        run.cancel()

    def test_a_page_without_its_server_states_that(self, open_page, app):
        page = open_page()
        page.add_init_script(
            "const real = Date.now; let ahead = 0;"
            "Date.now = () => real() + ahead;"
            "window.moveOn = (s) => { ahead += s * 1000; };"
        )
        with serve(app) as other:
            page.goto(other)
            page.goto(other.partition("/login")[0] + "/runs")
            is_live(page)
        page.evaluate("moveOn(60)")

        expect(page.locator("#stale")).to_contain_text("The server does not answer.")

    def test_every_page_has_its_time(self, page):
        for path in ("/", "/runs", "/time", "/audit"):
            page.goto(path)
            expect(page.locator("#as-of")).to_be_visible()


class TestTimeZone:
    def test_the_first_page_of_a_browser_gets_its_zone(self, open_page):
        page = open_page(timezone_id="America/New_York")
        page.goto("/time")

        expect(page.locator("#as-of")).to_contain_text(re.compile("E[SD]T"))
        expect(page.locator(".zone option:checked")).to_have_text("Browser time · America/New_York")

    def test_a_choice_holds_on_the_next_page(self, open_page):
        page = open_page(timezone_id="America/New_York")
        page.goto("/runs")
        expect(page.locator("#as-of")).to_contain_text(re.compile("E[SD]T"))
        page.locator(".zone select").select_option("utc")
        expect(page.locator("#as-of")).to_contain_text("UTC")
        page.get_by_role("link", name="Workers").click()
        expect(page.locator("#as-of")).to_contain_text("UTC")


class TestWithoutAScript:
    @pytest.fixture
    def page(self, open_page):
        return open_page(java_script_enabled=False)

    def test_filter_save_a_view_and_cancel(self, page, app):
        run = app.delay("3h").dispatch("send", to="plain")
        page.goto("/runs")
        page.get_by_label("Job", exact=True).fill("send")
        page.get_by_role("button", name="Filter").click()
        page.get_by_text("Save this view").click()
        page.get_by_label("Name of the view").fill("Mine")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("link", name="Mine")).to_be_visible()

        page.goto(f"/runs/{run.id}")
        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(page.get_by_role("status").first).to_contain_text("canceled")
        assert run.status is RunStatus.CANCELED

    def test_zone_and_mute(self, page, app):
        page.goto("/alerts")
        page.locator(".zone select").select_option("schedule")
        page.locator(".zone button").click()
        assert "Zone of the schedule" in page.locator(".zone option:checked").text_content()
        page.locator("summary", has_text="Mute").first.click()
        page.get_by_role("button", name="Mute").first.click()
        expect(page.locator("#live")).to_contain_text("Muted by")


class TestRemove:
    def test_a_removed_schedule_is_there_again(self, page, app):

        app.schedules.create(
            ScheduleDefinition(
                name="digest", job="send", rule="30 2 * * *", args={"to": "ann"}, tags=["weekly"]
            )
        )
        before = app.inspect.schedule_details("digest")
        page.goto("/schedules/digest")
        page.get_by_role("button", name="Remove").click()
        page.locator("#confirm button[value=yes]").click()
        page.wait_for_url("**/schedules")
        page.get_by_role("button", name="Undo").click()

        expect(page.get_by_role("status").first).to_contain_text("digest is there again")
        assert app.inspect.schedule_details("digest") == before
        expect(page.get_by_role("button", name="Undo")).to_have_count(0)


class TestErrors:
    def test_an_error_keeps_the_frame(self, page):
        page.goto("/runs/019b76da-a800-7000-8000-000000000001")

        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        page.get_by_role("link", name="Queues").click()
        page.wait_for_url("**/queues")


class TestPhone:
    @pytest.mark.parametrize("path", ["/runs", "/workers", "/alerts", "/schedules", "/queues"])
    def test_rows_are_stacked_and_nothing_is_cut(self, open_page, path):
        page = open_page(viewport={"width": 390, "height": 844})
        page.goto(path)
        row = page.locator("table.stacked tbody tr").first
        if row.count():
            assert page.evaluate("r => getComputedStyle(r).display", row.element_handle()) == "flex"
            for cell in row.locator("td:visible").all():
                box = cell.bounding_box()
                assert box["x"] + box["width"] <= 391, (path, cell.text_content())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

    def test_the_text_of_a_chart_is_as_large_as_other_text(self, open_page):
        page = open_page(viewport={"width": 390, "height": 844})
        page.goto("/time")
        text = page.locator("svg.pic text").first.bounding_box()
        assert text["height"] >= 9
