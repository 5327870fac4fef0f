"""The pages in headless Chromium, on an application with a worker: each action is verified."""

import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.browser import PAGES, chromium, define_demo, fill, serve, signed_in, wait_until
from dashboard.conftest import SECRETS, TOKENS
from tickwork import RunContext, RunStatus, Tickwork
from tickwork._kernel.durations import relative_time
from tickwork._stores.contract import RunFilter
from tickwork.dashboard import Role
from tickwork.dashboard.actions import Actions

pytestmark = [
    pytest.mark.servers("chromium"),
]
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = {"serious", "critical"}
expect.set_options(timeout=20_000)  # the machine may be busy
# In the dark only the colours differ, and on a phone only the layout.
RULES = {
    "light": "{resultTypes: ['violations']}",
    "dark": "{runOnly: ['color-contrast'], resultTypes: ['violations']}",
    "phone": "{runOnly: ['link-name', 'button-name', 'label', 'scrollable-region-focusable']}",
}
FAILED = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('browser')}/jobs.db?synchronous=NORMAL"
    with Tickwork(url) as app:
        define_demo(app)
        fill(app)
        with app.running(threads=2):
            yield app


@pytest.fixture(scope="module")
def url(app):
    with serve(app) as link:
        yield link


def open_page(browser, url, **options):
    context = signed_in(browser, url, **options)
    context.set_default_timeout(30_000)  # the machine may be busy
    return context.new_page()


@pytest.fixture
def page(browser, url):
    opened = open_page(browser, url, viewport={"width": 1280, "height": 900})
    yield opened
    opened.context.close()


def confirm(page: Page) -> None:
    page.locator("#confirm button[value=yes]").click()


class TestEveryPage:
    """No errors, no violated policy, no serious accessibility issue, no sideways scrolling."""

    @pytest.mark.parametrize("kind", ["light", "dark", "phone"])
    def test_it_is_sound(self, browser, app, url, kind):
        scheme = "dark" if kind == "dark" else "light"
        size = {"width": 390, "height": 844} if kind == "phone" else {"width": 1280, "height": 900}
        # The checker is a script of the test, not of the page.
        page = open_page(browser, url, color_scheme=scheme, viewport=size, bypass_csp=True)
        messages: list[str] = []
        page.on("console", lambda m: messages.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: messages.append(str(error)))
        paths = {**PAGES, "run": f"/runs/{app.runs.recent(FAILED)[0].id}"}
        found = []
        for name, path in paths.items():
            page.goto(path)
            page.evaluate(AXE)
            result = page.evaluate(f"axe.run(document, {RULES[kind]})")
            found += [
                (name, each["id"], [node["html"][:120] for node in each["nodes"][:2]])
                for each in result["violations"]
                if each["impact"] in SERIOUS
            ]
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], (name, width)
        page.context.close()

        assert found == []
        assert messages == []

    def test_no_page_violates_its_policy(self, page):
        messages: list[str] = []
        page.on("console", lambda m: messages.append(m.text) if m.type == "error" else None)
        for path in PAGES.values():
            page.goto(path)
        assert messages == []


