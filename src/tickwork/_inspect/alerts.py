"""What needs a person now: one alert for each cause, since when, and what ended before."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tickwork._domain.alert_history import REOPEN_WITHIN, AlertCursor, AlertRow, plan_changes
from tickwork._domain.health import Check, Level, fails_repeatedly, is_overdue
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.status import JobView, Status
from tickwork._inspect.upcoming_firings import UpcomingFirings
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import human_duration
from tickwork._kernel.ids import new_id
from tickwork._stores.contract import RunFilter, Store
from tickwork.errors import StoreError

EFFECTS_MAX: Final = 5
FAILURES_READ: Final = 100
RECENT_MAX: Final = 1_000
"""The most alerts that ended a short time ago and are read, because one of them may come back."""

SCANNED: Final = 20_000
"""The rows in which the failures of a job are searched, so that a backlog delays no page."""

NO_WORKER_EFFECTS: Final = frozenset({"known jobs", "leases", "backlog", "events", "schedules"})
"""Checks that fail because no worker runs. They are no alerts of their own then."""

LOCAL_CHECKS: Final = frozenset({"connection", "schema", "writing", "clock", "time zones"})
"""Checks of this process and its machine. Other processes cannot see them, so they have no
history; neither have the checks of engines."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_log: Final = logging.getLogger("tickwork.alerts")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMute:
    """An alert that is not counted for a time."""

    name: str
    until: datetime | None  # null: until it is unmuted
    note: str
    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAlert:
    """Something that needs a person."""

    name: str  # stays the same while the cause lasts
    kind: str  # failing, missed, paused, or the name of a health check
    level: Level
    text: str
    since: datetime
    fix: str = ""
    job: str = ""  # that fails
    schedule: str = ""  # that is late
    tenant: str = ""  # of the job or the schedule
    effects: tuple[str, ...] = ()  # what follows from the same cause
    mute: AlertMute | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the navigation counts it. A pause is the decision of a person."""
        return self.mute is None and self.kind != "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAlert:
    """Something that needed a person."""

    id: str
    name: str
    kind: str
    level: str
    text: str  # as it was at the begin
    began_at: datetime
    ended_at: datetime
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAlerts:
    """One page of the alerts that ended, the last end first."""

    ended: list[EndedAlert]
    cursor: str | None  # of the next page; null: this is the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertReport(EndedAlerts):
    """What needs a person now, the worst first, and one page of what ended before."""

    alerts: list[OpenAlert]


@dataclass(slots=True)
class _Draft:
    """An alert with what follows from its cause, while alerts are collected."""

    alert: OpenAlert
    effects: list[str] = field(default_factory=list)

    def build(self) -> OpenAlert:
        more = len(self.effects) - EFFECTS_MAX
        shown = [*self.effects[:EFFECTS_MAX], *([f"and {more} more"] if more > 0 else [])]
        return replace(self.alert, effects=tuple(shown))


class AlertFinder:
    """Finds alerts, and keeps their history in the database.

    Workers, watchers and dashboards find the same alerts, because they read the same rows. What
    one of them adds to the history is known to all.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        read_status: Callable[[], Status],
        read_due: Callable[[datetime], UpcomingFirings],
    ) -> None:
        self._store = store
        self._clock = clock
        self._read_status = read_status
        self._read_due = read_due
        self._local_since: dict[str, datetime] = {}
        self._is_written = True

    def find(self, checks: Sequence[Check]) -> list[OpenAlert]:
        """Find the alerts, the worst first; write which of them are new and which have ended."""
        now = self._clock.now()
        # First: see `plan_changes`.
        known = self._store.list_open_alerts()
        known += self._store.list_ended_alerts(since=now - REOPEN_WITHIN, limit=RECENT_MAX)
        found = self._collect(checks, now)
        local = {each.name for each in found if _is_local(each)}
        self._local_since = {name: self._local_since.get(name, now) for name in local}
        # If the health checks could not be made, nothing is known about the other alerts.
        if any(check.name == "workers" for check in checks):
            shared = [each for each in found if each.name not in local]
            self._write_changes(shared, known, now)
        # Of a name, the newest row: open ones come first, and then the last end.
        began = {row.name: row.began_at for row in reversed(known)} | self._local_since
        shown = [
            replace(
                each,
                since=min(each.since, began.get(each.name, now)),
                mute=read_mute(self._store, each.name, now=now),
            )
            for each in found
        ]
        return sorted(shown, key=lambda each: (each.mute is not None, each.level, each.since))

    def list_ended(self, *, cursor: str | None, limit: int) -> EndedAlerts:
        """Read one page of the alerts that ended."""
        before = None if cursor is None else _read_cursor(cursor)
        rows = self._store.list_ended_alerts(before=before, limit=limit)
        ended = [_view_ended(row, row.ended_at) for row in rows if row.ended_at is not None]
        is_full = len(rows) == limit
        return EndedAlerts(ended=ended, cursor=_cursor_of(ended[-1]) if is_full else None)

    def _write_changes(
        self, found: Sequence[OpenAlert], known: Sequence[AlertRow], now: datetime
    ) -> None:
        rows = [
            AlertRow(new_id(now), each.name, each.kind, each.level.value, each.text, each.since)
            for each in found
        ]
        changes = plan_changes(rows, known, now=now)
        if not changes:
            return
        try:
            self._store.change_alerts(changes, now=now)
        except StoreError as error:  # this program may only read
            if self._is_written:
                _log.warning("This process writes no history of alerts: %s", error.what)
            self._is_written = False
        else:
            self._is_written = True

    def _collect(self, checks: Sequence[Check], now: datetime) -> list[OpenAlert]:
        status = self._read_status()
        drafts: dict[str, _Draft] = {}
        # Why schedules are late, by tenant and job. A pause holds up all tenants: None.
        causes: dict[tuple[str | None, str], _Draft] = {}
        for pause in status.pauses:
            kind = pause.kind.value
            name = f"paused/{kind}/{pause.name}"
            drafts[name] = _Draft(
                OpenAlert(
                    name=name,
                    kind="paused",
                    level=Level.WARN,
                    text=f"The {kind} {pause.name} is paused. {pause.note}".strip(),
                    since=pause.paused_at,
                    fix=f"tickwork resume --{kind} {pause.name}",
                )
            )
            for job in status.jobs:
                if pause.name == (job.queue if kind == "queue" else job.name):
                    causes[None, job.name] = drafts[name]
        for job in status.jobs:
            if not fails_repeatedly(job.failures):
                continue
            name = f"failing/{job.tenant}/{job.name}"
            times = f"{job.failures} times in a row"
            drafts[name] = _Draft(
                OpenAlert(
                    name=name,
                    kind="failing",
                    level=Level.BAD,
                    text=f"{_named(job.name, job.tenant)} failed {times}: {job.last_error[:200]}",
                    since=self._find_first_failure(job) or job.last_error_at or now,
                    job=job.name,
                    tenant=job.tenant,
                )
            )
            causes[job.tenant, job.name] = drafts[name]
        self._add_checks(checks, drafts, causes, status, now)
        return [each.build() for each in drafts.values()]

    def _find_first_failure(self, job: JobView) -> datetime | None:
        """When the first of the failures in a row ended, as far as they are read."""
        where = RunFilter(
            job=job.name, tenant=job.tenant, statuses=frozenset({RunStatus.FAILED_PERMANENT})
        )
        limit = min(job.failures, FAILURES_READ)
        runs = self._store.list_summaries(where, limit=limit, scan_max=SCANNED).runs
        return min((run.ended_at for run in runs if run.ended_at is not None), default=None)

    def _add_checks(
        self,
        checks: Sequence[Check],
        drafts: dict[str, _Draft],
        causes: dict[tuple[str | None, str], _Draft],
        status: Status,
        now: datetime,
    ) -> None:
        failed = {each.name: each for each in checks if each.level is not Level.OK}
        failed.pop("jobs", None)  # each job has its own alert
        failed.pop("expectations", None)  # and each schedule
        is_served = any(not worker.is_silent for worker in status.workers)
        without_worker = None
        if not is_served and "workers" in failed:
            without_worker = _Draft(_of_check(failed.pop("workers"), now))
            drafts["check/workers"] = without_worker
            for name in sorted(NO_WORKER_EFFECTS & failed.keys()):
                without_worker.effects.append(failed.pop(name).text)
        late = self._find_late(status, now)
        if late:
            failed.pop("schedules", None)
        for alert, job in late:
            failing = causes.get((alert.tenant, job))
            cause = without_worker or causes.get((None, job)) or failing
            if cause is None:
                drafts[alert.name] = _Draft(alert)
            else:
                cause.effects.append(alert.text)
        for check in failed.values():
            drafts[f"check/{check.name}"] = _Draft(_of_check(check, now))

    def _find_late(self, status: Status, now: datetime) -> list[tuple[OpenAlert, str]]:
        """One alert for each schedule that is late or missed, with its job."""
        found: dict[str, tuple[OpenAlert, str]] = {}
        for missed in status.missed:
            shown = _named(missed.schedule, missed.tenant)
            text = f"{shown} did not complete in time: {missed.reason}"
            alert = _missed(missed.schedule, missed.tenant, text, missed.due_at)
            found[alert.name] = (alert, missed.job)
        for each in self._read_due(now).firings:
            if is_overdue(each.at, now):
                late = human_duration(now - each.at)
                shown = _named(each.schedule, each.tenant)
                text = f"{shown} should have fired {late} ago, and no worker has fired it."
                alert = _missed(each.schedule, each.tenant, text, each.at)
                found.setdefault(alert.name, (alert, each.job))
        return list(found.values())


