"""The questions of the person on call: the clicks of the guide lead to the answers."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dashboard.browser import chromium, serve, signed_in
from tickwork import RunContext, Tickwork
from tickwork._domain.identity import WorkerId
from tickwork._kernel.clock import SystemClock
from tickwork._stores.contract import ClaimRequest, WorkerRow
from tickwork.dashboard import Role, User
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.acts.pauses import pause_queue
from tickwork.testing import ManualClock

pytestmark = [pytest.mark.servers("chromium")]
expect.set_options(timeout=20_000)  # the machine may be busy

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "dashboard.md"
CLICKS_MAX = 3
SILENT = WorkerId("019b76da-a800-7000-8000-000000000001")

ANSWERS = {
    "Why did the nightly report not run, or never fire?": [
        "Why has it not run?",
        "The schedule has not fired",
    ],
    "Which jobs are slow, and slower than last week?": ["Runtime and wait", "A week before"],
    "How far behind is a queue, and when is it empty?": ["Oldest due", "Empty", "Out"],
    "What runs tonight at 2 in my zone, delayed runs too?": [
        "from 02:00 to 03:00",
        "nightly-report",
        "delayed run",
    ],
    "Who paused this queue, and why?": ["by ann", "The shop moves its database."],
    "Who canceled, retried, paused or edited what?": ["ann", "queue.pause", "queue/imports"],
    "What changed since the last deploy?": ["Version 2", "queue/imports"],
    "Who waits for an approval, and since when?": ["approved", "refund", "ago"],
    "What does the silent worker hold?": ["silent", "Holds 1 run", "import_orders"],
    "What failed in the last hour, by error?": ["ConnectionError: month #", "build_report"],
    "Which runs had this error?": ["ConnectionError: month 3", "failed permanent"],
    "Where is the run with this id?": ["Timeline", "Arguments"],
    "What needs me now, and since when?": ["build_report failed 3 times in a row", "ago"],
}


def read_guide():
    text = GUIDE.read_text(encoding="utf-8").partition("## Questions of the person on call")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", text.partition("\n## ")[0], re.MULTILINE)
    return {question: clicks.split(" → ") for question, clicks in rows if question != "question"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop at noon: with a deploy, failures, a backlog, a pause and a worker that is silent."""
    clock = ManualClock(SystemClock().now().replace(hour=12, minute=0))
    url = f"sqlite:///{tmp_path_factory.mktemp('shop')}/jobs.db?synchronous=NORMAL"
    with Tickwork(url, clock=clock, version="2") as app:

        @app.job(queue="reports")
        def build_report(month: int) -> None:
            raise ConnectionError(f"month {month}")

        @app.job(queue="imports")
        def import_orders(source: str) -> None: ...

        @app.job
        def report() -> None: ...

        @app.job
        def refund(ctx: RunContext) -> None:
            ctx.wait_for("approved", timeout="7d")

        app.schedule("nightly-report", report).daily().hours(2)
        with app.running(threads=1):
            for month in (1, 2, 3):
                app.dispatch("build_report", month=month).wait(30)
        app.dispatch("refund")
        app.run()
        app.dispatch("import_orders", source="held")
        store = app._services.store
        store.claim(
            ClaimRequest(1), worker=SILENT, tag="t", now=clock.now(), lease=timedelta(minutes=1)
        )
        early = clock.now() - timedelta(minutes=5)
        store.beat_worker(
            WorkerRow(
                id=SILENT,
                host="web-1",
                pid=4711,
                boot_id="boot",
                process_started="1",
                started_at=early,
                beat_at=early,
                queues=None,
                jobs=("import_orders",),
                slots=1,
                running=1,
            )
        )
        for number in range(20):
            app.dispatch("import_orders", source=f"shop{number}")
        app.delay("14h 30m").dispatch("report")
        ann = Caller(User(name="ann", role=Role.OPERATOR), "10.0.0.7")
        Actions(app, is_read_only=False).take(
            ann, pause_queue, "imports", note="The shop moves its database."
        )
        yield app


@pytest.fixture(scope="module")
def page(shop):
    with serve(shop) as link, chromium() as browser:
        context = signed_in(browser, link, timezone_id="UTC")
        context.set_default_timeout(30_000)
        yield context.new_page()


def test_every_question_has_an_answer():
    assert read_guide().keys() == ANSWERS.keys()


@pytest.mark.parametrize("question", ANSWERS)
def test_the_clicks_lead_to_the_answer(page, shop, question):
    steps = read_guide()[question]
    assert len(steps) <= CLICKS_MAX
    page.goto("/")
    if steps[0].startswith("paste"):
        page.get_by_role("link", name="Runs", exact=True).click()
        run = shop.runs.recent()[0]
        page.get_by_label("Search").fill(run.id)
        page.keyboard.press("Enter")
    else:
        tomorrow = str((shop.clock.now() + timedelta(days=1)).day)
        for step in steps:
            is_name = step.startswith("*")
            name = step.strip("*")
            if name == "tomorrow":
                cell = page.locator(".day.today + .day, .day.today").last
                cell.locator("a").first.click()
                expect(page.locator("h1")).to_have_text("Time")
                assert tomorrow in page.locator(".top strong").text_content()
                continue
            area = page.locator("main" if is_name or step != steps[0] else ".nav")
            link = area.get_by_role("link", name=re.compile(f"^{re.escape(name)}"))
            link.first.click()
            page.wait_for_load_state()
    for text in ANSWERS[question]:
        expect(page.locator("main")).to_contain_text(text)
