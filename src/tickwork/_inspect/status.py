"""The state of one database at one moment: jobs, unfinished runs, schedules, workers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._control.catalog import Catalog
from tickwork._control.schedule_view import ScheduleView, view_of
from tickwork._define.registry import Registry
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.watch import MissedExpectation
from tickwork._domain.worker_version import WorkerVersion
from tickwork._inspect.backlogs import read_oldest, read_pauses
from tickwork._inspect.run_reader import list_without_payloads
from tickwork._inspect.statistics import QueueStatistics, read_queue_statistics
from tickwork._inspect.upcoming_firings import read_schedule_rows
from tickwork._stores.contract import (
    JobRow,
    Pause,
    PauseKind,
    PhaseCounts,
    RunFilter,
    Store,
    WorkerRow,
)
from tickwork._watch.expectations import read_all_missed

RULES_MAX: Final = 5
RUNNING_MAX: Final = 1_000
SILENT_AFTER: Final = timedelta(seconds=30)
"""A worker reports every ten seconds. After three missed reports it counts as silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker process, as it last reported."""

    id: WorkerId
    host: str
    pid: int
    started_at: datetime
    beat_at: datetime  # its last report
    is_silent: bool  # it missed several reports
    queues: tuple[str, ...] | None  # null: all queues
    jobs: int  # how many it knows
    is_draining: bool  # it claims no more runs, and finishes those it has
    slots: int  # how many runs it can execute at a time; 0 while it drains
    running: int  # how many runs it executes
    version: str  # of tickwork
    application: str  # the version of the application; empty if it has none
    zones: str  # release of its time zone data; empty if unknown


_COPIED: Final = ("id", "host", "pid", "started_at", "beat_at", "queues", "slots", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: its definition in this program, and its history."""

    name: str
    tenant: str
    is_defined: bool  # in this program
    queue: str | None
    priority: int | None
    when: tuple[str, ...]  # rules of its schedules in plain English, with other names; at most five
    next_due_at: datetime | None
    last_run_at: datetime | None
    last_success_at: datetime | None
    last_error_at: datetime | None
    last_error: str
    failures: int  # consecutive
    running: int  # its running runs
    lease_until: datetime | None  # the earliest lease of its running runs
    seen_at: datetime | None  # when a program last reported that it defines the job
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue with unfinished runs, or a paused one."""

    name: str
    ready: int
    waiting: int
    blocked: int
    running: int
    is_paused: bool
    capped: tuple[Phase, ...] = ()  # phases in which there are more runs than were counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of one database. It lists at most ten thousand schedules."""

    now: datetime  # by the database's clock
    runs: Mapping[str, int]  # unfinished runs by phase
    cap: int  # counts of runs stop here, in each queue and phase
    capped: tuple[Phase, ...]  # phases in which some queue has more runs than were counted
    queues: list[QueueView]  # with unfinished runs, and paused ones
    ended: list[QueueStatistics]  # what ended in the last hour, by queue
    defined: int  # jobs that this program defines
    running: int  # jobs with running runs
    idle: int  # jobs without running runs
    jobs: list[JobView]
    schedules: list[ScheduleView]
    workers: list[WorkerView]
    pauses: list[Pause]
    missed: list[MissedExpectation]  # firings that did not complete in time


