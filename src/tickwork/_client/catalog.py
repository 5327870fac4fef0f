"""Definitions meet rows: what a program says about schedules, jobs and limits, written down.

A diff. Rows are added, changed and stamped as seen. Absence retires nothing: another
program may define what this one does not. A person's pause is never touched.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from tickwork._define.definition import Definition, Entry, schedule_spec
from tickwork._define.registry import Registry
from tickwork._domain.firings import first_due
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Origin, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.contract import Schedule
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork.errors import InvalidSchedule
from tickwork.stores.contract import NewSchedule

SEEN_EVERY: Final = 3600.0
"""Seconds after which a program that is still there says so again."""

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = logging.getLogger("tickwork.catalog")


class CatalogStore(Protocol):
    """All that a catalog needs of a store."""

    def add_schedules(self, new: list[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        """Add schedules; where one of that name is there, the answer is that one."""
        ...

    def get_schedules(self, names: list[tuple[str, str]]) -> list[ScheduleRow]:
        """Schedules by (tenant, name)."""
        ...

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        """Replace what was said, if nobody else has since."""
        ...

    def stamp_seen(self, *, jobs: list[str], schedules: list[ScheduleId], now: datetime) -> None:
        """Note that a live program defines these."""
        ...

    def set_limits(self, slots_by_name: Mapping[str, int]) -> None:
        """What code says about limits."""
        ...


class Said(NamedTuple):
    """A schedule as code says it."""

    spec: ScheduleSpec
    rule: Schedule


class Catalog:
    """Writes down what this program defines."""

    def __init__(
        self, *, store: CatalogStore, clock: Clock, registry: Registry, timezone: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._timezone = timezone
        self._written: Mapping[str, Definition] | None = None
        self._jobs: list[str] = []
        self._schedules: list[ScheduleId] = []
        self._stamped_at = 0.0

    def refresh(self) -> None:
        """Write it down if something was said anew; after an hour, say that we are here."""
        if self._registry.definitions() is not self._written:
            self.write()
        elif self._clock.monotonic() - self._stamped_at >= SEEN_EVERY:
            # Not written again: whoever started later may have changed it meanwhile.
            self._stamp()

    def write(self) -> None:
        """Write down everything that is defined: schedules, limits, and that it was seen.

        Raises:
            DefinitionError: Something that was said cannot be. Nothing was written.
        """
        definitions = self._registry.definitions()
        lasting = [each for each in definitions.values() if not each.is_adhoc]
        now = self._clock.now()
        entries = self._registry.schedules()
        rows = {
            row.spec.name: row
            for row in self._store.get_schedules([("", entry.name) for entry in entries])
        }
        said = {
            entry.name: self._said(entry, definitions, rows.get(entry.name), now=now)
            for entry in entries
        }
        limits: dict[str, int] = {}
        for definition in lasting:
            limits.update(definition.spec.slots_by_limit())
        if limits:
            self._store.set_limits(limits)
        added = self._add(
            [said[entry.name] for entry in entries if entry.name not in rows], now=now
        )
        for name, row in rows.items():
            self._change(row, said[name], now=now)
        self._jobs = sorted({definition.name for definition in lasting})
        self._schedules = [
            row.id for row in [*rows.values(), *added] if row.spec.origin is Origin.CODE
        ]
        self._stamp()
        self._written = definitions

    def _stamp(self) -> None:
        self._store.stamp_seen(jobs=self._jobs, schedules=self._schedules, now=self._clock.now())
        self._stamped_at = self._clock.monotonic()

    def _said(
        self,
        entry: Entry,
        definitions: Mapping[str, Definition],
        row: ScheduleRow | None,
        *,
        now: datetime,
    ) -> Said:
        # Where an interval counts from is settled once, when it is first written down.
        anchor = now if row is None else row.created_at
        definition = definitions[entry.job_name]
        said = Said(*schedule_spec(entry, definition, tz=self._timezone, anchor=anchor))
        if said.rule.next_after(_BEGINNING) is None:
            raise InvalidSchedule(
                f"The schedule {entry.name!r} never fires: {said.rule.describe()}.",
                why=f"It is defined at {entry.place}.",
                fix="Look at its rule with preview().",
            )
        return said

    def _add(self, said: Iterable[Said], *, now: datetime) -> list[ScheduleRow]:
        new = [
            NewSchedule(
                ScheduleId(new_id(now)),
                each.spec,
                first_due(each.rule, after=now, until=each.spec.until),
            )
            for each in said
        ]
        return self._store.add_schedules(new, now=now) if new else []

    def _change(self, row: ScheduleRow, said: Said, *, now: datetime) -> None:
        spec = said.spec
        if row.spec.origin is not Origin.CODE:
            _log.warning(
                "The schedule %r was made by the API; the one in code is left out.", spec.name
            )
            return
        if row.spec == spec:
            return
        next_due_at = row.next_due_at
        if (row.spec.rule, row.spec.until) != (spec.rule, spec.until) or next_due_at is None:
            next_due_at = first_due(said.rule, after=now, until=spec.until)
        # When somebody else has changed it since, they started later than we did: theirs counts.
        self._store.change_schedule(row, spec, now=now, next_due_at=next_due_at)
