"""Watches expectations and jobs: raises an alert when a schedule is late or a job keeps failing.

``_domain/watch`` and ``_domain/watch`` decide; ``_watch/incidents`` raises each alert
once.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from tickwork import events
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.watch import MissedExpectation, is_watched
from tickwork._kernel.clock import Clock
from tickwork._kernel.loggers import get_logger
from tickwork._stores.contract import Store
from tickwork._watch.expectations import (
    SCHEDULES_MAX,
    has_completed,
    read_expected,
    read_missed,
)
from tickwork._watch.failing_jobs import FailingJobs
from tickwork._watch.incidents import Incidents, Raised
from tickwork._worker.service import RepeatedService
from tickwork.alerts.contract import AlertTarget, FailureWatch, MissedRunAlert
from tickwork.errors import StoreError
from tickwork.events.bus import EventBus

WATCH_EVERY: Final = 10.0
RECHECK_EVERY: Final = 1.0
"""Seconds between two checks: normally, and while an expectation is missed.

A check reads each expected schedule, and its pace only delays an alert that a person reads.
"""

SHORTEST: Final = 0.1
"""Seconds between two checks at least, also if a deadline has passed: a check is no busy loop."""

_log: Final = get_logger("tickwork.watch")


class Watcher:
    """Finds what needs an alert. Call :meth:`step` again after :meth:`pace` seconds."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: EventBus,
        targets: Callable[[], Sequence[AlertTarget]],
        hooks_of: Callable[[str, str], Sequence[Callable[..., Any]]],
        failures: Callable[[], Mapping[str | None, FailureWatch]],
        retire_after: timedelta,
        every: float = WATCH_EVERY,
    ) -> None:
        self._store = store
        self._clock = clock
        self._hooks_of = hooks_of
        self._retire_after = retire_after
        self.every = every
        self._incidents = Incidents(store=store, clock=clock, bus=bus, targets=targets)
        self._failing = FailingJobs(store=store, incidents=self._incidents, watches=failures)
        self._met: dict[ScheduleId, datetime] = {}  # the last firing that met its expectation
        self._deadline: datetime | None = None
        self.missed: list[MissedExpectation] = []

    def step(self) -> None:
        """Check once: open and close incidents, and deliver the alerts that are due."""
        now = self._clock.now()
        rows = self._store.list_expected_schedules(limit=SCHEDULES_MAX)
        self.missed = []
        deadlines: list[datetime] = []
        for row in rows:
            deadline = self._check(row, now)
            deadlines += [] if deadline is None else [deadline]
        self._met = {row.id: self._met[row.id] for row in rows if row.id in self._met}
        self._deadline = min(deadlines, default=None)
        self._failing.check(now)
        self._incidents.deliver()

    def try_step(self) -> None:
        """As :meth:`step`, for loops: if the database is unreachable, the next step tries again."""
        try:
            self.step()
        except StoreError as error:
            _log.warning("Schedules and jobs cannot be watched: %s", error.what)
            self._deadline = None

    def pace(self) -> float:
        """Return the seconds until the next check."""
        waits = [self.every, *self._incidents.waits()]
        if self._deadline is not None:
            waits.append((self._deadline - self._clock.now()).total_seconds() + SHORTEST)
        if self.missed:
            waits.append(RECHECK_EVERY)
        return max(min(waits), SHORTEST)

    def _check(self, row: ScheduleRow, now: datetime) -> datetime | None:
        """Check one schedule; return its next deadline."""
        if not is_watched(row, now=now, seen_after=now - self._retire_after):
            what = "paused" if row.is_paused_at(now) else "retired"
            self._close(row, f"The schedule is {what}.", now)
            return None
        due_at, deadline = read_expected(row, now=now)
        if due_at is not None and self._met.get(row.id) != due_at:
            missed = read_missed(self._store, row, due_at, now=now)
            if missed is not None:
                self.missed.append(missed)
                self._met.pop(row.id, None)
                self._open(row, missed, now)
            elif self._close(row, None, now):
                self._met[row.id] = due_at
        return deadline

    def _open(self, row: ScheduleRow, missed: MissedExpectation, now: datetime) -> None:
        def describe(due_at: datetime) -> Raised:
            event = events.ExpectationMissed(
                at=now,
                schedule=missed.schedule,
                tenant=missed.tenant,
                job=missed.job,
                due_at=due_at,
                expected_by=missed.expected_by,
                reason=missed.reason,
            )
            return _alert(row, due_at, missed.reason, now, is_over=False), event

        hooks = self._hooks_of(missed.tenant, missed.schedule)
        self._incidents.open(row.id, missed.due_at, describe, hooks=hooks, now=now)

    def _close(self, row: ScheduleRow, reason: str | None, now: datetime) -> bool:
        """Close the incident of a schedule; True if there is none."""
        return self._incidents.close(row.id, partial(self._end, row, reason, now), now=now)

    def _end(self, row: ScheduleRow, reason: str | None, now: datetime, due_at: datetime) -> Raised:
        if reason is None:
            is_met = has_completed(self._store, row, due_at)
            reason = "A run has completed." if is_met else "The firing is not expected any more."
        event = events.ExpectationMet(
            at=now,
            schedule=row.spec.name,
            tenant=row.spec.tenant,
            job=row.spec.job,
            due_at=due_at,
            reason=reason,
        )
        return _alert(row, due_at, reason, now, is_over=True), event


def _alert(
    row: ScheduleRow, due_at: datetime, reason: str, now: datetime, *, is_over: bool
) -> MissedRunAlert:
    return MissedRunAlert(
        id=f"{row.id}:{due_at:%Y%m%dT%H%M%S}:{'over' if is_over else 'missed'}",
        is_over=is_over,
        schedule=row.spec.name,
        tenant=row.spec.tenant,
        job=row.spec.job,
        due_at=due_at,
        at=now,
        reason=reason,
    )


class AlertService(RepeatedService):
    """Watches schedules and jobs beside a worker. Without alerts, the worker goes on."""

    name = "alerts"
    activity = "Watching schedules and jobs"
    is_essential = False

    def __init__(self, watcher: Watcher, *, clock: Clock) -> None:
        super().__init__(clock)
        self._watcher = watcher

    def step(self) -> float:
        self._watcher.try_step()
        return self._watcher.pace()
