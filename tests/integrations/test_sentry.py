"""Sentry: failures with their run, without secrets; and check-ins of schedules."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import celery.beat
import pytest
import sentry_sdk
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import unignore_logger
from sentry_sdk.transport import Transport

from tickwork import RunContext, Secret, Snooze, Tickwork
from tickwork.integrations.opentelemetry import instrument as instrument_opentelemetry
from tickwork.integrations.sentry import FAILURES_LOGGER, instrument
from tickwork.testing import ManualClock

WORD = "s3cret-word"


class Received(Transport):
    """Keeps what would be sent to Sentry."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [(str(item.type), item.payload.json) for item in envelope.items]

    def of(self, kind: str) -> list[Any]:
        return [body for found, body in self.items if found == kind]


@contextmanager
def receiving(**options: Any) -> Iterator[Received]:
    """A client of Sentry that sends nothing.

    It patches no other library: Sentry does so for good, and Celery's scheduler, for one, would
    not be its own any more in the tests that follow.
    """
    transport, init = Received(), partial(sentry_sdk.init, auto_enabling_integrations=False)
    init("https://key@sentry.example/1", transport=transport, **options)
    yield transport
    init()
    unignore_logger(FAILURES_LOGGER)


@pytest.fixture
def received() -> Iterator[Received]:
    with receiving() as transport:
        yield transport


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(received, clock):
    with Tickwork("memory://", clock=clock) as app:
        instrument(app)
        yield app


def test_these_tests_leave_other_libraries_as_they_are(received):
    client = sentry_sdk.get_client()

    assert client.get_integration("logging") is not None
    assert client.get_integration("celery") is None
    assert celery.beat.Scheduler.apply_entry.__module__ == "celery.beat"


def test_a_failure_is_one_event_with_its_run(app, received):
    @app.job(queue="mail", attempts=2, delays=[0])
    def send(to: str) -> None:
        raise ValueError("no paper")

    run = send.dispatch(to="ann")
    app.run()
    assert received.of("event") == []  # it is tried again
    app.run()

    [event] = received.of("event")
    assert event["contexts"]["tickwork"] == {
        "job": "send",
        "run": run.id,
        "attempt": 2,
        "queue": "mail",
        "args": {"to": "ann"},
    }
    assert event["tags"]["tickwork.job"] == "send"
    assert event["transaction"] == "send"
    [error] = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "no paper")
    assert error["stacktrace"]["frames"][-1]["function"] == "send"
    assert error["mechanism"]["handled"] is False


def test_secrets_are_nowhere_in_an_event(app, received):
    @app.job
    def log_in(user: str, password: Secret[str]) -> None:
        local = f"Bearer {password}"
        logging.getLogger("shop").error("refused with %s", local)
        raise ValueError(f"wrong: {password}")

    log_in.dispatch(user="ann", password=WORD)
    app.run()

    logged, failed = received.of("event")
    assert WORD not in str(received.items)
    assert failed["contexts"]["tickwork"]["args"] == {"user": "ann", "password": "***"}
    assert failed["exception"]["values"][0]["value"] == "wrong: ***"
    assert logged["contexts"]["tickwork"]["job"] == "log_in"
    assert "vars" not in str(received.items)


def test_what_a_handler_reports_names_its_run_and_no_other(app, received):
    @app.job
    def work(number: int) -> None:
        sentry_sdk.set_tag("number", number)
        sentry_sdk.capture_message(f"message {number}")

    runs = work.dispatch_many([{"number": 1}, {"number": 2}])
    app.run()
    sentry_sdk.capture_message("outside")

    first, second, outside = received.of("event")
    assert [each["contexts"]["tickwork"]["run"] for each in (first, second)] == [
        run.id for run in runs
    ]
    assert [each["tags"]["number"] for each in (first, second)] == ["1", "2"] or [
        each["tags"]["number"] for each in (first, second)
    ] == [1, 2]
    assert "tickwork" not in outside["contexts"]


def test_a_failure_without_an_exception(app, received):
    from tickwork import JobResult

    app.schedule("report", lambda: JobResult.failure("no data")).dispatch()
    app.run()

    [event] = received.of("event")
    assert event["message"] == "no data"
    assert event["level"] == "error"


@pytest.mark.parametrize(
    ("define", "schedule"),
    [
        (lambda one: one.cron("0 3 * * 1-5"), {"type": "crontab", "value": "0 3 * * 1-5"}),
        (lambda one: one.daily_at("03:00"), {"type": "crontab", "value": "0 3 * * *"}),
        (lambda one: one.every(hours=3), {"type": "interval", "value": 3, "unit": "hour"}),
    ],
)
def test_monitors(app, received, clock, define, schedule):
    define(app.schedule("Nightly report", lambda: None)).timezone("Europe/Berlin")
    app.run()
    clock.advance(days=1)
    app.run()

    begun, done = received.of("check_in")
    assert (begun["status"], done["status"]) == ("in_progress", "ok")
    assert begun["check_in_id"] == done["check_in_id"]
    assert begun["monitor_slug"] == "nightly-report"
    assert begun["monitor_config"] == {"schedule": schedule, "timezone": "Europe/Berlin"}


