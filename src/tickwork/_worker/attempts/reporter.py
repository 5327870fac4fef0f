"""Publishes events and log records about what was written."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork import events
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.tick import TickPlan
from tickwork._engines.log_records import add_run_fields
from tickwork._kernel.durations import human_duration
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.plain_text import escape_lines
from tickwork._masks.secret_mask import make_masked_copy
from tickwork._masks.text import MASK
from tickwork._worker.attempts.stats import Stats
from tickwork.events.bus import EventBus
from tickwork.events.skipped_firings import report_skip

_log: Final = get_logger("tickwork.worker")


def log_run(
    level: int,
    claim: Claim,
    text: str,
    *args: object,
    error: BaseException | None = None,
    traceback: str = "",
    log: logging.Logger = _log,
) -> None:
    """Log ``job: text``, and the exception with its traceback, if there is one.

    ``traceback`` is the text that is stored with the run: secrets are masked in it. If there were
    any, a logging handler such as that of Sentry must not get the original exception.
    """
    if not log.isEnabledFor(level):
        return
    if error is not None and MASK in traceback:
        error = make_masked_copy(error, traceback)
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    file, line, function, _ = log.findCaller(stacklevel=2)
    args = (claim.job, *args)
    # Not with `extra`: that raises where a record factory of the host uses one of the names.
    record = log.makeRecord(log.name, level, file, line, f"%s: {text}", args, exc_info, function)
    record.exc_text = escape_lines(traceback) or None
    add_run_fields(record, claim)
    log.handle(record)


_failures_log: Final = get_logger("tickwork.worker.failures")
"""One ERROR record for each run that failed for the last time."""
_runs_log: Final = get_logger("tickwork.worker.runs")
"""One INFO record for each run that completed, was skipped, postponed or canceled."""


class Reporter:
    def __init__(
        self,
        *,
        bus: EventBus,
        stats: Stats,
        on_follow_ups: Callable[[Sequence[NewRun]], None] = lambda _: None,
    ) -> None:
        self._bus = bus
        self._on_follow_ups = on_follow_ups
        self.stats = stats
        self._unfired: set[tuple[str, str]] = set()

    def report_written(
        self,
        transitions: Sequence[Transition],
        *,
        lost: Collection[str] = (),
        at: datetime,
    ) -> None:
        """Report transitions that were written; ``lost`` are runs that another worker has."""
        self.stats.add(transitions)
        is_verbose = bool(lost) or self._bus.has_subscribers or _runs_log.isEnabledFor(logging.INFO)
        succeeded = OutcomeKind.SUCCEEDED
        for transition in transitions:
            if is_verbose or transition.outcome is not succeeded:
                self._report(transition, is_lost=transition.claim.run_id in lost, at=at)
            if transition.follow_ups and transition.claim.run_id not in lost:
                self._on_follow_ups(transition.follow_ups)

    def report_lost(self, claim: Claim, *, at: datetime) -> None:
        """Report that another worker has the run."""
        log_run(logging.WARNING, claim, "run %s was lost to another worker.", claim.run_id)
        if self._bus.has_subscribers:
            self._bus.emit(
                events.RunLost(
                    at=at,
                    run_id=claim.run_id,
                    job=claim.job,
                    tenant=claim.tenant,
                    queue=claim.queue,
                    schedule=claim.schedule,
                    token=claim.token,
                )
            )

    def report_claimed(self, count: int, at: datetime) -> None:
        """Report that one statement claimed so many runs."""
        if self._bus.has_subscribers:
            self._bus.emit(events.RunsClaimed(at=at, count=count))

    def report_tick(self, plan: TickPlan, *, at: datetime) -> None:
        """Report what a tick fired, and what it skipped."""
        for unfired in plan.unfired:
            # Reported once for each reason, because the schedule is due again at every tick.
            if tuple(unfired) not in self._unfired:
                self._unfired.add((unfired.schedule_id, unfired.reason))
                _log.warning("A schedule could not be fired: %s", unfired.reason)
                self._bus.emit(
                    events.ScheduleNotFired(
                        at=at, schedule_id=unfired.schedule_id, reason=unfired.reason
                    )
                )
        for skip in plan.skips:
            report_skip(self._bus, skip, at=at)
        if not self._bus.has_subscribers:
            return
        for run in plan.runs:
            assert run.schedule is not None, run
            assert run.nominal_at is not None, run
            self._bus.emit(
                events.ScheduleFired(
                    at=at,
                    schedule=run.schedule,
                    tenant=run.tenant,
                    job=run.job,
                    run_id=run.id,
                    nominal_at=run.nominal_at,
                )
            )

    def _report(self, transition: Transition, *, is_lost: bool, at: datetime) -> None:
        if is_lost:
            self.report_lost(transition.claim, at=at)
            return
        _log_transition(transition)
        if self._bus.has_subscribers:
            self._emit(transition)

    def _emit(self, transition: Transition) -> None:
        claim = transition.claim
        run: dict[str, Any] = {
            "at": transition.ended_at,
            "run_id": claim.run_id,
            "job": claim.job,
            "tenant": claim.tenant,
            "queue": claim.queue,
            "schedule": claim.schedule,
        }
        if transition.outcome is OutcomeKind.FAILED:
            is_last = transition.to_status is not RunStatus.FAILED
            self._bus.emit(
                events.AttemptFailed(
                    **run,
                    attempt=claim.attempt,
                    error=transition.reason,
                    retry_at=None if is_last else transition.due_at,
                    started_at=transition.started_at,
                    exception=transition.exception,
                )
            )
            if not is_last:
                return
        self._bus.emit(_event(transition, run))


def _log_transition(transition: Transition) -> None:
    claim = transition.claim
    run_id, attempt = claim.run_id, claim.attempt
    match transition.to_status, transition.outcome:
        case RunStatus.FAILED_PERMANENT, _:
            log_run(
                logging.ERROR,
                claim,
                "run %s failed at attempt %d: %s",
                *(run_id, attempt, transition.reason),
                error=transition.exception,
                traceback=transition.traceback,
                log=_failures_log,
            )
        case RunStatus.FAILED, _:
            text = "attempt %d of run %s failed, the next one is due at %s: %s"
            log_run(
                logging.WARNING, claim, text, attempt, run_id, transition.due_at, transition.reason
            )
        case _, OutcomeKind.CRASHED:
            log_run(
                logging.WARNING, claim, "the worker of run %s died: %s", run_id, transition.reason
            )
        case RunStatus.COMPLETED, _:
            length = human_duration(
                transition.ended_at - (transition.started_at or transition.ended_at)
            )
            text = "run %s completed at attempt %d, after %s."
            log_run(logging.INFO, claim, text, run_id, attempt, length, log=_runs_log)
        case _:
            text = "run %s was %s: %s"
            log_run(
                logging.INFO,
                claim,
                text,
                run_id,
                transition.outcome,
                transition.reason,
                log=_runs_log,
            )


def _event(transition: Transition, run: dict[str, Any]) -> "events.Event":
    claim = transition.claim
    match transition.to_status:
        case RunStatus.COMPLETED:
            return events.RunSucceeded(
                **run, attempt=claim.attempt, started_at=transition.started_at
            )
        case RunStatus.FAILED_PERMANENT:
            return events.RunFailed(
                **run,
                attempt=claim.attempt,
                error=transition.reason,
                started_at=transition.started_at,
                exception=transition.exception,
            )
        case RunStatus.SKIPPED:
            return events.RunSkipped(**run, reason=transition.reason)
        case RunStatus.CANCELED:
            return events.RunCanceled(**run, reason=transition.reason)
        case _ if transition.outcome is OutcomeKind.SUSPENDED:
            assert transition.due_at is not None, transition
            return events.RunSuspended(**run, reason=transition.reason, due_at=transition.due_at)
        case _:
            assert transition.due_at is not None, transition
            return events.RunPostponed(**run, reason=transition.reason, due_at=transition.due_at)
