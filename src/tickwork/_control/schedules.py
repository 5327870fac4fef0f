"""``app.schedules``: create, change, pause, run and inspect schedules at run time."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeAlias, Unpack

from tickwork._control.pauses import check_note, check_until
from tickwork._control.schedule_changes import TRIES_MAX, ScheduleWriter
from tickwork._control.schedule_definition import (
    OPTIONS,
    ScheduleChanges,
    ScheduleDefinition,
    ScheduleOptions,
    check_options,
)
from tickwork._control.schedule_factory import check_not_code
from tickwork._control.schedule_rows import ScheduleRows, too_many_conflicts
from tickwork._control.schedule_view import ScheduleView, view_of
from tickwork._define.options import Duration
from tickwork._dispatch.job_lookup import JobRef
from tickwork._dispatch.manual_runs import BACKFILL_MAX, ManualRuns, last_decided
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.firings import after_pause, first_due
from tickwork._domain.job import ScheduleRow
from tickwork._domain.names import check_name
from tickwork._domain.schedules.contract import Rule, walk
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.tick import PAUSED
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork._kernel.step_budget import step_budget
from tickwork._stores.contract import Store
from tickwork.errors import InvalidOption

CANCEL_ROUNDS_MAX: Final = 100
CANCEL_ROUND: Final = 10_000
"""How many runs of a schedule a store cancels at a time."""

PAGE: Final = 1_000
PREVIEW_MAX: Final = 10_000

_INSTANT: Final = timedelta(microseconds=1)
_SET_BY_REGISTER: Final = frozenset({"job", "rule", "at", "timezone"})

# Inside the class, ``list`` is a method.
Handles: TypeAlias = list[RunHandle[Any]]
Instants: TypeAlias = list[datetime]
Views: TypeAlias = list[ScheduleView]


class Schedules:
    """``app.schedules``: every schedule in the database, of every tenant.

    Schedules that code defines can be paused, resumed and run here. Their options are changed
    in code.
    """

    def __init__(
        self,
        *,
        store: Store,
        writer: ScheduleWriter,
        clock: Clock,
        rows: ScheduleRows,
        manual: ManualRuns,
        timezone: str,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._rows = rows
        self._manual = manual
        self._timezone = timezone
        self._retire_after = retire_after

    # ------------------------------------------------------------ creating and changing

    def create(self, definition: ScheduleDefinition) -> ScheduleView:
        """Create a schedule. If an equal one exists, return that one.

        Raises:
            DuplicateDefinition: A different schedule has that name.
            DefinitionError: An option is invalid, or the job is not known.
            ArgumentError: The job's handler does not take the arguments.
        """
        row = self._rows.put(definition, is_change=False, starts_at=definition.starts_at)
        return self._view(row)

    def register(
        self,
        tenant: str,
        id: str,  # noqa: A002  # the public name
        start_at: When,
        every: Duration | None,
        handler: JobRef,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Run a job for a tenant at ``start_at``, and then at a fixed interval.

        The schedule fires at ``start_at + k * every``; with ``every=None`` it fires once.
        Registering the same again changes nothing. Registering the id with other options
        changes the schedule. A function of the application's package becomes a job, named
        after its path: workers run it if their program defines or registers it, too. For a job
        that another program defines, pass ``app.remote(name)``; a program that defines no jobs
        may pass the name alone.

        Raises:
            JobNotFound: The job does not exist; the error suggests a close name.
            DefinitionError: An option is invalid. Nothing was stored.
            ArgumentError: The job's handler does not take the arguments.
        """
        check_options(options, known=OPTIONS - _SET_BY_REGISTER)
        check_name("id", id)
        start = as_instant(start_at, option="start_at")
        rule: Rule
        if every is None:
            rule = Once(at=start, tz=self._timezone)
        else:
            rule = Interval(length=as_duration(every), anchor=start, tz=self._timezone)
        wanted = ScheduleDefinition(job=handler, rule=rule, name=id, tenant=tenant, **options)
        return self._view(self._rows.put(wanted, is_change=True, starts_at=start))

    def unregister(self, tenant: str, id: str) -> int:  # noqa: A002  # as register
        """Remove a schedule, cancel its pending runs, and request running ones to stop.

        Returns the number of these runs.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            DefinitionError: This program defines it in code.
        """
        row = self._rows.find(tenant, id)
        if self._rows.is_defined_here(id):
            check_not_code(row.spec, doing="removed")
        now = self._clock.now()
        # Paused first, removed last: after a crash the schedule can still be removed, and it
        # does not fire between the last cancel and its removal.
        self._store.pause_schedule(row.id, now=now, note="The schedule is being removed.")
        canceled = 0
        for _ in range(CANCEL_ROUNDS_MAX):
            change = self._store.cancel_schedule(
                tenant, id, now=now, reason="The schedule was removed."
            )
            canceled += change
            if change < CANCEL_ROUND:
                break
        self._store.remove_schedule(row.id)
        return canceled

    def update(
        self, name: str, *, tenant: str = "", **changes: Unpack[ScheduleChanges]
    ) -> ScheduleView:
        """Change some options. Others stay as they are; None resets an option.

        The next firing moves only if ``rule``, ``at``, ``until`` or ``max_firings`` change.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            DefinitionError: An option is invalid, or code defines the schedule.
            ArgumentError: The job's handler does not take the arguments.
        """
        check_options(changes)
        return self._view(self._rows.update(tenant, name, changes))

    # ------------------------------------------------------------ pausing

    def pause(
        self, name: str, *, tenant: str = "", note: str = "", until: When | None = None
    ) -> ScheduleView:
        """Pause a schedule until an instant, or until it is resumed. Deploys keep the pause.

        Runs that exist already continue. Cancel them if they should not. When the pause ends, one
        skipped run counts the instants that it dropped.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            InvalidOption: ``until`` is in the past.
        """
        for _ in range(TRIES_MAX):
            row, now = self._rows.find(tenant, name), self._clock.now()
            next_due_at, end = None, check_until(until, now)
            check_note(note)
            paused_at = row.paused_at if row.is_paused_at(now) else None
            if paused_at is None:
                # What is due already and has not fired does not fire after the pause, either.
                dropped = self._writer.drop_firings(row, until=now, now=now, reason=PAUSED)
                if dropped is None:
                    continue
                row = dropped
            if end is not None:
                next_due_at = after_pause(row, _rule(row), end=end)
            self._store.pause_schedule(
                row.id, now=paused_at or now, note=note, until=end, next_due_at=next_due_at
            )
            after = self._rows.find(tenant, name)
            # The next firing was computed from the rule: that must still be the current one.
            if end is None or after.revision == row.revision:
                return self._view(after)
        raise too_many_conflicts(name)

    def resume(self, name: str, *, tenant: str = "") -> ScheduleView:
        """Resume a schedule at its next instant. Those of the pause are not caught up.

        One skipped run counts them.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
        """
        row, now = self._rows.find(tenant, name), self._clock.now()
        if not row.is_paused_at(now):
            return self._view(row)
        for _ in range(TRIES_MAX):
            if self._writer.drop_firings(row, until=now, now=now, reason=PAUSED) is None:
                row = self._rows.find(tenant, name)
                continue
            after = max(filter(None, (now, row.last_fired_at)))
            next_due_at = first_due(_rule(row), after=after, until=row.spec.until)
            self._store.resume_schedule(row.id, next_due_at=next_due_at)
            before, row = row, self._rows.find(tenant, name)
            if row.revision == before.revision:
                self._rows.notify(row)
                return self._view(row)
        raise too_many_conflicts(name)

    # ------------------------------------------------------------ running

    def run_now(self, name: str, *, tenant: str = "") -> RunHandle[Any]:
        """Add a run now. The next firing stays the same.

        The overlap policy applies: if it does not allow a second run, the existing one is
        returned, and ``is_new`` is False. It works on a paused schedule, too.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            JobNotFound: This program does not define its job.
        """
        return self._manual.now(self._rows.find(tenant, name), now=self._clock.now())

    def backfill(
        self, name: str, *, since: When, until: When, limit: int = 1_000, tenant: str = ""
    ) -> Handles:
        """Add a run for each instant from ``since`` to ``until`` without one; return those.

        A second backfill of the same span adds nothing. A skipped instant has no run, a failed
        one has. Instants that the scheduler will still fire are left out. The runs are due at
        once and run one after another, unless the overlap policy is ``allow``.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            InvalidOption: There are more than ``limit`` instants, or ``until`` is in the future.
            JobNotFound: This program does not define its job.
        """
        row, now = self._rows.find(tenant, name), self._clock.now()
        first, last = as_instant(since, option="since"), as_instant(until, option="until")
        if last > now:
            raise InvalidOption("until", until, "must not be in the future")
        if first > last:
            raise InvalidOption("since", since, f"must not be later than until ({until})")
        if not 1 <= limit <= BACKFILL_MAX:
            raise InvalidOption("limit", limit, f"must be between 1 and {BACKFILL_MAX:,}")
        last = min(last, last_decided(row, now=now, seen_after=now - self._retire_after))
        return self._manual.past(row, _rule(row), since=first, until=last, limit=limit, now=now)

    # ------------------------------------------------------------ reading

    def get(self, name: str, *, tenant: str = "") -> ScheduleView:
        """Return one schedule.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
        """
        return self._view(self._rows.find(tenant, name))

    @step_budget()
    def preview(self, name: str, count: int = 10, *, tenant: str = "") -> Instants:
        """Return its next firings, in its time zone; if it is paused, those after a resume.

        Raises:
            ScheduleNotFound: It does not exist; the error suggests a close name.
            InvalidSchedule: This version cannot read its rule, or it takes too many steps.
        """
        if not 1 <= count <= PREVIEW_MAX:
            raise InvalidOption("count", count, f"must be between 1 and {PREVIEW_MAX:,}")
        row, now = self._rows.find(tenant, name), self._clock.now()
        after, until = now, row.spec.until
        if not row.is_paused_at(now) or row.paused_until is not None:
            if row.next_due_at is None:
                return []
            after = max(now, row.next_due_at - _INSTANT)
        instants = islice(walk(_rule(row), after), count)
        return [instant for instant in instants if until is None or instant <= until]

    def list(self, *, tenant: str | None = None) -> Views:
        """Return all schedules, or those of one tenant, ordered by tenant and name."""
        now, views = self._clock.now(), list[ScheduleView]()
        seen_after, after = now - self._retire_after, None
        while True:  # ends at the first page that is not full
            rows = self._store.list_schedules(tenant=tenant, after=after, limit=PAGE)
            views.extend(view_of(row, now=now, seen_after=seen_after) for row in rows)
            if len(rows) < PAGE:
                return views
            after = (rows[-1].spec.tenant, rows[-1].spec.name)

    def count_between(self, name: str, since: When, until: When, *, tenant: str = "") -> int:
        """Count the instants of a schedule in a span of time, with or without runs."""
        row = self._rows.find(tenant, name)
        first, last = as_instant(since, option="since"), as_instant(until, option="until")
        return _rule(row).count_between(first, last)

    def page(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 50
    ) -> Views:
        """Return one page of schedules, starting after this tenant and name."""
        rows = self._store.list_schedules(tenant=tenant, after=after, limit=limit)
        return [self._view(row) for row in rows]

    def _view(self, row: ScheduleRow) -> ScheduleView:
        now = self._clock.now()
        return view_of(row, now=now, seen_after=now - self._retire_after)


def _rule(row: ScheduleRow) -> Rule:
    return from_text(row.spec.rule)
