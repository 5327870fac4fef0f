"""Schedules at run time: made, changed, stopped, asked to run, looked at."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeAlias, Unpack

from tickwork._client.control import check_note, check_until
from tickwork._client.job_lookup import JobRef
from tickwork._client.manual_runs import BACKFILL_MAX, ManualRuns, last_decided
from tickwork._client.runs import RunHandle
from tickwork._client.schedule_definition import (
    OPTIONS,
    ScheduleChanges,
    ScheduleDefinition,
    ScheduleOptions,
    check_options,
)
from tickwork._client.schedule_factory import check_not_code
from tickwork._client.schedule_rows import TRIES_MAX, ScheduleRows, too_many_conflicts
from tickwork._client.schedule_view import ScheduleView, view_of
from tickwork._define.options import Length
from tickwork._domain.firings import first_due
from tickwork._domain.job import ScheduleRow
from tickwork._domain.names import check_name
from tickwork._domain.schedules.contract import Schedule, walk
from tickwork._domain.schedules.interval import Interval, Once
from tickwork._domain.schedules.rules import from_text
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import as_duration
from tickwork._kernel.instants import When, as_instant
from tickwork.errors import InvalidOption
from tickwork.stores.contract import Store

CANCEL_ROUNDS_MAX: Final = 100
CANCEL_ROUND: Final = 10_000
"""Runs of a schedule that a store cancels at a time."""

PAGE: Final = 1_000
PREVIEW_MAX: Final = 10_000

_INSTANT: Final = timedelta(microseconds=1)
_SAID_BY_REGISTER: Final = frozenset({"job", "rule", "at", "timezone"})

# Inside of the class, ``list`` is a verb.
Handles: TypeAlias = list[RunHandle]
Instants: TypeAlias = list[datetime]
Views: TypeAlias = list[ScheduleView]


class Schedules:
    """``app.schedules``: every schedule in the database, of every tenant.

    Those that code defines can be paused, resumed and asked to run; what they say is changed
    in code.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        rows: ScheduleRows,
        manual: ManualRuns,
        timezone: str,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rows = rows
        self._manual = manual
        self._timezone = timezone
        self._retire_after = retire_after

    # ------------------------------------------------------------ making

    def create(self, definition: ScheduleDefinition) -> ScheduleView:
        """Make a schedule. One that is there already, and says the same, is the answer.

        Raises:
            DuplicateDefinition: There is another one of that name.
            DefinitionError: Something that was said cannot be, or the job is not known.
            ArgumentError: The job's handler does not take the arguments.
        """
        row = self._rows.put(definition, is_change=False, starts_at=definition.starts_at)
        return self._view(row)

    def register(
        self,
        tenant: str,
        id: str,  # noqa: A002  # what the mission calls it
        start_at: When,
        every: Length | None,
        handler: JobRef,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Run a job for a tenant from an instant on, again and again, or once.

        ``every`` None is once. It fires on the grid ``start_at + k * every``, always. To say
        the same again changes nothing; another start or length lays out another grid. A job
        that another program defines is ``app.remote(name)``; a program that defines none at
        all may just name it.

        Raises:
            JobNotFound: There is no such job; the close name is suggested.
            DefinitionError: Something that was said cannot be. Nothing was stored.
            ArgumentError: The job's handler does not take the arguments.
        """
        check_options(options, known=OPTIONS - _SAID_BY_REGISTER)
        check_name("id", id)
        start = as_instant(start_at, option="start_at")
        rule: Schedule
        if every is None:
            rule = Once(at=start, tz=self._timezone)
        else:
            rule = Interval(length=as_duration(every), anchor=start, tz=self._timezone)
        wanted = ScheduleDefinition(job=handler, rule=rule, name=id, tenant=tenant, **options)
        return self._view(self._rows.put(wanted, is_change=True, starts_at=start))

    def unregister(self, tenant: str, id: str) -> int:  # noqa: A002  # as register
        """Remove a schedule; cancel its pending runs, ask running ones to stop.

        Returns how many runs that were.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            DefinitionError: This program defines it in code.
        """
        row = self._rows.find(tenant, id)
        if self._rows.is_defined_here(id):
            check_not_code(row.spec, doing="removed")
        now = self._clock.now()
        # In this order: after a crash it is still there to be removed, and nothing fires
        # behind our back between the last cancel and the end.
        self._store.pause_schedule(row.id, now=now, note="It is being removed.")
        canceled = 0
        for _ in range(CANCEL_ROUNDS_MAX):
            found = self._store.cancel_schedule(
                tenant, id, now=now, reason="Its schedule was removed."
            )
            canceled += found
            if found < CANCEL_ROUND:
                break
        self._store.remove_schedule(row.id)
        return canceled

    def update(
        self, name: str, *, tenant: str = "", **changes: Unpack[ScheduleChanges]
    ) -> ScheduleView:
        """Say some things anew; what is not named stays. None takes an option back.

        Its next firing moves only when ``rule``, ``at``, ``until`` or ``max_firings`` do.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            DefinitionError: Something that was said cannot be, or code defines the schedule.
            ArgumentError: The job's handler does not take the arguments.
        """
        check_options(changes)
        return self._view(self._rows.update(tenant, name, changes))

    # ------------------------------------------------------------ stopping and going on

    def pause(
        self, name: str, *, tenant: str = "", note: str = "", until: When | None = None
    ) -> ScheduleView:
        """Stop firing, until it is resumed or until an instant. Code never lifts a pause.

        Runs that are there already go on: cancel those that shall not.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            InvalidOption: ``until`` has passed.
        """
        for _ in range(TRIES_MAX):
            row, now = self._rows.find(tenant, name), self._clock.now()
            next_due_at, end = None, check_until(until, now)
            if end is not None:
                next_due_at = first_due(_rule(row), after=end, until=row.spec.until)
            self._store.pause_schedule(
                row.id, now=now, note=check_note(note), until=end, next_due_at=next_due_at
            )
            after = self._rows.find(tenant, name)
            # Where it goes on was read off its rule: that must be the rule that it has.
            if end is None or after.revision == row.revision:
                return self._view(after)
        raise too_many_conflicts(name)

    def resume(self, name: str, *, tenant: str = "") -> ScheduleView:
        """Go on at the next instant after now: what passed meanwhile is not made up for.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
        """
        row, now = self._rows.find(tenant, name), self._clock.now()
        if not row.is_paused_at(now):
            return self._view(row)
        for _ in range(TRIES_MAX):
            after = max(filter(None, (now, row.last_fired_at)))
            next_due_at = first_due(_rule(row), after=after, until=row.spec.until)
            self._store.resume_schedule(row.id, next_due_at=next_due_at)
            before, row = row, self._rows.find(tenant, name)
            if row.revision == before.revision:
                self._rows.notify(row)
                return self._view(row)
        raise too_many_conflicts(name)

    # ------------------------------------------------------------ asking to run

    def run_now(self, name: str, *, tenant: str = "") -> RunHandle:
        """A run as a firing of this moment would give it. The schedule does not move.

        It keeps to the overlap policy: when another run is in its way, that one is the
        answer, and ``is_new`` is False. A paused schedule runs, too: somebody asked.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            JobNotFound: Its job is not defined here, so that nobody knows how to run it.
        """
        return self._manual.now(self._rows.find(tenant, name), now=self._clock.now())

    def backfill(
        self, name: str, *, since: When, until: When, limit: int = 1_000, tenant: str = ""
    ) -> Handles:
        """A run for each instant from ``since`` to ``until`` that has none; the new ones.

        To ask again adds nothing. What was skipped has none; what failed has one. Instants
        that will still fire by themselves are left to that. The runs wait for each other,
        unless the overlap policy is ``allow``, and are due at once.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            InvalidOption: There are more than ``limit`` instants, or ``until`` lies ahead.
            JobNotFound: Its job is not defined here.
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

    # ------------------------------------------------------------ looking

    def get(self, name: str, *, tenant: str = "") -> ScheduleView:
        """One schedule, as it is now.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
        """
        return self._view(self._rows.find(tenant, name))

    def preview(self, name: str, count: int = 10, *, tenant: str = "") -> Instants:
        """The next instants at which it fires, in its own zone; if paused, once it goes on.

        Raises:
            ScheduleNotFound: There is none; the close name is suggested.
            InvalidSchedule: This version cannot read its rule.
        """
        if not 1 <= count <= PREVIEW_MAX:
            raise InvalidOption("count", count, f"must be between 1 and {PREVIEW_MAX:,}")
        row, now = self._rows.find(tenant, name), self._clock.now()
        after, until = now, row.spec.until
        if not row.is_paused_at(now) or row.paused_until is not None:
            if row.next_due_at is None:
                return []
            after = max(now, row.next_due_at - _INSTANT)
        found = islice(walk(_rule(row), after), count)
        return [instant for instant in found if until is None or instant <= until]

    def list(self, *, tenant: str | None = None) -> Views:
        """All schedules, by tenant and name: of every tenant, or of one."""
        now, found = self._clock.now(), list[ScheduleView]()
        seen_after, after = now - self._retire_after, None
        # It ends at the first page that is not full.
        while True:
            rows = self._store.list_schedules(tenant=tenant, after=after, limit=PAGE)
            found.extend(view_of(row, now=now, seen_after=seen_after) for row in rows)
            if len(rows) < PAGE:
                return found
            after = (rows[-1].spec.tenant, rows[-1].spec.name)

    def _view(self, row: ScheduleRow) -> ScheduleView:
        now = self._clock.now()
        return view_of(row, now=now, seen_after=now - self._retire_after)


def _rule(row: ScheduleRow) -> Schedule:
    return from_text(row.spec.rule)
