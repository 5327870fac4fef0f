"""Who may use the dashboard: closed by default, tokens, roles, forged requests."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from dashboard.conftest import API, SECRETS, TOKENS
from tickwork._kernel.version import VERSION
from tickwork.dashboard import AccessToken, Role, User, asgi
from tickwork.dashboard.access import (
    FAILURES_MAX,
    NAME_MAX,
    SECRET_MIN,
    Caller,
    LinkToken,
    LoginLimit,
    TokenTable,
    parse_tokens,
)
from tickwork.dashboard.actions import ACTS
from tickwork.dashboard.api import ENDPOINTS
from tickwork.errors import InvalidOption, StoreUnavailable

HTML = {"Accept": "text/html"}


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode("latin-1")


class TestClosedByDefault:
    def test_a_mounted_dashboard_needs_tokens_or_users(self, app):
        tokens: Any
        for tokens in ((), [], iter([])):
            with pytest.raises(InvalidOption, match="identify must be a function") as caught:
                asgi(app, tokens=tokens, secret="s" * 20)

            assert "tokens=[AccessToken(" in caught.value.fix

    def test_nothing_but_the_sign_in_page_is_served_without_a_token(self, client_of):
        client = client_of(tokens=TOKENS)
        answers = {
            (path, method): client.request(method, _fill(path), headers=HTML)
            for path, method in _routes_of(client.app.routes)
        }

        is_open = {key for key, answer in answers.items() if answer.status_code == 200}
        assert is_open == {("/login", "GET"), ("/login", "HEAD")}
        assert len(answers) > 100
        others = {key: answer.status_code for key, answer in answers.items() if key not in is_open}
        links = {others.pop(("/callbacks/{token}", method)) for method in ("GET", "HEAD", "POST")}
        assert links == {404}  # which the program has not signed
        assert set(others.values()) == {303, 401}, others
        assert not any(VERSION in answer.text for answer in answers.values())


def _fill(path):
    query = "?name=nightly" if path == "/edit-schedule" else ""
    return path.replace("{name:path}", "nightly").format(**PATHS) + query


def _routes_of(routes, prefix=""):
    for route in routes:
        if isinstance(route, Mount):
            yield from _routes_of(route.routes or [], prefix + route.path)
        elif isinstance(route, Route):
            yield from ((prefix + route.path, method) for method in route.methods or ())


HOSTILE_HOSTS = [
    "evil.example",
    "[::1]evil",
    "[::1]evil.example",
    "[::1].evil.example",
    "[::1]:80evil",
    "[::1]:80:80",
    "[::1",
    "::1",
    "[::1%lo]",
    "[::1%25lo]",
    "[fe80::1%127.0.0.1]",
    "[127.0.0.1]",
    "[localhost]",
    "[]",
    "127.0.0.1@evil.example",
    "evil@127.0.0.1",
    "localhost:evil@127.0.0.1",
    "127.0.0.1:80@evil.example",
    "127.0.0.1:evil",
    "127.0.0.1:99999",
    "127.0.0.1:-1",
    "127.0.0.1:+80",
    "127.0.0.1: 80",
    "127.0.0.1.evil.example",
    "127.0.0.1.",
    "127.1",
    "0177.0.0.1",
    "2130706433",
    "0x7f.0.0.1",
    "0.0.0.0",
    "localhost.",
    "localhost.evil.example",
    "localhost evil.example",
    "localhost,evil.example",
    "localhost/",
    "localhost/evil",
    "localhost?evil",
    "localhost#evil",
    "localhost\\evil",
    "localhost%00",
    "%6cocalhost",
    "\u2113ocalhost".encode(),
    "loc\xe1lhost".encode("latin-1"),
    "xn--localhost-",
    "\uff11\uff12\uff17.0.0.1".encode(),
    "http://127.0.0.1",
    "//127.0.0.1",
    ":80",
    "",
]
OWN_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:8737",
    "127.0.0.1:",
    "127.8.9.10:65535",
    "localhost",
    "LocalHost:8737",
    "[::1]",
    "[::1]:8737",
    "[0:0:0:0:0:0:0:1]",
    "[::FFFF:127.0.0.1]:8737",
]


class TestNoToken:
    """With --no-token, only this machine is answered."""

    def test_this_machine_is_an_administrator(self, client_of):
        assert client_of().get(f"{API}/queues").status_code == 200

    @pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "", "[::1]", "localhost "])
    def test_another_machine_is_refused(self, client_of, address):
        answer = client_of(address=address).get(f"{API}/queues")

        assert answer.status_code == 403
        assert answer.json()["code"] == "local-only"
        assert "without --no-token" in answer.json()["fix"]

    @pytest.mark.parametrize("host", HOSTILE_HOSTS)
    def test_a_host_that_is_not_this_machine_is_refused(self, client_of, host):
        answer = client_of().get(f"{API}/queues", headers=[(b"Host", as_bytes(host))])

        assert (answer.status_code, answer.json()["code"]) == (403, "local-only")

    @pytest.mark.parametrize("host", OWN_HOSTS)
    def test_the_names_of_this_machine_are_accepted(self, client_of, host):
        answer = client_of().get(f"{API}/queues", headers=[(b"Host", as_bytes(host))])

        assert answer.status_code == 200

    def test_several_hosts_are_refused(self, client_of):
        hosts = [(b"Host", b"127.0.0.1"), (b"Host", b"127.0.0.1")]

        assert client_of().get(f"{API}/queues", headers=hosts).status_code == 403

    @pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
    def test_a_proxy_on_this_machine_is_refused(self, client_of, name):
        answer = client_of().get(f"{API}/queues", headers={name: "10.0.0.7"})

        assert answer.status_code == 403

    def test_a_browser_needs_the_csrf_token(self, client_of):
        answer = client_of().post(
            f"{API}/queues/emails/pause", headers={"Origin": "http://127.0.0.1:8737"}
        )

        assert (answer.status_code, answer.json()["code"]) == (403, "csrf")

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": ""},
            {"Origin": "http://["},
            {"Origin": "http://127.0.0.1:8738"},
            {"Origin": "https://127.0.0.1:8737"},
            {"Origin": "http://127.0.0.1:8737@evil.example"},
            {"Origin": "http://127.0.0.1:8737.evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_another_site_is_refused(self, client_of, app, headers):
        answer = client_of().post(f"{API}/queues/emails/pause", headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        assert app.pauses() == []

    @pytest.mark.parametrize(
        ("host", "headers"),
        [
            ("127.0.0.1:8737", {"Origin": "http://127.0.0.1:8737"}),
            ("localhost", {"Origin": "http://localhost:80"}),
            ("LOCALHOST:80", {"Origin": "http://localhost"}),
            # A browser vouches for it, also if a proxy has changed the Host header.
            ("127.0.0.1", {"Origin": "https://jobs.example.org", "Sec-Fetch-Site": "same-origin"}),
        ],
    )
    def test_the_pages_of_the_dashboard_are_accepted(self, client_of, host, headers):
        client = client_of(tokens=TOKENS, host=host)
        data = {"token": SECRETS[Role.ADMIN]}

        assert client.post("/login", data=data, headers=headers).status_code == 303

    def test_a_changed_host_is_explained(self, client_of):
        client = client_of(tokens=TOKENS)
        answer = client.post("/login", headers={"Origin": "https://jobs.example.org"})

        assert "a proxy must pass on the Host header" in answer.json()["fix"]


class TestTokens:
    def test_a_request_without_a_token_is_refused(self, client_of):
        answer = client_of(tokens=TOKENS).get(f"{API}/queues")

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"

    def test_a_token_works_from_any_address(self, client_of):
        client = client_of(Role.READER, address="10.0.0.7", host="jobs.example.org")

        assert client.get(f"{API}/queues").status_code == 200

    def test_wrong_tokens_slow_down_only_their_sender(self, client_of, caplog):
        client = client_of(tokens=TOKENS, address="10.0.0.7")
        wrong = {"Authorization": "Bearer wrong"}
        codes = [client.get(f"{API}/queues", headers=wrong).status_code for _ in range(11)]

        assert codes == [401] * FAILURES_MAX + [429]
        refused = client.get(f"{API}/queues", headers=wrong)
        assert 1 <= int(refused.headers["retry-after"]) <= 61
        assert "wrong tokens within a minute from '10.0.0.7'" in caplog.text
        # Others may have the same address, behind a proxy or a router.
        right = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        assert client.get(f"{API}/queues", headers=right).status_code == 200
        assert client.post("/login", data={"token": SECRETS[Role.ADMIN]}).status_code == 303
        other = TestClient(client.app, client=("10.0.0.8", 1)).get(f"{API}/queues", headers=wrong)
        assert other.status_code == 401

    def test_the_limit_ends_and_forgets_addresses(self):
        limit = LoginLimit()
        for _ in range(FAILURES_MAX):
            assert limit.add_failure("a", now=0) == 0

        assert limit.add_failure("a", now=10) == 50
        assert limit.add_failure("b", now=10) == 0
        assert limit.add_failure("a", now=61) == 0
        for number in range(20_000):
            limit.add_failure(str(number), now=0)
        assert len(limit._failures) == 10_000

    def test_a_network_of_ipv6_is_one_sender(self):
        limit = LoginLimit()
        for number in range(FAILURES_MAX):
            limit.add_failure(f"2001:db8::{number:x}", now=0)

        assert limit.add_failure("2001:db8::ffff", now=1) == 59
        assert limit.add_failure("2001:db8:0:1::1", now=1) == 0

    def test_a_short_token_is_refused(self):
        with pytest.raises(InvalidOption, match="at least 16 characters") as caught:
            AccessToken(name="ann", secret="short")

        assert "short" not in str(caught.value).replace("shorter", "")

    @pytest.mark.parametrize(
        "name",
        ["", "a\nb", "a\n", "\n", "a\rb", "a\tb", "a\0b", "\x1f", "\x7f", "x" * (NAME_MAX + 1)],
    )
    def test_a_name_must_be_one_line_of_text(self, name):
        with pytest.raises(InvalidOption, match="must be a line of text that is not empty"):
            AccessToken(name=name, secret="x" * SECRET_MIN)

    @pytest.mark.parametrize("name", ["a", "Ann Lee", " ", "é", "x" * NAME_MAX])
    def test_any_other_name_is_accepted(self, name):
        assert AccessToken(name=name, secret="x" * SECRET_MIN).user.name == name

    def test_a_secret_may_be_of_the_least_length(self):
        with pytest.raises(InvalidOption, match="at least"):
            AccessToken(name="ann", secret="x" * (SECRET_MIN - 1))

    def test_equal_tokens_are_refused(self):
        with pytest.raises(InvalidOption, match="differ"):
            TokenTable([AccessToken(name=name, secret="x" * 20) for name in "ab"])

    def test_a_token_does_not_show_its_secret(self):
        assert SECRETS[Role.ADMIN] not in repr(TOKENS)

    def test_tokens_are_read_from_a_file(self):
        text = "# people\n\nann admin 0123456789abcdef\nbob reader fedcba9876543210\n"

        assert [(each.name, each.role) for each in parse_tokens(text)] == [
            ("ann", Role.ADMIN),
            ("bob", Role.READER),
        ]

    @pytest.mark.parametrize("line", ["ann", "ann boss 0123456789abcdef", "ann admin a b"])
    def test_a_wrong_line_is_refused_without_showing_it(self, line):
        with pytest.raises(InvalidOption, match="line 1 of the token file") as caught:
            parse_tokens(line)

        assert "0123456789abcdef" not in str(caught.value)


class TestSessions:
    TABLE = TokenTable(TOKENS)
    OPERATOR = TOKENS[1]

    def read(self, cookie, tokens=TOKENS, *, now=200, secret=""):
        session = TokenTable(tokens, secret).read_session(cookie, now=now)
        return None if session is None else session.user

    def test_a_session_has_the_user_of_its_token(self):
        cookie = self.TABLE.make_session(self.OPERATOR, now=100)

        assert self.read(cookie) == self.OPERATOR.user

    def test_another_process_with_the_same_token_accepts_it(self):
        cookie = self.TABLE.make_session(self.OPERATOR, now=100)

        assert self.read(cookie, TOKENS[::-1]) == self.OPERATOR.user
        assert self.read(cookie, TOKENS[1:]) == self.OPERATOR.user

    @pytest.mark.parametrize(
        "change", [{"role": Role.READER}, {"name": "bob"}, {"secret": "another-long-secret"}]
    )
    def test_a_token_with_another_role_name_or_secret_ends_it(self, change):
        cookie = self.TABLE.make_session(self.OPERATOR, now=100)

        assert self.read(cookie, [TOKENS[0], replace(self.OPERATOR, **change), TOKENS[2]]) is None

    def test_without_its_token_it_ends(self):
        cookie = self.TABLE.make_session(self.OPERATOR, now=100)

        assert self.read(cookie, [TOKENS[0], TOKENS[2]]) is None
        assert self.read(cookie, []) is None
        assert self.read(cookie, secret="another server") is None

    def test_it_expires(self):
        cookie = self.TABLE.make_session(self.OPERATOR, now=100)

        assert self.read(cookie, now=99 + 12 * 3600) is not None
        assert self.read(cookie, now=100 + 12 * 3600) is None

    @pytest.mark.parametrize("cookie", ["", ".", "x", "x.y", "é.é", "a.9999999999.", "." * 10_000])
    def test_a_forged_one_is_refused(self, cookie):
        assert self.read(cookie) is None

    def test_a_changed_one_is_refused(self):
        session_id, until, signature = self.TABLE.make_session(self.OPERATOR, now=100).split(".")

        assert self.read(f"{session_id}.{int(until) + 1}.{signature}") is None
        assert self.read(f"x{session_id}.{until}.{signature}") is None

    def test_two_sessions_of_a_user_have_two_form_tokens(self):
        first, second = (
            self.TABLE.read_session(self.TABLE.make_session(self.OPERATOR, now=100), now=100)
            for _ in range(2)
        )
        assert first is not None
        assert second is not None
        caller = Caller(second.user, "", "session", second)

        assert self.TABLE.is_csrf_token(second.csrf_token, caller)
        assert not self.TABLE.is_csrf_token(first.csrf_token, caller)


class TestEndOfSessions:
    """A session ends at once: in this process, and in others on the same database."""

    def sign_in(self, client, role=Role.OPERATOR):
        answer = client.post("/login", data={"token": SECRETS[role]})
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    def sign_out(self, client):
        page = client.get("/queues", headers=HTML).text
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303

    def test_a_copied_cookie_is_refused_after_the_sign_out(self, client_of, app):
        client, other = client_of(tokens=TOKENS), client_of(tokens=TOKENS)
        copy = self.sign_in(client)
        assert other.get(f"{API}/queues", headers=copy).status_code == 200

        self.sign_out(client)

        for each in (client, other, client_of(tokens=TOKENS)):
            each.cookies.clear()
            assert each.get(f"{API}/queues", headers=copy).status_code == 401
        [entry] = app.audit.list()
        assert (entry.action, entry.actor) == ("session.end", "operator ann")
        assert entry.subject.removeprefix("session/") in copy["Cookie"]

    def test_other_sessions_of_the_user_go_on(self, client_of):
        client, other = client_of(tokens=TOKENS), client_of(tokens=TOKENS)
        self.sign_in(client)
        self.sign_in(other)

        self.sign_out(client)

        assert other.get(f"{API}/queues").status_code == 200

    def test_a_sign_out_holds_when_the_audit_log_cannot_be_written(
        self, client_of, app, monkeypatch, caplog
    ):
        def refuse(*_, **__):
            raise StoreUnavailable(app.settings.url, "permission denied")

        client = client_of(tokens=TOKENS)
        copy = self.sign_in(client)
        monkeypatch.setattr(app.audit, "record", refuse)

        self.sign_out(client)

        client.cookies.clear()
        assert client.get(f"{API}/queues", headers=copy).status_code == 401
        assert "in this process only" in caplog.text

    def test_no_session_is_accepted_while_the_audit_log_cannot_be_read(
        self, client_of, app, monkeypatch
    ):
        def refuse(*_, **__):
            raise StoreUnavailable(app.settings.url, "gone")

        client = client_of(tokens=TOKENS)
        self.sign_in(client)
        monkeypatch.setattr(app.audit, "list", refuse)

        assert client.get(f"{API}/openapi.json").status_code == 503

    def test_a_lowered_role_and_a_removed_token_count_at_the_next_request(self, client_of, app):
        tokens = list(TOKENS)
        client = client_of(tokens=lambda: tokens)
        copy = self.sign_in(client, Role.ADMIN)
        assert client.get(f"{API}/queues", headers=copy).status_code == 200

        tokens[2] = replace(tokens[2], role=Role.READER)
        assert client.get(f"{API}/queues", headers=copy).status_code == 401

        copy = self.sign_in(client, Role.ADMIN)
        assert client.post(f"{API}/queues/emails/pause", headers=copy).status_code == 403
        del tokens[2]
        assert client.get(f"{API}/queues", headers=copy).status_code == 401
        bearer = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        assert client.get(f"{API}/queues", headers=bearer).status_code == 401
        tokens.clear()
        assert client.get(f"{API}/queues").status_code == 401

    def test_each_port_has_a_cookie_of_its_own(self, client_of):
        names = {
            self.sign_in(client_of(tokens=TOKENS, host=host))["Cookie"].partition("=")[0]
            for host in ("127.0.0.1:8737", "127.0.0.1:8738", "jobs.example.org")
        }

        assert names == {
            "tickwork_session_8737",
            "tickwork_session_8738",
            "tickwork_session",
        }


class TestLink:
    """The link that a server prints at its start."""

    LINK = LinkToken.make()

    def test_it_signs_in_and_leads_to_the_page_without_the_token(self, client_of):
        client = client_of(tokens=[self.LINK])
        answer = client.get(f"/login?token={self.LINK.secret}&next=/queues", headers=HTML)

        assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
        assert client.get("/queues", headers=HTML).status_code == 200
        assert client.get(f"{API}/queues").status_code == 200

    def test_a_link_with_another_token_is_refused(self, client_of):
        client = client_of(tokens=[self.LINK, *TOKENS])
        for secret in (SECRETS[Role.ADMIN], "wrong"):
            answer = client.get(f"/login?token={secret}", headers=HTML)

            assert answer.status_code == 401
            assert "The link is not valid any more." in answer.text
            assert "set-cookie" not in answer.headers
            assert secret not in answer.text

    def test_links_are_tried_as_seldom_as_tokens(self, client_of):
        client = client_of(tokens=[self.LINK])
        codes = [client.get("/login?token=wrong").status_code for _ in range(11)]

        assert codes == [401] * 10 + [429]

    def test_the_sign_in_page_mentions_it(self, client_of):
        assert "tickwork ui" in client_of(tokens=[self.LINK]).get("/login").text
        assert "tickwork ui" not in client_of(tokens=TOKENS).get("/login").text

    def test_two_links_have_two_tokens(self):
        assert LinkToken.make() != self.LINK
        assert self.LINK.secret not in repr(self.LINK)


class TestHostUsers:
    """The users of the host application."""

    def test_the_hook_decides(self, client_of):
        def identify(request):
            name = request.headers.get("x-user")
            return None if name is None else User(name=name, role=Role.READER)

        client = client_of(identify=identify, address="10.0.0.7")

        assert client.get(f"{API}/queues", headers={"X-User": "ann"}).status_code == 200
        assert client.get(f"{API}/queues").status_code == 401

    def test_the_hook_may_be_a_coroutine_function(self, client_of, app):
        async def identify(request):
            return User(name="ann", role=Role.OPERATOR)

        client = client_of(identify=identify)
        assert client.get(f"{API}/queues").status_code == 200
        # A browser sends the cookie of the host application by itself, so the CSRF token is needed.
        assert client.post(f"{API}/queues/emails/pause").status_code == 403
        assert app.pauses() == []


CHANGES = list(ACTS.values())
PATHS = {"id": "019b76da-a800-7000-8000-000000000001", "name": "emails", "token": "1.e30.e30"}


class TestRoles:
    def test_every_action_needs_a_role(self):
        assert all(each.role > Role.READER for each in CHANGES)
        assert all(each.method != "GET" for each in CHANGES)
        assert [each for each in ENDPOINTS if each.method != "GET"] == CHANGES

    @pytest.mark.parametrize("each", CHANGES, ids=lambda each: each.name)
    def test_a_reader_may_change_nothing(self, client_of, app, each):
        path = each.path.format(**PATHS)
        answer = client_of(Role.READER).request(each.method, f"{API}{path}")

        assert (answer.status_code, answer.json()["code"]) == (403, "role")
        assert app.audit.list() == []

    @pytest.mark.parametrize("each", CHANGES, ids=lambda each: each.name)
    def test_read_only_refuses_every_action(self, client_of, app, each):
        path = each.path.format(**PATHS)
        answer = client_of(Role.ADMIN, read_only=True).request(each.method, f"{API}{path}")

        assert (answer.status_code, answer.json()["code"]) == (403, "read-only")
        assert app.audit.list() == []

    def test_an_operator_may_not_change_limits(self, client_of):
        client = client_of(Role.OPERATOR)

        assert client.put(f"{API}/limits/queue:emails", json={"slots": 1}).status_code == 403
        assert client.post(f"{API}/queues/emails/pause").status_code == 200


class TestHeaders:
    @pytest.mark.parametrize("path", [f"{API}/queues", f"{API}/nothing", f"{API}/openapi.json"])
    def test_every_answer_has_them(self, admin, path):
        headers = admin.get(path).headers

        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
