"""The page of a signed link: for people without an account, in programs without JavaScript."""

from html.parser import HTMLParser
from itertools import count
from typing import Any

import pytest

from dashboard.conftest import SECRETS, TOKENS
from tickwork import RunContext, Tickwork
from tickwork.dashboard import Role, asgi
from tickwork.testing import ManualClock

SECRET = "s" * 32
NUMBERS = count()
HTML = {"Accept": "text/html"}
NOON = "2026-01-01T12:00:00+00:00"


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture
def app(clock):
    with Tickwork(
        "memory://", clock=clock, callback_secret=SECRET, dashboard_url="http://jobs.test/ops"
    ) as app:
        yield app


class Waiting:
    """A run that waits, and the path of its link."""

    def __init__(self, app: Tickwork, **options: Any) -> None:
        links: list[str] = []

        @app.job(name=f"order-{next(NUMBERS)}")
        def order(ctx: RunContext) -> Any:
            links.append(ctx.callback_url("approved", valid="2d", **options))
            return ctx.wait_for("approved", timeout="7d")

        self.app = app
        self.run = order.dispatch()
        app.run()
        self.path = links[0].removeprefix("http://jobs.test/ops")

    @property
    def result(self) -> Any:
        self.app.collect()
        return self.run.result()


@pytest.fixture
def waiting(app):
    return Waiting(app)


@pytest.fixture
def client(client_of, app):
    """A client without a token, of a dashboard that has tokens."""
    return client_of(of=app, tokens=TOKENS, address="203.0.113.9")


