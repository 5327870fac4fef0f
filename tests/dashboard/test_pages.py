"""The pages without a browser: forms, sessions, mounts, hostile values, streams."""

import re
import sqlite3
from contextlib import closing
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dashboard.conftest import SECRETS, TOKENS
from tickwork import RunContext, RunStatus, Tickwork
from tickwork._domain import health
from tickwork.dashboard import Role, asgi
from tickwork.dashboard.authentication import identify_loopback

HTML = {"Accept": "text/html"}
HTML_TYPE = "text/html; charset=utf-8"
PATHS = [
    *("/", "/runs", "/schedules", "/time", "/queues", "/workers", "/alerts", "/audit"),
    *("/dispatch", "/dispatch?job=send_email", "/schedules/nightly", "/runs/bulk?job=fails"),
    *("/new-schedule", "/new-schedule?job=send_email", "/time?view=week", "/time?view=day"),
    *("/runs?text=x", "/runs?status=completed&status=failed", "/runs/export.csv"),
]
EVIL = '"><script>alert(1)</script>'


def csrf_of(client, path="/runs"):
    page = client.get(path, headers=HTML).text
    return find(r'name="csrf" value="(\w+)"', page)


def find(pattern, text):
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found[1]


@pytest.fixture
def local(client_of):
    return client_of()


