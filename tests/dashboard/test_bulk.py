"""A bulk action is one row of the audit log, which names the number of runs."""

import json
import re
import time
from datetime import timedelta

import pytest

from tickwork import RunStatus
from tickwork._control.audit import NAMES_MAX
from tickwork._stores.contract import RunFilter

RUNS = NAMES_MAX + 20


@pytest.fixture
def ids(app):
    """More runs than a row of the audit log names: half of them have failed."""
    waiting = app.draft.delay(timedelta(hours=3)).dispatch_many("fails", [{}] * RUNS)
    failed = app.draft.dispatch_many("fails", [{}] * RUNS)
    while app.run():
        pass
    return {"cancel": [run.id for run in waiting], "retry": [run.id for run in failed]}


def act_on_all(client, action, *, params=None, ids=()):
    """Take a bulk action as the page does, and wait until it has finished."""
    page = client.get("/runs/bulk", params=params).text
    data = {"action": action, "csrf": re.findall(r'name="csrf" value="(\w+)"', page)[-1]}
    data |= {"id": [*ids]} if ids else {"is_filter": "yes"}
    answer = client.post("/runs/bulk", params=params, data=data)
    assert answer.status_code == 303, answer.text
    deadline = time.monotonic() + 60
    while "Finished." not in (shown := client.get(answer.headers["location"]).text):
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    return answer.headers["location"].removeprefix("/bulk/")


def rows_of(app):
    return [
        (each.action, each.subject, json.loads(each.detail)) for each in app.audit.list(limit=500)
    ]


@pytest.mark.parametrize(
    ("action", "status"), [("cancel", RunStatus.PENDING), ("retry", RunStatus.FAILED_PERMANENT)]
)
class TestAudit:
    def test_a_selection(self, client_of, app, ids, action, status):
        chosen = ids[action][:3]
        bulk_id = act_on_all(client_of(), action, ids=chosen)

        [(name, subject, detail)] = rows_of(app)
        assert (name, subject) == (f"run.{action}", f"bulk/{bulk_id}")
        assert detail["total"] == 3
        assert sorted(detail["runs"]) == sorted(chosen)

    def test_all_runs_of_a_filter(self, client_of, app, ids, action, status):
        params = {"job": "fails", "status": status.value}
        bulk_id = act_on_all(client_of(), action, params=params)

        [(name, subject, detail)] = rows_of(app)
        assert (name, subject) == (f"run.{action}", f"bulk/{bulk_id}")
        assert detail["total"] == RUNS
        assert len(detail["runs"]) == NAMES_MAX
        if action == "cancel":
            done = app.runs.find_ids(RunFilter(statuses=frozenset({RunStatus.CANCELED})))
        else:
            done = [run for run in ids["retry"] if app.inspect.details(run).retries]
        assert len(done) == RUNS

    def test_runs_that_refuse_it_are_no_rows_of_their_own(
        self, client_of, app, ids, action, status
    ):
        chosen = [*ids["cancel"][:2], *ids["retry"][:2]]  # two of them have another status
        act_on_all(client_of(), action, ids=chosen)

        [(_, _, detail)] = rows_of(app)
        assert detail["total"] == 4
