"""Read models: what people and programs ask about, gathered from rows and definitions.

Values in, values out, and nothing about how they look: the command line, an API and pages
show the same ones.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace
from typing import Any, Final

from tickwork._client.catalog import Catalog, Said
from tickwork._client.schedule_view import ScheduleView, view_of
from tickwork._define.arguments import masked_args
from tickwork._define.registry import Registry
from tickwork._domain.firings import first_due
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.run import Run
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.status import Phase, RunStatus
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork._kernel.zonedata import split
from tickwork.errors import AmbiguousRun, InvalidSchedule, PayloadUnreadable, RunNotFound
from tickwork.stores.contract import (
    Attempt,
    LogLine,
    Pause,
    PauseKind,
    RunFilter,
    Store,
    WorkerRow,
)

SCHEDULES_MAX: Final = 10_000
"""Schedules that are looked at for one answer; there may be a million."""

RULES_MAX: Final = 5
RUNNING_MAX: Final = 1_000
CANDIDATES_MAX: Final = 5
SILENT_AFTER: Final = timedelta(seconds=30)
"""A worker reports every ten seconds: one that has missed three may be gone."""

ID_LENGTH: Final = 36
_ID: Final = re.compile(r"[0-9a-f][0-9a-f-]*")


# ---------------------------------------------------------------- values


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as people may see it: arguments by name, with secrets masked. Times are UTC."""

    id: RunId
    job: str
    status: RunStatus
    phase: Phase | None  # where an unfinished one waits
    queue: str
    priority: int
    tenant: str
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    attempts_max: int
    crashes: int
    worker: WorkerId | None
    lease_until: datetime | None
    schedule: str | None
    nominal_at: datetime | None  # the instant of its schedule for which it stands
    instants: int  # how many instants a row about skips stands for
    args: dict[str, Any]
    result: Any
    reason: str
    progress: Any
    blocked_on: str | None
    retry_of: RunId | None
    target: str | None
    tags: tuple[str, ...]
    expires_at: datetime | None
    cancel_requested_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker process, as it last reported."""

    id: WorkerId
    host: str
    pid: int
    started_at: datetime
    beat_at: datetime
    is_silent: bool  # it has missed several reports
    queues: tuple[str, ...] | None  # None: all of them
    jobs: int
    slots: int
    running: int
    version: str
    zones: str  # the release of its time zone data; empty when it does not know


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: what this program says about it, and what has happened to it."""

    name: str
    tenant: str
    is_defined: bool  # by this program
    queue: str | None
    priority: int | None
    when: tuple[str, ...]  # the rules of its schedules, in plain English; a few of many
    next_due_at: datetime | None
    last_run_at: datetime | None
    last_success_at: datetime | None
    last_error_at: datetime | None
    last_error: str
    failures: int  # in a row
    running: int
    lease_until: datetime | None  # the first of the leases under which it runs
    seen_at: datetime | None
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything at one moment. Counts end at ``cap``; schedules after ten thousand."""

    now: datetime
    runs: Mapping[str, int]  # unfinished ones, by phase
    cap: int
    defined: int
    running: int
    idle: int
    jobs: list[JobView]
    schedules: list[ScheduleView]
    workers: list[WorkerView]
    pauses: list[Pause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """An instant at which a schedule will fall due, in its own zone."""

    at: datetime
    schedule: str
    tenant: str
    job: str
    zone: str
    rule: str
    is_written: bool  # False: only in code so far; the first worker writes it down


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """The coming firings, and how many schedules will give none for now."""

    now: datetime
    firings: list[Firing]
    paused: int
    retired: int
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """Everything that is known about one run."""

    run: RunView
    attempts: list[Attempt]
    log: list[LogLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A schedule with its rule, and where it goes on."""

    name: str
    tenant: str
    job: str
    zone: str
    rule: Schedule
    next_due_at: datetime | None
    until: datetime | None
    is_written: bool


# ---------------------------------------------------------------- asking


