"""Targets of alerts, against real servers on this machine."""

import email
import json
import socket
import threading
from datetime import UTC, datetime, timedelta

import pytest
from aiosmtpd.controller import Controller

from tickwork import Tickwork
from tickwork.alerts import Email, MissedRunAlert, Slack, Webhook, verify_signature
from tickwork.errors import InvalidOption
from tickwork.stores.memory import MemoryStore
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

    def test_it_arrives(self):
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
            ).send(ALERT)
        finally:
            server.stop()

        [envelope] = got
        message = email.message_from_bytes(envelope.content)
        assert envelope.rcpt_tos == ["ops@example.com", "ann@example.com"]
        assert message["Subject"] == "[tickwork] nightly did not complete in time"
        assert TEXT in str(message.get_payload()).replace("\r\n", "\n").replace("=\n", "")

    def test_a_password_is_not_sent_in_the_clear(self):
        with pytest.raises(InvalidOption, match="security"):
            Email(host="a", sender="b", to="c", username="d", password="e", security="none")

    def test_an_unknown_security_is_refused(self):
        with pytest.raises(InvalidOption, match="must be one of starttls, tls, none"):
            Email(host="a", sender="b", to="c", security="ssl")


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
