"""Hostile values: in rows, in parameters, in cursors, in paths and in headers."""

import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from typing import Any

import pytest

from tickwork.dashboard import Role
from tickwork.dashboard.acts import ALL_ACTS

from .conftest import API, SECRETS, TOKENS

EVIL = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}${7*7}javascript:alert(1)"
)
HTML = {"Accept": "text/html"}
UNKNOWN = "019b76da-a800-7000-8000-000000000001"
PAGES = (
    *("/", "/runs", "/schedules", "/time", "/queues", "/workers", "/alerts", "/audit", "/dispatch"),
    *("/runs/bulk", "/runs?text=script", "/runs?arg=to%3Dx"),
)
TEXTS = {  # the columns of each table whose values a person may see
    "run": ("job", "queue", "tenant", "schedule", "target", "reason", "external_id"),
    "history": ("job", "queue", "tenant", "schedule", "target", "reason", "external_id"),
    "attempt": ("error", "traceback"),
    "log": ("logger", "message", "level"),
    "job": ("last_error",),
    "worker": ("host", "version"),
    "pause": ("name",),
    "schedule": ("pause_note", "target"),
}
CURSORS = ("x", "0", "'; DROP TABLE tickwork_run; --", "9" * 10_000, UNKNOWN + "0", UNKNOWN.upper())
NAMES = {"id": UNKNOWN, "name": "emails"}


