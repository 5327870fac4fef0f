"""Targets of alerts, against real servers on this machine."""

import email
import json
import socket
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import pytest
from aiosmtpd.controller import Controller

from tickwork import Tickwork
from tickwork._stores.sqlite.memory import MemoryStore
from tickwork.alerts import Email, FailingJobAlert, MissedRunAlert, Slack, Webhook, verify_signature
from tickwork.alerts.http import request
from tickwork.errors import InvalidOption
from tickwork.testing import ManualClock
from unit.alerts.web_server import web_server

ALERT = MissedRunAlert(
    id="s1:20260105T130000:missed",
    is_over=False,
    schedule="nightly",
    tenant="",
    job="report",
    due_at=datetime(2026, 1, 5, 13, tzinfo=UTC),
    at=datetime(2026, 1, 5, 13, 10, tzinfo=UTC),
    reason="No worker has fired it.",
)
FAILING = FailingJobAlert(
    id="0f6c1d:20260105T130000:failing",
    is_over=False,
    tenant="",
    job="report",
    failing_at=datetime(2026, 1, 5, 13, tzinfo=UTC),
    at=datetime(2026, 1, 5, 13, 10, tzinfo=UTC),
    reason="3 runs failed in a row.",
)
TEXT = (
    "nightly did not complete in time. The firing of 2026-01-05 13:00:00 UTC is late. "
    "No worker has fired it."
)


class TestWebhook:
    """JSON with a signature that only the holder of the secret can make."""

    def test_the_receiver_can_verify_it(self):
        with web_server() as received:
            Webhook(f"{received.url}/hook", secret="s3cret").send(ALERT)

        [(path, headers, body)] = received.requests
        assert path == "/hook"
        assert json.loads(body)["text"] == TEXT
        assert json.loads(body)["due_at"] == "2026-01-05T13:00:00+00:00"
        assert headers["X-Tickwork-Id"] == ALERT.id
        assert verify_signature(body, headers, secret="s3cret")
        assert verify_signature(body, headers, secret="s3cret", now=ALERT.at)
        assert not verify_signature(body, headers, secret="other")
        assert not verify_signature(body + b" ", headers, secret="s3cret")
        late = ALERT.at + timedelta(hours=1)
        assert not verify_signature(body, headers, secret="s3cret", now=late)
        assert not verify_signature(body, {}, secret="s3cret")

    def test_a_failing_job_is_an_alert_of_another_kind(self):
        with web_server() as received:
            Webhook(received.url).send(ALERT)
            Webhook(received.url).send(FAILING)

        missed, failing = (json.loads(body) for _, _, body in received.requests)
        assert missed["kind"] == "missed_run"
        assert failing == {
            "kind": "failing_job",
            "id": FAILING.id,
            "is_over": False,
            "tenant": "",
            "job": "report",
            "failing_at": "2026-01-05T13:00:00+00:00",
            "at": "2026-01-05T13:10:00+00:00",
            "reason": "3 runs failed in a row.",
            "text": "report fails repeatedly. 3 runs failed in a row.",
        }

    def test_slack_gets_a_failing_job(self):
        with web_server() as received:
            Slack(received.url).send(FAILING)

        [(_, _, body)] = received.requests
        assert json.loads(body) == {"text": f":rotating_light: {FAILING.text}"}

    def test_an_error_is_raised_without_the_secrets_of_the_url(self):
        with (
            web_server(refused=1) as received,
            pytest.raises(ConnectionError, match=r"127\.0\.0\.1 answered 503") as raised,
        ):
            Webhook(f"{received.url}/t0ken").send(ALERT)
        assert "t0ken" not in str(raised.value)
        assert "s3cret" not in repr(Webhook("https://example.com", secret="s3cret"))

    def test_a_server_that_fails_twice_gets_the_alert_once(self):
        clock = ManualClock("2026-01-05T12:00:00+00:00")
        app = Tickwork("memory://", store=MemoryStore(clock), clock=clock)
        app.schedule("nightly", lambda: None).hourly().expect_within(minutes=10)
        app.run()
        clock.advance(minutes=71)

        with web_server(refused=2) as received:
            app.alerts.add(Webhook(received.url, secret="s3cret"))
            for _ in range(6):
                app._services.watcher.step()
                clock.advance(seconds=2)

        assert received.tried == 3
        [(_, headers, body)] = received.requests
        assert verify_signature(body, headers, secret="s3cret")
        assert json.loads(body)["schedule"] == "nightly"

    @pytest.mark.parametrize("url", ["ftp://example.com", "example.com/hook", "file:///etc/passwd"])
    def test_other_urls_are_refused(self, url):
        for make in (Webhook, Slack, lambda url: Tickwork("memory://").alerts.ping(url, job="a")):
            with pytest.raises(InvalidOption, match="must begin with https"):
                make(url)

    def test_no_text_shows_the_rest_of_the_url(self):
        url = "https://example.com/t0ken"

        assert "t0ken" not in repr([Webhook(url), Slack(url)])
        for make in (Webhook, Slack, lambda url: Tickwork("memory://").alerts.ping(url, job="a")):
            with pytest.raises(InvalidOption) as raised:
                make("hooks.example.com/t0ken")
            assert "t0ken" not in str(raised.value)


