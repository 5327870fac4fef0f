"""Writes the schedules, jobs and limits that this program defines to the database.

It writes differences: rows are added, changed and marked as seen. A definition that is
missing here retires nothing, because another program may define it. The catalog never
changes a pause.

When two versions of a program differ, the one that started last wins: a program writes its
definitions when it starts and when they change. After that it marks them as seen every
hour, writes rows that are missing, and leaves alone what another process has changed since.

When two programs differ, neither overwrites the other: each has a name. A schedule that both
define differently is an error in the one that starts later. If both define a job, with
different handlers, the log has a warning.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tickwork._config.rule_text import write_rule
from tickwork._control.audit import AuditLog, subject_of
from tickwork._control.schedule_changes import ScheduleWriter, is_retimed
from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.registry import Registry
from tickwork._domain.firings import due_again, first_due
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleOrigin, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.shared_names import (
    REPORTED_WITHIN,
    DefinitionKind,
    DefinitionRow,
    find_other_definers,
    find_shared_jobs,
)
from tickwork._kernel.clock import Clock
from tickwork._kernel.durations import format_duration
from tickwork._kernel.ids import new_id
from tickwork._kernel.import_location import MAIN_MODULE, name_program
from tickwork._kernel.json_form import as_json
from tickwork._kernel.loggers import get_logger
from tickwork._stores.contract import NewSchedule, Store
from tickwork.errors import (
    ArgumentError,
    DefinitionError,
    InvalidSchedule,
    ScheduleConflict,
    StoreError,
)

CODE: Final = "code"
"""The actor of changes that a program makes because its code has changed."""

SEEN_EVERY: Final = 3600.0
"""Seconds after which a running program marks its definitions as seen again."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = get_logger("tickwork.catalog")


