"""All workers are killed: a watcher raises an alert, and another one when a run completes again."""

import time

from scenarios.project import Project
from unit.alerts.web_server import web_server

SHOP = """
from tickwork.alerts import Webhook
app.alerts.add(Webhook(os.environ["SHOP_HOOK"], secret="s3cret"))

@app.job
def tick(): ...

app.schedule("every second", tick).every_second().expect_within(seconds=5)
app.schedule("paused", tick).every_second().expect_within(seconds=5)
"""
EXPECTED = 5
SLOW = 4
"""Seconds for processes to start on a busy machine."""


def test_the_watcher_notices_killed_workers(sqlite_project: Project, monkeypatch):
    project = sqlite_project
    with web_server() as hook:
        monkeypatch.setenv("SHOP_HOOK", hook.url)
        project.write("shop", SHOP)
        workers = [project.work(), project.work()]
        project.app.schedules.pause("paused")
        watchers = [project.run("watch", "--every", "1s") for _ in range(2)]
        assert hook.wait(1, 4) == []

        killed_at = time.monotonic()
        for worker in workers:
            worker.kill()
        hook.wait(1, 30)
        assert time.monotonic() - killed_at < EXPECTED + 2 + SLOW

        project.work()
        hook.wait(2, 30)
        alerts = hook.wait(3, 2)  # a third one would be wrong

    assert [(alert["schedule"], alert["is_over"]) for alert in alerts] == [
        ("every second", False),
        ("every second", True),
    ]
    assert all(watcher.is_alive for watcher in watchers)
