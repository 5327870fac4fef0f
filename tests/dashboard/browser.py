"""A dashboard with lively data, served on a free port, and a headless Chromium."""

import linecache
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import uvicorn
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from servers.chromium import find_programs
from tickwork import ScheduleDefinition, Secret, Tickwork
from tickwork.dashboard import AccessToken, Role, User, asgi
from tickwork.dashboard.access import Caller, LinkToken
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.acts.definitions import change_schedule

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PAGES = {
    "login": "/login",
    "overview": "/",
    "runs": "/runs",
    "schedules": "/schedules",
    "schedule": "/schedules/nightly-report",
    "time": "/time",
    "time-week": "/time?view=week",
    "time-day": "/time?view=day",
    "queues": "/queues",
    "queue": "/queues/emails",
    "job": "/jobs/build_report",
    "workers": "/workers",
    "alerts": "/alerts",
    "audit": "/audit",
    "changes": "/audit/changes",
    "errors": "/runs/errors?since=24h",
    "dispatch": "/dispatch?job=send_email",
    "schedule-new": "/new-schedule?job=send_email",
    "schedule-edit": "/edit-schedule?name=digest",
    "schedule-database": "/schedules/digest",
}


IMPORTS = """
def import_orders(source: str, api_key: Secret[str]) -> int:
    raise ValueError(f"<b>bad row</b> in {source}")
"""


def define_import() -> Callable[..., int]:
    """A handler whose traceback names a file of a shop, and no path of this machine."""
    file = "shop/imports.py"
    linecache.cache[file] = (len(IMPORTS), None, IMPORTS.splitlines(keepends=True), file)
    names: dict[str, Any] = {"Secret": Secret, "__name__": "shop.imports"}
    exec(compile(IMPORTS, file, "exec"), names)  # the text above
    handler: Callable[..., int] = names["import_orders"]
    return handler


def define_demo(app: Tickwork, sleep: Callable[[float], object] = time.sleep) -> None:
    @app.job(queue="emails", concurrency=4, tags=["mail"])
    def send_email(to: str, subject: str = "Hello", urgent: bool = False) -> str:
        sleep(0.01 + len(to) % 7 / 100)
        return f"sent to {to}"

    @app.job(queue="reports", attempts=3)
    def build_report(month: int) -> dict[str, int]:
        if month % 4 == 0:
            raise ConnectionError(f"report server refused month {month}")
        sleep(0.02 * month)
        return {"month": month, "rows": month * 1000}

    import_orders = app.job(name="import_orders", queue="imports")(define_import())

    @app.job
    def cleanup() -> None:
        sleep(0.005)

    app.schedule("nightly-report", build_report).daily().hours(2).args(month=7)
    app.schedule("sweep", cleanup).every_five_minutes()
    app.schedule("weekly-digest", send_email).weekdays().hours(9).args(to="team@example.org")
    app.schedule("hourly-import", import_orders).hourly().args(source="shop", api_key="s3cret")
    app.schedule("backup", cleanup).daily().hours(2)


def fill(app: Tickwork) -> None:
    """Runs of every status."""
    for number in range(30):
        app.dispatch("send_email", to=f"user{number}@example.org", subject="Your order")
    for month in range(1, 13):
        app.dispatch("build_report", month=month)
    for source in ("shop", "market", "erp", "crm"):
        app.dispatch("import_orders", source=source, api_key="s3cret")
    with app.running(threads=4):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and app.inspect.activity().ready:
            time.sleep(0.05)
    for number in range(6):
        app.delay("2h").dispatch("send_email", to=f"later{number}@example.org")
    app.schedules.create(
        ScheduleDefinition(
            name="digest",
            job="send_email",
            rule="30 2 * * *",
            timezone="Europe/Berlin",
            args={"to": "team@example.org", "subject": "What happened yesterday"},
        )
    )
    caller = Caller(User(name="ann", role=Role.ADMIN), "10.0.0.7")
    Actions(app, is_read_only=False).take(
        caller, change_schedule, "digest", rule="30 1 * * MON-FRI", jitter=timedelta(minutes=2)
    )
    app.pause(queue="imports", note="The shop moves its database.")
    app.dispatch("import_orders", source="waits", api_key="s3cret")
    app.audit.record("queue.pause", "queue/imports", actor="ann", source="10.0.0.7")
    app.audit.record("limit.change", "limit/job:send_email", actor="bob", detail={"slots": 8})


@contextmanager
def serve(app: Tickwork, tokens: Sequence[AccessToken] = ()) -> Iterator[str]:
    """Serve it, and yield the link that signs in an administrator."""
    token = LinkToken.make()
    config = uvicorn.Config(
        asgi(app, tokens=[token, *tokens]),
        host="127.0.0.1",
        port=0,
        log_level="error",
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    [listener] = server.servers[0].sockets
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/login?token={token.secret}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)


def signed_in(browser: Browser, link: str, **options: Any) -> BrowserContext:
    """A context that has opened the link. Its pages take paths."""
    context = browser.new_context(base_url=link.partition("/login")[0], **options)
    context.request.get(link)
    return context


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_programs()), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def wait_until(check: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