class FormReader(HTMLParser):
    """What a browser sends when the button of a form is pressed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.method = ""
        self.buttons: list[dict[str, str]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form":
            self.action, self.method = values.get("action"), values.get("method") or ""
        elif tag == "button":
            name = values.get("name")
            self.buttons.append({} if name is None else {name: values.get("value") or ""})
        elif tag == "script":
            self.scripts.append(values.get("src") or "")


class TestPage:
    """A GET shows buttons and changes nothing: programs of mail open every link."""

    def test_opening_it_uses_nothing_up(self, client, waiting):
        for method in ("GET", "HEAD", "GET"):
            assert client.request(method, waiting.path, headers=HTML).status_code == 200

        assert not waiting.run.status.is_final
        assert client.post(waiting.path).status_code == 200

    def test_its_button_answers_without_scripts(self, client, waiting):
        form = FormReader(client.get(waiting.path, headers=HTML).text)
        assert (form.method, form.action, form.buttons) == ("post", None, [{}])

        done = client.post(waiting.path, data={"unused": ""}, headers=HTML)

        assert "Your answer was stored" in done.text
        assert waiting.result is None

    def test_it_has_a_button_for_each_answer(self, client, app):
        waiting = Waiting(app, answers=["approve", 'reject "it" <b>'])
        form = FormReader(client.get(waiting.path, headers=HTML).text)
        assert form.buttons == [{"answer": "approve"}, {"answer": 'reject "it" <b>'}]

        assert client.post(waiting.path, data=form.buttons[1], headers=HTML).status_code == 200

        assert waiting.result == 'reject "it" <b>'

    def test_other_sites_do_not_see_the_link(self, client, waiting):
        for answer in (client.get(waiting.path), client.post(waiting.path)):
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert "noindex" in answer.headers["x-robots-tag"]

    def test_it_shows_no_data_of_the_run(self, client, waiting):
        assert waiting.run.id not in client.get(waiting.path, headers=HTML).text


class TestRequests:
    """Programs send JSON."""

    def test_data_of_any_kind(self, client, waiting):
        answer = client.post(waiting.path, json={"by": "ann", "amount": 5})

        assert answer.json() == {"run": waiting.run.id, "event": "approved"}
        assert waiting.result == {"by": "ann", "amount": 5}

    def test_it_is_in_the_audit_log(self, app, client, waiting):
        client.post(waiting.path, json=1)

        [entry] = app.audit.list()
        assert (entry.action, entry.subject) == ("run.callback", f"run/{waiting.run.id}")
        assert (entry.actor, entry.source) == ("callback link", "203.0.113.9")
        assert entry.detail == '{"event": "approved"}'

    @pytest.mark.parametrize(
        ("content", "kind", "status"),
        [
            (b"{", "application/json", 400),
            (b"[" * 100_000, "application/json", 400),
            (b"NaN", "application/json", 400),
            (b"\xff\xfe", "application/json", 400),
            (b'"\\ud800"', "application/json", 422),
            (b'"' + b"x" * 70_000 + b'"', "application/json", 422),
            (b'"' + b"x" * 5_000_000 + b'"', "application/json", 413),
            (b"<yes/>", "text/xml", 415),
            (b"1", "", 415),
            (b"\xff=1", "application/x-www-form-urlencoded", 400),
            (b"&".join(b"a=1" for _ in range(50)), "application/x-www-form-urlencoded", 400),
        ],
        ids=lambda value: ascii(value)[:40],
    )
    def test_hostile_bodies(self, client, waiting, *, content, kind, status):
        headers = {"Content-Type": kind} if kind else {}

        answer = client.post(waiting.path, content=content, headers=headers)

        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert not waiting.run.status.is_final
        assert client.post(waiting.path, json=1).status_code == 200

    @pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
    def test_other_methods(self, client, waiting, method):
        answer = client.request(method, waiting.path)

        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD, POST"

    def test_an_answer_that_the_link_does_not_have(self, client, app):
        waiting = Waiting(app, answers=["approve"])

        assert client.post(waiting.path, json="reject").status_code == 422
        assert client.post(waiting.path, data={"answer": "reject"}).status_code == 422
        assert client.post(waiting.path).status_code == 422
        assert client.post(waiting.path, json="approve").status_code == 200


class TestRefusals:
    """A link that is forged, changed, used, too old or without a run is refused with the reason."""

    @pytest.fixture(params=["GET", "POST"])
    def refuse(self, request, client):
        def send(path: str, status: int, text: str) -> None:
            answer = client.request(request.param, path)
            assert (answer.status_code, answer.json()["code"]) == (status, "callback-refused")
            assert text in answer.json()["detail"]
            page = client.request(request.param, path, headers=HTML)
            assert page.status_code == status
            assert text in page.text.replace("&#39;", "'")

        return send

    @pytest.mark.parametrize("place", [2, 10, 80, -1])
    def test_changed(self, refuse, waiting, place):
        path = waiting.path.removeprefix("/callbacks/")
        letters = list(path)
        letters[place] = "A" if letters[place] != "A" else "B"

        refuse(f"/callbacks/{''.join(letters)}", 404, "was changed")
        assert not waiting.run.status.is_final

    @pytest.mark.parametrize("token", ["x", "1.e30.e30", "%00", "%ff", "1" * 9_000, "..%2f..", "é"])
    def test_forged(self, refuse, waiting, token):
        refuse(f"/callbacks/{token}", 404, "has not signed it") if "%2f" not in token else None

    def test_used(self, app, client, refuse, waiting):
        client.post(waiting.path, json="first")

        refuse(waiting.path, 409, "was answered before")

        assert waiting.result == "first"
        assert len(app.audit.list()) == 1

    def test_expired(self, clock, refuse, waiting):
        clock.advance(days=2)

        refuse(waiting.path, 410, "valid until 2026-01-03 12:00 UTC")

    def test_of_a_run_that_has_ended(self, refuse, waiting):
        waiting.run.cancel()

        refuse(waiting.path, 410, "does not wait any more")

    def test_refused_links_leave_no_audit_rows(self, app, client, waiting):
        for _ in range(3):
            client.post("/callbacks/1.e30.e30")

        assert app.audit.list() == []


class TestAccess:
    def test_only_the_link_is_open(self, client, waiting):
        assert client.get("/api/v1/runs").status_code == 401
        assert client.get("/waits").status_code == 401
        assert client.get("/callbacks/").status_code in {401, 404}

    def test_a_dashboard_that_is_read_only(self, client_of, app, waiting):
        client = client_of(of=app, tokens=TOKENS, read_only=True)

        assert "read-only" in client.get(waiting.path, headers=HTML).text
        assert client.post(waiting.path).status_code == 403
        assert not waiting.run.status.is_final

    def test_requests_of_an_address_are_limited(self, client_of, app, waiting):
        client = client_of(of=app, tokens=TOKENS, requests_per_minute=60)

        codes = [client.get("/callbacks/x").status_code for _ in range(30)]

        assert set(codes) == {404, 429}
        user = client_of(Role.READER, of=app)
        assert user.get("/api/v1/runs").status_code == 200


class TestWaits:
    """The page and the endpoint of the open waits."""

    def test_who_waits_for_what(self, client_of, app, waiting, clock):
        @app.job
        def keyed(ctx: RunContext) -> Any:
            return ctx.wait_for("order.paid", key="42 <b>", timeout=None)

        run = keyed.dispatch()
        app.run()

        found = client_of(Role.READER, of=app).get("/api/v1/waits").json()

        assert found["cursor"] is None
        assert [(each["run"], each["event"], each["key"]) for each in found["waits"]] == [
            (waiting.run.id, "approved", waiting.run.id),
            (run.id, "order.paid", "42 <b>"),
        ]
        assert [each["until"] for each in found["waits"]] == ["2026-01-08T12:00:00+00:00", None]
        assert {each["since"] for each in found["waits"]} == {"2026-01-01T12:00:00+00:00"}

    def test_runs_that_wait(self, client_of, app, waiting):
        @app.job
        def plain() -> None: ...

        plain.delay("1h").dispatch()
        client = client_of(Role.READER, of=app)

        found = client.get("/api/v1/runs?waiting=true").json()["runs"]

        assert [each["id"] for each in found] == [waiting.run.id]
        assert len(client.get("/api/v1/runs?waiting=false").json()["runs"]) == 2

    def test_pages(self, client_of, app):
        for _ in range(3):
            Waiting(app)
        client = client_of(Role.READER, of=app)

        first = client.get("/api/v1/waits?limit=2").json()
        second = client.get(f"/api/v1/waits?limit=2&cursor={first['cursor']}").json()

        assert (len(first["waits"]), len(second["waits"]), second["cursor"]) == (2, 1, None)

    def test_a_reader_sees_them_and_cannot_answer(self, client_of, app, waiting):
        client = client_of(Role.READER, of=app)
        page = client.get("/waits").text

        assert "approved" in page
        assert "/signal" not in page

    @pytest.mark.parametrize("data", ['{"by": "ann"}', ""])
    def test_an_operator_approves(self, client_of, app, waiting, data):
        client = sign_in(client_of(of=app, tokens=TOKENS), Role.OPERATOR)
        page = client.get("/waits").text
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        assert f'action="/runs/{waiting.run.id}/signal"' in page

        form = {"csrf": csrf, "next": "/waits", "event": "approved", "data": data}
        answer = client.post(f"/runs/{waiting.run.id}/signal", data=form)

        assert "tickwork_flash=good" in answer.headers["set-cookie"].replace('"', "")
        assert waiting.result == ({"by": "ann"} if data else None)
        [entry] = app.audit.list()
        assert (entry.action, entry.actor) == ("run.signal", "operator ann")
        assert "No open waits" in client.get("/waits").text

    @pytest.mark.parametrize("data", ["{", "5", "NaN", "[" * 9_000])
    def test_data_that_is_no_object(self, client_of, app, waiting, data):
        client = sign_in(client_of(of=app, tokens=TOKENS), Role.OPERATOR)
        csrf = client.get("/waits").text.partition('name="csrf" value="')[2].partition('"')[0]

        form = {"csrf": csrf, "next": "/waits", "event": "approved", "data": data}
        answer = client.post(f"/runs/{waiting.run.id}/signal", data=form)

        assert "tickwork_flash=bad" in answer.headers["set-cookie"].replace('"', "")
        assert not waiting.run.status.is_final


def sign_in(client: Any, role: Role) -> Any:
    client.post("/login", data={"token": SECRETS[role], "next": "/"})
    return client


def test_it_works_below_a_path(app, waiting):
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    outer = Starlette(routes=[Mount("/ops", asgi(app, tokens=TOKENS))])
    with TestClient(outer) as client:
        assert client.post(f"/ops{waiting.path}", json=7).status_code == 200
    assert waiting.result == 7