class TestRedirects:
    """The body and the signature go to the host of the URL, and to no other."""

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_they_are_not_followed(self, status):
        with web_server() as other, web_server(redirect=(status, f"{other.url}/steal")) as first:
            for target in (Webhook(first.url, secret="s3cret"), Slack(first.url)):
                with pytest.raises(ConnectionError, match=rf"{status}.* not followed"):
                    target.send(ALERT)

        assert (first.tried, other.tried) == (2, 0)


LINK_LOCAL = [
    "169.254.169.254",
    "169.254.0.1",
    "2852039166",  # decimal
    "0xA9FEA9FE",
    "0xa9.254.0251.0xfe",
    "0251.0376.0251.0376",  # octal
    "169.16689662",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "100.100.100.200",
    "168.63.129.16",
]


class TestAddresses:
    """Link-local addresses and those of metadata services get no request."""

    @pytest.fixture
    def connections(self, monkeypatch):
        """The addresses to which a socket was connected."""
        found = []

        def connect(address, *_):
            found.append(address)
            raise ConnectionRefusedError

        monkeypatch.setattr(socket, "create_connection", connect)
        return found

    @pytest.mark.parametrize("scheme", ["http", "https"])
    @pytest.mark.parametrize("host", LINK_LOCAL)
    def test_they_are_refused_in_every_notation(self, connections, host, scheme):
        url = f"{scheme}://{host}/latest/meta-data"
        for target in (Webhook(url, secret="s3cret"), Slack(url)):
            with pytest.raises(ConnectionError, match=r"link-local .*allow="):
                target.send(ALERT)
        with pytest.raises(ConnectionError, match="link-local"):
            request(url, None)  # a ping

        assert connections == []

    @pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%1", "::ffff:169.254.169.254"])
    def test_a_name_that_resolves_to_one_is_refused(self, connections, monkeypatch, address):
        resolve_as(monkeypatch, [[address]])
        with pytest.raises(ConnectionError, match=r"example\.com has the address"):
            Webhook("http://example.com").send(ALERT)

        assert connections == []

    def test_one_of_several_addresses_is_enough(self, connections, monkeypatch):
        resolve_as(monkeypatch, [["203.0.113.1", "169.254.169.254"]])
        with pytest.raises(ConnectionError, match="link-local"):
            Webhook("http://example.com").send(ALERT)

        assert connections == []

    def test_the_address_that_was_checked_is_connected(self, connections, monkeypatch):
        """A name server that answers otherwise the second time changes nothing."""
        resolve_as(monkeypatch, [["203.0.113.1"], ["169.254.169.254"]])
        with pytest.raises(ConnectionRefusedError):
            Webhook("http://example.com:81").send(ALERT)

        assert connections == [("203.0.113.1", 81)]

    @pytest.mark.parametrize("allow", ["169.254.169.254", "169.254.0.0/16"])
    def test_the_option_allows_them(self, connections, allow):
        for target in (
            Webhook("http://169.254.169.254", allow=[allow]),
            Slack("http://2852039166", allow=[allow]),
        ):
            with pytest.raises(ConnectionRefusedError):
                target.send(ALERT)

        assert connections == [("169.254.169.254", 80)] * 2

    @pytest.mark.parametrize("allow", [["metadata"], "169.254.169.254", ["169.254.169.254/8"]])
    def test_the_option_takes_addresses(self, allow):
        for make in (Webhook, Slack):
            with pytest.raises(InvalidOption, match="allow must be a list"):
                make("http://example.com", allow=allow)

    def test_a_proxy_gets_no_request_for_them(self, monkeypatch):
        with web_server() as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            with pytest.raises(ConnectionError, match="link-local"):
                Webhook("http://0xA9FEA9FE/").send(ALERT)
            Webhook("http://example.com/hook").send(ALERT)

        [(path, _, _)] = proxy.requests
        assert path == "http://example.com/hook"

    def test_mail_is_not_sent_to_them(self, monkeypatch):
        """The mail server answers on loopback, with the address of a neighbor."""
        monkeypatch.setattr("tickwork.alerts.connection._METADATA", [ip_network("127.0.0.1/32")])
        port = free_port()
        server = Controller(object(), hostname="127.0.0.1", port=port)
        server.start()
        try:
            with pytest.raises(ConnectionError, match="link-local"):
                Email(host="127.0.0.1", port=port, sender="a@b", to="c@d").send(ALERT)
        finally:
            server.stop()


