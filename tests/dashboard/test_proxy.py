"""The dashboard behind a real nginx, with the configuration of the guide and without any."""

import re
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from playwright.sync_api import expect

from dashboard.browser import chromium
from scenarios.project import Project
from servers.nginx import NginxServer
from tickwork._kernel.clock import SystemClock
from tickwork.dashboard.authentication import COOKIE

pytestmark = pytest.mark.servers("nginx")

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "proxies.md"
ADMIN, READER = "the-secret-of-ann-the-admin", "the-secret-of-bob-the-reader"
JSON = {"Accept": "application/json"}
HTML = {"Accept": "text/html"}


def make_certificate():
    """A certificate that its own key has signed, and the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = SystemClock().now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {"cert.pem": certificate.public_bytes(pem).decode(), "key.pem": private.decode()}


def guide_config(port):
    """The configuration of the guide, with the ports and files of this test."""
    [config] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    for old, new in (
        ("listen 443 ssl;", "listen 127.0.0.1:PORT ssl;"),
        ("server_name jobs.example.org;", ""),
        ("/etc/ssl/jobs.pem", "cert.pem"),
        ("/etc/ssl/jobs.key", "key.pem"),
        ("127.0.0.1:8737", f"127.0.0.1:{port}"),
    ):
        assert config.count(old) == 1, old
        config = config.replace(old, new)
    return config


def plain_config(port):
    return (
        f"server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}"
    )


def session_cookies(page):
    """Without the cookies of settings, such as the zone of the browser."""
    return [each for each in page.context.cookies() if each["name"].startswith(COOKIE)]


@pytest.fixture
def stack():
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def project(tmp_path, stack):
    project = stack.enter_context(Project(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}"))
    project.write("shop", "@app.job\ndef send() -> None: ...\n")
    project.app.install()
    (tmp_path / "tokens").write_text(f"ann admin {ADMIN}\nbob reader {READER}\n", encoding="utf-8")
    return project


@pytest.fixture
def start(project, stack):
    def start(config, *options):
        """A dashboard and an nginx before it: the URL that the dashboard prints, and nginx."""
        server = project.run("ui", "--port", "0", *options)
        project.until(lambda: "Stop it with" in server.log, seconds=60)
        link = re.search(r"http://127\.0\.0\.1:(\d+)\S+", server.log)
        assert link is not None, server.log
        files = make_certificate()
        return link[0], stack.enter_context(NginxServer(config(int(link[1])), files=files))

    return start


@pytest.fixture
def open_client(stack):
    def open_client(url, source="127.0.0.1", **options):
        transport = httpx.HTTPTransport(verify=False, local_address=source)
        return stack.enter_context(httpx.Client(base_url=url, transport=transport, **options))

    return open_client


def sign_in(client, secret, path="/login"):
    origin = str(client.base_url).rstrip("/")
    return client.post(path, data={"token": secret}, headers={"Origin": origin})


class TestPlainProxy:
    """nginx with nothing but proxy_pass: it changes the Host header, and adds no other."""

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Host": "localhost"},
            {"X-Forwarded-For": "127.0.0.1"},
            {"X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
        ],
    )
    def test_nothing_is_served_without_the_token(self, start, open_client, headers):
        link, nginx = start(plain_config)
        client = open_client(nginx.url(), headers=headers)

        for path in ("/", "/runs", "/events", "/api/v1/overview", "/api/v1/openapi.json"):
            assert client.get(path, headers=JSON).status_code == 401, path
        assert client.post("/api/v1/queues/default/pause").status_code == 401
        assert client.get("/", headers=HTML).headers["location"].endswith("/login?next=/")
        token = link.partition("token=")[2]
        assert client.get(f"/login?token={token}").status_code == 303
        assert client.get("/api/v1/overview").status_code == 200

    def test_a_form_is_accepted_if_the_browser_vouches_for_it(self, start, open_client):
        _, nginx = start(plain_config, "--token-file", "tokens")
        client = open_client(nginx.url())

        refused = sign_in(client, ADMIN)
        assert refused.status_code == 403
        assert "must pass on the Host header" in refused.json()["fix"]
        client.headers["Sec-Fetch-Site"] = "same-origin"
        assert sign_in(client, ADMIN).status_code == 303

    def test_a_client_cannot_choose_the_address_that_is_counted(self, start, open_client):
        _, nginx = start(plain_config, "--token-file", "tokens")
        client = open_client(nginx.url())

        codes = [
            client.get(
                "/api/v1/overview",
                headers={"Authorization": "Bearer wrong", "X-Forwarded-For": f"10.0.0.{number}"},
            ).status_code
            for number in range(12)
        ]

        assert codes == [401] * 10 + [429] * 2
        right = {"Authorization": f"Bearer {READER}"}
        assert client.get("/api/v1/overview", headers=right).status_code == 200


class TestGuide:
    OPTIONS = ("--token-file", "tokens", "--root-path", "/jobs", "--trusted-proxy", "127.0.0.1")

    @pytest.fixture
    def nginx(self, start):
        return start(guide_config, *self.OPTIONS)[1]

    @pytest.fixture
    def url(self, nginx):
        return f"https://127.0.0.1:{nginx.port}"

    def test_the_cookie_is_secure_and_below_the_path(self, url, open_client):
        client = open_client(url)
        assert client.get("/jobs").headers["location"].endswith("/jobs/")
        page = client.get("/jobs/runs?job=send", headers=HTML)
        assert page.headers["location"] == "/jobs/login?next=/runs%3Fjob%3Dsend"

        answer = sign_in(client, ADMIN, "/jobs/login")

        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/")
        cookie = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert {"secure", "httponly", "samesite=lax", "path=/jobs"} <= cookie
        page = client.get("/jobs/", headers=HTML)
        assert page.status_code == 200
        assert re.findall(r'(?:href|src|action)="(/(?!jobs/)[^"]*)"', page.text) == []
        document = client.get("/jobs/api/v1/openapi.json").json()
        assert document["servers"][0]["url"].startswith("/jobs")

    def test_live_changes_arrive_at_once(self, url, open_client, project):
        client = open_client(url)
        sign_in(client, ADMIN, "/jobs/login")
        with client.stream("GET", "/jobs/events", timeout=30) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 5000"
            project.app.remote("send").dispatch()
            assert "event: change" in lines

    def test_the_audit_log_has_the_address_of_the_client(self, url, open_client, project):
        client = open_client(url, source="127.0.0.9", headers={"X-Forwarded-For": "10.0.0.7"})
        authorization = {"Authorization": f"Bearer {ADMIN}"}

        answer = client.post("/jobs/api/v1/queues/default/pause", headers=authorization)

        assert answer.status_code == 200
        [entry] = project.app.audit.list()
        assert (entry.actor, entry.source) == ("ann", "127.0.0.9")

    def test_wrong_tokens_slow_down_only_their_sender(self, url, open_client):
        guesser, other = (open_client(url, source=f"127.0.0.{number}") for number in (8, 9))
        codes = [sign_in(guesser, "wrong", "/jobs/login").status_code for _ in range(11)]

        assert codes == [401] * 10 + [429]
        assert sign_in(other, "wrong", "/jobs/login").status_code == 401
        assert sign_in(other, READER, "/jobs/login").status_code == 303

    def test_a_changed_token_file_ends_sessions_at_once(self, url, open_client, project):
        ann, bob = open_client(url), open_client(url)
        sign_in(ann, ADMIN, "/jobs/login")
        sign_in(bob, READER, "/jobs/login")
        path = "/jobs/api/v1/overview"
        assert [each.get(path).status_code for each in (ann, bob)] == [200, 200]

        (project.folder / "tokens").write_text(
            f"ann reader {ADMIN}\nbob reader {READER}\n", encoding="utf-8"
        )
        assert [each.get(path).status_code for each in (ann, bob)] == [401, 200]
        (project.folder / "tokens").write_text(f"ann reader {ADMIN}\n", encoding="utf-8")
        assert [each.get(path).status_code for each in (ann, bob)] == [401, 401]

    def test_a_sign_out_counts_for_another_server_of_the_same_database(
        self, url, open_client, start
    ):
        second = start(guide_config, *self.OPTIONS)[1]
        client, other = open_client(url), open_client(f"https://127.0.0.1:{second.port}")
        sign_in(client, ADMIN, "/jobs/login")
        [value] = client.cookies.values()
        copy = {"Cookie": f"tickwork_session_{second.port}={value}"}
        assert other.get("/jobs/api/v1/overview", headers=copy).status_code == 200

        page = client.get("/jobs/", headers=HTML).text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)
        assert csrf is not None
        client.post("/jobs/logout", data={"csrf": csrf[1]}, headers={"Origin": url})

        assert other.get("/jobs/api/v1/overview", headers=copy).status_code == 401

    def test_a_sign_out_ends_live_pages(self, url, open_client, project):
        client = open_client(url)
        sign_in(client, ADMIN, "/jobs/login")
        page = client.get("/jobs/", headers=HTML).text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)
        assert csrf is not None
        with client.stream("GET", "/jobs/events", timeout=30) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "retry: 5000"
            headers = {"Origin": url}
            client.post("/jobs/logout", data={"csrf": csrf[1]}, headers=headers)
            project.app.remote("send").dispatch()
            begun = time.monotonic()
            assert "event: change" not in lines  # the stream ends
            assert time.monotonic() - begun < 20


@pytest.mark.servers("nginx", "chromium")
class TestBrowser:
    """Chromium, which decides by itself which cookies it sends."""

    @pytest.fixture
    def page(self):
        with chromium() as browser:
            context = browser.new_context(ignore_https_errors=True)
            context.set_default_timeout(30_000)
            yield context.new_page()

    def test_it_opens_the_link_signs_out_and_its_old_cookie_is_refused(self, page, start):
        link, nginx = start(guide_config, "--root-path", "/jobs", "--trusted-proxy", "127.0.0.1")
        root = f"https://localhost:{nginx.port}/jobs/"
        page.goto(root)
        expect(page.get_by_text("Open the link that")).to_be_visible()

        page.goto(f"{root}login?token={link.partition('token=')[2]}")

        page.wait_for_url(root)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        [cookie] = session_cookies(page)
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Lax")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")
        assert session_cookies(page) == []
        page.context.add_cookies([cookie])  # a copy
        page.goto(root)
        page.wait_for_url("**/login?next=/")

    def test_a_link_in_a_chat_keeps_the_session_and_its_forms_do_not(self, page, start, project):
        link, nginx = start(guide_config, "--root-path", "/jobs", "--trusted-proxy", "127.0.0.1")
        root = f"https://localhost:{nginx.port}/jobs/"
        page.goto(f"{root}login?token={link.partition('token=')[2]}")
        page.wait_for_url(root)
        page.context.route(
            "https://chat.example/",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f'<a href="{root}queues">look</a>'
                f'<form method="post" action="{root}queues/default/pause">'
                f"<button>x</button></form>",
            ),
        )
        page.goto("https://chat.example/")
        page.get_by_role("link", name="look").click()
        page.wait_for_url("**/queues")
        expect(page.get_by_role("heading", name="Queues and limits")).to_be_visible()

        page.goto("https://chat.example/")
        page.get_by_role("button", name="x").click()
        page.wait_for_url("**/login**")  # it came without the cookie
        assert project.app.pauses() == []
