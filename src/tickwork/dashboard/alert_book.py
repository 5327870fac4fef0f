"""What needs a person now: one alert for each cause, since when, and what ended before."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from tickwork._domain.health import Check, Level, fails_repeatedly, is_overdue
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.status import JobView, Status
from tickwork._kernel.durations import human_duration
from tickwork._stores.contract import RunFilter
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.acts.alerts import AlertMute, read_mute
from tickwork.dashboard.presentation import path_part
from tickwork.errors import TickworkError

ALERTS_SECONDS: Final = 2.0
"""How long the alerts are shown before they are found again."""

RETRY_SECONDS: Final = 30.0
"""How long pages do without a new count after alerts could not be found."""

HISTORY_MAX: Final = 50
EFFECTS_MAX: Final = 5
COUNTED_MAX: Final = 1_000
FIRINGS_READ: Final = 50
FAILURES_READ: Final = 100
NO_WORKER_EFFECTS: Final = frozenset({"known jobs", "leases", "backlog", "events", "schedules"})
"""Checks that fail because no worker runs. They are no alerts of their own then."""

LINKS: Final = {
    "workers": ("/workers", "Workers"),
    "outcomes": ("/workers", "Workers"),
    "leases": ("/runs?status=running", "Running runs"),
    "backlog": ("/queues", "Queues"),
    "known jobs": ("/queues", "Queues"),
    "schedules": ("/schedules", "Schedules"),
}

_log: Final = logging.getLogger("tickwork.dashboard")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAlert:
    """Something that needs a person."""

    name: str  # stays the same while the cause lasts
    tone: str
    kind: str
    text: str
    since: datetime
    fix: str = ""
    path: str = ""
    label: str = ""
    effects: tuple[str, ...] = ()  # what follows from the same cause
    mute: AlertMute | None = None

    @property
    def is_counted(self) -> bool:
        """Whether the navigation counts it. A pause is the decision of a person."""
        return self.mute is None and self.kind != "paused"


@dataclass(frozen=True, slots=True)
class EndedAlert:
    alert: PageAlert
    ended_at: datetime


@dataclass(slots=True)
class _Draft:
    """An alert with what follows from its cause, while alerts are collected."""

    alert: PageAlert
    effects: list[str] = field(default_factory=list)

    def build(self) -> PageAlert:
        more = len(self.effects) - EFFECTS_MAX
        shown = [*self.effects[:EFFECTS_MAX], *([f"and {more} more"] if more > 0 else [])]
        return replace(self.alert, effects=tuple(shown))


class AlertBook:
    """The alerts of one application, and those that ended since this process started."""

    def __init__(self, app: Tickwork, checks: Callable[[], Sequence[Check]]) -> None:
        self._app = app
        self._checks = checks
        self._lock = threading.Lock()
        self._found: tuple[float, list[PageAlert]] | None = None  # when, by the monotonic clock
        self._open: dict[str, PageAlert] = {}
        self._ended: deque[EndedAlert] = deque(maxlen=HISTORY_MAX)
        self._retry_at = float("-inf")
        self.since = app.clock.now()

    def current(self) -> list[PageAlert]:
        """The alerts, the worst first, at most a few seconds old."""
        with self._lock:
            now = time.monotonic()
            if self._found is None or now - self._found[0] >= ALERTS_SECONDS:
                self._found = (now, self._find())
            return self._found[1]

    def count(self) -> int:
        """The number of alerts, for every page: one that is slow to find must not delay them."""
        if not self._lock.acquire(blocking=False):
            return self.last_count()  # another request finds them
        try:
            now = time.monotonic()
            if now >= self._retry_at and (
                self._found is None or now - self._found[0] >= ALERTS_SECONDS
            ):
                self._found = (now, self._find())
        except TickworkError as error:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            _log.warning("Alerts cannot be counted: %s", error)
        finally:
            self._lock.release()
        return self.last_count()

    def last_count(self) -> int:
        """The number of alerts when they were last found: for pages without a database."""
        return 0 if self._found is None else sum(each.is_counted for each in self._found[1])

    def ended(self) -> list[EndedAlert]:
        """Alerts that ended, the newest first."""
        return list(reversed(self._ended))

    def forget(self) -> None:
        """Find the alerts again: one was muted, or something was resumed."""
        self._found = None

    def _find(self) -> list[PageAlert]:
        now = self._app.clock.now()
        found = [self._since_first_seen(each) for each in self._collect(now)]
        names = {each.name for each in found}
        for name in [name for name in self._open if name not in names]:
            self._ended.append(EndedAlert(self._open.pop(name), now))
        self._open.update({each.name: each for each in found})
        shown = [replace(each, mute=read_mute(self._app, each.name, now=now)) for each in found]
        return sorted(shown, key=lambda each: (each.mute is not None, each.tone, each.since))

    def _since_first_seen(self, alert: PageAlert) -> PageAlert:
        known = self._open.get(alert.name)
        return alert if known is None else replace(alert, since=min(alert.since, known.since))

    def _collect(self, now: datetime) -> list[PageAlert]:
        status = self._app.inspect.status(cap=COUNTED_MAX)
        drafts: dict[str, _Draft] = {}
        causes: dict[str, _Draft] = {}  # by job: why its schedules are late
        for pause in status.pauses:
            kind = pause.kind.value
            text = f"The {kind} {pause.name} is paused. {pause.note}".strip()
            fix = f"tickwork resume --{kind} {pause.name}"
            name = f"paused/{kind}/{pause.name}"
            drafts[name] = _Draft(_alert(name, "warn", "paused", text, pause.paused_at, fix=fix))
            for job in status.jobs:
                if pause.name == (job.queue if kind == "queue" else job.name):
                    causes[job.name] = drafts[name]
        for job in status.jobs:
            if not fails_repeatedly(job.failures):
                continue
            name = f"failing/{job.tenant}/{job.name}"
            text = f"{job.name} failed {job.failures} times in a row: {job.last_error[:200]}"
            path = f"/runs?{urlencode({'job': job.name, 'status': 'failed_permanent'})}"
            since = self._find_first_failure(job) or job.last_error_at or now
            drafts[name] = _Draft(
                _alert(name, "bad", "failing", text, since, path=path, label="Its failures")
            )
            causes.setdefault(job.name, drafts[name])
        self._add_checks(drafts, causes, status, now)
        return [each.build() for each in drafts.values()]

    def _find_first_failure(self, job: JobView) -> datetime | None:
        """When the first of the failures in a row ended, as far as they are read."""
        where = RunFilter(
            job=job.name, tenant=job.tenant, statuses=frozenset({RunStatus.FAILED_PERMANENT})
        )
        runs = self._app.runs.recent(where, limit=min(job.failures, FAILURES_READ))
        return runs[-1].ended_at if runs else None

    def _add_checks(
        self, drafts: dict[str, _Draft], causes: dict[str, _Draft], status: Status, now: datetime
    ) -> None:
        checks = {each.name: each for each in self._checks() if each.level is not Level.OK}
        checks.pop("jobs", None)  # each job has its own alert
        checks.pop("expectations", None)  # and each schedule
        is_served = any(not worker.is_silent for worker in status.workers)
        without_worker = None
        if not is_served and "workers" in checks:
            without_worker = _Draft(_of_check(checks.pop("workers"), now))
            drafts["check/workers"] = without_worker
            for name in NO_WORKER_EFFECTS & checks.keys():
                without_worker.effects.append(checks.pop(name).text)
        late = self._find_late(status, now)
        if late:
            checks.pop("schedules", None)
        for alert, job in late:
            cause = without_worker or causes.get(job)
            if cause is None:
                drafts[alert.name] = _Draft(alert)
            else:
                cause.effects.append(alert.text)
        for check in checks.values():
            drafts[f"check/{check.name}"] = _Draft(_of_check(check, now))

    def _find_late(self, status: Status, now: datetime) -> list[tuple[PageAlert, str]]:
        """One alert for each schedule that is late or missed, with its job."""
        found: dict[str, tuple[PageAlert, str]] = {}
        for missed in status.missed:
            name = f"schedule/{missed.tenant}/{missed.schedule}"
            text = f"{missed.schedule} did not complete in time: {missed.reason}"
            path = _path_of(missed.schedule, missed.tenant)
            alert = _alert(name, "bad", "missed", text, missed.due_at, path=path, label="Why?")
            found[name] = (alert, missed.job)
        for each in self._app.inspect.upcoming(limit=FIRINGS_READ, until=now).firings:
            if is_overdue(each.at, now):
                name = f"schedule/{each.tenant}/{each.schedule}"
                late = human_duration(now - each.at)
                text = f"{each.schedule} should have fired {late} ago, and no worker has fired it."
                path = _path_of(each.schedule, each.tenant)
                alert = _alert(name, "bad", "missed", text, each.at, path=path, label="Why?")
                found.setdefault(name, (alert, each.job))
        return list(found.values())


def _path_of(schedule: str, tenant: str) -> str:
    tail = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    return f"/schedules/{path_part(schedule)}{tail}"


def _alert(
    name: str,
    tone: str,
    kind: str,
    text: str,
    since: datetime,
    *,
    fix: str = "",
    path: str = "",
    label: str = "",
) -> PageAlert:
    return PageAlert(
        name=name, tone=tone, kind=kind, text=text, since=since, fix=fix, path=path, label=label
    )


def _of_check(check: Check, now: datetime) -> PageAlert:
    path, label = LINKS.get(check.name, ("", ""))
    name = f"check/{check.name}"
    return _alert(
        name, check.level.value, check.name, check.text, now, fix=check.fix, path=path, label=label
    )
