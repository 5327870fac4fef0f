"""What `make demo` shows: jobs on an SQLite file, run by a worker in this process.

A schedule that fires every second, dispatches with and without a delay, a handler that fails
twice before it succeeds, a limit, a unique key: all in a few seconds, in a temporary folder.
"""

import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tickwork import RunContext, Tickwork

SECONDS = 4


def define(app: Tickwork) -> None:
    """Say what there is to do."""
    busy = threading.Semaphore(2)

    @app.job(queue="emails", concurrency=2)
    def send_email(to: str) -> str:
        assert busy.acquire(blocking=False), "The limit of two at a time does not hold."
        time.sleep(0.05)
        busy.release()
        return f"sent to {to}"

    @app.job(retries={"max": 3, "base": 0.2, "jitter": "none"})
    def fetch(url: str, ctx: RunContext) -> str:
        if ctx.attempt < 3:
            raise ConnectionError(f"{url} does not answer")
        return f"{url} answered the third time"

    @app.job
    async def add(left: int, right: int) -> int:
        return left + right

    app.schedule("heartbeat", lambda: "tick").every_second()


def main() -> None:
    """Define, dispatch, work, and show what came of it."""
    console = Console()
    with (
        tempfile.TemporaryDirectory() as folder,
        Tickwork(f"sqlite:///{Path(folder) / 'jobs.db'}") as app,
    ):
        define(app)
        emails = app.args().dispatch_many(
            "send_email", [{"to": f"{name}@example.org"} for name in ("ann", "bob", "cat")]
        )
        runs = {
            "three emails, two at a time": emails[-1],
            "fails twice, then works": app.dispatch("fetch", url="https://example.org"),
            "a coroutine": app.dispatch("add", left=20, right=22),
            "due in two seconds": app.args(to="dan@example.org").delay(2).dispatch("send_email"),
            "unique: asked for twice, run once": app.args(to="eve@example.org")
            .unique("eve")
            .delay(1)
            .dispatch("send_email"),
        }
        again = app.args(to="eve@example.org").unique("eve").dispatch("send_email")
        assert not again.is_new, "The unique key does not hold."
        console.print(f"A worker starts, for {SECONDS} seconds.")
        with app.running():
            time.sleep(SECONDS)
            results = {what: run.result(timeout=30) for what, run in runs.items()}
        show(console, app, results)


def show(console: Console, app: Tickwork, results: dict[str, object]) -> None:
    """Print what came of it."""
    table = Table(title="What was dispatched, and what it returned")
    table.add_column("what")
    table.add_column("result")
    for what, result in results.items():
        table.add_row(what, str(result))
    console.print(table)
    fired = [run for run in app.runs.recent() if run.schedule == "heartbeat"]
    late = max(run.started_at - run.due_at for run in fired if run.started_at is not None)
    console.print(
        f"The schedule fired {len(fired)} times, once a second; "
        f"the latest start was {1000 * late.total_seconds():.0f} ms after its instant."
    )
    told = app.stats
    console.print(f"{told.attempts} attempts, {told.failures} of them failed and were repeated.")


if __name__ == "__main__":
    main()
