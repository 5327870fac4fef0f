"""Every act: its role, its row in the audit log, and its two ways, the endpoint and the form."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboard.conftest import API, SECRETS, TOKENS, define_jobs
from tickwork import RunContext, ScheduleDefinition, Tickwork
from tickwork._domain.identity import WorkerId, drain_lock_of
from tickwork._inspect.alerts import read_mute
from tickwork._kernel.json_form import as_json
from tickwork._stores.contract import WorkerRow
from tickwork.dashboard import Role, User, asgi
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Act, Actions
from tickwork.dashboard.acts import ALL_ACTS
from tickwork.dashboard.acts.alerts import mute_alert
from tickwork.dashboard.acts.definitions import remove_schedule
from tickwork.testing import ManualClock

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PAUSE = {"note": "they move", "until": "2026-01-01T02:00:00+00:00"}  # two hours after the start


def a_waiting_run(app: Tickwork) -> str:
    return app.delay("1h").dispatch("send_email", to="ann").id


def a_run_that_waits(app: Tickwork) -> str:
    @app.job(name="approval")
    def approval(ctx: RunContext) -> None:
        ctx.wait_for("approved", timeout="3d")

    run = approval.dispatch()
    app.run()
    return run.id


def a_run_that_waits_for_a_key(app: Tickwork) -> str:
    @app.job(name="order")
    def order(ctx: RunContext) -> None:
        ctx.wait_for("order.paid", key="42", timeout="3d")

    order.dispatch()
    app.run()
    return "order.paid"


def a_sleeping_run(app: Tickwork) -> str:
    @app.job(name="sleepy")
    def sleepy(ctx: RunContext) -> None:
        ctx.sleep("3d")

    run = sleepy.dispatch()
    app.run()
    return run.id


def a_finished_run(app: Tickwork) -> str:
    run = app.dispatch("send_email", to="ann")
    app.run()
    return run.id


def a_schedule(app: Tickwork) -> str:
    rule, args = "30 2 * * *", {"to": "ann"}
    app.schedules.create(ScheduleDefinition(name="digest", job="send_email", rule=rule, args=args))
    return "digest"


def a_paused_schedule(app: Tickwork) -> str:
    return app.schedules.pause(a_schedule(app)).name


def a_paused_queue(app: Tickwork) -> str:
    return app.pause(queue="emails").name


def a_paused_job(app: Tickwork) -> str:
    return app.pause(job="send_email").name


def a_changed_limit(app: Tickwork) -> str:
    return app.limits.change("job:send_email", 7).name


def take_as_bob(app: Tickwork, act: Act[..., Any], name: str) -> str:
    Actions(app, is_read_only=False).take(
        Caller(User(name="bob", role=Role.ADMIN), "10.0.0.7"), act, name
    )
    return name


def a_removed_schedule(app: Tickwork) -> str:
    return take_as_bob(app, remove_schedule, a_schedule(app))


def a_muted_alert(app: Tickwork) -> str:
    return take_as_bob(app, mute_alert, "failing//fails")


def a_worker(app: Tickwork) -> str:
    now = app.clock.now()
    row = WorkerRow(
        id=WorkerId("019b76da-a800-7000-8000-000000000001"),
        host="web-1",
        pid=4711,
        boot_id="boot",
        process_started="1",
        started_at=now,
        beat_at=now,
        queues=None,
        jobs=("send_email",),
        slots=1,
        running=0,
        version="1",
    )
    app._services.store.beat_worker(row)
    return row.id


@dataclass(frozen=True)
class Case:
    """Two requests that mean the same: to the endpoint of an act, and to its form."""

    subject: Callable[[Tickwork], str]  # makes what the path names
    body: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    path: str = ""  # of a form with a page of its own


CASES = {
    "run.dispatch": Case(
        lambda _: "send_email",
        {"job": "send_email", "args": {"to": "ann"}, "priority": 7},
        {"job": "send_email", "arg:to": "ann", "priority": "7"},
        "/dispatch",
    ),
    "run.retry": Case(a_finished_run),
    "run.cancel": Case(a_waiting_run, {"reason": "wrong"}, {"reason": "wrong"}),
    "run.reschedule": Case(a_waiting_run, {"delay": "5m"}, {"delay": "5m"}),
    "run.delete": Case(a_finished_run),
    "run.signal": Case(a_run_that_waits, {"event": "approved"}, {"event": "approved"}),
    "run.wake": Case(a_sleeping_run),
    "event.emit": Case(
        a_run_that_waits_for_a_key,
        {"event": "order.paid", "key": "42", "data": {"amount": 5}},
        {"event": "order.paid", "key": "42", "data": '{"amount": 5}'},
    ),
    "queue.pause": Case(lambda _: "emails", {"note": "later"}, {"note": "later"}),
    "queue.resume": Case(a_paused_queue),
    "job.pause": Case(lambda _: "send_email", {"note": "later"}, {"note": "later"}),
    "job.resume": Case(a_paused_job),
    "schedule.pause": Case(a_schedule, PAUSE, {"note": PAUSE["note"], "length": "2h"}),
    "schedule.resume": Case(a_paused_schedule),
    "schedule.run": Case(a_schedule),
    "schedule.backfill": Case(
        a_schedule,
        {"since": "2025-12-29T00:00:00+00:00", "until": "2026-01-01T00:00:00+00:00"},
        {"length": "3d"},
    ),
    "schedule.create": Case(
        lambda _: "digest",
        {"name": "digest", "job": "send_email", "rule": "@daily", "args": {"to": "ann"}},
        {"name": "digest", "job": "send_email", "rule": "@daily", "arg:to": "ann"},
        "/new-schedule",
    ),
    "schedule.change": Case(
        a_schedule,
        {"rule": "@hourly", "jitter": "2m"},
        {
            "rule": "@hourly",
            "jitter": "2m",
            "timezone": "UTC",
            "overlap": "skip",
            "misfire": "one",
            "grace": "1m",
            "arg:to": "ann",
        },
        "/edit-schedule",
    ),
    "schedule.remove": Case(a_schedule),
    "schedule.restore": Case(a_removed_schedule),
    "alert.mute": Case(lambda _: "failing//fails", PAUSE, {"note": PAUSE["note"], "length": "2h"}),
    "alert.unmute": Case(a_muted_alert),
    "worker.drain": Case(a_worker),
    "limit.change": Case(lambda _: "job:send_email", {"slots": 3}, {"slots": "3"}),
    "limit.reset": Case(a_changed_limit),
}


def test_every_act_has_a_case():
    assert CASES.keys() == {each.action for each in ALL_ACTS}


@pytest.fixture(params=ALL_ACTS, ids=lambda each: each.action)
def act(request: Any) -> Act[..., Any]:
    found: Act[..., Any] = request.param
    return found


class Database:
    """An application at a fixed time, and what an act needs."""

    def __init__(self, act: Act[..., Any]) -> None:
        self.app = Tickwork("memory://", clock=ManualClock("2026-01-01T00:00:00+00:00"))
        define_jobs(self.app)
        self.app.run()
        self.act = act
        self.case = CASES[act.action]
        self.subject = self.case.subject(self.app)
        self.site = asgi(self.app, tokens=TOKENS)

    def client(self, **headers: str) -> TestClient:
        return TestClient(
            self.site, base_url="http://127.0.0.1", headers=headers, follow_redirects=False
        )

    def call(self, role: Role, body: dict[str, Any]) -> Any:
        """Send a request to the endpoint."""
        path = self.act.path.format(id=self.subject, name=self.subject)
        client = self.client(Authorization=f"Bearer {SECRETS[role]}")
        return client.request(self.act.method, f"{API}{path}", json=body)

    def submit(self, role: Role, data: dict[str, str]) -> Any:
        """Sign in, and submit the form."""
        path = self.case.path
        if self.act.form is not None:
            path = self.act.form.path or self.act.path
        client = self.client()
        client.post("/login", data={"token": SECRETS[role], "next": "/"})
        csrf = client.get("/").text.partition('name="csrf" value="')[2].partition('"')[0]
        form = {"csrf": csrf, "next": "/audit", "name": self.subject, **data}
        return client.post(path.format(id=self.subject, name=self.subject), data=form)

    def rows(self) -> list[Any]:
        return [
            [each.action, self._without_ids(each.subject), each.actor, each.detail]
            for each in self.app.audit.list()
            if each.actor != "bob"  # who has prepared the case
        ]

    def state(self) -> str:
        """Everything that an act can change."""
        app = self.app
        runs = [app.inspect.view(run) for run in app.runs.recent()]
        schedules = [app.inspect.schedule_details(each.name) for each in app.schedules.list()]
        request = app._services.store.get_lock(drain_lock_of(WorkerId(self.subject)))
        mute = read_mute(app._services.store, self.subject, now=app.clock.now())
        found = [runs, schedules, app.schedules.list(), app.pauses(), app.limits.list(), request]
        found.append(mute)
        return self._without_ids(str(as_json(found)))

    @staticmethod
    def _without_ids(text: str) -> str:
        return ID.sub("id", text)


@pytest.fixture
def database(act: Act[..., Any]) -> Iterator[Database]:
    found = Database(act)
    with found.app:
        yield found


class TestEveryAct:
    def test_a_reader_is_refused_before_its_values_are_read(self, database):
        before = database.state()

        by_endpoint = database.call(Role.READER, {"unknown": 1})
        by_form = database.submit(
            Role.READER, {each.name: "\x00" for each in database.act.fields_in("body")}
        )

        assert (by_endpoint.status_code, by_endpoint.json()["code"]) == (403, "role")
        assert (by_form.status_code, by_form.json()["code"]) == (403, "role")
        assert (database.rows(), database.state()) == ([], before)

    def test_it_writes_one_row_with_the_user(self, database):
        act, before = database.act, database.state()

        answer = database.call(act.role, database.case.body)

        assert answer.status_code == act.status, answer.text
        [(action, subject, actor, _)] = database.rows()
        assert (action, actor) == (act.action, f"{act.role.name.lower()} ann")
        assert subject == database._without_ids(f"{act.subject}/{database.subject}")
        assert database.state() != before

    def test_its_form_does_the_same(self, database):
        other = Database(database.act)
        with other.app:
            database.call(Role.ADMIN, database.case.body)
            answer = other.submit(Role.ADMIN, database.case.data)

            assert answer.status_code == 303, answer.text
            assert "tickwork_flash=good" in answer.headers["set-cookie"].replace('"', "")
            assert other.rows() == database.rows()
            assert other.state() == database.state()