class TestEveryPage:
    @pytest.mark.parametrize("path", PATHS)
    def test_it_is_shown(self, local, app, path):
        app.dispatch("send_email", to="ann")
        app.dispatch("fails")
        app.run()

        assert local.get(path, headers=HTML).status_code == 200

    @pytest.mark.parametrize("path", [path for path in PATHS if "nightly" not in path])
    def test_it_is_shown_without_any_data(self, path):
        with Tickwork("memory://") as app:
            client = TestClient(
                asgi(app, identify=identify_loopback),
                base_url="http://127.0.0.1",
                client=("127.0.0.1", 1),
                headers=HTML,
            )
            is_found = client.get(path).status_code == 200

        assert is_found or path.endswith("?job=send_email")

    @pytest.mark.parametrize("threshold", [2, 3])
    def test_alerts_have_the_thresholds_of_the_health_checks(
        self, local, app, monkeypatch, threshold
    ):
        monkeypatch.setattr(health, "FAILURES_WARN", threshold)
        for _ in range(2):
            app.dispatch("fails")
        app.run()

        jobs = next(each for each in app.check_health() if each.name == "jobs")
        is_listed = "fails failed 2 times in a row" in local.get("/alerts", headers=HTML).text
        assert is_listed == (jobs.level is health.Level.WARN) == (threshold == 2)

    @pytest.mark.parametrize("path", PATHS)
    def test_hostile_values_are_text(self, local, app, path):
        now = app.clock.now()
        app.schedules.register("", f"s{EVIL}", now, "1h", "send_email", args={"to": EVIL})
        app.draft.tags(EVIL).queue("q").dispatch("send_email", to=EVIL)
        app.dispatch("fails")
        app.run()
        app.pause(queue=f"q{EVIL}", note=EVIL)
        app.audit.record(EVIL, EVIL, actor=EVIL)

        answer = local.get(path, headers=HTML)
        assert "<script>alert" not in answer.text or answer.headers["content-type"] != HTML_TYPE

    @pytest.mark.parametrize(
        "path",
        [
            *("/runs/x", "/runs/%00", "/schedules/%00", "/schedules/nope", "/nope", "/bulk/x"),
            *("/runs?cursor=x", "/runs?status=odd", "/runs?nope=1", "/time?date=x"),
            *(
                "/time?date=9999-01",
                "/time?date=2026-02-31",
                "/time?view=year",
                "/static/../site.py",
                "/static/%2e%2e/site.py",
            ),
            *("/audit?cursor=x", "/schedules?cursor=x", "/dispatch?run=x", "/dispatch?job=nope"),
        ],
    )
    def test_odd_paths_are_refused(self, local, path):
        answer = local.get(path, headers=HTML)

        assert answer.status_code in {404, 422}
        assert "def build_site" not in answer.text

    def test_a_run_of_each_kind_is_shown(self, local, app):
        runs = [app.dispatch("fails"), app.dispatch("sign_in", password="hunter2")]
        app.run()
        runs += [app.delay("1h").dispatch("send_email", to="ann")]

        texts = [local.get(f"/runs/{run.id}", headers=HTML).text for run in runs]
        assert "ValueError" in texts[0]
        assert all("hunter2" not in text for text in texts)
        assert "dispatched for a later time" in texts[2]

    @pytest.mark.parametrize(
        ("share", "note", "percent"),
        [(0.25, "page 3", 25), (0, "", 0), (1, "done", 100), (0.999, "last page", 99)],
    )
    def test_the_progress_of_a_run_is_shown(self, local, app, share, note, percent):
        @app.job
        def report(ctx: RunContext) -> None:
            ctx.progress(share, note=note)

        run = app.dispatch("report")
        app.run()

        page = local.get(f"/runs/{run.id}", headers=HTML).text
        assert f'<progress max="100" value="{percent}"' in page
        assert f">{percent} %</span>" in page
        assert note in page

    def test_the_steps_of_a_run_are_shown(self, local, app):
        @app.job
        def order(ctx: RunContext) -> None:
            ctx.step("charge", lambda: {"amount": 5})
            ctx.sleep("3d")

        run = order.dispatch()
        app.run()

        page = local.get(f"/runs/{run.id}").text
        assert "<h2>Steps</h2>" in page
        assert "sleep:3d" in page
        assert "sleeps until" in page
        assert "Attempts that did not succeed" not in page
        steps = local.get(f"/api/v1/runs/{run.id}").json()["steps"]
        assert [(step["name"], step["kind"], step["state"]) for step in steps] == [
            ("charge", "step", "done"),
            ("sleep:3d", "sleep", "open"),
        ]
        assert steps[0]["value"] == {"amount": 5}

    def test_a_run_without_progress_shows_none(self, local, app):
        run = app.dispatch("send_email", to="ann")

        assert "Progress" not in local.get(f"/runs/{run.id}", headers=HTML).text

    @pytest.mark.parametrize("stored", ["7", '{"share": 7, "note": ""}', "x", '"<script>"'])
    def test_other_values_in_its_column_are_shown_as_text(self, local, app, tmp_path, stored):
        run = app.dispatch("send_email", to="ann")
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE tickwork_run SET progress = ?", [stored])

        page = local.get(f"/runs/{run.id}", headers=HTML).text
        assert "<h2>Progress</h2>" in page
        assert "<progress" not in page
        assert "<script>" not in page

    def test_a_mask_is_not_dispatched_again(self, tmp_path):
        with Tickwork("memory://", redact=["pin"]) as app:

            @app.job
            def pay(pin: str, card: dict[str, str], to: str) -> None: ...

            run = app.dispatch("pay", pin="1234", card={"pin": "5678"}, to="ann")
            client = TestClient(
                asgi(app, identify=identify_loopback),
                base_url="http://127.0.0.1",
                client=("127.0.0.1", 1),
                headers=HTML,
            )
            page = client.get(f"/dispatch?run={run.id}").text

        assert "***" not in page
        assert "1234" not in page
        assert 'value="ann"' in page

    def test_an_export_has_no_formulas(self, local, app):
        app.dispatch("send_email", to="ann")
        app.runs.recent()
        app.draft.target("=cmd()").dispatch("send_email", to="bob")

        assert ",'=cmd()," in local.get("/runs/export.csv").text
        assert len(local.get("/runs/export.json").json()) == 2


