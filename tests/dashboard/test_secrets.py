"""The value of a secret argument is in nothing that people can read."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from dashboard.conftest import API
from tickwork import RunContext, ScheduleDefinition, Secret, Tickwork
from tickwork._domain.identity import RunId
from tickwork.cli.main import command_for
from tickwork.dashboard import Role
from tickwork.events import Event

TOKEN, NUMBER = "t0ken/zXq4é", "4111-wYz2-2222"
HIDDEN = ("zXq4", "wYz2")  # not parts of an id
JSON = json.dumps({"token": TOKEN, "n": [NUMBER]})
ARGS = {
    "to": "ann",
    "token": TOKEN,
    "card": {"number": NUMBER, "owner": "Ann"},
    "url": f"https://shop/?token={TOKEN}",
}


@dataclass
class Shop:
    """An application in which secrets are echoed wherever a handler can put them."""

    app: Tickwork
    admin: TestClient
    run: RunId
    failed: RunId
    events: list[Event]

    def cli(self, *words: str) -> str:
        done = CliRunner().invoke(command_for(self.app), words)
        assert done.exit_code == 0, done.output
        return done.output

    def get(self, path: str, kind: str = "text/html") -> str:
        answer = self.admin.get(path, headers={"Accept": kind})
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def shop(tmp_path, client_of):
    with Tickwork(f"sqlite:///{tmp_path}/shop.db", redact=["card.number"]) as app:

        @app.job(attempts=1)
        def pay(  # noqa: PLR0917  # arguments are passed by name
            to: str,
            token: Secret[str],
            card: dict[str, str],
            url: str,
            ctx: RunContext,
            key: Secret[str] = "key-zXq4-default",
        ) -> dict[str, Any]:
            logging.getLogger("shop").warning("%s %a %s", JSON, token, card)
            ctx.progress(0.5, note=f"{token} {key} {card}")
            if to == "unknown":
                raise ValueError(JSON) from KeyError(ascii(TOKEN))
            return {"card": card, "echo": JSON, "token": token, "to": to, "key": key}

        events: list[Event] = []
        app.on(Event)(events.append)
        run, failed = app.dispatch("pay", **ARGS), app.dispatch("pay", **{**ARGS, "to": "unknown"})
        app.schedules.create(ScheduleDefinition(name="daily", job="pay", rule="@daily", args=ARGS))
        app.run()
        admin = client_of(Role.ADMIN, of=app)
        yield Shop(app, admin, run.id, failed.id, events)


def edit_schedule(shop: Shop) -> str:
    """Change the secrets and another argument, and remove the schedule: all is in the audit log."""
    for change in (
        {"args": {**ARGS, "card": {"number": "wYz2-new", "owner": "Bob"}}},
        {"args": {**ARGS, "token": "t0ken/zXq4-new", "url": "https://shop/?token=t0ken/zXq4-new"}},
        {"queue": "other"},
    ):
        answer = shop.admin.patch(f"{API}/schedules/daily", json=change)
        assert answer.status_code == 200, answer.text
    shop.admin.delete(f"{API}/schedules/daily")
    revisions = shop.get(f"{API}/schedules/daily/revisions", "application/json")
    return revisions + shop.get(f"{API}/audit", "application/json") + shop.get("/audit")


DISPATCH = {"job": "pay", "args": ARGS}

OUTPUTS: dict[str, Callable[[Shop], str]] = {
    "details of a run": lambda shop: repr(shop.app.inspect.details(shop.run)),
    "details of a failed run": lambda shop: repr(shop.app.inspect.details(shop.failed)),
    "events": lambda shop: repr(shop.events),
    "schedule": lambda shop: repr(shop.app.inspect.schedule_details("daily")),
    "API: run": lambda shop: shop.get(f"{API}/runs/{shop.run}", "application/json"),
    "API: failed run": lambda shop: shop.get(f"{API}/runs/{shop.failed}", "application/json"),
    "API: runs": lambda shop: shop.get(f"{API}/runs", "application/json"),
    "API: schedule": lambda shop: shop.get(f"{API}/schedules/daily/definition", "application/json"),
    "API: dispatch": lambda shop: (
        shop.admin.post(f"{API}/runs", json={"job": "pay", "args": ARGS}).text
    ),
    "CSV": lambda shop: shop.get("/runs/export.csv"),
    "JSON": lambda shop: shop.get("/runs/export.json"),
    "iCalendar": lambda shop: shop.app.export.ical(),
    "pages": lambda shop: "".join(
        shop.get(path) for path in ("/", "/runs", f"/runs/{shop.run}", f"/runs/{shop.failed}")
    ),
    "page of a schedule": lambda shop: shop.get("/schedules/daily"),
    "form of a dispatch": lambda shop: shop.get(f"/dispatch?run={shop.run}"),
    "form of a schedule": lambda shop: shop.get("/edit-schedule?name=daily"),
    "audit log and revisions": edit_schedule,
    "tickwork inspect": lambda shop: shop.cli("inspect", shop.run),
    "tickwork inspect of a failed run": lambda shop: shop.cli("inspect", shop.failed),
    "tickwork inspect --json": lambda shop: shop.cli("inspect", shop.run, "--json"),
    "tickwork runs": lambda shop: shop.cli("runs") + shop.cli("runs", "--json"),
    "tickwork show": lambda shop: shop.cli("show", "pay") + shop.cli("show", "pay", "--json"),
    "tickwork status": lambda shop: shop.cli("status", "--json"),
    "tickwork explain": lambda shop: shop.cli("explain", shop.failed),
    "tickwork dispatch": lambda shop: shop.cli("dispatch", "pay", json.dumps(ARGS), "--json"),
    "tickwork calendar": lambda shop: shop.cli("calendar"),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_no_output_has_it(shop, output):
    text = OUTPUTS[output](shop)

    assert text
    for hidden in HIDDEN:
        begin = text.find(hidden)
        assert begin < 0, text[max(begin - 200, 0) : begin + 100]


def test_what_is_no_secret_is_shown(shop):
    found = shop.app.inspect.details(shop.run).run

    assert found.args == {
        "to": "ann",
        "token": "***",
        "card": {"number": "***", "owner": "Ann"},
        "url": "https://shop/?token=***",
    }
    assert (found.result["to"], found.result["card"]["owner"]) == ("ann", "Ann")
    assert shop.app.get_run(shop.run).result()["token"] == TOKEN  # the program needs it


@pytest.mark.parametrize(
    "change",
    [
        {"token": "***"},
        {"card": {"number": "***", "owner": "Ann"}},
        {"url": "https://shop/?token=***"},
    ],
)
def test_a_mask_is_no_value(shop, change):
    """What was copied from a page is refused; an argument that did not change stays as stored."""
    args = {**ARGS, **change}
    for answer in (
        shop.admin.post(f"{API}/runs", json={"job": "pay", "args": args}),
        shop.admin.post(
            f"{API}/schedules", json={"name": "b", "job": "pay", "rule": "@daily", "args": args}
        ),
    ):
        assert answer.status_code == 422, answer.text
        assert "stands for a secret" in answer.text

    shown = shop.app.inspect.schedule_details("daily").args
    answer = shop.admin.patch(f"{API}/schedules/daily", json={"args": {**shown, "to": "bob"}})
    assert answer.status_code == 200, answer.text
    assert shop.app.inspect.schedule_args("daily") == {**ARGS, "to": "bob"}
