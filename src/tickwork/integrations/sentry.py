"""Failures, traces and cron monitors for Sentry.

An attempt is a transaction, which continues the trace of its dispatch, also in another process.
A run that failed for the last time is one event, with the run, the job and the arguments. Secret
arguments are masked, also in messages, and events of a job that has any show no local variables.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from threading import Lock
from typing import Any, Final

from tickwork._dispatch.tracers import add_tracer, read_headers, store_headers
from tickwork._domain.runs.run import NewRun
from tickwork._domain.schedules.cron import Cron
from tickwork._domain.schedules.interval import Interval
from tickwork._domain.schedules.pattern import Pattern
from tickwork._handlers.context import RunContext
from tickwork._inspect.upcoming_firings import ActiveSchedule
from tickwork.app.tickwork import Tickwork
from tickwork.errors import ExtraMissing, Snooze, SuspendRun, TickworkError
from tickwork.events import RunFailed, RunSkipped, RunStarted, RunSucceeded

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.utils import event_from_exception
except ImportError as missing:
    raise ExtraMissing("sentry-sdk", extra="sentry") from missing

__all__ = ["SentryReporter", "instrument"]

FAILURES_LOGGER: Final = "tickwork.worker.failures"
"""The logger with which a worker logs the same failures."""

TRACE: Final = "sentry-trace"
BAGGAGE: Final = "sentry-baggage"
TRACES_MAX: Final = 1_000
"""Attempts whose failure was not reported yet, such as those that will be retried."""

MONITORS_MAX: Final = 1_000
SLUG_MAX: Final = 50
DEPTH_MAX: Final = 20
UNITS: Final = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
)
PLAIN_FIELD: Final = re.compile(r"[\d*,/-]+")

Mask = Callable[[str], str]


class SentryReporter:
    """Reports the failures of one application, and the check-ins of its schedules."""

    def __init__(self, app: Tickwork, *, monitors: bool) -> None:
        self._app = app
        self._lock = Lock()
        self._monitors: dict[str, dict[str, Any] | None] = {}
        self._traces: dict[str, dict[str, str]] = {}  # of attempts that raised, by run
        add_tracer(app, self)
        app.middleware(self._scope_attempt)
        app.on(RunFailed)(self._report_failure)
        if monitors:
            app.on(RunStarted)(lambda event: self._check_in(event, "in_progress"))
            app.on(RunSucceeded)(lambda event: self._check_in(event, "ok"))
            app.on(RunSkipped)(lambda event: self._check_in(event, "ok"))
            app.on(RunFailed)(lambda event: self._check_in(event, "error"))
        # Otherwise the record of the worker would be a second event, without the arguments.
        ignore_logger(FAILURES_LOGGER)

    # ------------------------------------------------------------ traces

    def dispatching(self, runs: Sequence[NewRun]) -> AbstractContextManager[Sequence[NewRun]]:
        """Make the span of a dispatch, and store its trace with the runs."""
        return self._dispatching(runs)

    @contextmanager
    def _dispatching(self, runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
        if not runs:
            yield runs
            return
        queue = runs[0].queue
        with sentry_sdk.start_span(op="queue.publish", name=runs[0].job) as span:
            span.set_data("messaging.system", "tickwork")
            span.set_data("messaging.destination.name", queue)
            if len(runs) == 1:
                span.set_data("messaging.message.id", runs[0].id)
            else:
                span.set_data("messaging.batch.message_count", len(runs))
            yield store_headers(runs, _trace_headers())

    @contextmanager
    def _trace_attempt(self, ctx: RunContext) -> Iterator[None]:
        """Make the transaction of an attempt, and the span of its handler."""
        transaction = sentry_sdk.continue_trace(
            _sentry_headers(ctx.trace), op="queue.task.tickwork", name=ctx.job, source="task"
        )
        pause: Snooze | SuspendRun | None = None
        with (
            sentry_sdk.start_transaction(transaction),
            sentry_sdk.start_span(op="queue.process", name=ctx.job) as span,
        ):
            span.set_data("messaging.system", "tickwork")
            span.set_data("messaging.destination.name", ctx.queue)
            span.set_data("messaging.message.id", ctx.run_id)
            span.set_data("messaging.message.retry.count", ctx.attempt - 1)
            try:
                yield
            except (Snooze, SuspendRun) as raised:  # no error of the transaction
                pause = raised
            except BaseException:
                self._keep_trace(ctx.run_id)
                raise
        if pause is not None:
            raise pause

    def _keep_trace(self, run_id: str) -> None:
        with self._lock:
            if len(self._traces) >= TRACES_MAX:
                del self._traces[next(iter(self._traces))]
            self._traces[run_id] = _trace_headers()

    # ------------------------------------------------------------ failures

    def _scope_attempt(self, ctx: RunContext) -> Iterator[None]:
        """Give each attempt a scope, so that what its handler reports names the run."""
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_transaction_name(ctx.job)
            _describe(scope, self._facts_of(ctx.job, ctx.run_id, ctx.attempt, ctx.queue))
            if self._has_secrets(ctx.job):
                scope.add_event_processor(lambda event, _: hide_secrets(event, ctx.mask))
            with self._trace_attempt(ctx):
                yield

    def _report_failure(self, event: RunFailed) -> None:
        """Report a failure after it was recorded. A child process sends only its message."""
        tags = self._facts_of(event.job, event.run_id, event.attempt, event.queue)
        args, mask, stored = self._read_run(event)
        tags["args"] = args
        with self._lock:
            trace = self._traces.pop(event.run_id, None)
        with sentry_sdk.new_scope() as scope:
            scope.span = None
            scope.continue_trace(_as_sent(trace) if trace else _sentry_headers(stored))
            scope.set_transaction_name(event.job)
            _describe(scope, tags)
            if self._has_secrets(event.job):
                scope.add_event_processor(lambda sent, _: hide_secrets(sent, mask))
            if event.exception is None:
                scope.capture_message(event.error, level="error")
                return
            # The hint is not passed: with it, Sentry drops a second event about an exception.
            made, _ = event_from_exception(
                event.exception,
                client_options=sentry_sdk.get_client().options,
                mechanism={"type": "tickwork", "handled": False},
            )
            scope.capture_event(made)

    def _facts_of(self, job: str, run_id: str, attempt: int, queue: str) -> dict[str, Any]:
        return {"job": job, "run": run_id, "attempt": attempt, "queue": queue}

    def _has_secrets(self, job: str) -> bool:
        definition = self._app.registry.find(job)
        # An unknown job may have secrets.
        return definition is None or bool(definition.secrets)

    def _read_run(self, event: RunFailed) -> tuple[Mapping[str, Any], Mask, str | None]:
        """Read a run: its masked arguments, the mask for texts that contain them, its trace."""
        definition = self._app.registry.find(event.job)
        if definition is None:
            return {}, _mask_everything, None
        try:
            run = self._app.get_run(event.run_id).read()
            return (
                definition.decode_masked_args(run.args),
                definition.mask_for(definition.payload.decode(run.args)),
                run.trace,
            )
        except TickworkError:  # the database does not answer, or the arguments cannot be read
            return {}, _mask_everything, None

    # ------------------------------------------------------------ monitors

    def _check_in(self, event: Any, status: str) -> None:
        if event.schedule is None or event.tenant:
            return
        monitor = self._find_monitor(event.schedule)
        if monitor is None:
            return
        started_at = getattr(event, "started_at", None)
        capture_checkin(
            monitor_slug=slug_of(event.schedule),
            check_in_id=event.run_id.replace("-", ""),  # the same for all attempts
            status=status,
            duration=None if started_at is None else (event.at - started_at).total_seconds(),
            monitor_config=monitor,  # type: ignore[arg-type]  # a TypedDict of sentry
        )

    def _find_monitor(self, schedule: str) -> dict[str, Any] | None:
        with self._lock:
            if schedule not in self._monitors:
                if len(self._monitors) >= MONITORS_MAX:
                    return None
                self._monitors[schedule] = None
                for active in self._app.inspect.active_schedules():
                    if active.spec.name == schedule and not active.spec.tenant:
                        self._monitors[schedule] = monitor_of(active)
            return self._monitors[schedule]


def instrument(app: Tickwork, *, monitors: bool = True) -> SentryReporter:
    """Report failures to Sentry, and the firings of schedules to its cron monitors.

    Call it where the application is defined, before other middleware. Call
    ``sentry_sdk.init`` yourself, before or after. A schedule without a tenant has a monitor with
    its name, if its rule has a form that Sentry knows: a crontab, or a number of minutes, hours or
    days.
    """
    return SentryReporter(app, monitors=monitors)


def monitor_of(active: ActiveSchedule) -> dict[str, Any] | None:
    """The configuration of a monitor; None if Sentry cannot express the rule."""
    rule = active.rule
    schedule = interval_of(rule.length) if isinstance(rule, Interval) else crontab_of(rule)
    return None if schedule is None else {"schedule": schedule, "timezone": active.spec.zone}


def interval_of(length: timedelta) -> dict[str, Any] | None:
    """The same interval in the largest unit of Sentry; None if it is not a whole one.

    >>> interval_of(timedelta(minutes=90))
    {'type': 'interval', 'value': 90, 'unit': 'minute'}
    """
    for name, unit in UNITS:
        if not length % unit:
            return {"type": "interval", "value": length // unit, "unit": name}
    return None


def crontab_of(rule: object) -> dict[str, Any] | None:
    """The same rule as a crontab; None if it has seconds, or another meaning in Sentry.

    >>> crontab_of(Cron.parse("*/5 9-17 * * 1-5"))
    {'type': 'crontab', 'value': '*/5 9-17 * * 1-5'}
    >>> crontab_of(Cron.parse("0 0 L * *")) is None
    True
    """
    if isinstance(rule, Cron):
        fields = rule.expr.split()
    elif isinstance(rule, Pattern) and rule.cron is None and rule.fields.second == "0":
        _, minute, hour, day, month, weekday, year = (text or "*" for text in rule.fields)
        # A step of a pattern counts from zero, and both of its day fields must match.
        has_steps = any("/" in text for text in (day, month, weekday))
        if has_steps or year != "*" or (day != "*" and weekday != "*"):
            return None
        fields = [minute, hour, day, month, weekday]
    else:
        return None
    if len(fields) != 5 or not all(PLAIN_FIELD.fullmatch(field) for field in fields):
        return None
    return {"type": "crontab", "value": " ".join(fields)}


def slug_of(schedule: str) -> str:
    """A name that Sentry accepts for a monitor.

    >>> slug_of("Daily report: EU")
    'daily-report-eu'
    """
    return re.sub(r"[^a-z0-9_-]+", "-", schedule.lower()).strip("-")[:SLUG_MAX]


def hide_secrets(event: Any, mask: Mask) -> Any:
    """Mask all texts of an event, and remove the local variables of its frames."""
    return _mask_texts(event, mask, DEPTH_MAX)


def _mask_texts(value: Any, mask: Mask, depth: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if not depth:
        return None
    if isinstance(value, Mapping):
        return {
            key: _mask_texts(part, mask, depth - 1) for key, part in value.items() if key != "vars"
        }
    if isinstance(value, list | tuple):
        return [_mask_texts(part, mask, depth - 1) for part in value]
    return value


def _trace_headers() -> dict[str, str]:
    """The current trace. Not ``baggage``: OpenTelemetry stores its own under that name."""
    headers = {TRACE: sentry_sdk.get_traceparent(), BAGGAGE: sentry_sdk.get_baggage()}
    return {name: value for name, value in headers.items() if value}


def _sentry_headers(stored: str | None) -> dict[str, str]:
    """The headers that Sentry continues; none for a run without a dispatch: a new trace."""
    headers = read_headers(stored)
    return _as_sent({name: headers[name] for name in (TRACE, BAGGAGE) if name in headers})


def _as_sent(headers: Mapping[str, str]) -> dict[str, str]:
    return {"baggage" if name == BAGGAGE else name: text for name, text in headers.items()}


def _describe(scope: Any, tags: dict[str, Any]) -> None:
    scope.set_tag("tickwork.job", tags["job"])
    scope.set_tag("tickwork.queue", tags["queue"])
    scope.set_context("tickwork", tags)


def _mask_everything(_: str) -> str:
    return "***"