def read_status(
    store: Store,
    registry: Registry,
    catalog: Catalog,
    *,
    now: datetime,
    seen_after: datetime,
    cap: int,
) -> Status:
    counts = store.count_runs(cap=cap)
    rows = read_schedule_rows(store)
    schedules = [view_of(row, now=now, seen_after=seen_after) for row in rows]
    where = RunFilter(statuses=frozenset({RunStatus.RUNNING}))
    runs = list_without_payloads(store, where, limit=RUNNING_MAX)
    pauses = read_pauses(store, now)
    jobs = _view_jobs(store, registry, catalog, schedules=schedules, runs=runs, pauses=pauses)
    running = sum(1 for job in jobs if job.running)
    return Status(
        now=now,
        runs={phase.value: counts.by_phase.get(phase, 0) for phase in Phase},
        cap=counts.cap,
        capped=tuple(phase for phase in Phase if phase in counts.capped_phases),
        queues=view_queues(counts, pauses),
        ended=read_queue_statistics(store, now=now),
        defined=sum(1 for job in jobs if job.is_defined),
        running=running,
        idle=len(jobs) - running,
        jobs=jobs,
        schedules=schedules,
        workers=[view_worker(row, now) for row in store.list_workers()],
        pauses=pauses,
        missed=read_all_missed(store, now=now, seen_after=seen_after),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """What a scrape of metrics reads: the queues, and how many workers there are."""

    queues: list[QueueView]
    ages: Mapping[str, timedelta]  # of the oldest run that could start, by queue
    ended: list[QueueStatistics]  # what ended in the last hour, by queue
    live: int  # workers that report
    silent: int  # workers that missed several reports


def read_queues(store: Store, *, now: datetime) -> QueueStatus:
    oldest = read_oldest(store, now=now)
    workers = [is_silent(row, now) for row in store.list_workers() if not row.is_remote]
    return QueueStatus(
        queues=view_queues(store.count_runs(), read_pauses(store, now)),
        ages={queue: max(now - due_at, timedelta(0)) for queue, due_at in oldest.items()},
        ended=read_queue_statistics(store, now=now),
        live=workers.count(False),
        silent=workers.count(True),
    )


def view_queues(counts: PhaseCounts, pauses: list[Pause]) -> list[QueueView]:
    paused = {pause.name for pause in pauses if pause.kind is PauseKind.QUEUE}
    return [
        QueueView(
            name=name,
            **{phase.value: counts.by_queue.get(name, {}).get(phase, 0) for phase in Phase},
            is_paused=name in paused,
            capped=tuple(phase for phase in Phase if (name, phase) in counts.capped),
        )
        for name in sorted(counts.by_queue.keys() | paused)
    ]


def no_runs(queue: str) -> QueueView:
    """A queue without unfinished runs, which is not paused."""
    return QueueView(name=queue, ready=0, waiting=0, blocked=0, running=0, is_paused=False)


def is_silent(row: WorkerRow, now: datetime) -> bool:
    return now - row.beat_at > SILENT_AFTER


def _view_jobs(
    store: Store,
    registry: Registry,
    catalog: Catalog,
    *,
    schedules: list[ScheduleView],
    runs: list[Run],
    pauses: list[Pause],
) -> list[JobView]:
    rows = {(row.tenant, row.name): row for row in store.list_jobs()}
    specs = {
        name: each.spec
        for name, each in registry.definitions().items()
        if name == each.name and not each.is_remote
    }
    running = Counter((run.tenant, run.job) for run in runs)
    leases = _earliest_leases(runs)
    paused = {pause.name for pause in pauses if pause.kind is PauseKind.JOB}
    by_job: dict[tuple[str, str], list[ScheduleView]] = {}
    for view in schedules:
        by_job.setdefault((view.tenant, view.job), []).append(view)
    unwritten = {("", spec.job): from_text(spec.rule) for spec in catalog.unwritten()}
    names = rows.keys() | by_job.keys() | running.keys() | {("", name) for name in specs}
    job_views = []
    for key in sorted(names, key=lambda key: (key[1], key[0])):
        tenant, name = key
        row, spec = rows.get(key, JobRow(tenant, name)), specs.get(name)
        views = by_job.get(key, [])
        next_due = [
            view.next_due_at
            for view in views
            if view.next_due_at is not None and not (view.is_paused or view.is_retired)
        ]
        rules = [view.rule if view.name == name else f"{view.name}: {view.rule}" for view in views]
        if not rules and key in unwritten:
            rules = [unwritten[key].describe()]
        job_views.append(
            JobView(
                **row._asdict(),
                is_defined=spec is not None,
                queue=None if spec is None else spec.queue,
                priority=None if spec is None else spec.priority,
                when=_shorten(rules),
                next_due_at=min(next_due, default=None),
                running=running[key],
                lease_until=leases.get(key),
                is_paused=name in paused,
            )
        )
    return job_views


def _earliest_leases(runs: list[Run]) -> dict[tuple[str, str], datetime]:
    lease_by_job: dict[tuple[str, str], datetime] = {}
    for run in runs:
        if run.lease_until is not None:
            key = (run.tenant, run.job)
            lease_by_job[key] = min(run.lease_until, lease_by_job.get(key, run.lease_until))
    return lease_by_job


def view_worker(row: WorkerRow, now: datetime) -> WorkerView:
    version = WorkerVersion.parse(row.version)
    return WorkerView(
        **{name: getattr(row, name) for name in _COPIED},
        is_silent=is_silent(row, now),
        is_draining=not (row.slots or row.is_remote),
        jobs=len(row.jobs),
        version=version.program,
        application=version.application,
        zones=version.zones,
    )


def _shorten(rules: list[str]) -> tuple[str, ...]:
    """Each rule once, and the first few of many."""
    texts = list(dict.fromkeys(rules))
    if len(texts) <= RULES_MAX:
        return tuple(texts)
    return (*texts[:RULES_MAX], f"and {len(texts) - RULES_MAX:,} more")
