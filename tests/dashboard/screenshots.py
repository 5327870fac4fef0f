"""Makes a picture of every page: ``make screenshots``."""

import logging
import sys
import tempfile
from datetime import timedelta
from math import sin
from pathlib import Path

from dashboard.browser import PAGES, chromium, define_demo, fill, serve, signed_in
from tickwork import RunStatus, Tickwork
from tickwork._kernel.clock import SystemClock
from tickwork._stores.contract import RunFilter
from tickwork.testing import ManualClock

KINDS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 860}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 860}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


SHOWN = {("overview", "light"), ("run-failed", "light"), ("time", "dark")}
"""The pictures of the README."""

SHOWN_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def fill_hour(url: str) -> None:
    """The runs of an hour, made within seconds."""
    clock = ManualClock(SystemClock().now() - timedelta(minutes=58))
    with Tickwork(url, clock=clock) as app:
        define_demo(app, sleep=lambda seconds: clock.advance(seconds=seconds))
        for minute in range(57):
            for number in range(4 + round(3 * sin(minute / 6))):
                app.dispatch("send_email", to=f"user{minute * number}@example.org")
            if minute % 3 == 0:
                app.dispatch("build_report", month=1 + minute % 12)
            while app.run(100):
                pass
            clock.advance(minutes=1)


def main(folder: Path, only: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, Tickwork(f"sqlite:///{place}/demo.db") as app:
        logging.getLogger("tickwork").setLevel(logging.CRITICAL)  # failures are part of the demo
        fill_hour(app.settings.url)
        define_demo(app)
        fill(app)
        failed = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))
        waiting = RunFilter(statuses=frozenset({RunStatus.PENDING}))
        done = RunFilter(statuses=frozenset({RunStatus.COMPLETED}), job="build_report")
        pages = {
            **PAGES,
            "run-failed": f"/runs/{app.runs.recent(failed)[0].id}",
            "run-waiting": f"/runs/{app.runs.recent(waiting)[0].id}",
            "run-done": f"/runs/{app.runs.recent(done)[0].id}",
        }
        with app.running(threads=4), serve(app) as link, chromium() as browser:
            for kind, options in KINDS.items():
                context = signed_in(browser, link, **options)
                page = context.new_page()
                for name, path in pages.items():
                    if only and only not in f"{name}-{kind}":
                        continue
                    page.goto(path)
                    page.wait_for_timeout(250)
                    page.screenshot(path=folder / f"{name}-{kind}.png", full_page=True)
                    if (name, kind) in SHOWN:
                        page.screenshot(path=SHOWN_FOLDER / f"{name}.png")
                context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