def test_a_firing_that_fails(app, received, clock):
    def fail():
        raise ValueError("no paper")

    app.schedule("report", fail).hourly().retries(max=2, delay=0)
    app.run()
    clock.advance(hours=1)
    app.run()
    app.run()

    assert [each["status"] for each in received.of("check_in")] == [
        "in_progress", "in_progress", "error",
    ]  # fmt: skip
    assert len({each["check_in_id"] for each in received.of("check_in")}) == 1


def test_no_monitor_for_what_sentry_cannot_express(app, received, clock):
    app.schedule("fast", lambda: None).every(seconds=7)
    app.schedule("last", lambda: None).cron("0 0 L * *")
    app.schedule("both", lambda: None).days([1, 15]).weekdays()
    app.schedule("quarter", lambda: None).pattern(mon="*/3", day="1", hours="0", minutes="0")
    app.run()
    clock.advance(days=40)
    app.run()

    assert received.of("check_in") == []


class TestTraces:
    """An attempt continues the trace of the request that dispatched it."""

    @pytest.fixture
    def received(self) -> Iterator[Received]:
        with receiving(traces_sample_rate=1.0) as transport:
            yield transport

    def dispatch_in_request(self, job) -> Any:
        with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
            return job.dispatch()

    def test_an_attempt_continues_the_trace_of_its_request(self, app, received):
        send = app.schedule("send", lambda: None).queue("mail")
        run = self.dispatch_in_request(send)
        app.run()

        request, attempt = received.of("transaction")
        [publish] = request["spans"]
        [process] = attempt["spans"]
        assert (publish["op"], publish["description"]) == ("queue.publish", "send")
        assert publish["data"]["messaging.message.id"] == run.id
        assert publish["data"]["messaging.destination.name"] == "mail"
        assert attempt["transaction"] == "send"
        trace = attempt["contexts"]["trace"]
        assert trace["op"] == "queue.task.tickwork"
        assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
        assert trace["parent_span_id"] == publish["span_id"]
        assert (process["op"], process["parent_span_id"]) == ("queue.process", trace["span_id"])
        assert process["data"]["messaging.message.retry.count"] == 0

    def test_the_event_of_a_failure_is_in_the_trace_of_its_request(self, app, received):
        send = app.schedule("send", lambda: 1 / 0)
        self.dispatch_in_request(send)
        app.run()

        request, attempt = received.of("transaction")
        [event] = received.of("event")
        assert attempt["contexts"]["trace"]["status"] == "internal_error"
        assert event["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]

    def test_a_run_of_a_schedule_begins_a_new_trace_with_its_failure(self, app, received, clock):
        app.schedule("tick", lambda: 1 / 0).every_minute()
        app.run()
        for _ in range(2):
            clock.advance(minutes=1)
            app.run()

        traces = [each["contexts"]["trace"]["trace_id"] for each in received.of("transaction")]
        events = [each["contexts"]["trace"]["trace_id"] for each in received.of("event")]
        assert len(set(traces)) == 2
        assert events == traces

    def test_a_snooze_is_no_error(self, app, received):
        def wait() -> None:
            raise Snooze("1h")

        run = app.schedule("wait", wait).dispatch()
        app.run()

        [attempt] = received.of("transaction")
        assert attempt["contexts"]["trace"].get("status") != "internal_error"
        assert run.read().status == "pending"

    def test_a_sleep_is_no_error(self, app, received):
        def wait(ctx: RunContext) -> None:
            ctx.sleep("1h")

        run = app.schedule("wait", wait).dispatch()
        app.run()

        [attempt] = received.of("transaction")
        assert attempt["contexts"]["trace"].get("status") != "internal_error"
        assert run.read().status == "pending"

    def test_a_batch_is_one_span(self, app, received):
        send = app.schedule("send", lambda: None)
        with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
            send.dispatch_many([{}, {}, {}])
        app.run()

        request, *attempts = received.of("transaction")
        [publish] = request["spans"]
        assert publish["data"]["messaging.batch.message_count"] == 3
        assert {each["contexts"]["trace"]["parent_span_id"] for each in attempts} == {
            publish["span_id"]
        }

    def test_secrets_are_masked_in_transactions(self, app, received):
        @app.job
        def charge(card: Secret[str]) -> None:
            with sentry_sdk.start_span(op="http.client", name=f"GET /cards/{card}"):
                pass

        charge.dispatch(card=WORD)
        app.run()

        assert WORD not in str(received.of("transaction"))

    def test_opentelemetry_and_sentry_can_both_follow_a_run(self, app, received):
        spans, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        instrument_opentelemetry(app, tracer_provider=provider)
        send = app.schedule("send", lambda: None)
        self.dispatch_in_request(send)
        app.run()

        request, attempt = received.of("transaction")
        assert attempt["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
        sent, made = spans.get_finished_spans()
        assert made.parent is not None
        assert made.parent.span_id == sent.context.span_id