FORMS = [
    *("/dispatch", "/runs/bulk", "/queues/emails/pause", "/queues/emails/resume"),
    *("/jobs/fails/pause", "/jobs/fails/resume", "/limits/change", "/limits/reset"),
    *(f"/schedules/nightly/{name}" for name in ("pause", "resume", "run", "backfill")),
    *(f"/runs/019b76da-a800-7000-8000-000000000001/{x}" for x in ("cancel", "retry", "delete")),
    "/runs/019b76da-a800-7000-8000-000000000001/snooze",
    "/workers/019b76da-a800-7000-8000-000000000001/drain",
    *("/new-schedule", "/edit-schedule", "/schedules/nightly/remove"),
]


class TestForms:
    @pytest.mark.parametrize("path", FORMS)
    def test_they_need_the_csrf_token(self, local, app, path):
        for data in ({}, {"csrf": "wrong"}, {"csrf": "é"}):
            assert local.post(path, data=data, headers=HTML).status_code == 403
        assert app.audit.list() == []

    @pytest.mark.parametrize("path", FORMS)
    def test_a_reader_may_send_none(self, client_of, app, path):
        client = client_of(Role.READER)
        csrf = self._csrf(client)
        values = {"csrf": csrf, "job": "fails", "action": "cancel", "name": "job:send_email"}
        values |= {"id": "019b76da-a800-7000-8000-000000000001", "slots": "3", "length": "1d"}

        answer = client.post(path, data={**values, "delay": "1h"}, headers=HTML)

        assert answer.status_code == 403
        assert app.audit.list() == []

    def _csrf(self, client):
        client.headers.pop("Authorization")
        client.post("/login", data={"token": SECRETS[Role.READER]})
        page = client.get("/runs", headers=HTML).text
        assert "Dispatch</a>" not in page
        return find(r'name="csrf" value="(\w+)"', page)

    def test_a_reader_may_not_stop_the_bulk_action_of_another(self, client_of, app):
        admin = client_of(tokens=TOKENS)
        admin.post("/login", data={"token": SECRETS[Role.ADMIN]})
        app.pause(queue="emails")
        ids = [app.dispatch("send_email", to="ann").id for _ in range(2)]
        data = {"csrf": csrf_of(admin), "action": "cancel", "id": ids}
        task = admin.post("/runs/bulk", data=data).headers["location"]
        reader = TestClient(admin.app, base_url=admin.base_url, follow_redirects=False)
        reader.post("/login", data={"token": SECRETS[Role.READER]})
        csrf = csrf_of(reader)

        assert reader.post(f"{task}/stop", data={"csrf": csrf}, headers=HTML).status_code == 403
        assert admin.post(f"{task}/stop", data=data, headers=HTML).status_code == 303
        assert app.audit.list(limit=1)[0].action == "bulk.stop"

    @pytest.mark.parametrize(
        "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", ""]
    )
    def test_they_redirect_to_this_site_only(self, local, target):
        data = {"csrf": csrf_of(local), "next": target}
        answer = local.post("/queues/emails/pause", data=data, headers=HTML)

        assert (answer.status_code, answer.headers["location"]) == (303, "/")

    def test_a_failure_is_shown_on_the_page(self, local):
        data = {"csrf": csrf_of(local), "next": "/queues", "name": "nope", "slots": "1"}
        answer = local.post("/limits/change", data=data, headers=HTML)
        page = local.get(answer.headers["location"], headers=HTML).text

        assert "There is no limit" in page
        assert "There is no limit" not in local.get("/queues", headers=HTML).text

    def test_a_second_click_dispatches_no_second_run(self, local, app):
        page = local.get("/dispatch?job=send_email", headers=HTML).text
        key = find(r'name="key" value="([\w-]+)"', page)
        data = {"csrf": csrf_of(local), "job": "send_email", "key": key, "arg:to": "ann"}
        for _ in range(2):
            assert local.post("/dispatch", data=data, headers=HTML).status_code == 303

        assert len(app.runs.recent()) == 1

    def test_a_wrong_argument_is_shown_in_the_form(self, local, app):
        data = {"csrf": csrf_of(local), "job": "send_email", "key": "k", "arg:to": "ann"}
        answer = local.post("/dispatch", data={**data, "arg:count": "many"}, headers=HTML)

        assert 'value="many"' in answer.text
        assert "banner bad" in answer.text
        assert app.runs.recent() == []


