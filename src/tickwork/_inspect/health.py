"""Health checks of the database and its workers.

This module takes the measurements; ``_domain.health`` judges them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.health import (
    LOG_WARN,
    Check,
    HealthFacts,
    Level,
    bad,
    examine,
    examine_worker,
    ok,
)
from tickwork._domain.identity import WorkerId, problem_lock_of, unwritten_lock_of
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.shared_names import REPORTED_WITHIN, find_shared_jobs
from tickwork._domain.worker_version import WorkerVersion
from tickwork._inspect.run_reader import list_without_payloads
from tickwork._inspect.status import is_silent
from tickwork._inspect.upcoming_firings import SCHEDULES_MAX, is_readable
from tickwork._kernel.clock import STEP_MIN, Clock
from tickwork._kernel.processes import ThisProcess, has_ended
from tickwork._kernel.read_limit import current_read_limit
from tickwork._kernel.zonedata import read_zone_version
from tickwork._stores.contract import ClaimRequest, LockRow, RunFilter, Store, WorkerRow
from tickwork._watch.expectations import read_all_missed
from tickwork.errors import StoreBusy, StoreError, StoreUnavailable

RUNS_MAX: Final = 1_000
DUE_MAX: Final = 100
"""The runs that start next: the oldest of them tells how long runs wait. They come with their
arguments, which may be large."""

"""The most runs that are read to find the oldest ready one, or those whose lease expired."""

EXPIRED_AFTER: Final = timedelta(seconds=15)
"""A lease that expired so long ago is reported: the reaper should have released the run."""


def check_health(
    store: Store,
    *,
    clock: Clock,
    machine: Clock,
    retire_after: timedelta,
    version: str,
    log_max: int = LOG_WARN,
) -> list[Check]:
    """Run every check. ``clock`` is the database's, ``machine`` the local one.

    If the connection or the version of the tables is bad, that is the only check.
    """
    try:
        version_found = store.schema_version()
    except StoreError as fault:
        text = f"{fault.what} {fault.why}"
        return [bad("connection", text, fault.fix)]
    try:
        store.check_schema()
        store.check_tables()
    except StoreError as fault:
        text = f"{fault.what} {fault.why}".rstrip()
        return [bad("schema", text, fault.fix)]
    schema = ok("schema", f"The tables are at version {version_found}.")
    # A page has a limit for its reads, and must not wait for a lock.
    writing = [check_writing(store, clock)] if current_read_limit() is None else []
    try:
        facts = _measure(store, clock, machine, retire_after=retire_after, version=version)
    except StoreError as fault:
        tables = bad("tables", _text_of(fault), fault.fix)
        return [schema, *writing, tables]
    first, *more = examine(facts, log_max=log_max)
    return [first, schema, *writing, *more]


def check_writing(store: Store, clock: Clock) -> Check:
    """Check that the database can be written: add a row, and delete it."""
    me = ThisProcess.current()
    name = f"tickwork doctor {me.host}:{me.pid}"
    try:
        now = clock.now()
        store.acquire_lock(LockRow(name, "doctor", me.host, me.pid, now, now), now=now)
        store.release_lock(name)
    except StoreError as fault:
        return bad("writing", _text_of(fault), fault.fix)
    return ok("writing", "The database can be written.")


def _text_of(fault: StoreError) -> str:
    return f"{fault.what} {fault.why}".rstrip()


def check_worker(store: Store, *, clock: Clock, me: ThisProcess) -> Check:
    """Check the workers of this machine, or of this container, by the age of their heartbeats.

    A database that cannot be reached is a warning: it is no reason to restart the worker.
    """
    try:
        store.check_schema()
        rows = store.list_workers()
        now = clock.now()
    except StoreError as fault:
        is_unavailable = isinstance(fault, StoreUnavailable | StoreBusy)
        level = Level.WARN if is_unavailable else Level.BAD
        return Check("worker", level, f"{fault.what} {fault.why}", fault.fix)
    here = [
        row
        for row in rows
        if (row.host, row.boot_id) == (me.host, me.boot_id)
        and not has_ended(row.pid, row.process_started)
    ]
    silent = [row.pid for row in here if is_silent(row, now)]
    return examine_worker(running=[row.pid for row in here], silent=silent)


def _measure(
    store: Store, clock: Clock, machine: Clock, *, retire_after: timedelta, version: str
) -> HealthFacts:
    sent = machine.monotonic()
    store.schema_version()
    round_trip = timedelta(seconds=max(machine.monotonic() - sent, 0))
    local_time, sent = machine.now(), machine.monotonic()
    database_time = store.database_time()
    taken = timedelta(seconds=max(machine.monotonic() - sent, 0))
    now = clock.now()
    workers = store.list_workers()
    up = [each for each in workers if not is_silent(each, now)]
    silent = [f"{each.host} {each.pid}" for each in workers if each not in up]
    known = {job for each in up for job in each.jobs}
    counts = store.count_runs()
    pending = store.pending_work()
    running = RunFilter(statuses=frozenset({RunStatus.RUNNING}))
    has_held = pending.lease_until is not None
    held = list_without_payloads(store, running, limit=RUNS_MAX) if has_held else []
    ready = store.due_runs(ClaimRequest(DUE_MAX), now=now)
    schedules = store.list_schedules(limit=SCHEDULES_MAX)
    seen_after = now - retire_after
    latest = now + STEP_MIN
    ahead = [row for row in schedules if row.last_fired_at and row.last_fired_at > latest]
    waiting = {job for _, job in store.ready_pairs()}
    tables = store.health()
    oldest = tables.oldest_transaction
    return HealthFacts(
        now=now,
        round_trip=round_trip,
        skew=local_time + taken / 2 - database_time,
        up=sum(not each.is_remote for each in up),
        silent=silent,
        unwritten=_read_reports(store, workers, unwritten_lock_of, now=now),
        stuck=_read_reports(store, workers, problem_lock_of, now=now),
        versions={WorkerVersion.parse(each.version).program for each in up},
        version=version,
        zones={zones for each in up if (zones := WorkerVersion.parse(each.version).zones)},
        zones_here=read_zone_version(),
        expired=[run.id for run in held if _is_expired(run.lease_until, now)],
        oldest_ready_at=min((run.due_at for run in ready), default=None),
        ready=counts.by_phase.get(Phase.READY, 0),
        blocked=counts.by_phase.get(Phase.BLOCKED, 0),
        is_capped=Phase.READY in counts.capped_phases,
        unstaged_at=pending.due_at if pending.due_at and pending.due_at <= now else None,
        unknown_jobs=sorted(waiting - known) if up else (),
        shared_jobs=find_shared_jobs(store.list_definitions(since=now - REPORTED_WITHIN)),
        outbox_at=tables.outbox_at,
        unfired_at=_if_past(store.next_firing_at(seen_after=seen_after), now),
        ahead=[row.spec.name for row in ahead],
        ahead_until=max((row.last_fired_at or now for row in ahead), default=None),
        retired=[row.spec.name for row in schedules if row.is_retired(seen_after=seen_after)],
        unreadable=[row.spec.name for row in schedules if not is_readable(row)],
        missed=[
            f"{each.schedule} (due {each.due_at:%Y-%m-%d %H:%M:%S} UTC)"
            for each in read_all_missed(store, now=now, seen_after=seen_after)
        ],
        faults=[
            f"{fault.table} {fault.key!r}: {fault.reason}"
            for fault in store.find_faults(limit=RUNS_MAX)
        ],
        failing=[(row.name, row.failures) for row in store.list_jobs() if row.failures],
        size=tables.bytes,
        free=tables.free_bytes or 0,
        log=tables.log_bytes or 0,
        dead_rows=tables.dead_rows,
        open_since=None if oldest is None else oldest.began_at,
        open_holder="" if oldest is None else oldest.holder,
        open_query="" if oldest is None else oldest.query,
        open_ending="" if oldest is None else oldest.ending,
    )


def _read_reports(
    store: Store, workers: Sequence[WorkerRow], lock_of: Callable[[WorkerId], str], *, now: datetime
) -> list[str]:
    """What workers report about themselves in the rows of locks."""
    reports = ((each, store.get_lock(lock_of(each.id))) for each in workers)
    return [
        f"{each.host} {each.pid}: {report.owner}"
        for each, report in reports
        if report is not None and report.until > now
    ]


def _is_expired(lease_until: datetime | None, now: datetime) -> bool:
    return lease_until is not None and lease_until + EXPIRED_AFTER <= now


def _if_past(moment: datetime | None, now: datetime) -> datetime | None:
    return moment if moment is not None and moment <= now else None
