"""Publishes events and log records about what was written."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.status import RunStatus
from tickwork._domain.tick import TickPlan
from tickwork._domain.transitions import Transition
from tickwork._worker.stats import Stats
from tickwork.events import (
    AttemptFailed,
    Event,
    RunCanceled,
    RunFailed,
    RunLost,
    RunPostponed,
    RunSkipped,
    RunSucceeded,
    ScheduleFired,
    ScheduleNotFired,
)
from tickwork.events.bus import EventBus

_log: Final = logging.getLogger("tickwork.worker")


class Reporter:
    def __init__(self, *, bus: EventBus, stats: Stats) -> None:
        self._bus = bus
        self.stats = stats
        self._unfired: set[tuple[str, str]] = set()

    def recorded(self, steps: Sequence[Transition], *, lost: Collection[str], at: datetime) -> None:
        """Report transitions that were written; ``lost`` are runs that another worker has."""
        self.stats.add(steps)
        for step in steps:
            if step.outcome is OutcomeKind.FAILED or lost or self._bus.has_subscribers:
                self._report(step, is_lost=step.claim.run_id in lost, at=at)

    def lost(self, claim: Claim, *, at: datetime) -> None:
        """Report that a run was lost before its attempt started."""
        _log.warning("%s: run %s was lost to another worker.", claim.job, claim.run_id)
        if self._bus.has_subscribers:
            self._bus.emit(_lost(claim, at=at))

    def fired(self, plan: TickPlan, *, at: datetime) -> None:
        """Report what a tick fired."""
        for unfired in plan.unfired:
            # Once for each reason: it is due at every tick.
            if tuple(unfired) not in self._unfired:
                self._unfired.add((unfired.schedule_id, unfired.reason))
                _log.warning("A schedule could not be fired: %s", unfired.reason)
                self._bus.emit(
                    ScheduleNotFired(at=at, schedule_id=unfired.schedule_id, reason=unfired.reason)
                )
        if not self._bus.has_subscribers:
            return
        for run in plan.runs:
            assert run.schedule is not None, run
            assert run.nominal_at is not None, run
            self._bus.emit(
                ScheduleFired(
                    at=at,
                    schedule=run.schedule,
                    tenant=run.tenant,
                    job=run.job,
                    run_id=run.id,
                    nominal_at=run.nominal_at,
                )
            )

    def _report(self, step: Transition, *, is_lost: bool, at: datetime) -> None:
        claim = step.claim
        if step.outcome is OutcomeKind.FAILED:
            _log.warning(
                "%s: attempt %d of run %s failed: %s",
                claim.job,
                claim.attempt,
                claim.run_id,
                step.reason,
                extra={"run_id": claim.run_id, "job": claim.job, "attempt": claim.attempt},
            )
        if is_lost:
            _log.warning("%s: run %s was lost to another worker.", claim.job, claim.run_id)
        if self._bus.has_subscribers:
            if is_lost:
                self._bus.emit(_lost(claim, at=at))
            else:
                self._emit(step)

    def _emit(self, step: Transition) -> None:
        claim = step.claim
        run: dict[str, Any] = {
            "at": step.ended_at,
            "run_id": claim.run_id,
            "job": claim.job,
            "tenant": claim.tenant,
        }
        if step.outcome is OutcomeKind.FAILED:
            is_last = step.to_status is not RunStatus.FAILED
            retry_at = None if is_last else step.due_at
            self._bus.emit(
                AttemptFailed(**run, attempt=claim.attempt, error=step.reason, retry_at=retry_at)
            )
            if not is_last:
                return
        self._bus.emit(_event(step, run))


def _lost(claim: Claim, *, at: datetime) -> RunLost:
    return RunLost(
        at=at, run_id=claim.run_id, job=claim.job, tenant=claim.tenant, token=claim.token
    )


def _event(step: Transition, run: dict[str, Any]) -> Event:
    claim = step.claim
    match step.to_status:
        case RunStatus.COMPLETED:
            return RunSucceeded(**run, attempt=claim.attempt, started_at=step.started_at)
        case RunStatus.FAILED_PERMANENT:
            return RunFailed(**run, attempt=claim.attempt, error=step.reason)
        case RunStatus.SKIPPED:
            return RunSkipped(**run, reason=step.reason)
        case RunStatus.CANCELED:
            return RunCanceled(**run, reason=step.reason)
        case _:
            assert step.due_at is not None, step
            return RunPostponed(**run, reason=step.reason, due_at=step.due_at)
