"""Is all well? Measures what can be measured; the domain decides what it means."""

from datetime import datetime, timedelta
from typing import Final

from tickwork._client.inspect import SCHEDULES_MAX, SILENT_AFTER
from tickwork._domain.health import Check, HealthFacts, Level, examine
from tickwork._domain.job import ScheduleRow
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.status import Phase, RunStatus
from tickwork._kernel.clock import Clock
from tickwork._kernel.zonedata import split, zone_data_version
from tickwork.errors import InvalidSchedule, StoreError
from tickwork.stores.contract import RunFilter, Store, Wanted

READY_LOOK: Final = 1_000
"""Ready runs among which the oldest is looked for."""

EXPIRED_AFTER: Final = timedelta(seconds=15)


class Doctor:
    """``tickwork doctor``: looks at everything once."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        machine: Clock,
        retire_after: timedelta,
        version: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._machine = machine
        self._retire_after = retire_after
        self._version = version

    def examine(self) -> list[Check]:
        """A verdict on each thing; what cannot be looked at is said too."""
        try:
            found = self._store.schema_version()
        except StoreError as fault:
            return [Check(name="connection", level=Level.BAD, text=f"{fault.what} {fault.why}")]
        try:
            self._store.check_schema()
        except StoreError as fault:
            return [Check(name="schema", level=Level.BAD, text=fault.what, fix=fault.fix)]
        schema = Check(name="schema", level=Level.OK, text=f"The tables are at version {found}.")
        first, *more = examine(self.facts())
        return [first, schema, *more]

    def facts(self) -> HealthFacts:
        """What can be measured from here."""
        store, machine = self._store, self._machine
        store.schema_version()  # the connection is open now
        sent = machine.monotonic()
        store.schema_version()
        round_trip = timedelta(seconds=max(machine.monotonic() - sent, 0))
        asked_at, sent = machine.now(), machine.monotonic()
        told = store.database_time()
        taken = timedelta(seconds=max(machine.monotonic() - sent, 0))
        now = self._clock.now()
        workers = store.list_workers()
        up = [each for each in workers if now - each.beat_at <= SILENT_AFTER]
        silent = [f"{each.host} {each.pid}" for each in workers if each not in up]
        known = {job for each in up for job in each.jobs}
        counts = store.count_runs()
        ahead = store.look_ahead()
        running = RunFilter(statuses=frozenset({RunStatus.RUNNING}))
        held = store.list_runs(running, limit=READY_LOOK).runs if ahead.lease_until else []
        ready = store.due_runs(Wanted(READY_LOOK), now=now)
        schedules = store.list_schedules(limit=SCHEDULES_MAX)
        seen_after = now - self._retire_after
        waiting = {job for _, job in store.ready_pairs()}
        tables = store.health()
        return HealthFacts(
            now=now,
            round_trip=round_trip,
            skew=asked_at + taken / 2 - told,
            up=len(up),
            silent=silent,
            versions={split(each.version)[0] for each in up},
            version=self._version,
            zones={zones for each in up if (zones := split(each.version)[1])},
            zones_here=zone_data_version(),
            expired=[run.id for run in held if _has_ended(run.lease_until, now)],
            oldest_ready_at=min((run.due_at for run in ready), default=None),
            ready=counts.by_phase.get(Phase.READY, 0),
            blocked=counts.by_phase.get(Phase.BLOCKED, 0),
            cap=counts.cap,
            unstaged_at=ahead.due_at if ahead.due_at and ahead.due_at <= now else None,
            unknown_jobs=sorted(waiting - known) if up else (),
            unfired_at=_past(store.next_firing_at(seen_after=seen_after), now),
            retired=[row.spec.name for row in schedules if row.is_retired(seen_after=seen_after)],
            unreadable=[row.spec.name for row in schedules if not _is_readable(row)],
            failing=[(row.name, row.failures) for row in store.list_jobs() if row.failures],
            size=tables.bytes,
            free=tables.free_bytes or 0,
            log=tables.log_bytes or 0,
            dead_rows=tables.dead_rows,
            open_since=tables.oldest_transaction_at,
        )


def _has_ended(lease_until: datetime | None, now: datetime) -> bool:
    return lease_until is not None and lease_until + EXPIRED_AFTER <= now


def _past(moment: datetime | None, now: datetime) -> datetime | None:
    return moment if moment is not None and moment <= now else None


def _is_readable(row: ScheduleRow) -> bool:
    try:
        from_text(row.spec.rule)
    except InvalidSchedule:
        return False
    return True
