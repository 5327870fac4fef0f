"""The REST API: each action is verified in the database."""

import inspect
import json
import re
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from dashboard.conftest import API, TOKENS
from tickwork import RunStatus
from tickwork._dispatch import dispatch
from tickwork._domain.identity import WorkerId
from tickwork._stores.contract import ClaimRequest, RunFilter
from tickwork.cli.output import json_text
from tickwork.dashboard import Role, asgi
from tickwork.dashboard.api import ENDPOINTS
from tickwork.errors import ExtraMissing, OutcomeUnknown

UNKNOWN = "019b76da-a800-7000-8000-000000000001"


def actions(app):
    return [(each.action, each.subject) for each in app.audit.list()]


class TestDispatch:
    def test_it_adds_a_run(self, admin, app):
        answer = admin.post(
            f"{API}/runs",
            json={"job": "send_email", "args": {"to": "ann"}, "queue": "slow", "tags": ["a"]},
        )

        assert answer.status_code == 201
        [run] = app.runs.recent()
        assert answer.json()["run"]["id"] == run.id
        assert (run.queue, run.tags, json.loads(run.args)) == ("slow", ("a",), {"to": "ann"})
        assert actions(app) == [("run.dispatch", "job/send_email")]

    def test_the_audit_log_names_the_user_and_no_values(self, admin, app):
        admin.post(f"{API}/runs", json={"job": "sign_in", "args": {"password": "hunter2"}})

        [entry] = app.audit.list()
        assert (entry.actor, entry.source) == ("admin ann", "127.0.0.1")
        assert json.loads(entry.detail) == {"args": ["password"]}

    def test_a_debounced_request_replaces_the_run_that_waits(self, admin, app):
        answers = [
            admin.post(
                f"{API}/runs",
                json={"job": "send_email", "args": {"to": "ann"}, "debounce": "1h", "tags": [tag]},
            )
            for tag in "ab"
        ]

        assert [answer.json()["is_replaced"] for answer in answers] == [False, True]
        [run] = app.runs.recent()
        assert run.tags == ("b",)

    def test_a_repeated_request_adds_no_second_run(self, admin, app):
        body = {"job": "send_email", "args": {"to": "ann"}}
        answers = [
            admin.post(f"{API}/runs", json=body, headers={"Idempotency-Key": "order-42"})
            for _ in range(3)
        ]

        assert [answer.status_code for answer in answers] == [201, 200, 200]
        assert len({answer.json()["run"]["id"] for answer in answers}) == 1
        assert len(app.runs.recent()) == 1

    def test_a_repeated_request_after_the_end_of_the_run_adds_none(self, admin, app):
        for _ in range(2):
            admin.post(
                f"{API}/runs",
                json={"job": "send_email", "args": {"to": "ann"}},
                headers={"Idempotency-Key": "order-42"},
            )
            app.run()

        assert [run.status for run in app.runs.recent()] == [RunStatus.COMPLETED]

    def test_requests_at_the_same_time_add_one_run(self, admin, app):
        def send():
            admin.post(
                f"{API}/runs",
                json={"job": "send_email", "args": {"to": "ann"}},
                headers={"Idempotency-Key": "order-42"},
            )

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(app.runs.recent()) == 1

    def test_a_key_of_another_request_is_refused(self, admin, app):
        for to in ("ann", "bob"):
            answer = admin.post(
                f"{API}/runs",
                json={"job": "send_email", "args": {"to": to}},
                headers={"Idempotency-Key": "order-42"},
            )

        assert (answer.status_code, answer.json()["code"]) == (409, "key-reused")
        assert len(app.runs.recent()) == 1

    def test_keys_of_two_users_are_two_keys(self, client_of, app):
        for role in (Role.OPERATOR, Role.ADMIN):
            client_of(role).post(
                f"{API}/runs",
                json={"job": "send_email", "args": {"to": "ann"}},
                headers={"Idempotency-Key": "order-42"},
            )

        assert len(app.runs.recent()) == 2

    @pytest.mark.parametrize(
        ("body", "field", "status"),
        [
            ({}, "job", 422),
            ({"job": "send_email", "args": []}, "args", 422),
            ({"job": "send_email", "args": {"to": "a"}, "at": "yesterday"}, "at", 422),
            ({"job": "send_email", "args": {"to": "a"}, "at": "2026-01-01T00:00:00"}, "at", 422),
            ({"job": "send_email", "priority": 40_000}, "priority", 422),
            ({"job": "send_email", "jbo": 1}, "jbo", 422),
            ({"job": "a\x00b"}, "job", 422),
        ],
    )
    def test_a_wrong_value_is_named(self, admin, app, body, field, status):
        answer = admin.post(f"{API}/runs", json=body)

        assert (answer.status_code, answer.json()["field"]) == (status, field)
        assert answer.headers["content-type"] == "application/problem+json"
        assert app.runs.recent() == []

    def test_arguments_that_do_not_fit_are_refused(self, admin, app):
        answer = admin.post(f"{API}/runs", json={"job": "send_email", "args": {"too": "ann"}})

        assert (answer.status_code, answer.json()["code"]) == (422, "wrong-arguments")
        assert app.runs.recent() == []

    def test_an_unknown_job_is_not_found(self, admin):
        answer = admin.post(f"{API}/runs", json={"job": "send_emial"})

        assert answer.status_code == 404
        assert "send_email" in answer.json()["fix"]

    @pytest.mark.parametrize("key", ["a b", "é", "x" * 201])
    def test_a_wrong_key_is_refused(self, admin, key):
        answer = admin.post(
            f"{API}/runs", json={"job": "fails"}, headers={b"Idempotency-Key": key.encode()}
        )

        assert answer.status_code == 422

    def test_the_body_must_be_json(self, admin, app):
        wrong = [
            admin.post(f"{API}/runs", content="{", headers={"Content-Type": "application/json"}),
            admin.post(f"{API}/runs", content='{"job": "fails"}'),
            admin.post(
                f"{API}/runs",
                content="[" * 100_000,
                headers={"Content-Type": "application/json"},
            ),
            admin.post(f"{API}/runs", content=b"x" * (5 * 2**20)),
        ]

        assert [answer.status_code for answer in wrong] == [400, 415, 400, 413]
        assert app.runs.recent() == []


