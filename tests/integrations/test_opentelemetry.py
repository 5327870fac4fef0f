"""OpenTelemetry: spans and metrics that a collector receives, with their names and parents."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tickwork import RetryLater, RunContext, Secret, Snooze, Tickwork
from tickwork.integrations.opentelemetry import instrument
from tickwork.testing import ManualClock

PRODUCER, CONSUMER, ERROR = 4, 5, 2


class OtlpCollector(ThreadingHTTPServer):
    """Receives what OpenTelemetry exports, as a collector does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), OtlpHandler)
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


class OtlpHandler(BaseHTTPRequestHandler):
    server: OtlpCollector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    assert scope.scope.name in {"tickwork", "test"}
                    self.server.spans.extend(scope.spans)
        else:
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in measured.scope_metrics:
                    self.server.metrics.update({each.name: each for each in scope.metrics})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def tracers(collector) -> Iterator[TracerProvider]:
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def meters(collector) -> Iterator[MeterProvider]:
    exporter = OTLPMetricExporter(endpoint=f"{collector.url}/v1/metrics")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, 3_600_000)])
    yield provider
    provider.shutdown()


@pytest.fixture
def app(tmp_path, tracers, meters):
    with Tickwork(f"sqlite:///{tmp_path}/jobs.db", install=True) as app:
        instrument(app, tracer_provider=tracers, meter_provider=meters)
        yield app


def facts_of(span: Any) -> dict[str, Any]:
    found = {}
    for fact in span.attributes:
        value = fact.value
        found[fact.key] = getattr(value, value.WhichOneof("value"))
    return found


def test_an_attempt_is_a_child_of_its_dispatch(app, collector, tracers):
    @app.job(queue="mail")
    def send(to: str) -> None:
        trace.get_tracer("test", tracer_provider=tracers).start_span("inside").end()

    with trace.get_tracer("test", tracer_provider=tracers).start_as_current_span("request"):
        run = send.dispatch(to="ann")
    with app.running():
        run.wait(timeout=20)

    [request], [sent], [made], [inside] = map(
        collector.named, ("request", "send mail", "process mail", "inside")
    )
    assert sent.parent_span_id == request.span_id
    assert made.parent_span_id == sent.span_id
    assert inside.parent_span_id == made.span_id
    assert {span.trace_id for span in (sent, made, inside)} == {request.trace_id}
    assert (sent.kind, made.kind) == (PRODUCER, CONSUMER)
    assert facts_of(sent) == {
        "messaging.system": "tickwork",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": run.id,
        "tickwork.job": "send",
    }
    assert facts_of(made) == {
        "messaging.system": "tickwork",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": run.id,
        "tickwork.job": "send",
        "tickwork.attempt": 1,
    }


def test_coroutines_a_batch_and_a_follow_up(app, collector):
    @app.job
    async def count(number: int, ctx: RunContext) -> None:
        if number:
            ctx.then(count, number=0)

    runs = count.dispatch_many([{"number": 1}, {"number": 0}])
    with app.running():
        for run in runs:
            run.wait(timeout=20)
        app.collect()
    batch, follow_up = sorted(
        collector.named("send default"), key=lambda one: one.start_time_unix_nano
    )
    attempts = {
        facts_of(span)["messaging.message.id"]: span for span in collector.named("process default")
    }

    assert facts_of(batch)["messaging.batch.message_count"] == 2
    assert [attempts[run.id].parent_span_id for run in runs] == [batch.span_id] * 2
    assert follow_up.parent_span_id == attempts[runs[0].id].span_id
    [last] = [attempts[each] for each in attempts.keys() - {run.id for run in runs}]
    assert last.parent_span_id == follow_up.span_id


def test_failures_without_secrets_and_signals(app, collector):
    @app.job(attempts=2)
    def fail(password: Secret[str]) -> None:
        raise ValueError(f"wrong: {password}")

    @app.job
    def snooze() -> None:
        raise Snooze("1h")

    fail.dispatch(password="s3cret-word")

    @app.job
    def sleep(ctx: RunContext) -> None:
        ctx.sleep("1h")

    snooze.dispatch()
    sleep.dispatch()
    app.run()

    spans = {facts_of(span)["tickwork.job"]: span for span in collector.named("process default")}
    failed, snoozed = spans["fail"], spans["snooze"]
    assert failed.status.code == ERROR
    assert facts_of(failed)["error.type"] == "ValueError"
    [event] = failed.events
    assert event.name == "exception"
    assert "s3cret-word" not in str(failed)
    assert "wrong: ***" in str(failed)
    assert snoozed.status.code != ERROR
    assert spans["sleep"].status.code != ERROR
    assert [event.name for event in spans["sleep"].events] == ["suspended"]


def test_a_firing_begins_a_trace(tmp_path, collector, tracers, meters):
    clock = ManualClock()
    with Tickwork(f"sqlite:///{tmp_path}/clock.db", install=True, clock=clock) as app:
        instrument(app, tracer_provider=tracers, meter_provider=meters)
        app.schedule("hourly", lambda: None).hourly()
        app.run()
        clock.advance(hours=1)
        app.run()

    [made] = collector.named("process default")
    assert made.parent_span_id == b""
    assert facts_of(made)["tickwork.schedule"] == "hourly"


def test_each_attempt_has_a_span(app, collector):
    @app.job(attempts=3)
    def fail(ctx: RunContext) -> None:
        raise RetryLater(delay=0)

    fail.dispatch()
    app.collect()

    attempts = [facts_of(span)["tickwork.attempt"] for span in collector.named("process default")]
    assert attempts == [1, 2, 3]
    [sent] = collector.named("send default")
    assert {span.parent_span_id for span in collector.named("process default")} == {sent.span_id}


def test_metrics(app, collector, meters):
    @app.job(queue="mail")
    def send() -> None: ...

    send.dispatch_many([{}, {}])
    app.run()
    meters.force_flush()

    sent, took = (
        collector.metrics[name]
        for name in ("messaging.client.sent.messages", "messaging.process.duration")
    )
    [point] = sent.sum.data_points
    assert point.as_int == 2
    [point] = took.histogram.data_points
    assert (point.count, took.unit) == (2, "s")
    assert facts_of(point) == {
        "messaging.system": "tickwork",
        "messaging.operation.name": "process",
        "messaging.destination.name": "mail",
    }


@pytest.mark.parametrize("stored", ["no json", "[1]", '{"traceparent": 7}'])
def test_a_trace_of_another_program_is_no_parent(app, collector, stored):
    @app.job
    def work() -> None: ...

    class Other:
        def __init__(self, tracer):
            self.dispatching = lambda runs: _Replaced(runs, stored)

    app.tracer = Other(app.tracer)
    work.dispatch()
    app.run()

    [made] = collector.named("process default")
    assert made.parent_span_id == b""


class _Replaced:
    def __init__(self, runs, stored):
        self.runs = [run._replace(trace=stored) for run in runs]

    def __enter__(self):
        return self.runs

    def __exit__(self, *_): ...
