"""Metrics for Prometheus: of this process from its events, of the queues from the database."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tickwork._define.definition import Definition
from tickwork._define.registry import Registry
from tickwork._domain.health import WorkerState
from tickwork._inspect.statistics import QueueStatistics
from tickwork._inspect.status import QueueView, no_runs
from tickwork.app.tickwork import Tickwork
from tickwork.errors import ExtraMissing, StoreError, TickworkError
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
    RunSuspended,
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

JOB: Final = ("job_name",)
RUN: Final = ("job_name", "queue")
"""Not ``job``: that is the label of the scraped target, and the server renames any other one."""

OUTCOMES: Final = (
    "succeeded",
    "retried",
    "failed",
    "skipped",
    "postponed",
    "suspended",
    "canceled",
)
ADHOC: Final = "(ad hoc)"
"""The label of all ad hoc jobs: they are named after files or processes, without a bound."""

QUEUES_MAX: Final = 1_000
"""How many queues that are empty now are remembered: programs may name one per customer."""

E = TypeVar("E", bound=Event)


class PrometheusMetrics:
    """What one process dispatches, claims, starts and ends. Forked processes are summed up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._apps: WeakSet[Tickwork] = WeakSet()
        self._queues: QueueCollector | None = None
        self._registry = registry
        registry.register(_Preparation(self))  # before the counters, as they are read in order
        self.dispatched = self._make_counter(
            "runs_dispatched", "Runs that this process dispatched.", RUN
        )
        self.attempts = self._make_counter(
            "attempts",
            f"Attempts by outcome: {', '.join(OUTCOMES)}.",
            (*RUN, "outcome"),
        )
        self.leases_lost = self._make_counter(
            "leases_lost", "Attempts whose run another worker took over.", RUN
        )
        self.missed = self._make_counter(
            "firings_missed", "Firings that came too late and gave no run.", JOB
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
            JOB,
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

    def prepare(self) -> None:
        """Let the counters of all known jobs exist: a rate sees no first event otherwise."""
        for app in list(self._apps):
            for name, definition in _known_jobs(app).items():
                run = (name, definition.spec.queue)
                self.dispatched.labels(*run)
                self.leases_lost.labels(*run)
                self.missed.labels(name)
                for outcome in OUTCOMES:
                    self.attempts.labels(*run, outcome)

    def _subscribe(self, app: Tickwork) -> None:
        events = _JobEvents(self, app.registry)
        app.on(RunsClaimed)(lambda it: self.claims.observe(it.count))
        app.on(RunDispatched)(lambda it: self.dispatched.labels(*events.run_of(it)).inc())
        app.on(RunLost)(lambda it: self.leases_lost.labels(*events.run_of(it)).inc())
        app.on(FiringsMissed)(lambda it: self.missed.labels(it.job).inc(it.count))
        app.on(ScheduleFired)(self._note_firing)
        app.on(RunStarted)(events.note_start)
        app.on(RunSucceeded)(lambda it: events.note_end(it, "succeeded", it.started_at))
        app.on(AttemptFailed)(events.note_failure)
        app.on(RunFailed)(lambda it: events.note_end(it, "failed", it.started_at))
        app.on(RunSkipped)(lambda it: events.note_end(it, "skipped"))
        app.on(RunPostponed)(lambda it: events.note_end(it, "postponed"))
        app.on(RunSuspended)(lambda it: events.note_end(it, "suspended"))
        app.on(RunCanceled)(lambda it: events.note_end(it, "canceled"))

    def _note_firing(self, event: ScheduleFired) -> None:
        late = (event.at - event.nominal_at).total_seconds()
        self.schedule_lateness.labels(event.job).observe(max(late, 0))


class _JobEvents:
    """Counts the events about the runs of one application."""

    def __init__(self, metrics: PrometheusMetrics, registry: Registry) -> None:
        self._metrics = metrics
        self._registry = registry

    def run_of(self, event: Any) -> tuple[str, str]:
        """The values of the labels RUN."""
        definition = self._registry.find(event.job)
        is_adhoc = definition is not None and definition.is_adhoc and not definition.is_remote
        return ADHOC if is_adhoc else event.job, event.queue

    def note_start(self, event: RunStarted) -> None:
        if event.due_at is not None:
            late = (event.at - event.due_at).total_seconds()
            self._metrics.lateness.labels(*self.run_of(event)).observe(max(late, 0))

    def note_failure(self, event: AttemptFailed) -> None:
        if event.retry_at is not None:
            self.note_end(event, "retried", event.started_at)

    def note_end(self, event: Any, outcome: str, started_at: datetime | None = None) -> None:
        run = self.run_of(event)
        self._metrics.attempts.labels(*run, outcome).inc()
        if started_at is not None:
            seconds = (event.at - started_at).total_seconds()
            self._metrics.duration.labels(*run).observe(max(seconds, 0))


class _Preparation(Collector):
    """Prepares the metrics at the beginning of a scrape, when all jobs are defined."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        self._metrics.prepare()
        return iter(())


class QueueCollector(Collector):
    """What the database contains: read at each scrape, and the same in every process.

    While the database does not answer, the scrape has ``tickwork_database_up 0`` and no queues.
    """

    def __init__(self, app: Tickwork) -> None:
        self.app = app
        self._empty: dict[str, None] = {}  # queues that had runs: a gauge must fall to zero

    def describe(self) -> list[Any]:
        """Nothing: a registry must not read the database when this is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Read the queues, the workers, and the state of the worker of this process."""
        is_stuck = self.app.worker_state is WorkerState.STUCK
        yield _gauge("worker_stuck", "Whether a part of this process' worker fails.", is_stuck)
        with suppress(StoreError):
            queues = self.app.inspect.queues()
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
            for queue in self._with_empty(queues.queues):
                for phase in ("ready", "waiting", "blocked", "running"):
                    runs.add_metric([queue.name, phase], getattr(queue, phase))
                age = queues.ages.get(queue.name)
                if not queue.is_paused:  # no run of it could start
                    oldest.add_metric([queue.name], 0.0 if age is None else age.total_seconds())
                paused.add_metric([queue.name], float(queue.is_paused))
            workers = GaugeMetricFamily(
                "tickwork_workers", "Worker processes on all machines.", labels=["state"]
            )
            workers.add_metric(["live"], queues.live)
            workers.add_metric(["silent"], queues.silent)
            up = _gauge(*_UP, 1)
            names = {each.name for each in self._with_empty(queues.queues)}
            yield from (runs, oldest, paused, workers, up, *_ended_metrics(queues.ended, names))
            return
        yield _gauge(*_UP, 0)

    def _with_empty(self, queues: list[QueueView]) -> list[QueueView]:
        """These queues, those of the known jobs, and those that had runs before."""
        declared = {each.spec.queue for each in _known_jobs(self.app).values()}
        listed = {queue.name for queue in queues}
        if len(self._empty) < QUEUES_MAX:
            self._empty |= dict.fromkeys(listed)
        others = sorted((declared | self._empty.keys()) - listed)
        return queues + [no_runs(name) for name in others]


def _ended_metrics(
    ended: Sequence[QueueStatistics], names: Collection[str]
) -> Iterator[GaugeMetricFamily]:
    """What the workers of all machines have finished: counted in the database."""
    number = GaugeMetricFamily(
        "tickwork_queue_ended_last_hour",
        "Runs that ended in the last hour, of all workers.",
        labels=["queue", "status"],
    )
    rate = GaugeMetricFamily(
        "tickwork_queue_finished_per_minute",
        "Runs that finish per minute, in the last five minutes, of all workers.",
        labels=["queue"],
    )
    waits = GaugeMetricFamily(
        "tickwork_queue_wait_seconds",
        "Estimated percentiles of the waits of the last hour, from due to started.",
        labels=["queue", "percentile"],
    )
    by_name = {each.name: each for each in ended}
    for name in sorted(by_name.keys() | names):
        found = by_name.get(name)
        number.add_metric([name, "completed"], found.completed if found else 0)
        number.add_metric([name, "failed"], found.failed if found else 0)
        rate.add_metric([name], found.finished_per_minute if found else 0.0)
        if found is not None and found.wait is not None:
            waits.add_metric([name, "50"], found.wait.p50)
            waits.add_metric([name, "95"], found.wait.p95)
            waits.add_metric([name, "99"], found.wait.p99)
    yield from (number, rate, waits)


def _known_jobs(app: Tickwork) -> dict[str, Definition]:
    """The jobs that the program defines, without ad hoc ones; none if they cannot be read."""
    with suppress(TickworkError):
        return {
            each.name: each for each in app.registry.definitions().values() if not each.is_adhoc
        }
    return {}


_BY_REGISTRY: Final[WeakKeyDictionary[CollectorRegistry, PrometheusMetrics]] = WeakKeyDictionary()
_LOCK: Final = Lock()
_UP: Final = "database_up", "Whether the database answers."


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
    metrics = instrument(app)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    metrics.prepare()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(QueueCollector(app))
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    family: Callable[..., GaugeMetricFamily] = GaugeMetricFamily
    return family(f"tickwork_{name}", text, value=value)
