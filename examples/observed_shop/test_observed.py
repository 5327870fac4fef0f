"""What the three observers see, read in memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from observed.jobs import app, charge, close_day
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tickwork import Tickwork
from tickwork.integrations.pytest_plugin import Swap
from tickwork.testing import drain, travel

CARD = "4111 1111 1111 1111"
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)


class Received(Transport):
    """Keeps what would be sent to Sentry."""

    def __init__(self) -> None:
        """Start without events."""
        super().__init__()
        self.items: list[tuple[str | None, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        """Keep the parts of an envelope."""
        self.items += [(item.type, item.payload.json) for item in envelope.items]


@pytest.fixture
def received() -> Iterator[Received]:
    """A client of Sentry that sends nothing."""
    transport = Received()
    sentry_sdk.init("https://key@sentry.example/1", transport=transport)
    yield transport
    sentry_sdk.init()


@pytest.fixture
def tickwork_app(tickwork_swap: Swap) -> Tickwork:
    """The jobs in memory, on a clock that the test moves."""
    spans.clear()
    return tickwork_swap(app)


def test_an_attempt_is_a_child_of_its_dispatch(tickwork_app: Tickwork) -> None:
    charge.dispatch(customer="ann", card=CARD, amount=5)
    drain(tickwork_app)

    sent, made = spans.get_finished_spans()
    assert (sent.name, made.name) == ("send payments", "process payments")
    assert made.parent is not None
    assert made.parent.span_id == sent.context.span_id


def test_attempts_are_counted(tickwork_app: Tickwork) -> None:
    labels = {"job_name": "charge", "queue": "payments", "outcome": "succeeded"}
    before = REGISTRY.get_sample_value("tickwork_attempts_total", labels) or 0
    charge.dispatch(customer="ann", card=CARD, amount=5)
    drain(tickwork_app)

    assert REGISTRY.get_sample_value("tickwork_attempts_total", labels) == before + 1


def test_a_failure_reaches_sentry_without_the_card(
    tickwork_app: Tickwork, received: Received
) -> None:
    charge.dispatch(customer="ann", card=CARD, amount=0)
    drain(tickwork_app)

    [(_, event)] = received.items
    assert event["contexts"]["tickwork"]["args"] == {"customer": "ann", "card": "***", "amount": 0}
    assert CARD not in str(event)


def test_the_monitor_of_a_schedule(tickwork_app: Tickwork, received: Received) -> None:
    travel(tickwork_app, days=1)

    statuses = [(body["monitor_slug"], body["status"]) for _, body in received.items]
    assert statuses == [("close-books", "in_progress"), ("close-books", "ok")]
    assert close_day.name == "close_day"
