"""Metrics for Prometheus: of this process from its events, of the queues from the database."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tickwork.app import Tickwork
from tickwork.errors import ExtraMissing, StoreError
from tickwork.events import (
    AttemptFailed,
    Event,
    FiringsMissed,
    RunCanceled,
    RunDispatched,
    RunFailed,
    RunLost,
    RunPostponed,
    RunsClaimed,
    RunSkipped,
    RunStarted,
    RunSucceeded,
    ScheduleFired,
)

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        REGISTRY,
        CollectorRegistry,
        Counter,
        Histogram,
        generate_latest,
    )
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ExtraMissing("prometheus-client", extra="prometheus") from missing

__all__ = ["PrometheusMetrics", "QueueCollector", "instrument", "render"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
LATENESS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
RUN: Final = ("job", "queue")

E = TypeVar("E", bound=Event)


class PrometheusMetrics:
    """What one process dispatches, claims, starts and ends. Forked processes are summed up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._apps: WeakSet[Tickwork] = WeakSet()
        self._queues: QueueCollector | None = None
        self._registry = registry
        self.dispatched = self._make_counter(
            "runs_dispatched", "Runs that this process dispatched.", RUN
        )
        self.attempts = self._make_counter(
            "attempts",
            "Attempts by outcome: succeeded, retried, failed, skipped, postponed or canceled.",
            (*RUN, "outcome"),
        )
        self.leases_lost = self._make_counter(
            "leases_lost", "Attempts whose run another worker took over.", RUN
        )
        self.missed = self._make_counter(
            "firings_missed", "Firings that came too late and gave no run.", ("job",)
        )
        self.duration = self._make_histogram(
            "attempt_duration_seconds", "How long attempts took.", RUN, SECONDS
        )
        self.lateness = self._make_histogram(
            "start_lateness_seconds", "From the due time of a run to its start.", RUN, LATENESS
        )
        self.schedule_lateness = self._make_histogram(
            "schedule_lateness_seconds",
            "From the instant of a firing to the creation of its run.",
            ("job",),
            LATENESS,
        )
        self.claims = self._make_histogram(
            "claim_batch_size", "Runs that one statement claimed.", (), BATCHES
        )

    def add(self, app: Tickwork, *, has_queues: bool) -> None:
        """Count the events of an application, too."""
        if app not in self._apps:
            self._apps.add(app)
            self._subscribe(app)
        if not has_queues:
            return
        if self._queues is None:
            self._queues = QueueCollector(app)
            self._registry.register(self._queues)
        self._queues.app = app

    def _make_counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"tickwork_{name}", text, labels, registry=self._registry)

    def _make_histogram(
        self, name: str, text: str, labels: Iterable[str], buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(f"tickwork_{name}", text, labels, buckets=buckets, registry=self._registry)

    def _subscribe(self, app: Tickwork) -> None:
        app.on(RunDispatched)(lambda it: self.dispatched.labels(it.job, it.queue).inc())
        app.on(RunsClaimed)(lambda it: self.claims.observe(it.count))
        app.on(RunLost)(lambda it: self.leases_lost.labels(it.job, it.queue).inc())
        app.on(FiringsMissed)(lambda it: self.missed.labels(it.job).inc(it.count))
        app.on(ScheduleFired)(self._note_firing)
        app.on(RunStarted)(self._note_start)
        app.on(RunSucceeded)(lambda it: self._note_end(it, "succeeded", it.started_at))
        app.on(AttemptFailed)(self._note_failure)
        app.on(RunFailed)(self._note_last_failure)
        app.on(RunSkipped)(lambda it: self._note_end(it, "skipped"))
        app.on(RunPostponed)(lambda it: self._note_end(it, "postponed"))
        app.on(RunCanceled)(lambda it: self._note_end(it, "canceled"))

    def _note_firing(self, event: ScheduleFired) -> None:
        late = (event.at - event.nominal_at).total_seconds()
        self.schedule_lateness.labels(event.job).observe(max(late, 0))

    def _note_start(self, event: RunStarted) -> None:
        if event.due_at is not None:
            late = (event.at - event.due_at).total_seconds()
            self.lateness.labels(event.job, event.queue).observe(max(late, 0))

    def _note_failure(self, event: AttemptFailed) -> None:
        if event.retry_at is not None:
            self._note_end(event, "retried", event.started_at)

    def _note_last_failure(self, event: RunFailed) -> None:
        self._note_end(event, "failed", event.started_at)

    def _note_end(self, event: Any, outcome: str, started_at: datetime | None = None) -> None:
        self.attempts.labels(event.job, event.queue, outcome).inc()
        if started_at is not None:
            seconds = (event.at - started_at).total_seconds()
            self.duration.labels(event.job, event.queue).observe(max(seconds, 0))


class QueueCollector(Collector):
    """What the database contains: read at each scrape, and the same in every process.

    While the database does not answer, the scrape has ``tickwork_database_up 0`` and no queues.
    """

    def __init__(self, app: Tickwork) -> None:
        self.app = app

    def describe(self) -> list[Any]:
        """Nothing: a registry must not read the database when this is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Read the queues and the workers."""
        with suppress(StoreError):
            found = self.app.inspect.queues()
            runs = GaugeMetricFamily(
                "tickwork_queue_runs",
                "Unfinished runs. Each count ends at a cap of ten thousand.",
                labels=["queue", "phase"],
            )
            oldest = GaugeMetricFamily(
                "tickwork_queue_oldest_seconds",
                "How long the oldest run that could start has been due.",
                labels=["queue"],
            )
            paused = GaugeMetricFamily(
                "tickwork_queue_paused", "Whether the queue is paused.", labels=["queue"]
            )
            for queue in found.queues:
                for phase in ("ready", "waiting", "blocked", "running"):
                    runs.add_metric([queue.name, phase], getattr(queue, phase))
                age = found.ages.get(queue.name)
                if not queue.is_paused:  # no run of it could start
                    oldest.add_metric([queue.name], 0.0 if age is None else age.total_seconds())
                paused.add_metric([queue.name], float(queue.is_paused))
            workers = GaugeMetricFamily(
                "tickwork_workers", "Worker processes on all machines.", labels=["state"]
            )
            workers.add_metric(["live"], found.live)
            workers.add_metric(["silent"], found.silent)
            yield from (runs, oldest, paused, workers, _up(1))
            return
        yield _up(0)


_BY_REGISTRY: Final[WeakKeyDictionary[CollectorRegistry, PrometheusMetrics]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def instrument(
    app: Tickwork, *, registry: CollectorRegistry = REGISTRY, queues: bool = True
) -> PrometheusMetrics:
    """Measure an application, in the default registry unless another is given.

    It may be called again. The events of several applications are counted together; the queues
    are those of the last one. ``queues=False`` reads nothing from the database: where many
    processes are scraped, one of them is enough for that.
    """
    with _LOCK:
        metrics = _BY_REGISTRY.get(registry)
        if metrics is None:
            metrics = _BY_REGISTRY[registry] = PrometheusMetrics(registry)
        metrics.add(app, has_queues=queues)
    return metrics


def render(app: Tickwork) -> bytes:
    """Render the metrics of the default registry as text, for a scrape.

    If ``PROMETHEUS_MULTIPROC_DIR`` is set, all processes that share it are summed up.
    """
    instrument(app)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(QueueCollector(app))
    return generate_latest(registry)


def _up(value: int) -> GaugeMetricFamily:
    family: Callable[..., GaugeMetricFamily] = GaugeMetricFamily
    return family("tickwork_database_up", "Whether the database answers.", value=value)