class TestRuns:
    def test_pages_follow_each_other(self, admin, app):
        for number in range(5):
            app.dispatch("send_email", to=str(number))
        first = admin.get(f"{API}/runs", params={"limit": 3}).json()
        second = admin.get(f"{API}/runs", params={"limit": 3, "cursor": first["cursor"]}).json()

        shown = [run["args"]["to"] for page in (first, second) for run in page["runs"]]
        assert shown == ["4", "3", "2", "1", "0"]
        assert second["cursor"] is None

    def test_filters(self, admin, app):
        app.dispatch("fails")
        app.dispatch("send_email", to="ann")
        app.run()

        def found(**params):
            return [run["job"] for run in admin.get(f"{API}/runs", params=params).json()["runs"]]

        assert found(status=["failed_permanent"]) == ["fails"]
        assert found(status=["failed_permanent", "completed"]) == ["send_email", "fails"]
        assert found(queue="emails") == ["send_email"]
        assert found(since=(app.clock.now() + timedelta(days=1)).isoformat()) == []
        assert found(text="ALERT(1)") == ["fails"]

    def test_a_text_is_searched_in_a_stated_number_of_runs(self, admin, app):
        app.dispatch("send_email", to="needle")
        for _ in range(3):
            app.dispatch("send_email", to="hay")

        answer = admin.get(f"{API}/runs", params={"text": "needle"}).json()
        assert [run["args"]["to"] for run in answer["runs"]] == ["needle"]
        assert (answer["searched"], answer["cursor"]) == (4, None)

    def test_secrets_are_masked_and_not_searched(self, admin, app):
        run = app.dispatch("sign_in", password="hunter2")

        shown = [
            admin.get(f"{API}/runs").text,
            admin.get(f"{API}/runs/{run.id}").text,
            admin.get(f"{API}/runs", params={"text": "hunter2"}).text,
        ]
        assert all("hunter2" not in text for text in shown)
        assert json.loads(shown[2])["runs"] == []

    def test_details_have_attempts_and_reasons(self, admin, app):
        waiting = app.delay("1h").dispatch("send_email", to="ann")
        failed = app.dispatch("fails")
        app.run()

        causes = admin.get(f"{API}/runs/{waiting.id}").json()["causes"]
        assert "later time" in causes[0]["text"]
        [attempt] = admin.get(f"{API}/runs/{failed.id}").json()["attempts"]
        assert "ValueError" in attempt["error"]

    def test_cancel(self, admin, app):
        run = app.delay("1h").dispatch("send_email", to="ann")

        answer = admin.post(f"{API}/runs/{run.id}/cancel", json={"reason": "wrong customer"})

        assert answer.json() == {"run": run.id, "is_canceled": True}
        assert (run.status, run.read().reason) == (RunStatus.CANCELED, "wrong customer")
        assert admin.post(f"{API}/runs/{run.id}/cancel").json()["is_canceled"] is False
        assert ("run.cancel", f"run/{run.id}") in actions(app)

    def test_retry(self, admin, app):
        run = app.dispatch("fails")
        app.run()

        answer = admin.post(f"{API}/runs/{run.id}/retry")

        assert answer.status_code == 201
        assert app.get_run(answer.json()["run"]["id"]).read().retry_of == run.id
        unfinished = admin.post(f"{API}/runs/{answer.json()['run']['id']}/retry")
        assert unfinished.status_code == 409
        assert actions(app)[0][0] == "run.retry.failed"

    def test_reschedule(self, admin, app):
        run = app.delay("1h").dispatch("send_email", to="ann")

        answer = admin.post(f"{API}/runs/{run.id}/reschedule", json={"at": "2050-01-01T00:00:00Z"})

        assert answer.json()["due_at"] == "2050-01-01T00:00:00+00:00"
        assert run.read().due_at.year == 2050
        assert admin.post(f"{API}/runs/{run.id}/reschedule").status_code == 422

    def test_delete(self, admin, app):
        run = app.dispatch("fails")
        assert admin.delete(f"{API}/runs/{run.id}").status_code == 409
        app.run()

        assert admin.delete(f"{API}/runs/{run.id}").status_code == 204
        assert app.runs.recent() == []

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("POST", "/retry"),
        ],
    )
    def test_an_unknown_run_is_not_found(self, admin, method, path):
        assert admin.request(method, f"{API}/runs/{UNKNOWN}{path}").status_code == 404

    @pytest.mark.parametrize(
        "cursor", ["x", "0", "'; DROP TABLE", "%00", "9" * 10_000, UNKNOWN[:-1]]
    )
    def test_a_wrong_cursor_is_refused(self, admin, cursor):
        answer = admin.get(f"{API}/runs", params={"cursor": cursor})

        assert (answer.status_code, answer.json()["field"]) == (422, "cursor")

    @pytest.mark.parametrize("path", ["/runs/..%2f..%2fetc", "/runs/%00", "/../secrets", "/runs/x"])
    def test_odd_paths_are_refused(self, admin, path):
        assert admin.get(f"{API}{path}").status_code in {404, 422}


