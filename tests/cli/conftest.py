"""The command line, in this process, on each database.

app        an application on a fresh database; ``clock`` moves its time
cli        runs a command of it: ``cli("status")``; ``cli.json("status")`` returns its JSON
other_app  another program on the same database, which defines nothing
seeded     an application with runs of every status
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from application.conftest import (  # noqa: F401  # fixtures
    application_mariadb,
    application_postgres,
    clock,
    database,
    make_app,
    url,
)
from tickwork import RunStatus, Secret, Tickwork
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.run import Claim
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import ClaimRequest, WorkerRow
from tickwork.cli.main import command_for
from tickwork.testing import ManualClock


@dataclass
class Cli:
    """Commands of one application, in this process."""

    app: Tickwork

    def __call__(self, *arguments: str, code: int | None = 0, given: str | None = None) -> Result:
        done = CliRunner().invoke(
            command_for(self.app),
            arguments,
            input=given,
            prog_name="tickwork",
            catch_exceptions=False,
        )
        if code is not None:
            assert done.exit_code == code, done.output
        return done

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def text(self, *arguments: str, code: int | None = 0) -> str:
        return self(*arguments, code=code).stdout


def define_shop(app: Tickwork) -> None:
    """Define the jobs and schedules of these tests."""

    @app.job(queue="emails", priority=10, concurrency=1, attempts=3)
    def send_email(to: str, card: Secret[str] = "card-4711") -> str:
        if to == "unknown":
            raise ValueError("no such address")
        return f"sent to {to}"

    @app.job
    def breaks(n: int = 0) -> None:
        raise RuntimeError(f"it broke {n} times\nand more")

    @app.job
    def report(kind: str = "short") -> dict[str, str]:
        return {"kind": kind}

    app.schedule("nightly", report).daily_at("02:30").timezone("Europe/Berlin").args(kind="long")
    app.schedule("tick", report).every_minute()


@pytest.fixture
def app(make_app: Callable[..., Tickwork]) -> Tickwork:  # noqa: F811  # the fixture
    made = make_app()
    define_shop(made)
    return made


@pytest.fixture
def other_app(make_app: Callable[..., Tickwork]) -> Tickwork:  # noqa: F811  # the fixture
    """A program that knows only what rows say."""
    return make_app()


@pytest.fixture
def cli(app: Tickwork) -> Cli:
    return Cli(app)


@pytest.fixture
def seeded(app: Tickwork, clock: ManualClock) -> Tickwork:  # noqa: F811  # the fixture
    """Runs that completed, failed, failed permanently, were canceled, or wait."""
    for job, args in (
        ("send_email", {"to": "ann"}),
        ("send_email", {"to": "unknown"}),
        ("breaks", {"n": 3}),
        ("report", {"kind": "weekly"}),
    ):
        app.dispatch(job, **args)
        clock.advance(seconds=1)  # ids begin with their time
    while app.run():
        pass
    app.draft.delay("1h").dispatch("report", kind="later")
    app.get_run(app.draft.delay("2h").dispatch("report").id).cancel("not needed")
    clock.advance(minutes=5)
    return app


# ---------------------------------------------------------------- rows


def a_worker(
    app: Tickwork,
    *jobs: str,
    queues: tuple[str, ...] | None = None,
    silent_for: timedelta = timedelta(0),
    running: int = 0,
    slots: int = 10,
    version: str = "0.1.0",
) -> WorkerId:
    """Add the row of a worker that last reported ``silent_for`` ago."""
    now = app.clock.now()
    row = WorkerRow(
        id=WorkerId(new_id(now)),
        host="web-1",
        pid=4711,
        boot_id="boot",
        process_started="1",
        started_at=now - timedelta(hours=1),
        beat_at=now - silent_for,
        queues=queues,
        jobs=jobs or ("send_email", "breaks", "report"),
        slots=slots,
        running=running,
        version=version,
    )
    app._services.store.beat_worker(row)
    return row.id


def claimed(app: Tickwork, worker: WorkerId, **lease: float) -> list[Claim]:
    """Claim what is ready, for this worker."""
    return app._services.store.claim(
        ClaimRequest(10, jobs=("send_email", "breaks", "report"), is_starting=True),
        worker=worker,
        tag=str(worker),
        now=app.clock.now(),
        lease=timedelta(**(lease or {"seconds": 60})),
    )


def newest(app: Tickwork, status: RunStatus) -> RunId:
    """The newest run with this status."""
    return next(run.id for run in app.runs.recent() if run.status is status)


def as_time(text: str) -> datetime:
    """Parse a time of JSON."""
    return datetime.fromisoformat(text)