class TestRuns:
    def test_cancel(self, page, app):
        run = app.delay("3h").dispatch("send_email", to="cancel@example.org")
        page.goto(f"/runs/{run.id}")
        page.get_by_role("button", name="Cancel", exact=True).click()
        confirm(page)

        expect(page.get_by_role("status")).to_contain_text("canceled")
        assert run.status is RunStatus.CANCELED
        assert app.audit.list(subject=f"run/{run.id}")[0].action == "run.cancel"

    def test_keeping_it_changes_nothing(self, page, app):
        run = app.delay("3h").dispatch("send_email", to="keep@example.org")
        page.goto(f"/runs/{run.id}")
        page.get_by_role("button", name="Cancel", exact=True).click()
        page.locator("#confirm button[value=no]").click()

        assert run.status is RunStatus.PENDING

    def test_retry_leads_to_the_new_run(self, page, app):
        old = app.runs.recent(FAILED)[0]
        page.goto(f"/runs/{old.id}")
        page.get_by_role("button", name="Retry").click()
        page.wait_for_url(lambda address: old.id not in address)

        new = page.url.rsplit("/", 1)[1]
        assert app.get_run(new).read().retry_of == old.id

    def test_snooze_and_delete(self, page, app):
        run = app.delay("3h").dispatch("send_email", to="snooze@example.org")
        before = run.read().due_at
        page.goto(f"/runs/{run.id}")
        page.get_by_role("button", name="1d", exact=True).click()
        expect(page.get_by_role("status")).to_be_visible()
        assert run.read().due_at > before

        run.cancel()
        page.goto(f"/runs/{run.id}")
        page.get_by_role("button", name="Delete").click()
        confirm(page)
        page.wait_for_url("**/runs")
        assert run.id not in {each.id for each in app.runs.recent(limit=500)}

    def test_dispatch_by_the_form(self, page, app):
        page.goto("/dispatch?job=send_email")
        page.get_by_label("to", exact=False).first.fill("form@example.org")
        page.get_by_role("button", name="Dispatch").click()
        page.wait_for_url("**/runs/0*")

        run = app.get_run(page.url.rsplit("/", 1)[1])
        wait_until(lambda: run.status is RunStatus.COMPLETED)
        assert run.result() == "sent to form@example.org"

    def test_filters_stay_in_the_url(self, page):
        page.goto("/runs")
        page.get_by_label("Queue").fill("reports")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**queue=reports**")
        page.get_by_role("link", name=re.compile("^Completed")).click()
        page.wait_for_url("**status=completed**")

        assert "queue=reports" in page.url
        page.go_back()
        assert "status" not in page.url

    def test_bulk_on_a_selection(self, page, app):
        runs = [app.delay("3h").dispatch("send_email", to=f"bulk{n}@example.org") for n in range(3)]
        page.goto("/runs?text=bulk")
        page.get_by_label("Select all on this page").check()
        page.get_by_role("button", name="Cancel", exact=True).click()
        confirm(page)

        page.wait_for_url("**/bulk/*")
        wait_until(lambda: all(run.status is RunStatus.CANCELED for run in runs))

    def test_bulk_on_a_whole_filter(self, page, app):
        runs = [app.delay("3h").args(to="x").tags("all").dispatch("send_email") for _ in range(60)]
        page.goto("/runs?tag=all")
        page.get_by_role("link", name="Act on all that match").click()
        expect(page.locator("main")).to_contain_text("60 runs match")
        page.get_by_role("button", name="Cancel unfinished ones").click()
        confirm(page)

        page.wait_for_url("**/bulk/*")
        wait_until(lambda: all(run.status is RunStatus.CANCELED for run in runs))
        page.reload()
        expect(page.locator("main")).to_contain_text("60 of 60")

    def test_stop_a_bulk_action(self, page, app, monkeypatch):
        runs = [app.delay("3h").args(to="x").tags("stop").dispatch("send_email") for _ in range(8)]
        take, acted, may_go_on = Actions.take_part, [], threading.Event()

        def take_slowly(self, caller, act, run_id):
            acted.append(run_id)
            if len(acted) == 3:
                may_go_on.wait(60)
            return take(self, caller, act, run_id)

        monkeypatch.setattr(Actions, "take_part", take_slowly)
        page.goto("/runs/bulk?tag=stop")
        page.get_by_role("button", name="Cancel unfinished ones").click()
        confirm(page)
        page.wait_for_url("**/bulk/*")
        wait_until(lambda: len(acted) == 3)
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("status")).to_contain_text("stopped")
        may_go_on.set()

        def canceled():
            return {run.id for run in runs if run.status is RunStatus.CANCELED}

        wait_until(lambda: canceled() == set(acted))
        assert len(acted) == 3
        task = page.url.rsplit("/", 1)[1]
        actions = [each.action for each in app.audit.list(subject=f"bulk/{task}")]
        assert actions == ["bulk.stop", "run.cancel"]


