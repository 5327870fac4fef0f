"""Reads, adds and changes the rows of schedules on behalf of ``app.schedules``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._control.schedule_changes import TRIES_MAX, ScheduleWriter, is_retimed
from tickwork._control.schedule_definition import ScheduleDefinition
from tickwork._control.schedule_factory import ScheduleFactory, check_not_code
from tickwork._define.option_table import POLICIES
from tickwork._define.registry import Registry
from tickwork._domain.firings import first_due
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.interval import Once
from tickwork._domain.schedules.rules import from_text
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.instants import as_instant
from tickwork._stores.contract import ScheduleStore
from tickwork.errors import (
    DuplicateDefinition,
    InvalidSchedule,
    OutcomeUnknown,
    ScheduleNotFound,
    TickworkError,
)

NAMES_MAX: Final = 1_000
"""How many schedules are searched for a name close to one that was not found."""

_SECOND: Final = timedelta(seconds=1)


class ScheduleRows:
    """Every change is a compare and set: it is tried again if the row changed meanwhile."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        writer: ScheduleWriter,
        clock: Clock,
        registry: Registry,
        factory: ScheduleFactory,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._registry = registry
        self._factory = factory
        self._retire_after = retire_after
        # Called with rows that may fall due sooner than a sleeping scheduler expects.
        self.on_scheduled: Callable[[Sequence[ScheduleRow]], None] | None = None

    def find(self, tenant: str, name: str) -> ScheduleRow:
        row = self._store.get_schedule(tenant, name)
        if row is None:
            others = self._store.list_schedules(tenant=tenant, limit=NAMES_MAX)
            raise ScheduleNotFound(
                name,
                tenant=tenant,
                known=[row.spec.name for row in others],
                fix="This program defines it. The first worker that starts stores it."
                if not tenant and self.is_defined_here(name)
                else "",
            )
        return row

    def is_defined_here(self, name: str) -> bool:
        return any(declaration.name == name for declaration in self._registry.schedules())

    def put(
        self, definition: ScheduleDefinition, *, is_change: bool, starts_at: datetime | None
    ) -> ScheduleRow:
        """Add the schedule. If it exists, change it (``is_change``), or require that it is equal.

        Raises:
            DuplicateDefinition: Another schedule has the name, and ``is_change`` is False.
        """
        for _ in range(TRIES_MAX):
            now = self._clock.now()
            spec = self._factory.build(definition, anchor=now)
            row = self._store.get_schedule(definition.tenant, spec.name)
            if row is None:
                added = self._add(spec, starts_at=starts_at, now=now)
                if added is not None:
                    return added
                continue
            # An interval without a start counts from when the schedule was first stored.
            spec = self._factory.build(definition, anchor=row.created_at)
            if spec == row.spec or (not is_change and _is_equivalent(row, definition, spec)):
                return row
            self._check_owner(row, is_change=is_change, now=now)
            changed = self._change(row, spec, starts_at=starts_at, now=now)
            if changed is not None:
                return changed
        raise too_many_conflicts(definition.name)

    def update(self, tenant: str, name: str, changes: Mapping[str, Any]) -> ScheduleRow:
        for _ in range(TRIES_MAX):
            row, now = self.find(tenant, name), self._clock.now()
            check_not_code(row.spec, doing="changed")
            spec = self._factory.apply_changes(
                row.spec, changes, created_at=row.created_at, now=now
            )
            if spec == row.spec:
                return row
            at = changes.get("at")
            starts_at = None if at is None else as_instant(at)
            changed = self._change(row, spec, starts_at=starts_at, now=now)
            if changed is not None:
                return changed
        raise too_many_conflicts(name)

    def notify(self, row: ScheduleRow) -> None:
        """Wake a scheduler of this process that sleeps until the next due schedule."""
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
                first=f"in the database, created at {row.created_at.isoformat()}",
                second="in this call",
            )

    def _add(
        self, spec: ScheduleSpec, *, starts_at: datetime | None, now: datetime
    ) -> ScheduleRow | None:
        """Add a schedule; None if another process added it first, or the outcome is unknown."""
        first = _first_due(spec, now=now, starts_at=starts_at)
        schedule_id = ScheduleId(new_id(now))
        try:
            row = self._store.add_schedule(schedule_id, spec, now=now, next_due_at=first)
        except OutcomeUnknown:
            return None  # the next read shows whether it was stored
        if row.id != schedule_id:
            return None
        self.notify(row)
        return row

    def _change(
        self, row: ScheduleRow, spec: ScheduleSpec, *, starts_at: datetime | None, now: datetime
    ) -> ScheduleRow | None:
        """Change a schedule; None if another process was first, or the outcome is unknown."""
        next_due_at = row.next_due_at
        if is_retimed(row.spec, spec) or row.spec.origin is not spec.origin:
            next_due_at = _first_due(spec, now=now, starts_at=starts_at, row=row)
        try:
            written = self._writer.change(row, spec, now=now, next_due_at=next_due_at)
        except OutcomeUnknown:
            return None
        if written is not None:
            self.notify(written)
        return written


def _first_due(
    spec: ScheduleSpec,
    *,
    now: datetime,
    starts_at: datetime | None,
    row: ScheduleRow | None = None,
) -> datetime:
    """Return the first firing of a schedule that is created or changed now.

    A single instant in the past is due at once, as it is for a dispatch. A repeating rule
    continues at its next instant; a start that passed within ``grace`` still fires. For a
    stored schedule (``row``), instants that were decided before, or lie in its pause, are
    left out.
    """
    rule = from_text(spec.rule)
    after = now
    if isinstance(rule, Once):
        after = min(now, rule.at - _SECOND)
    elif starts_at is not None and timedelta(0) <= now - starts_at <= spec.grace:
        after = starts_at - _SECOND
    if row is not None:
        pause_end = row.paused_until if row.is_paused_at(now) else None
        after = max(filter(None, (after, row.last_fired_at, pause_end)))
    first = first_due(rule, after=after, until=spec.until)
    if first is None:
        raise InvalidSchedule(
            f"The schedule {spec.name!r} would never fire: {rule.describe()}.",
            fix="Check the rule with preview(), and check until and max_firings.",
        )
    return first


def _is_equivalent(row: ScheduleRow, definition: ScheduleDefinition, spec: ScheduleSpec) -> bool:
    """Whether a row fits the definition, even if the options of its job changed since."""
    if not definition.name:
        return True  # the name was derived from all options
    unset = {name for name in POLICIES if getattr(definition, name) is None}
    stored = {name: getattr(row.spec, name) for name in unset}
    return replace(spec, **stored) == row.spec


def too_many_conflicts(name: str) -> TickworkError:
    return TickworkError(
        f"The schedule {name!r} could not be changed.",
        why=f"Other processes changed it {TRIES_MAX} times meanwhile.",
        fix="Try again. If it happens again, look for two programs that change it in turns.",
    )