class TestQueuesJobsAndLimits:
    @pytest.mark.parametrize(("kind", "name"), [("queue", "emails"), ("job", "send_email")])
    def test_pause_and_resume(self, admin, app, kind, name):
        answer = admin.post(
            f"{API}/{kind}s/{name}/pause",
            json={"note": "down", "until": "2050-01-01T00:00:00Z"},
        )

        assert answer.status_code == 200
        [pause] = app.pauses()
        assert (pause.kind, pause.name, pause.note) == (kind, name, "down")
        assert pause.until.year == 2050
        assert [each["name"] for each in admin.get(f"{API}/pauses").json()] == [name]

        assert admin.post(f"{API}/{kind}s/{name}/resume").json()["was_paused"] is True
        assert app.pauses() == []
        assert actions(app) == [
            (f"{kind}.resume", f"{kind}/{name}"),
            (f"{kind}.pause", f"{kind}/{name}"),
        ]

    def test_a_name_may_contain_a_slash(self, admin, app):
        admin.post(f"{API}/queues/eu%2Fmail/pause", json={"confirm": True})

        assert [pause.name for pause in app.pauses()] == ["eu/mail"]

    def test_queues_and_jobs_are_listed(self, admin, app):
        app.dispatch("send_email", to="ann")

        assert [each["name"] for each in admin.get(f"{API}/queues").json()] == ["emails"]
        assert "send_email" in [each["name"] for each in admin.get(f"{API}/jobs").json()]
        assert admin.get(f"{API}/jobs/send_email").json()["signature"].startswith("(to")

    def test_limits(self, admin, app):
        name = "job:send_email"
        run = app.dispatch("send_email", to="ann")
        app._services.store.claim(
            ClaimRequest(1),
            now=app.clock.now(),
            worker=WorkerId("w"),
            tag="test",
            lease=timedelta(minutes=1),
        )
        [limit] = admin.get(f"{API}/limits").json()
        assert (limit["name"], limit["taken"], limit["holders"]) == (name, 1, [run.id])

        assert admin.put(f"{API}/limits/{name}", json={"slots": 7}).json()["in_force"] == 7
        assert [row.override for row in app.limits.list()] == [7]
        assert admin.delete(f"{API}/limits/{name}").json()["in_force"] == 2
        assert [row.override for row in app.limits.list()] == [None]
        assert admin.put(f"{API}/limits/nope", json={"slots": 7}).status_code == 404