class TestControl:
    def test_pause_and_resume_a_queue(self, page, app):
        page.goto("/queues")
        row = page.locator("tr", has=page.get_by_role("link", name="emails", exact=True)).first
        row.get_by_role("button", name="Pause").click()
        confirm(page)
        expect(page.get_by_role("status")).to_contain_text("emails is paused")
        assert "emails" in [pause.name for pause in app.pauses()]

        row.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status")).to_contain_text("emails is resumed")
        assert "emails" not in [pause.name for pause in app.pauses()]

    def test_pause_and_resume_a_job(self, page, app):
        page.goto("/queues")
        row = page.locator("tr", has=page.get_by_role("link", name="cleanup", exact=True)).first
        row.get_by_role("button", name="Pause").click()
        confirm(page)
        expect(page.get_by_role("status")).to_contain_text("The job cleanup is paused")
        assert ("job", "cleanup") in [(each.kind, each.name) for each in app.pauses()]

        row.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("status")).to_contain_text("The job cleanup is resumed")
        assert "cleanup" not in [pause.name for pause in app.pauses()]

    def test_change_and_reset_a_limit(self, page, app):
        page.goto("/queues")
        page.get_by_label("Slots of job:send_email").fill("9")
        page.get_by_role("button", name="Change").click()
        expect(page.get_by_role("status")).to_contain_text("is 9 now")
        assert [row.override for row in app.limits.list()] == [9]

        page.get_by_role("button", name="Reset").click()
        expect(page.get_by_role("status")).to_contain_text("as in code")
        assert [row.override for row in app.limits.list()] == [None]

    def test_pause_run_and_backfill_a_schedule(self, page, app):
        page.goto("/schedules/nightly-report")
        page.get_by_label("Note").fill("holidays")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("status")).to_contain_text("paused")
        assert app.schedules.get("nightly-report").paused_note == "holidays"

        page.get_by_role("button", name="Resume", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("resumed")
        assert not app.schedules.get("nightly-report").is_paused

        page.get_by_label("The last").fill("3d")
        page.get_by_role("button", name="Count").click()
        expect(page.get_by_role("status")).to_contain_text("Firings in that time: 3")

        expect(page.get_by_label("The last")).to_have_value("3d")
        page.get_by_role("button", name="Backfill").click()
        confirm(page)
        expect(page.get_by_role("status")).to_contain_text("3 runs are added")
        added = app.runs.recent(RunFilter(schedule="nightly-report", job="build_report"))
        assert len({run.nominal_at for run in added}) == len(added) == 3

        page.get_by_role("button", name="Run now").click()
        page.wait_for_url("**/runs/0*")
        run = app.get_run(page.url.rsplit("/", 1)[1])
        assert run.read().job == "build_report"

    def test_create_edit_and_remove_a_schedule(self, page, app):
        page.goto("/schedules")
        page.get_by_role("link", name="New schedule").click()
        page.get_by_role("link", name="send_email").click()
        page.get_by_label("Name").fill("by hand")
        page.get_by_label("Rule").fill("30 2 * * *")
        page.get_by_label("Time zone").fill("Europe/Berlin")
        expect(page.locator("#preview")).to_contain_text("at 02:30")
        expect(page.locator("#preview .banner.warn").first).to_contain_text("go forward")
        page.get_by_label("to ·").fill("ann@example.org")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("status")).to_contain_text("created")
        made = app.inspect.schedule_details("by hand")
        assert (made.rule, made.timezone) == ("30 2 * * *", "Europe/Berlin")
        assert made.args == {"to": "ann@example.org"}

        page.get_by_role("link", name="Edit").click()
        page.get_by_label("Rule").fill("0 4 * * MON")
        expect(page.locator("#preview")).to_contain_text("at 04:00 on Monday")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("changed")
        expect(page.locator("#revisions")).to_contain_text("30 2 * * * → 0 4 * * MON")
        assert app.inspect.schedule_details("by hand").rule == "0 4 * * MON"

        page.get_by_role("button", name="Remove").click()
        confirm(page)
        expect(page.get_by_role("status")).to_contain_text("removed")
        assert "by hand" not in [each.name for each in app.schedules.list()]

    def test_drain_a_worker(self, page, app):
        with Tickwork(app.settings.url) as other:
            define_demo(other)
            known = {each.id for each in app.inspect.status().workers}
            with other.running(threads=1):
                [worker] = [each for each in app.inspect.status().workers if each.id not in known]
                page.goto("/workers")
                row = page.locator("tr", has_text=worker.id[:13])
                row.get_by_role("button", name="Drain").click()
                confirm(page)
                expect(page.get_by_role("status")).to_contain_text("drain")
                wait_until(lambda: not is_working(app, worker.id))
        assert all(is_working(app, each) for each in known)

    def test_preview_follows_the_typing(self, page):
        page.goto("/schedules")
        page.get_by_label("Cron, symbol").fill("0 9 * * MON")
        expect(page.locator("#preview")).to_contain_text("at 09:00 on Monday")
        page.get_by_label("Cron, symbol").fill("61 * * * *")
        expect(page.locator("#preview")).to_contain_text("Invalid cron expression")


