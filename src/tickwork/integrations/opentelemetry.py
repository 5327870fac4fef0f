"""Spans and metrics for OpenTelemetry, with the names of its conventions for messaging.

A dispatch is a span of the kind PRODUCER, an attempt one of the kind CONSUMER, and its child. The
context is stored with the run, so that it crosses processes and machines.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from tickwork._dispatch.tracers import add_tracer, read_headers, store_headers
from tickwork._domain.runs.run import NewRun
from tickwork._handlers.context import RunContext
from tickwork.app.tickwork import Tickwork
from tickwork.errors import ExtraMissing, Signal, SuspendRun

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ImportError as missing:
    raise ExtraMissing("opentelemetry-api", extra="opentelemetry") from missing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OpenTelemetryTracer", "instrument"]

SCOPE: Final = "tickwork"
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds of the histogram in seconds, as the conventions recommend them."""


class OpenTelemetryTracer:
    """Makes the spans and metrics of one application."""

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Runs that were dispatched."
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long attempts took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        """Make the span of a dispatch, and add its context to the runs."""
        return self._dispatching(runs)

    @contextmanager
    def _dispatching(self, runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
        if not runs:
            yield runs
            return
        first, count = runs[0], len(runs)
        labels = _labels("send", first.queue)
        attributes: dict[str, Any] = {**labels, "messaging.operation.type": "send"}
        attributes["tickwork.job"] = first.job
        if count == 1:
            attributes["messaging.message.id"] = first.id
        else:
            attributes["messaging.batch.message_count"] = count
        span = self._tracer.start_as_current_span(
            f"send {first.queue}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        with span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            yield store_headers(runs, carrier)
        self._sent.add(count, labels)

    def attempt(self, ctx: RunContext) -> Iterator[None]:
        """Make the span of an attempt, as a middleware."""
        labels = _labels("process", ctx.queue)
        attributes: dict[str, Any] = {
            **labels,
            "messaging.operation.type": "process",
            "messaging.message.id": ctx.run_id,
            "tickwork.job": ctx.job,
            "tickwork.attempt": ctx.attempt,
        }
        if ctx.schedule is not None:
            attributes["tickwork.schedule"] = ctx.schedule
        if ctx.tenant:
            attributes["tickwork.tenant"] = ctx.tenant
        began = perf_counter()
        span = self._tracer.start_span(
            f"process {ctx.queue}",
            # Never the current span: that of a test, or of the program that started the worker.
            context=propagate.extract(read_headers(ctx.trace), context.Context()),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )
        with trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as raised:
                if isinstance(raised, SuspendRun):
                    span.add_event("suspended")
                elif not isinstance(raised, Signal):  # a snooze is no error
                    name = type(raised).__qualname__
                    labels["error.type"] = name
                    span.set_attribute("error.type", name)
                    span.add_event(
                        "exception",
                        {"exception.type": name, "exception.message": ctx.mask(str(raised))},
                    )
                    span.set_status(Status(StatusCode.ERROR, ctx.mask(str(raised))))
                raise
            finally:
                self._duration.record(perf_counter() - began, labels)


def instrument(
    app: Tickwork,
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> OpenTelemetryTracer:
    """Make spans of the dispatches and attempts of an application, and measure them.

    Call it where the application is defined, before other middleware: spans then contain it. The
    providers are those of OpenTelemetry's API, unless given.
    """
    tracer = OpenTelemetryTracer(tracer_provider=tracer_provider, meter_provider=meter_provider)
    add_tracer(app, tracer)
    app.middleware(tracer.attempt)
    return tracer


def _labels(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "tickwork",
        "messaging.operation.name": operation,
        "messaging.destination.name": queue,
    }