class TestSchedules:
    def test_reads(self, admin):
        page = admin.get(f"{API}/schedules").json()

        assert [each["name"] for each in page["schedules"]] == ["nightly"]
        assert admin.get(f"{API}/schedules/nightly").json()["rule"] == "at 02:00 (UTC)"
        assert len(admin.get(f"{API}/schedules/nightly/firings?count=5").json()) == 5
        assert admin.get(f"{API}/firings?limit=3").json()["firings"][0]["schedule"] == "nightly"
        assert admin.get(f"{API}/schedules/nope").status_code == 404

    def test_pages_follow_each_other(self, admin, app):
        for number in range(3):
            app.schedules.register("acme", f"s{number}", app.clock.now(), "1h", "fails")
        first = admin.get(f"{API}/schedules?limit=2").json()
        second = admin.get(
            f"{API}/schedules", params={"limit": 2, "cursor": first["cursor"]}
        ).json()

        names = [each["name"] for page in (first, second) for each in page["schedules"]]
        assert names == ["nightly", "s0", "s1", "s2"]

    def test_pause_and_resume(self, admin, app):
        admin.post(f"{API}/schedules/nightly/pause", json={"note": "holidays"})
        assert app.schedules.get("nightly").paused_note == "holidays"

        admin.post(f"{API}/schedules/nightly/resume")
        assert not app.schedules.get("nightly").is_paused
        assert len(actions(app)) == 2

    def test_run_now(self, admin, app):
        answer = admin.post(f"{API}/schedules/nightly/run")

        assert answer.status_code == 201
        [run] = app.runs.recent(RunFilter(job="send_email"))
        assert answer.json()["run"]["id"] == run.id

    def test_backfill(self, admin, app):
        now = app.clock.now()
        body = {
            "since": (now - timedelta(days=3)).isoformat(),
            "until": (now - timedelta(minutes=1)).isoformat(),
        }
        answer = admin.post(f"{API}/schedules/nightly/backfill", json=body)

        assert len(answer.json()["runs"]) in {2, 3, 4}
        assert len(app.runs.recent()) == len(answer.json()["runs"])

    def test_preview_of_a_rule(self, admin):
        answer = admin.get(
            f"{API}/preview",
            params={"rule": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3},
        ).json()

        assert len(answer["instants"]) == 3
        assert answer["notes"]
        wrong = admin.get(f"{API}/preview", params={"rule": "61 * * * *"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-cron")


class TestOverview:
    def test_numbers(self, admin, app):
        app.dispatch("fails")
        app.dispatch("send_email", to="ann")
        app.run()
        app.dispatch("send_email", to="bob")

        status = admin.get(f"{API}/overview").json()
        activity = admin.get(f"{API}/activity").json()

        assert status["runs"]["ready"] == 1
        assert activity["success_share"] == 0.5
        assert activity["wait"]["p50"] >= 0
        assert len(activity["minutes"]) == 60
        assert sum(minute["created"] for minute in activity["minutes"]) == 3

    def test_the_overview_is_the_status_of_the_command_line(self, admin, app):
        app.dispatch("send_email", to="ann")

        answer = admin.get(f"{API}/overview").json()

        printed = json.loads(json_text(app.inspect.status()))
        assert {**answer, "now": ""} == {**printed, "now": ""}

    def test_checks_workers_and_explanations(self, admin):
        assert {each["name"] for each in admin.get(f"{API}/checks").json()} >= {"schema"}
        assert admin.get(f"{API}/workers").json() == []
        answer = admin.get(f"{API}/explanations", params={"what": "send_email"}).json()
        assert answer["kind"] == "job"

    def test_the_audit_log_has_pages(self, admin):
        for _ in range(3):
            admin.post(f"{API}/queues/emails/pause")
        first = admin.get(f"{API}/audit?limit=2").json()
        second = admin.get(f"{API}/audit?limit=2&cursor={first['cursor']}").json()

        assert [len(page["entries"]) for page in (first, second)] == [2, 1]
        assert admin.get(f"{API}/audit?subject=queue/other").json()["entries"] == []


class TestErrors:
    def test_a_database_that_is_gone_is_a_503_without_its_address(self, admin, app, monkeypatch):
        from tickwork.errors import StoreUnavailable

        def fail(self):
            raise StoreUnavailable("postgresql://secret-host/jobs", "refused")

        monkeypatch.setattr("tickwork._inspect.inspector.Inspector.status", fail)
        answer = admin.get(f"{API}/queues")

        assert answer.status_code == 503
        assert "secret-host" not in answer.text

    def test_a_change_that_may_be_stored_names_the_run_and_the_cure(self, admin, app, monkeypatch):
        def fail(*_: object, **__: object) -> None:
            raise OutcomeUnknown("postgresql://ann:s3cret@db.example.org/shop", "no answer")

        monkeypatch.setattr(dispatch, "PAUSES", ())
        monkeypatch.setattr(app._services.store, "add_runs", fail)

        answer = admin.post(
            f"{API}/runs", json={"job": "send_email", "args": {"to": "ann@example.org"}}
        )

        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (503, "outcome-unknown")
        assert "may be stored or not. Runs: 0" in problem["detail"]
        assert "Idempotency-Key" in problem["fix"]
        assert "example.org" not in answer.text

    def test_tables_that_are_damaged_are_a_503_with_a_code(self, admin, app, tmp_path):
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
            connection.execute("ALTER TABLE tickwork_run RENAME COLUMN tenant TO tenants")

        answer = admin.get(f"{API}/runs")

        assert (answer.status_code, answer.json()["code"]) == (503, "schema-damaged")

    def test_a_server_that_hangs_is_a_503(self, client_of, monkeypatch):
        monkeypatch.setattr("tickwork.dashboard.context.WAIT_SECONDS", 0.05)
        admin = client_of(Role.ADMIN, read_timeout=timedelta(0))
        ended = threading.Event()
        monkeypatch.setattr(
            "tickwork._inspect.inspector.Inspector.status", lambda self: ended.wait(10)
        )
        answer = admin.get(f"{API}/queues")
        ended.set()

        assert (answer.status_code, answer.json()["code"]) == (503, "timeout")

    def test_an_unknown_parameter_is_refused(self, admin):
        answer = admin.get(f"{API}/runs?jbo=send_email")

        assert (answer.status_code, answer.json()["field"]) == (422, "jbo")

    def test_a_wrong_method_is_a_problem(self, admin):
        answer = admin.put(f"{API}/runs")

        assert answer.status_code == 405
        assert answer.headers["content-type"] == "application/problem+json"

    def test_a_missing_package_names_the_extra(self, app, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "starlette", None)
        for name in [each for each in sys.modules if each.startswith("tickwork.dashboard.")]:
            if not name.endswith((".access",)):
                monkeypatch.delitem(sys.modules, name)
        for name in [each for each in sys.modules if each.startswith("starlette.")]:
            monkeypatch.setitem(sys.modules, name, None)

        with pytest.raises(ExtraMissing, match=r"\[dashboard\]"):
            asgi(app, tokens=TOKENS)


class TestWorkers:
    def test_drain(self, admin, app):
        with app.running():
            [worker] = admin.get(f"{API}/workers").json()
            assert not worker["is_draining"]
            answer = admin.post(f"{API}/workers/{worker['id']}/drain")

            assert answer.json() == {name: worker[name] for name in ("id", "host", "pid")}
            app.join()  # it returns because the worker has read the request
        assert actions(app) == [("worker.drain", f"worker/{worker['id']}")]
        assert admin.get(f"{API}/workers").json() == []
        assert admin.post(f"{API}/workers/{UNKNOWN}/drain").status_code == 404


class TestAlerts:
    """``GET /alerts``: what the page shows."""

    def fail(self, app):
        for _ in range(3):
            app.dispatch("fails")
            app.run()

    def test_open_alerts_and_the_history(self, client_of, app):
        reader = client_of(Role.READER)
        self.fail(app)
        app.pause(queue="emails", note="moving")
        found = {each["name"]: each for each in reader.get(f"{API}/alerts").json()["alerts"]}
        failing = found["failing//fails"]
        assert (failing["level"], failing["kind"], failing["job"]) == ("bad", "failing", "fails")
        assert failing["text"].startswith("fails failed 3 times in a row: ValueError")
        assert failing["mute"] is None
        assert found["paused/queue/emails"]["fix"] == "tickwork resume --queue emails"

        app.resume(queue="emails")
        answer = reader.get(f"{API}/alerts").json()
        [ended] = answer["ended"]
        assert ended["text"] == "The queue emails is paused. moving"
        assert ended["duration"] >= 0
        assert ended["began_at"] <= ended["ended_at"]
        assert answer["cursor"] is None

    def test_a_mute(self, client_of, app):
        self.fail(app)
        admin = client_of(Role.ADMIN)
        admin.post(f"{API}/alerts/failing%2F%2Ffails/mute", json={"note": "known"})

        found = {each["name"]: each for each in admin.get(f"{API}/alerts").json()["alerts"]}
        assert found["failing//fails"]["mute"]["note"] == "known"

    def test_pages(self, admin, app):
        for number in range(3):
            app.pause(queue=f"q{number}")
        admin.get(f"{API}/alerts")
        for number in range(3):
            app.resume(queue=f"q{number}")
        first = admin.get(f"{API}/alerts", params={"limit": 2}).json()
        query = {"limit": 2, "cursor": first["cursor"]}
        second = admin.get(f"{API}/alerts", params=query).json()

        names = {each["name"] for page in (first, second) for each in page["ended"]}
        assert names == {f"paused/queue/q{number}" for number in range(3)}
        assert second["cursor"] is None
        assert admin.get(f"{API}/alerts", params={"cursor": "x|y"}).status_code == 422


def _documented_defaults():
    """Every parameter of an endpoint whose description names its default, with both."""
    for endpoint in ENDPOINTS:
        parameters = inspect.signature(endpoint.function).parameters
        for field in endpoint.fields:
            named = re.search(r"Default: ([\w.]+?)\.(?:\s|$)", field.description)
            default = parameters[field.name].default if field.name in parameters else None
            if named and default is not None:  # None stands for a word, such as "now"
                yield f"{endpoint.name}.{field.name}", default, named[1]


DEFAULTS = list(_documented_defaults())


class TestDefaults:
    """A parameter has the default that its description names."""

    def test_some_are_documented(self):
        assert {"preview_expression.count", "list_schedule_firings.count"} <= {
            name for name, _, _ in DEFAULTS
        }

    @pytest.mark.parametrize(("name", "default", "documented"), DEFAULTS)
    def test_the_default_is_the_documented_one(self, name, default, documented):
        assert str(default) == documented, name