class Inspection:
    """Answers questions about one database, with what this program knows beside it."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        registry: Registry,
        catalog: Catalog,
        redact: tuple[str, ...],
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._catalog = catalog
        self._redact = frozenset(redact)
        self._retire_after = retire_after

    # ------------------------------------------------------------ all at once

    def status(self) -> Status:
        """What there is: jobs, unfinished runs, schedules, workers."""
        store, now = self._store, self._clock.now()
        counts = store.count_runs()
        schedules = [self._view(row, now) for row in self.schedule_rows()]
        where = RunFilter(statuses=frozenset({RunStatus.RUNNING}))
        under_way = store.list_runs(where, limit=RUNNING_MAX).runs
        pauses = self._pauses(now)
        jobs = self._jobs(schedules, under_way, pauses)
        defined = [job for job in jobs if job.is_defined]
        running = sum(1 for job in jobs if job.running)
        return Status(
            now=now,
            runs={phase.value: counts.by_phase.get(phase, 0) for phase in Phase},
            cap=counts.cap,
            defined=len(defined),
            running=running,
            idle=len(jobs) - running,
            jobs=jobs,
            schedules=schedules,
            workers=[worker_view(row, now) for row in store.list_workers()],
            pauses=pauses,
        )

    def _jobs(
        self, schedules: list[ScheduleView], under_way: list[Run], pauses: list[Pause]
    ) -> list[JobView]:
        rows = {(row.tenant, row.name): row for row in self._store.list_jobs()}
        specs = {
            name: each.spec
            for name, each in self._registry.definitions().items()
            if name == each.name and not each.is_remote
        }
        running = Counter((run.tenant, run.job) for run in under_way)
        leases: dict[tuple[str, str], datetime] = {}
        for run in under_way:
            if run.lease_until is not None:
                key = (run.tenant, run.job)
                leases[key] = min(run.lease_until, leases.get(key, run.lease_until))
        stopped = {pause.name for pause in pauses if pause.kind is PauseKind.JOB}
        by_job: dict[tuple[str, str], list[ScheduleView]] = {}
        for view in schedules:
            by_job.setdefault((view.tenant, view.job), []).append(view)
        unwritten = {("", said.spec.job): said for said in self._catalog.unwritten()}
        names = rows.keys() | by_job.keys() | running.keys() | {("", name) for name in specs}
        found = []
        for key in sorted(names, key=lambda key: (key[1], key[0])):
            tenant, name = key
            row, spec = rows.get(key), specs.get(name)
            views = by_job.get(key, [])
            coming = [
                view.next_due_at
                for view in views
                if view.next_due_at is not None and not (view.is_paused or view.is_retired)
            ]
            when = [view.rule for view in views]
            if not when and key in unwritten:
                when = [unwritten[key].rule.describe()]
            found.append(
                JobView(
                    name=name,
                    tenant=tenant,
                    is_defined=spec is not None,
                    queue=None if spec is None else spec.queue,
                    priority=None if spec is None else spec.priority,
                    when=_shortened(when),
                    next_due_at=min(coming, default=None),
                    last_run_at=row.last_run_at if row else None,
                    last_success_at=row.last_success_at if row else None,
                    last_error_at=row.last_error_at if row else None,
                    last_error=row.last_error if row else "",
                    failures=row.failures if row else 0,
                    running=running[key],
                    lease_until=leases.get(key),
                    seen_at=row.seen_at if row else None,
                    is_paused=name in stopped,
                )
            )
        return found

    # ------------------------------------------------------------ what comes

    def upcoming(
        self,
        *,
        limit: int,
        until: datetime | None = None,
        fits: Callable[[Timed], bool] = lambda _: True,
    ) -> Upcoming:
        """The next firings of all schedules, in order."""
        now = self._clock.now()
        rows, seen_after = list(self.schedule_rows()), now - self._retire_after
        timed = [each for each in self.timed(rows, now=now) if fits(each)]
        found: list[Firing] = []
        for at, each in _merged(timed):
            if len(found) >= limit or (until is not None and at > until):
                break
            found.append(
                Firing(
                    at=at,
                    schedule=each.name,
                    tenant=each.tenant,
                    job=each.job,
                    zone=each.zone,
                    rule=each.rule.describe(),
                    is_written=each.is_written,
                )
            )
        return Upcoming(
            now=now,
            firings=found,
            paused=sum(row.is_paused_at(now) for row in rows),
            retired=sum(row.is_retired(seen_after=seen_after) for row in rows),
            finished=sum(row.next_due_at is None and not row.is_paused_at(now) for row in rows),
        )

    def timed(
        self, rows: list[ScheduleRow] | None = None, *, now: datetime | None = None
    ) -> list[Timed]:
        """Schedules that will fire: those in the database, and those only in code so far."""
        now = now or self._clock.now()
        seen_after = now - self._retire_after
        found = []
        for row in self.schedule_rows() if rows is None else rows:
            is_stopped = row.is_paused_at(now) and row.paused_until is None
            if is_stopped or row.is_retired(seen_after=seen_after) or row.next_due_at is None:
                continue
            try:
                rule = from_text(row.spec.rule)
            except InvalidSchedule:
                continue  # a newer program's
            found.append(
                Timed(
                    name=row.spec.name,
                    tenant=row.spec.tenant,
                    job=row.spec.job,
                    zone=row.spec.zone,
                    rule=rule,
                    next_due_at=row.next_due_at,
                    until=row.spec.until,
                    is_written=True,
                )
            )
        return found + [_only_said(said, now) for said in self._catalog.unwritten()]

    # ------------------------------------------------------------ runs

    def find(self, prefix: str) -> RunId:
        """The run whose id begins like this.

        Raises:
            RunNotFound: There is none.
            AmbiguousRun: There are several.
        """
        text = prefix.strip().lower()
        if not _ID.fullmatch(text) or len(text) > ID_LENGTH:
            raise RunNotFound(prefix)
        found = self._store.find_run_ids(text, limit=CANDIDATES_MAX)
        if not found:
            raise RunNotFound(prefix)
        if len(found) > 1:
            raise AmbiguousRun(prefix, candidates=found)
        return found[0]

    def story(self, run_id: RunId) -> RunStory:
        """A run with its attempts and its log.

        Raises:
            RunNotFound: There is none.
        """
        found = self._store.story(run_id)
        if found is None:
            raise RunNotFound(run_id)
        return RunStory(run=self.view(found.run), attempts=found.attempts, log=found.log)

    def view(self, run: Run) -> RunView:
        """A run as people may see it."""
        definition = self._registry.definitions().get(run.job)
        secrets = self._redact if definition is None else definition.secrets | self._redact
        args = _decoded(run.args)
        shown = masked_args(args, secrets) if isinstance(args, dict) else {"?": args}
        return RunView(
            id=run.id,
            job=run.job,
            status=run.status,
            phase=run.phase,
            queue=run.queue,
            priority=run.priority,
            tenant=run.tenant,
            created_at=run.created_at,
            due_at=run.due_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            attempt=run.attempt,
            attempts_max=run.attempts_max,
            crashes=run.crashes,
            worker=run.worker,
            lease_until=run.lease_until,
            schedule=run.schedule,
            nominal_at=run.nominal_at,
            instants=run.instants,
            args=shown,
            result=None if run.result is None else _decoded(run.result),
            reason=run.reason,
            progress=None if run.progress is None else _decoded(run.progress),
            blocked_on=run.blocked_on,
            retry_of=run.retry_of,
            target=run.target,
            tags=run.tags,
            expires_at=run.expires_at,
            cancel_requested_at=run.cancel_requested_at,
        )

    # ------------------------------------------------------------ rows

    def schedule_rows(self) -> Iterator[ScheduleRow]:
        """Schedules of all tenants, by tenant and name, up to ten thousand."""
        after: tuple[str, str] | None = None
        read = 0
        # It ends at the first page that is not full, or after so many schedules.
        while read < SCHEDULES_MAX:
            rows = self._store.list_schedules(after=after)
            yield from rows
            read += len(rows)
            if not rows or len(rows) < 1_000:
                return
            after = (rows[-1].spec.tenant, rows[-1].spec.name)

    def _view(self, row: ScheduleRow, now: datetime) -> ScheduleView:
        return view_of(row, now=now, seen_after=now - self._retire_after)

    def _pauses(self, now: datetime) -> list[Pause]:
        return [row for row in self._store.list_pauses() if row.until is None or row.until > now]


def worker_view(row: WorkerRow, now: datetime) -> WorkerView:
    """A worker as people see it."""
    version, zones = split(row.version)
    return WorkerView(
        id=row.id,
        host=row.host,
        pid=row.pid,
        started_at=row.started_at,
        beat_at=row.beat_at,
        is_silent=now - row.beat_at > SILENT_AFTER,
        queues=row.queues,
        jobs=len(row.jobs),
        slots=row.slots,
        running=row.running,
        version=version,
        zones=zones,
    )


def _shortened(rules: list[str]) -> tuple[str, ...]:
    """Each rule once; of many, a few."""
    found = list(dict.fromkeys(rules))
    if len(found) <= RULES_MAX:
        return tuple(found)
    return (*found[:RULES_MAX], f"and {len(found) - RULES_MAX:,} more")


def _only_said(said: Said, now: datetime) -> Timed:
    spec = said.spec
    return Timed(
        name=spec.name,
        tenant=spec.tenant,
        job=spec.job,
        zone=spec.zone,
        rule=said.rule,
        next_due_at=first_due(said.rule, after=now, until=spec.until),
        until=spec.until,
        is_written=False,
    )


def _merged(timed: list[Timed]) -> Iterator[tuple[datetime, Timed]]:
    """All instants of all schedules, in order. Endless, unless they end: bound it."""
    heap = [
        (each.next_due_at, each.name, place)
        for place, each in enumerate(timed)
        if each.next_due_at is not None
    ]
    heapify(heap)
    while heap:  # ends when all rules have ended, or with the caller
        at, name, place = heap[0]
        each = timed[place]
        yield at, each
        following = first_due(each.rule, after=at, until=each.until)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following, name, place))


def _decoded(text: str) -> Any:
    try:
        return decode(text)
    except PayloadUnreadable:
        return text