def resolve_as(monkeypatch, answers):
    """Let names resolve to these addresses, one list for each question."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host, port, *args, **options):
        if host != "example.com":
            return resolve(host, port, *args, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror
        found = answers.pop(0)
        return [(0, 0, 0, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_slack_gets_its_own_json():
    with web_server() as received:
        Slack(received.url).send(ALERT)

    [(_, headers, body)] = received.requests
    assert json.loads(body) == {"text": f":rotating_light: {TEXT}"}
    assert headers["Content-Type"] == "application/json"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class TestEmail:
    """A message by SMTP."""

    @pytest.mark.parametrize("alert", [ALERT, FAILING])
    def test_it_arrives(self, alert):
        got = []

        class Inbox:
            async def handle_DATA(self, server, session, envelope):  # noqa: N802  # of aiosmtpd
                got.append(envelope)
                return "250 OK"

        port = free_port()
        server = Controller(Inbox(), hostname="127.0.0.1", port=port)
        server.start()
        try:
            Email(
                host="127.0.0.1",
                port=port,
                sender="jobs@example.com",
                to=["ops@example.com", "ann@example.com"],
                security="none",
            ).send(alert)
        finally:
            server.stop()

        [envelope] = got
        message = email.message_from_bytes(envelope.content)
        assert envelope.rcpt_tos == ["ops@example.com", "ann@example.com"]
        assert message["Subject"] == f"[tickwork] {alert.title}"
        assert alert.text in str(message.get_payload()).replace("\r\n", "\n").replace("=\n", "")

    def test_a_password_is_not_sent_in_the_clear(self):
        with pytest.raises(InvalidOption, match="security"):
            Email(host="a", sender="b", to="c", username="d", password="e", security="none")

    def test_an_unknown_security_is_refused(self):
        with pytest.raises(InvalidOption, match="must be one of starttls, tls, none"):
            Email(host="a", sender="b", to="c", security="ssl")


def refuse_to_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


class TestPing:
    """A URL is pinged when runs of the job start, succeed and fail."""

    def test_each_run_has_two_pings(self):
        app = Tickwork("memory://")

        @app.job
        def report(is_bad: bool = False) -> None:
            if is_bad:
                raise ValueError("no")

        @app.job
        def other() -> None: ...

        with web_server() as received:
            app.alerts.ping(f"{received.url}/abc", job="report")
            other.dispatch()
            report.dispatch()
            app.run()
            report.dispatch(is_bad=True)
            app.run()
            with received.arrived:
                received.arrived.wait_for(lambda: received.tried >= 4, 10)

        paths = [path for path, _, _ in received.requests]
        assert paths == ["/abc/start", "/abc", "/abc/start", "/abc/fail"]

    def test_after_a_thread_that_could_not_start_pings_are_sent(self, monkeypatch):
        from tickwork.alerts.pinger import Pinger
        from tickwork.events import RunSucceeded

        sent: list[str] = []
        pinger = Pinger("https://example.com/abc", job="a", send=sent.append)
        event = RunSucceeded(at=ALERT.at, run_id="r", job="a", attempt=1)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse_to_start)
            with pytest.raises(RuntimeError):
                pinger.on_event(event)

        pinger.on_event(event)
        pinger.flush()

        assert len(sent) == 2

    def test_a_server_that_does_not_answer_delays_no_run(self):
        from tickwork.alerts.pinger import WAITING_MAX, Pinger
        from tickwork.events import RunSucceeded

        hold, sent = threading.Event(), []

        def send(url):
            hold.wait(10)
            sent.append(url)

        pinger = Pinger("https://example.com/abc", job="a", send=send)
        event = RunSucceeded(at=ALERT.at, run_id="r", job="a", attempt=1)
        for _ in range(WAITING_MAX + 10):
            pinger.on_event(event)
        hold.set()
        pinger.flush()

        assert WAITING_MAX <= len(sent) <= WAITING_MAX + 1


def test_a_target_needs_a_method():
    with pytest.raises(InvalidOption, match="AlertTarget"):
        Tickwork("memory://").alerts.add("https://example.com")  # type: ignore[arg-type]