def is_working(app: Tickwork, worker_id: str) -> bool:
    """Whether a worker takes runs: it is listed, and not draining."""
    workers = app.inspect.status().workers
    return any(each.id == worker_id and not each.is_draining for each in workers)


class TestLive:
    def test_the_progress_of_a_running_run(self, page, app):
        goes_on, ends = threading.Event(), threading.Event()

        @app.job
        def long_report(ctx: RunContext) -> None:
            ctx.progress(0.25, note="page 1 of 4")
            goes_on.wait(60)
            ctx.progress(0.5, note="page 2 of 4")
            ends.wait(60)

        run = app.dispatch("long_report")
        try:
            wait_until(lambda: run.read().progress)
            page.goto(f"/runs/{run.id}")
            expect(page.locator("#live")).to_contain_text("page 1 of 4")
            goes_on.set()
            expect(page.locator("#live")).to_contain_text("page 2 of 4")
            assert page.get_by_label("Progress").get_attribute("value") == "50"
        finally:
            goes_on.set()
            ends.set()

    def test_a_new_run_appears_until_it_is_paused(self, page, app):
        page.goto("/runs?text=live")
        button = page.locator("[data-live-toggle]")
        expect(button).to_contain_text("Live")
        app.dispatch("send_email", to="live1@example.org")
        expect(page.locator("#live")).to_contain_text("live1@example.org")

        button.click()
        expect(button).to_contain_text("Paused")
        app.dispatch("send_email", to="live2@example.org")
        page.wait_for_timeout(1500)
        expect(page.locator("#live")).not_to_contain_text("live2@example.org")
        button.click()
        expect(page.locator("#live")).to_contain_text("live2@example.org")

    def test_times_are_refreshed_by_the_rules_of_the_server(self, page):
        page.goto("/workers")
        distances = [-40, -700, -4000, -86_380, 3 * 86_400 + 4 * 3_600 + 600, 90 * 86_400 + 60]
        page.evaluate(
            """distances => distances.forEach(distance => {
                const time = document.createElement("time");
                time.dateTime = new Date(Date.now() + distance * 1000).toISOString();
                time.dataset.relative = "";
                time.className = "test-time";
                document.body.append(time);
            })""",
            distances,
        )

        now = datetime(2026, 3, 1, tzinfo=UTC)
        for place, distance in enumerate(distances[1:], start=1):
            text = relative_time(now + timedelta(seconds=distance), now)
            expect(page.locator(".test-time").nth(place)).to_have_text(text)
        expect(page.locator(".test-time").first).to_have_text(re.compile(r"^[45]\ds ago$"))

    def test_keyboard_and_theme(self, page):
        page.goto("/")
        page.keyboard.press("g")
        page.keyboard.press("r")
        page.wait_for_url("**/runs")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "text"

        page.get_by_label("Switch between light and dark").click()
        theme = page.evaluate("document.documentElement.dataset.theme")
        page.goto("/workers")
        assert page.evaluate("document.documentElement.dataset.theme") == theme == "dark"


class TestLogin:
    def test_a_reader_logs_in_and_sees_no_actions(self, browser, app):
        with serve(app, TOKENS) as link:
            page = browser.new_context(base_url=link.partition("/login")[0]).new_page()
            page.goto("/runs")
            page.get_by_label("Token").fill(SECRETS[Role.READER])
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url("**/runs")

            expect(page.get_by_role("link", name="Dispatch")).to_have_count(0)
            page.goto("/queues")
            expect(page.get_by_role("button", name="Pause")).to_have_count(0)
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url("**/login")
            page.context.close()