class Catalog:
    def __init__(
        self,
        *,
        store: Store,
        writer: ScheduleWriter,
        clock: Clock,
        registry: Registry,
        audit: AuditLog,
        timezone: str,
        retire_after: timedelta,
        version: str,
        application: str,
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._registry = registry
        self._audit = audit
        self._source = f"version {version}" if version else ""
        self._timezone = timezone
        self._application = application
        # If definitions retire sooner, they must be marked as seen more often.
        self._seen_every = min(SEEN_EVERY, retire_after.total_seconds() / 3)
        self._written: Mapping[str, Definition] | None = None
        self._stamped_at = 0.0
        # What this program wrote last: only differences from it are written again.
        self._specs: dict[str, ScheduleSpec] = {}
        self._limits: dict[str, int] = {}
        self._reported: set[str] = set()  # jobs that another program defines, too

    def refresh(self) -> None:
        """Write the definitions if they changed; mark them as seen every hour.

        Both compare with the rows: a row that was deleted is written again.
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
        stored = self._store.list_definitions(since=now - REPORTED_WITHIN)
        self._check_conflicts(specs, rows, declarations, stored)
        # A job with aliases is there under each of its names.
        by_name = {each.name: each for each in definitions.values() if not each.is_adhoc}
        lasting = list(by_name.values())
        self._set_limits(lasting)
        added, existing = self._add(
            [spec for name, spec in specs.items() if name not in rows], now=now
        )
        if rows and added:  # without rows, this is the first start of the program
            self._record("schedule.create", [row.spec.name for row in added])
        for row in existing:
            # Another program that started at the same moment added it first.
            rows[row.spec.name] = row
            specs[row.spec.name] = build(row.spec.name, row)
        for name, row in rows.items():
            self._change(row, specs[name], now=now)
        jobs = sorted(by_name)
        schedules = [
            row.id for row in [*rows.values(), *added] if row.spec.origin is ScheduleOrigin.CODE
        ]
        own = self._rows_of(lasting, specs, now=now)
        self._store.stamp_seen(jobs=jobs, schedules=schedules, now=now, definitions=own)
        self._report_shared_jobs([*own, *self._of_others(stored)])
        self._stamped_at = self._clock.monotonic()
        self._specs = specs
        self._written = definitions

    def _check_conflicts(
        self,
        specs: Mapping[str, ScheduleSpec],
        rows: Mapping[str, ScheduleRow],
        declarations: Mapping[str, Declaration],
        stored: Sequence[DefinitionRow],
    ) -> None:
        """Check that no other program defines a schedule that this one would change."""
        changed = [row.spec.name for row in rows.values() if self._changes(row, specs)]
        others = find_other_definers(stored, application=self._application, schedules=changed)
        for name, other in sorted(others.items()):
            place = declarations[name].place
            raise ScheduleConflict(name, application=self._application, other=other, place=place)

    def _changes(self, row: ScheduleRow, specs: Mapping[str, ScheduleSpec]) -> bool:
        """Whether this program would write another spec: it is new, and differs from the row."""
        spec = specs[row.spec.name]
        is_own = row.spec.origin is ScheduleOrigin.CODE
        return is_own and self._specs.get(spec.name) != spec and row.spec != spec

    def _rows_of(
        self, definitions: Sequence[Definition], specs: Mapping[str, ScheduleSpec], *, now: datetime
    ) -> list[DefinitionRow]:
        """What this program reports: its jobs and schedules."""
        main = name_program(MAIN_MODULE)
        return [
            *(
                DefinitionRow(
                    DefinitionKind.JOB,
                    each.name,
                    self._application,
                    each.handler.path.replace(f"{MAIN_MODULE}:", f"{main}:"),
                    now,
                )
                for each in definitions
            ),
            *(
                DefinitionRow(DefinitionKind.SCHEDULE, name, self._application, "", now)
                for name in specs
            ),
        ]

    def _of_others(self, rows: Sequence[DefinitionRow]) -> list[DefinitionRow]:
        return [row for row in rows if row.application != self._application]

    def _report_shared_jobs(self, rows: Sequence[DefinitionRow]) -> None:
        """Warn once of each job of this program that another one defines, too."""
        own = self._registry.definitions()
        for shared in find_shared_jobs(rows):
            if shared.name in own and shared.name not in self._reported:
                self._reported.add(shared.name)
                _log.warning(
                    "Several programs on this database define the job %s: each may execute the "
                    "runs of the other. Rename one of them. If they are one program, give it one "
                    "name: Tickwork(name=...).",
                    shared,
                )

    def unwritten(self) -> list[ScheduleSpec]:
        """Return schedules that this program defines and that are not stored yet.

        Invalid definitions are left out: :meth:`write` reports them.
        """
        definitions = self._registry.definitions()
        declarations = {each.name: each for each in self._registry.schedules()}
        rows = self._store.get_schedules([("", name) for name in declarations])
        stored = {row.spec.name for row in rows}
        now, unwritten = self._clock.now(), []
        for name, declaration in declarations.items():
            if name not in stored:
                with suppress(DefinitionError, ArgumentError):
                    unwritten.append(self._spec(declaration, definitions, None, now=now))
        return unwritten

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
        if not self._changes(row, {spec.name: spec}):
            return
        next_due_at = row.next_due_at
        if is_retimed(row.spec, spec):
            next_due_at = due_again(row, from_text(spec.rule), now=now, until=spec.until)
        # If another program changed the row since, it started later than this one: its
        # definition wins, and the result of this write is ignored.
        if self._writer.change(row, spec, now=now, next_due_at=next_due_at) is not None:
            self._record("schedule.change", [spec.name], **list_changes(row.spec, spec))

    def _record(self, action: str, names: Sequence[str], **detail: Any) -> None:
        """Add an entry to the audit log; a program may not have the right to do so."""
        subject, more = subject_of("schedule", names, now=self._clock.now())
        with suppress(StoreError):
            self._audit.record(
                action, subject, actor=CODE, source=self._source, detail={**detail, **more}
            )


def list_changes(before: ScheduleSpec, after: ScheduleSpec) -> dict[str, dict[str, Any]]:
    """The fields that differ, as they were and as they are. Arguments may be secret: not shown."""
    names = [
        each.name
        for each in fields(ScheduleSpec)
        if getattr(before, each.name) != getattr(after, each.name)
    ]
    return {
        label: {name: _show_field(spec, name) for name in names}
        for label, spec in (("before", before), ("after", after))
    }


def _show_field(spec: ScheduleSpec, name: str) -> Any:
    if name == "args":
        return "…"
    if name == "rule":
        return write_rule(spec.rule)
    value = getattr(spec, name)
    return format_duration(value) if isinstance(value, timedelta) else as_json(value)
