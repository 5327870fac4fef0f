"""Health checks of the database and its workers.

This module takes the measurements; ``_domain.health`` judges them.
"""

from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.health import Check, HealthFacts, Level, examine
from tickwork._domain.status import Phase, RunStatus
from tickwork._inspect.schedules import SCHEDULES_MAX, is_readable
from tickwork._inspect.status import is_silent
from tickwork._kernel.clock import Clock
from tickwork._kernel.zonedata import read_zone_version, split_zone_version
from tickwork.errors import StoreError
from tickwork.stores.contract import ClaimRequest, RunFilter, Store

RUNS_MAX: Final = 1_000
"""The most runs that are read to find the oldest ready one, or those whose lease expired."""

EXPIRED_AFTER: Final = timedelta(seconds=15)
"""A lease that expired so long ago is reported: the reaper should have released the run."""


def check_health(
    store: Store, *, clock: Clock, machine: Clock, retire_after: timedelta, version: str
) -> list[Check]:
    """Run every check. ``clock`` is the database's, ``machine`` the local one.

    If the connection or the version of the tables is bad, that is the only check.
    """
    try:
        found = store.schema_version()
    except StoreError as fault:
        return [Check(name="connection", level=Level.BAD, text=f"{fault.what} {fault.why}")]
    try:
        store.check_schema()
    except StoreError as fault:
        return [Check(name="schema", level=Level.BAD, text=fault.what, fix=fault.fix)]
    schema = Check(name="schema", level=Level.OK, text=f"The tables are at version {found}.")
    facts = _measure(store, clock, machine, retire_after=retire_after, version=version)
    first, *more = examine(facts)
    return [first, schema, *more]


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
    held = store.list_runs(running, limit=RUNS_MAX).runs if pending.lease_until else []
    ready = store.due_runs(ClaimRequest(RUNS_MAX), now=now)
    schedules = store.list_schedules(limit=SCHEDULES_MAX)
    seen_after = now - retire_after
    waiting = {job for _, job in store.ready_pairs()}
    tables = store.health()
    return HealthFacts(
        now=now,
        round_trip=round_trip,
        skew=local_time + taken / 2 - database_time,
        up=len(up),
        silent=silent,
        versions={split_zone_version(each.version)[0] for each in up},
        version=version,
        zones={zones for each in up if (zones := split_zone_version(each.version)[1])},
        zones_here=read_zone_version(),
        expired=[run.id for run in held if _is_expired(run.lease_until, now)],
        oldest_ready_at=min((run.due_at for run in ready), default=None),
        ready=counts.by_phase.get(Phase.READY, 0),
        blocked=counts.by_phase.get(Phase.BLOCKED, 0),
        cap=counts.cap,
        unstaged_at=pending.due_at if pending.due_at and pending.due_at <= now else None,
        unknown_jobs=sorted(waiting - known) if up else (),
        unfired_at=_if_past(store.next_firing_at(seen_after=seen_after), now),
        retired=[row.spec.name for row in schedules if row.is_retired(seen_after=seen_after)],
        unreadable=[row.spec.name for row in schedules if not is_readable(row)],
        failing=[(row.name, row.failures) for row in store.list_jobs() if row.failures],
        size=tables.bytes,
        free=tables.free_bytes or 0,
        log=tables.log_bytes or 0,
        dead_rows=tables.dead_rows,
        open_since=tables.oldest_transaction_at,
    )


def _is_expired(lease_until: datetime | None, now: datetime) -> bool:
    return lease_until is not None and lease_until + EXPIRED_AFTER <= now


def _if_past(moment: datetime | None, now: datetime) -> datetime | None:
    return moment if moment is not None and moment <= now else None