def read_mute(store: Store, name: str, *, now: datetime) -> AlertMute | None:
    """The mute of an alert that is in force; None if there is none."""
    newest = next(
        (
            each
            for each in store.list_audit(subject=f"alert/{name}", limit=5)
            if each.action in {"alert.mute", "alert.unmute"}
        ),
        None,
    )
    if newest is None or newest.action == "alert.unmute":
        return None
    detail = json.loads(newest.detail)
    until = datetime.fromisoformat(detail["until"]) if "until" in detail else None
    if until is not None and until <= now:
        return None
    return AlertMute(name=name, until=until, note=detail.get("note", ""), actor=newest.actor)


def _is_local(alert: OpenAlert) -> bool:
    return alert.name.startswith("check/") and (
        alert.kind in LOCAL_CHECKS or alert.kind.startswith("engine ")
    )


def _named(name: str, tenant: str) -> str:
    return f"{name} of {tenant}" if tenant else name


def _missed(schedule: str, tenant: str, text: str, since: datetime) -> OpenAlert:
    return OpenAlert(
        name=f"schedule/{tenant}/{schedule}",
        kind="missed",
        level=Level.BAD,
        text=text,
        since=since,
        schedule=schedule,
        tenant=tenant,
    )


def _of_check(check: Check, now: datetime) -> OpenAlert:
    return OpenAlert(
        name=f"check/{check.name}",
        kind=check.name,
        level=check.level,
        text=check.text,
        since=now,
        fix=check.fix,
    )


def _view_ended(row: AlertRow, ended_at: datetime) -> EndedAlert:
    return EndedAlert(
        id=row.id,
        name=row.name,
        kind=row.kind,
        level=row.level,
        text=row.text,
        began_at=row.began_at,
        ended_at=ended_at,
        duration=ended_at - row.began_at,
    )


def _cursor_of(alert: EndedAlert) -> str:
    return f"{(alert.ended_at - _EPOCH) // _MICROSECOND}|{alert.id}"


def _read_cursor(text: str) -> AlertCursor:
    ended_at, _, alert_id = text.partition("|")
    return AlertCursor(_EPOCH + int(ended_at) * _MICROSECOND, alert_id)
