"""Writes the schedules, jobs and limits that this program defines to the database.

It writes differences: rows are added, changed and marked as seen. A definition that is
missing here retires nothing, because another program may define it. The catalog never
changes a pause.

When two versions of a program differ, the one that started last wins: a program writes its
definitions when it starts and when they change. After that it marks them as seen every
hour, writes rows that are missing, and leaves alone what another program has changed since.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from tickwork._client.schedule_changes import is_retimed, write_change
from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.registry import Registry
from tickwork._domain.firings import due_again, first_due
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleOrigin, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.rules import from_text
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork.errors import ArgumentError, DefinitionError, InvalidSchedule
from tickwork.stores.contract import NewSchedule, Store

SEEN_EVERY: Final = 3600.0
"""Seconds after which a running program marks its definitions as seen again."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = get_logger("tickwork.catalog")


class Catalog:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        registry: Registry,
        timezone: str,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._timezone = timezone
        self._retire_after = retire_after
        # If definitions retire sooner, they must be marked as seen more often.
        self._seen_every = min(SEEN_EVERY, retire_after.total_seconds() / 3)
        self._written: Mapping[str, Definition] | None = None
        self._stamped_at = 0.0
        # What this program wrote last: only differences from it are written again.
        self._specs: dict[str, ScheduleSpec] = {}
        self._limits: dict[str, int] = {}

    def refresh(self) -> None:
        """Write the definitions if they changed; mark them as seen every hour.

        Both compare with the rows: a row that was deleted, or that retired while this program was
        suspended, is written again.
        """
        age = self._clock.monotonic() - self._stamped_at
        has_changed = self._registry.definitions() is not self._written
        if has_changed or age >= self._seen_every:
            self.write()

    def write(self) -> None:
        """Write all schedules and limits, and mark jobs and schedules as seen."""
        definitions = self._registry.definitions()
        now = self._clock.now()
        declarations = {each.name: each for each in self._registry.schedules()}
        rows = {
            row.spec.name: row
            for row in self._store.get_schedules([("", name) for name in declarations])
        }

        def build(name: str, row: ScheduleRow | None) -> ScheduleSpec:
            return self._spec(declarations[name], definitions, row, now=now)

        # Build all specs before the first write: an invalid definition then leaves all rows alone.
        specs = {name: build(name, rows.get(name)) for name in declarations}
        lasting = [each for each in definitions.values() if not each.is_adhoc]
        self._set_limits(lasting)
        added, existing = self._add(
            [spec for name, spec in specs.items() if name not in rows], now=now
        )
        for row in existing:
            # Another program that started at the same moment added it first.
            rows[row.spec.name] = row
            specs[row.spec.name] = build(row.spec.name, row)
        for name, row in rows.items():
            self._change(row, specs[name], now=now)
        jobs = sorted({definition.name for definition in lasting})
        schedules = [
            row.id for row in [*rows.values(), *added] if row.spec.origin is ScheduleOrigin.CODE
        ]
        self._store.stamp_seen(jobs=jobs, schedules=schedules, now=now)
        self._stamped_at = self._clock.monotonic()
        self._specs = specs
        self._written = definitions

    def unwritten(self) -> list[ScheduleSpec]:
        """Return schedules that this program defines and that are not stored yet.

        Invalid definitions are left out: :meth:`write` reports them.
        """
        definitions = self._registry.definitions()
        declarations = {each.name: each for each in self._registry.schedules()}
        rows = self._store.get_schedules([("", name) for name in declarations])
        stored = {row.spec.name for row in rows}
        now, found = self._clock.now(), []
        for name, declaration in declarations.items():
            if name not in stored:
                with suppress(DefinitionError, ArgumentError):
                    found.append(self._spec(declaration, definitions, None, now=now))
        return found

    def _spec(
        self,
        declaration: Declaration,
        definitions: Mapping[str, Definition],
        row: ScheduleRow | None,
        *,
        now: datetime,
    ) -> ScheduleSpec:
        # An interval without a start counts from when the schedule was first stored.
        anchor = now if row is None else row.created_at
        definition = definitions[declaration.job_name]
        try:
            spec = schedule_spec(declaration, definition, tz=self._timezone, anchor=anchor)
            # This fails for a rule of a user's own class: no other program could read it.
            rule = from_text(spec.rule)
        except InvalidSchedule as error:
            raise InvalidSchedule(
                f"The schedule {declaration.name!r} is invalid: {error.what}",
                why=f"It is defined at {declaration.place}.",
                fix=error.fix,
            ) from error
        if rule.next_after(_EPOCH) is None:
            raise InvalidSchedule(
                f"The schedule {declaration.name!r} never fires: {rule.describe()}.",
                why=f"It is defined at {declaration.place}.",
                fix="Check its rule with preview().",
            )
        return spec

    def _set_limits(self, definitions: Sequence[Definition]) -> None:
        limits: dict[str, int] = {}
        for definition in definitions:
            limits.update(definition.spec.slots_by_limit())
        changed = {name: slots for name, slots in limits.items() if self._limits.get(name) != slots}
        if changed:
            self._store.set_limits(changed)
        self._limits = limits

    def _add(
        self, specs: Sequence[ScheduleSpec], *, now: datetime
    ) -> tuple[list[ScheduleRow], list[ScheduleRow]]:
        """Add schedules; return the rows it added, and those that another program added first."""
        new = [
            NewSchedule(
                ScheduleId(new_id(now)),
                spec,
                first_due(from_text(spec.rule), after=now, until=spec.until),
            )
            for spec in specs
        ]
        if not new:
            return [], []
        rows = self._store.add_schedules(new, now=now)
        ours = {one.id for one in new}
        return [row for row in rows if row.id in ours], [row for row in rows if row.id not in ours]

    def _change(self, row: ScheduleRow, spec: ScheduleSpec, *, now: datetime) -> None:
        if row.spec.origin is not ScheduleOrigin.CODE:
            _log.warning(
                "The schedule %r was created at run time; its definition in code is ignored.",
                row.spec.name,
            )
            return
        is_back = row.is_retired(seen_after=now - self._retire_after)
        has_changed = self._specs.get(spec.name) != spec and row.spec != spec
        if not is_back and not has_changed:
            return
        next_due_at = row.next_due_at
        # Instants that passed while no program defined the schedule are not caught up.
        if is_back or is_retimed(row.spec, spec):
            next_due_at = due_again(row, from_text(spec.rule), now=now, until=spec.until)
        # If another program changed the row since, it started later than this one: its
        # definition wins, and the result of this write is ignored.
        write_change(self._store, row, spec, now=now, next_due_at=next_due_at)