class ScriptFinder(HTMLParser):
    """Collects what a browser would execute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"iframe", "object", "embed", "base"} or (
            tag == "script" and "/static/" not in (values.get("src") or "")
        ):
            self.found.append(tag)
        for name, value in attrs:
            target = (value or "").strip().lower()
            if name.startswith("on") or name == "srcdoc":
                self.found.append(f"{tag} {name}")
            if name in {"href", "src", "action"} and target.startswith(
                ("javascript:", "data:text")
            ):
                self.found.append(f"{tag} {name}={value}")


def find_scripts(text: str) -> list[str]:
    finder = ScriptFinder()
    finder.feed(text)
    return finder.found


def test_the_finder_finds_scripts():
    assert find_scripts(f"<p>{EVIL}</p>") == ["script", "img onerror"]
    assert find_scripts('<a href=" JavaScript:alert(1)">x</a>') != []


class TestRows:
    @pytest.fixture
    def paths(self, app, tmp_path):
        """Rows that another program has written, with hostile text wherever text can be."""
        app.dispatch("fails")
        app.dispatch("send_email", to=EVIL)
        app.run()
        app.delay("1h").dispatch("send_email", to=EVIL)
        app.schedules.register("", f"s{EVIL}", app.clock.now(), "1h", "fails")
        app.pause(queue="q", note=EVIL)
        app.audit.record(EVIL, EVIL, actor=EVIL, source=EVIL, detail={EVIL: EVIL})
        ids = [run.id for run in app.runs.recent()]
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as file:
            for table, columns in TEXTS.items():
                for column in columns:
                    file.execute(f"UPDATE tickwork_{table} SET {column} = ?", (EVIL,))
            file.commit()
        return [*PAGES, *(f"/runs/{run_id}" for run_id in ids)]

    def test_pages_show_them_as_text(self, client_of, paths):
        client = client_of()
        for path in paths:
            answer = client.get(path, headers=HTML)

            assert answer.status_code == 200, path
            assert find_scripts(answer.text) == [], path
            assert "alert(1)</script>" not in answer.text, path
            assert "script-src 'self'" in answer.headers["content-security-policy"]

    def test_answers_of_the_api_are_not_html(self, client_of, paths):
        client = client_of()
        for path in ("/runs", "/overview", "/jobs", "/workers", "/audit", "/schedules"):
            answer = client.get(f"{API}{path}", headers=HTML)

            assert answer.status_code == 200, path
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"


class TestParameters:
    @pytest.mark.parametrize(
        "name", ["job", "queue", "schedule", "tag", "tenant", "text", "arg", "what", "subject"]
    )
    @pytest.mark.parametrize(
        "value", [EVIL, "' OR '1'='1", "%", "\\", "a=b=c'--", "😀" * 250, "{0.__class__}=1"]
    )
    def test_they_match_nothing_and_break_nothing(self, client_of, app, name, value):
        app.dispatch("send_email", to="ann")
        client = client_of()
        path = {"what": "/explanations", "subject": "/audit"}.get(name, "/runs")

        answer = client.get(f"{API}{path}", params={name: value})

        assert answer.status_code in {200, 404, 409, 422}
        assert answer.status_code != 200 or not answer.json().get("runs")
        if path == "/runs":
            page = client.get("/runs", params={name: value}, headers=HTML)
            assert page.status_code in {200, 422}
            assert find_scripts(page.text) == []

    @pytest.mark.parametrize("cursor", CURSORS, ids=lambda text: text[:20])
    @pytest.mark.parametrize("path", ["/runs", "/audit", "/runs/export.csv", "/runs/bulk"])
    def test_a_malformed_cursor_of_a_page_is_refused(self, client_of, path, cursor):
        answer = client_of().get(path, params={"cursor": cursor}, headers=HTML)

        assert answer.status_code == 422
        assert find_scripts(answer.text) == []

    @pytest.mark.parametrize("cursor", CURSORS, ids=lambda text: text[:20])
    @pytest.mark.parametrize("path", ["/runs", "/audit", "/schedules"])
    def test_a_malformed_cursor_of_the_api_is_refused(self, client_of, path, cursor):
        answer = client_of().get(f"{API}{path}", params={"cursor": cursor})

        assert (answer.status_code, answer.json()["field"]) == (422, "cursor")


class TestBodies:
    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("POST", "/runs", r'{"\ud800": 1}'),
            ("POST", "/runs", r'{"job": "\ud800"}'),
            ("POST", "/runs", r'{"job": "send_email", "args": {"to": "\ud800"}}'),
            ("POST", "/runs", r'{"job": "send_email", "args": {"to": {"\ud800": 1}}}'),
            ("POST", "/runs", r'{"job": "send_email", "args": {"\ud800": 1}}'),
            ("POST", "/runs", r'{"job": "send_email", "args": {"to": "x"}, "tags": ["\udfff"]}'),
            ("POST", "/runs", r'{"job": "send_email", "args": {"to": "x"}, "delay": "\ud800"}'),
            ("POST", "/queues/emails/pause", r'{"note": "\ud800"}'),
            ("POST", "/queues/emails/pause", r'{"until": "\ud800"}'),
            ("PUT", "/limits/job:send_email", r'{"slots": "\ud800"}'),
            (
                *("POST", "/schedules"),
                r'{"name": "s", "job": "send_email", "rule": "@daily", "args": {"to": "\ud800"}}',
            ),
            ("PATCH", "/schedules/digest", r'{"args": {"to": "\ud800"}}'),
            ("PATCH", "/schedules/digest", r'{"overlap": "\ud800"}'),
            ("PATCH", "/schedules/digest", r'{"unset": ["\ud800"]}'),
        ],
    )
    def test_a_lone_surrogate_is_a_value_that_is_not_valid(self, admin, app, method, path, body):
        definition = {"name": "digest", "job": "send_email", "rule": "@daily", "args": {"to": "a"}}
        assert admin.post(f"{API}/schedules", json=definition).status_code == 201

        headers = {"Content-Type": "application/json"}
        answer = admin.request(method, f"{API}{path}", content=body, headers=headers)

        assert (answer.status_code, answer.json()["status"]) == (422, 422), answer.text
        assert app.inspect.schedule_details("digest").revision == 1


class TestMethods:
    @pytest.mark.parametrize(
        ("path", "allowed"),
        [
            (f"{API}/runs", "GET, HEAD, POST"),
            (f"{API}/limits/queue:emails", "DELETE, PUT"),
            (f"{API}/openapi.json", "GET, HEAD"),
            ("/runs/bulk", "GET, HEAD, POST"),
            ("/login", "GET, HEAD, POST"),
            ("/limits/change", "POST"),
            ("/static/app.js", "GET, HEAD"),
        ],
    )
    def test_a_refused_method_comes_with_those_that_are_allowed(self, admin, path, allowed):
        answer = admin.request("TRACE", path)

        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            *("/static/..%2fsite.py", "/static/%2e%2e%2fsite.py", "/static/..%5csite.py"),
            *("/static//etc/passwd", "/static/....//site.py", "/static/%00", "/static/"),
            *(f"{API}/runs/..%2f..%2fsettings", f"{API}/%2e%2e/%2e%2e/etc/passwd"),
            *(
                "/runs/" + "a" * 20_000,
                "/schedules/" + "%2e%2e/" * 50,
                "http://127.0.0.1:8737//evil.example/runs",
            ),
        ],
        ids=lambda path: path[:40],
    )
    def test_tricks_lead_nowhere(self, client_of, path):
        answer = client_of().get(path, headers=HTML)

        assert answer.status_code in {400, 404, 422}
        assert "root:" not in answer.text
        assert "def build_site" not in answer.text
        assert "location" not in answer.headers

    @pytest.mark.parametrize("path", ["/runs/", "/login/", "/static", f"{API}/overview/", API])
    def test_no_redirect_leads_to_the_host_that_a_request_names(self, client_of, path):
        answer = client_of(tokens=TOKENS).get(path, headers={"Host": "evil.example", **HTML})

        assert answer.status_code == 404
        assert "location" not in answer.headers


class TestRoles:
    @pytest.mark.parametrize(
        ("each", "role"),
        [
            pytest.param(each, role, id=f"{each.name}-{role.name.lower()}")
            for each in ALL_ACTS
            for role in (Role.READER, Role.OPERATOR)
            if role < each.role
        ],
    )
    def test_nothing_that_a_client_sends_raises_its_role(self, client_of, app, each, role):
        client = client_of(role)
        path = each.path.format(**NAMES)
        tricks: list[dict[str, Any]] = [
            {"headers": {"X-Role": "admin", "X-User": "admin ann", "X-Forwarded-User": "admin"}},
            {"params": {"role": "admin", "read_only": "false"}},
            {"cookies": {"tickwork_session": "admin ann|9999999999|x", "role": "admin"}},
            {"json": {"role": "admin", "is_admin": True}},
            {"headers": {"X-HTTP-Method-Override": "GET"}},
            {"headers": {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}},
        ]

        for trick in tricks:
            client.cookies.update(trick.pop("cookies", {}))
            answer = client.request(each.method, f"{API}{path}", **trick)
            assert answer.status_code == 403, trick
        assert app.audit.list() == []

    def test_the_form_token_of_another_user_is_refused(self, client_of, app):
        tokens = {}
        for role in (Role.READER, Role.ADMIN):
            client = client_of(role)
            del client.headers["Authorization"]
            client.post("/login", data={"token": SECRETS[role], "next": "/"})
            page = client.get("/queues", headers=HTML).text
            tokens[role] = page.partition('name="csrf" value="')[2].partition('"')[0]

        assert tokens[Role.ADMIN]
        data = {"csrf": tokens[Role.READER] or "x", "next": "/queues"}
        answer = client.post("/queues/emails/pause", data=data, headers=HTML)
        assert answer.status_code == 403
        assert app.pauses() == []
