"""Publishes events and log records about what was written."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork import events
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim, NewRun
from tickwork._domain.status import RunStatus
from tickwork._domain.tick import MISSED, Skip, TickPlan
from tickwork._domain.transitions import Transition
from tickwork._kernel.durations import human_duration
from tickwork._kernel.loggers import get_logger
from tickwork._kernel.plurals import count_of
from tickwork._worker.run_log import log_run
from tickwork._worker.stats import Stats
from tickwork.events.bus import EventBus

_log: Final = get_logger("tickwork.worker")
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
        steps: Sequence[Transition],
        *,
        lost: Collection[str] = (),
        at: datetime,
    ) -> None:
        """Report transitions that were written; ``lost`` are runs that another worker has."""
        self.stats.add(steps)
        is_verbose = bool(lost) or self._bus.has_subscribers or _runs_log.isEnabledFor(logging.INFO)
        succeeded = OutcomeKind.SUCCEEDED
        for step in steps:
            if is_verbose or step.outcome is not succeeded:
                self._report(step, is_lost=step.claim.run_id in lost, at=at)
            if step.follow_ups and step.claim.run_id not in lost:
                self._on_follow_ups(step.follow_ups)

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
            self._report_skip(skip, at=at)
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

    def _report_skip(self, skip: Skip, *, at: datetime) -> None:
        spec, is_missed = skip.schedule.spec, skip.reason == MISSED
        log = _log.warning if is_missed else _runs_log.info
        log(
            "%s: %s of the schedule %s, from %s to %s, made no run: %s.",
            spec.job,
            count_of(skip.instants, "firing"),
            spec.name,
            skip.first_at,
            skip.last_at,
            skip.reason,
        )
        if self._bus.has_subscribers:
            kind = events.FiringsMissed if is_missed else events.FiringsSkipped
            self._bus.emit(
                kind(
                    at=at,
                    schedule=spec.name,
                    tenant=spec.tenant,
                    job=spec.job,
                    first_at=skip.first_at,
                    last_at=skip.last_at,
                    count=skip.instants,
                    reason=skip.reason,
                )
            )

    def _report(self, step: Transition, *, is_lost: bool, at: datetime) -> None:
        if is_lost:
            self.report_lost(step.claim, at=at)
            return
        _log_step(step)
        if self._bus.has_subscribers:
            self._emit(step)

    def _emit(self, step: Transition) -> None:
        claim = step.claim
        run: dict[str, Any] = {
            "at": step.ended_at,
            "run_id": claim.run_id,
            "job": claim.job,
            "tenant": claim.tenant,
            "queue": claim.queue,
            "schedule": claim.schedule,
        }
        if step.outcome is OutcomeKind.FAILED:
            is_last = step.to_status is not RunStatus.FAILED
            self._bus.emit(
                events.AttemptFailed(
                    **run,
                    attempt=claim.attempt,
                    error=step.reason,
                    retry_at=None if is_last else step.due_at,
                    started_at=step.started_at,
                    exception=step.exception,
                )
            )
            if not is_last:
                return
        self._bus.emit(_event(step, run))


def _log_step(step: Transition) -> None:
    claim = step.claim
    run_id, attempt = claim.run_id, claim.attempt
    match step.to_status, step.outcome:
        case RunStatus.FAILED_PERMANENT, _:
            log_run(
                logging.ERROR,
                claim,
                "run %s failed at attempt %d: %s",
                *(run_id, attempt, step.reason),
                error=step.exception,
                traceback=step.traceback,
                log=_failures_log,
            )
        case RunStatus.FAILED, _:
            text = "attempt %d of run %s failed, the next one is due at %s: %s"
            log_run(logging.WARNING, claim, text, attempt, run_id, step.due_at, step.reason)
        case _, OutcomeKind.CRASHED:
            log_run(logging.WARNING, claim, "the worker of run %s died: %s", run_id, step.reason)
        case RunStatus.COMPLETED, _:
            length = human_duration(step.ended_at - (step.started_at or step.ended_at))
            text = "run %s completed at attempt %d, after %s."
            log_run(logging.INFO, claim, text, run_id, attempt, length, log=_runs_log)
        case _:
            text = "run %s was %s: %s"
            log_run(logging.INFO, claim, text, run_id, step.outcome, step.reason, log=_runs_log)


def _event(step: Transition, run: dict[str, Any]) -> "events.Event":
    claim = step.claim
    match step.to_status:
        case RunStatus.COMPLETED:
            return events.RunSucceeded(**run, attempt=claim.attempt, started_at=step.started_at)
        case RunStatus.FAILED_PERMANENT:
            return events.RunFailed(
                **run,
                attempt=claim.attempt,
                error=step.reason,
                started_at=step.started_at,
                exception=step.exception,
            )
        case RunStatus.SKIPPED:
            return events.RunSkipped(**run, reason=step.reason)
        case RunStatus.CANCELED:
            return events.RunCanceled(**run, reason=step.reason)
        case _:
            assert step.due_at is not None, step
            return events.RunPostponed(**run, reason=step.reason, due_at=step.due_at)