class TestSessions:
    def test_a_page_leads_to_the_login_and_back(self, client_of):
        client = client_of(tokens=TOKENS)
        answer = client.get("/runs?job=fails", headers=HTML)
        assert answer.headers["location"] == f"/login?next={quote('/runs?job=fails')}"

        data = {"token": SECRETS[Role.OPERATOR], "next": "/runs?job=fails"}
        answer = client.post("/login", data=data)
        cookie = answer.headers["set-cookie"]
        assert answer.headers["location"] == "/runs?job=fails"
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert SECRETS[Role.OPERATOR] not in cookie

        page = client.get("/runs", headers=HTML).text
        assert "operator ann" in page
        client.post("/logout", data={"csrf": csrf_of(client)})
        assert client.get("/runs", headers=HTML).status_code == 303

    def test_a_wrong_token_is_refused_and_limited(self, client_of):
        client = client_of(tokens=TOKENS)
        codes = [client.post("/login", data={"token": "wrong"}).status_code for _ in range(11)]

        assert codes == [401] * 10 + [429]

    def test_another_site_cannot_log_in(self, client_of):
        answer = client_of(tokens=TOKENS).post(
            "/login",
            data={"token": SECRETS[Role.ADMIN]},
            headers={"Origin": "http://evil.example"},
        )

        assert answer.status_code == 403


class TestMounts:
    def test_links_and_forms_keep_the_path_of_the_mount(self, app):
        web = FastAPI()
        web.mount("/jobs", asgi(app, identify=identify_loopback))
        client = TestClient(
            web,
            base_url="http://127.0.0.1",
            client=("127.0.0.1", 1),
            headers=HTML,
            follow_redirects=False,
        )
        page = client.get("/jobs/runs").text

        assert 'href="/jobs/static/style.css"' in page
        assert client.get("/jobs/static/style.css").status_code == 200
        data = {"csrf": csrf_of(client, "/jobs/runs"), "next": "/queues"}
        answer = client.post("/jobs/queues/emails/pause", data=data)
        assert answer.headers["location"] == "/jobs/queues"
        assert [pause.name for pause in app.pauses()] == ["emails"]
        document = client.get("/jobs/api/v1/openapi.json").json()
        assert document["servers"] == [{"url": "/jobs/api/v1"}]

    def test_the_path_of_the_mount_itself_leads_to_the_first_page(self, app):
        site = asgi(app, identify=identify_loopback)
        client = TestClient(site, root_path="/jobs", follow_redirects=False)

        answer = client.get("/jobs", headers={"Host": "evil.example"})

        assert (answer.status_code, answer.headers["location"]) == (307, "/jobs/")


class TestStreams:
    def test_too_many_are_refused_politely(self, client_of):
        answer = client_of(streams_max=0).get("/events")

        assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")

    def test_the_fingerprint_changes_with_the_runs(self, app):
        texts = [app.inspect.fingerprint()]
        run = app.dispatch("send_email", to="ann")
        texts.append(app.inspect.fingerprint())
        app.run()
        texts.append(app.inspect.fingerprint())

        assert run.status is RunStatus.COMPLETED
        assert len(set(texts)) == 3

    def test_the_fingerprint_changes_with_what_others_do(self, app):
        texts = [app.inspect.fingerprint()]
        app.pause(queue="emails")
        texts.append(app.inspect.fingerprint())
        app.resume(queue="emails")
        app.audit.record("alert.mute", "alert/x", actor="ann")
        texts.append(app.inspect.fingerprint())

        assert len(set(texts)) == 3
