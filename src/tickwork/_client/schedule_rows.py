"""The rows of schedules, found, added and changed as somebody says at run time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._client.rule_from_definition import check_fires, first_instant
from tickwork._client.schedule_changes import is_retimed, write_change
from tickwork._client.schedule_definition import ScheduleDefinition
from tickwork._client.schedule_factory import POLICIES, Made, Maker, check_not_code
from tickwork._define.registry import Registry
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.instants import as_instant
from tickwork.errors import (
    DuplicateDefinition,
    OutcomeUnknown,
    ScheduleNotFound,
    TickworkError,
)
from tickwork.stores.contract import ScheduleStore

TRIES_MAX: Final = 10
"""How often a change is tried again because somebody else has changed the schedule since."""

NAMES_MAX: Final = 1_000
"""Schedules among which a close name is looked for."""


class ScheduleRows:
    """Carries what is said at run time to the store, by compare and set."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        clock: Clock,
        registry: Registry,
        maker: Maker,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._maker = maker
        self._retire_after = retire_after
        # Told of schedules that may fall due sooner than whoever sleeps expects.
        self.on_scheduled: Callable[[Sequence[ScheduleRow]], None] | None = None

    def find(self, tenant: str, name: str) -> ScheduleRow:
        """A schedule that must be there.

        Raises:
            ScheduleNotFound: It is not; the close name is suggested.
        """
        row = self._store.get_schedule(tenant, name)
        if row is None:
            others = self._store.list_schedules(tenant=tenant, limit=NAMES_MAX)
            raise ScheduleNotFound(
                name,
                tenant=tenant,
                known=[row.spec.name for row in others],
                fix="This program defines it: the first worker that runs writes it down."
                if not tenant and self.is_defined_here(name)
                else "",
            )
        return row

    def is_defined_here(self, name: str) -> bool:
        """Whether this very program defines such a schedule in code."""
        return any(entry.name == name for entry in self._registry.schedules())

    def put(
        self, wanted: ScheduleDefinition, *, is_change: bool, starts_at: datetime | None
    ) -> ScheduleRow:
        """Add it, or bring the one that is there in line with it, if that is allowed."""
        for _ in range(TRIES_MAX):
            now = self._clock.now()
            made = self._maker.made(wanted, anchor=now)
            row = self._store.get_schedule(wanted.tenant, made.spec.name)
            if row is None:
                added = self._add(made, starts_at=starts_at, now=now)
                if added is not None:
                    return added
                continue
            # Where an interval counts from was settled when it was first made.
            made = self._maker.made(wanted, anchor=row.created_at)
            if made.spec == row.spec or (not is_change and _says(row, wanted, made)):
                return row
            self._check_owner(row, is_change=is_change, now=now)
            changed = self._change(row, made, starts_at=starts_at, now=now)
            if changed is not None:
                return changed
        raise overtaken(wanted.name)

    def update(self, tenant: str, name: str, changes: Mapping[str, Any]) -> ScheduleRow:
        """Say some things anew about a schedule that is there."""
        for _ in range(TRIES_MAX):
            row, now = self.find(tenant, name), self._clock.now()
            check_not_code(row.spec, doing="changed")
            made = self._maker.changed(row.spec, changes, created_at=row.created_at, now=now)
            if made.spec == row.spec:
                return row
            at = changes.get("at")
            starts_at = None if at is None else as_instant(at)
            changed = self._change(row, made, starts_at=starts_at, now=now)
            if changed is not None:
                return changed
        raise overtaken(name)

    def tell(self, row: ScheduleRow) -> None:
        """Tell whoever sleeps until the next schedule falls due."""
        if self.on_scheduled is not None:
            self.on_scheduled([row])

    def _check_owner(self, row: ScheduleRow, *, is_change: bool, now: datetime) -> None:
        if row.is_retired(seen_after=now - self._retire_after):
            return  # no program defines it any more: its name is free
        check_not_code(row.spec, doing="changed")
        if not is_change:
            raise DuplicateDefinition(
                "schedule",
                row.spec.name,
                first=f"in the database, made at {row.created_at.isoformat()}",
                second="the one given here",
            )

    def _add(self, made: Made, *, starts_at: datetime | None, now: datetime) -> ScheduleRow | None:
        """Add a schedule; None when somebody was quicker, or nobody can tell."""
        spec, rule = made
        first = first_instant(
            rule, now=now, until=spec.until, starts_at=starts_at, grace=spec.grace
        )
        check_fires(spec.name, rule, first)
        schedule_id = ScheduleId(new_id(now))
        try:
            row = self._store.add_schedule(schedule_id, spec, now=now, next_due_at=first)
        except OutcomeUnknown:
            return None  # the next look tells whether it has landed
        if row.id != schedule_id:
            return None
        self.tell(row)
        return row

    def _change(
        self, row: ScheduleRow, made: Made, *, starts_at: datetime | None, now: datetime
    ) -> ScheduleRow | None:
        """Change a schedule; None when somebody was quicker, or nobody can tell."""
        spec, rule = made
        next_due_at = row.next_due_at
        if is_retimed(row.spec, spec) or row.spec.origin is not spec.origin:
            next_due_at = first_instant(
                rule, now=now, until=spec.until, starts_at=starts_at, grace=spec.grace, row=row
            )
            check_fires(spec.name, rule, next_due_at)
        try:
            written = write_change(self._store, row, spec, rule, now=now, next_due_at=next_due_at)
        except OutcomeUnknown:
            return None
        if written is not None:
            self.tell(written)
        return written


def _says(row: ScheduleRow, wanted: ScheduleDefinition, made: Made) -> bool:
    """Whether a row says what is wanted, whatever its job has come to say since."""
    if not wanted.name:
        return True  # its name was derived from all of it
    left_open = {name for name in POLICIES if getattr(wanted, name) is None}
    taken_over = {name: getattr(row.spec, name) for name in left_open}
    return replace(made.spec, **taken_over) == row.spec


def overtaken(name: str) -> TickworkError:
    """What is raised when others were quicker each time."""
    return TickworkError(
        f"The schedule {name!r} could not be changed.",
        why=f"Others changed it {TRIES_MAX} times while this was tried.",
        fix="Try again, and look for two programs that change it in turns.",
    )
