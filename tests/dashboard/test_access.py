"""Who may use the dashboard: closed by default, tokens, roles, forged requests."""

import pytest

from dashboard.conftest import API, SECRETS, TOKENS
from tickwork.dashboard import AccessToken, Role, User
from tickwork.dashboard.access import FAILURES_MAX, LoginLimit, TokenTable, parse_tokens
from tickwork.dashboard.actions import ROLES
from tickwork.dashboard.schedule_api import ALL_ENDPOINTS
from tickwork.errors import InvalidOption


class TestClosedByDefault:
    """Without a token, only this machine is answered."""

    def test_this_machine_is_an_administrator(self, client_of):
        assert client_of().get(f"{API}/queues").status_code == 200

    @pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", ""])
    def test_another_machine_is_refused(self, client_of, address):
        answer = client_of(address=address).get(f"{API}/queues")

        assert answer.status_code == 403
        assert answer.json()["code"] == "local-only"
        assert "TICKWORK_UI_TOKEN" in answer.json()["fix"]

    def test_a_name_that_points_to_this_machine_is_refused(self, client_of):
        assert client_of(host="evil.example").get(f"{API}/queues").status_code == 403

    def test_a_proxy_on_this_machine_is_refused(self, client_of):
        answer = client_of().get(f"{API}/queues", headers={"X-Forwarded-For": "10.0.0.7"})

        assert answer.status_code == 403

    def test_the_log_names_the_restriction(self, client_of, caplog):
        client_of()

        assert "only requests from its own machine" in caplog.text

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
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_another_site_is_refused(self, client_of, app, headers):
        answer = client_of().post(f"{API}/queues/emails/pause", headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        assert app.pauses() == []


class TestTokens:
    def test_a_request_without_a_token_is_refused(self, client_of):
        answer = client_of(tokens=TOKENS).get(f"{API}/queues")

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"

    def test_a_token_works_from_any_address(self, client_of):
        client = client_of(Role.READER, address="10.0.0.7", host="jobs.example.org")

        assert client.get(f"{API}/queues").status_code == 200

    def test_wrong_tokens_are_limited(self, client_of):
        client = client_of(tokens=TOKENS)
        wrong = {"Authorization": "Bearer wrong"}
        codes = [client.get(f"{API}/queues", headers=wrong).status_code for _ in range(11)]

        assert codes == [401] * FAILURES_MAX + [429]
        right = {"Authorization": f"Bearer {SECRETS[Role.ADMIN]}"}
        refused = client.get(f"{API}/queues", headers=right)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 61

    def test_the_limit_ends_and_forgets_addresses(self):
        limit = LoginLimit()
        for _ in range(FAILURES_MAX):
            limit.add_failure("a", now=0)

        assert limit.seconds_left("a", now=10) == 50
        assert limit.seconds_left("a", now=61) == 0
        assert limit.seconds_left("b", now=10) == 0
        for number in range(20_000):
            limit.add_failure(str(number), now=0)
        assert len(limit._failures) == 10_000

    def test_a_short_token_is_refused(self):
        with pytest.raises(InvalidOption, match="at least 16 characters") as caught:
            AccessToken(name="ann", secret="short")

        assert "short" not in str(caught.value).replace("shorter", "")

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
    ANN = User(name="ann", role=Role.OPERATOR)

    def test_a_session_names_its_user(self):
        cookie = self.TABLE.make_session(self.ANN, now=100)

        assert self.TABLE.read_session(cookie, now=200) == self.ANN

    def test_another_process_with_the_same_tokens_accepts_it(self):
        cookie = self.TABLE.make_session(self.ANN, now=100)

        assert TokenTable(TOKENS[::-1]).read_session(cookie, now=200) == self.ANN
        assert TokenTable(TOKENS[1:]).read_session(cookie, now=200) is None

    def test_it_expires(self):
        cookie = self.TABLE.make_session(self.ANN, now=100)

        assert self.TABLE.read_session(cookie, now=100 + 12 * 3600) is None

    @pytest.mark.parametrize("cookie", ["", ".", "x", "x.y", "é.é", "W10.", "." * 10_000])
    def test_a_forged_one_is_refused(self, cookie):
        assert self.TABLE.read_session(cookie, now=100) is None

    def test_a_changed_one_is_refused(self):
        body, _, signature = self.TABLE.make_session(self.ANN, now=100).partition(".")
        other = self.TABLE.make_session(User(name="ann", role=Role.ADMIN), now=100)

        assert self.TABLE.read_session(f"{other.partition('.')[0]}.{signature}", now=200) is None
        assert body


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


CHANGES = [each for each in ALL_ENDPOINTS if each.action]
PATHS = {"id": "019b76da-a800-7000-8000-000000000001", "name": "emails"}


class TestRoles:
    def test_every_action_needs_a_role(self):
        assert {each.action for each in CHANGES} == set(ROLES)
        assert all(each.method != "GET" for each in CHANGES)
        assert all(each.action for each in ALL_ENDPOINTS if each.method != "GET")

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
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
