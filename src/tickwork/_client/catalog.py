"""Definitions meet rows: what a program says about schedules, jobs and limits, written down.

A diff. Rows are added, changed and stamped as seen. Absence retires nothing: another
program may define what this one does not. A person's pause is never touched.

When two deploys differ, the newest start wins: a program writes what it says when it
starts, and when it says something else. After that it only notes every hour that it is
there, and leaves alone what another one has changed since.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from tickwork._client.schedule_changes import ChangingStore, is_retimed, write_change
from tickwork._define.definition import Declaration, Definition, schedule_spec
from tickwork._define.registry import Registry
from tickwork._domain.firings import due_again, first_due
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import Origin, ScheduleRow, ScheduleSpec
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.rules import from_text
from tickwork._kernel.clock import Clock
from tickwork._kernel.ids import new_id
from tickwork.errors import ArgumentError, DefinitionError, InvalidSchedule
from tickwork.stores.contract import NewSchedule

SEEN_EVERY: Final = 3600.0
"""Seconds after which a program that is still there says so again."""

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log: Final = logging.getLogger("tickwork.catalog")


class CatalogStore(ChangingStore, Protocol):
    """All that a catalog needs of a store."""

    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        """Add schedules; where one of that name is there, the answer is that one."""
        ...

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        """Schedules by (tenant, name)."""
        ...

    def stamp_seen(
        self, *, jobs: Sequence[str], schedules: Sequence[ScheduleId], now: datetime
    ) -> None:
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
        self,
        *,
        store: CatalogStore,
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
        # Whoever lets definitions retire sooner must also hear of them more often.
        self._every = min(SEEN_EVERY, retire_after.total_seconds() / 3)
        self._written: Mapping[str, Definition] | None = None
        self._jobs: list[str] = []
        self._schedules: list[ScheduleId] = []
        self._stamped_at = 0.0
        # What this program has written so far: only what differs from it is news.
        self._specs: dict[str, ScheduleSpec] = {}
        self._limits: dict[str, int] = {}

    def refresh(self) -> None:
        """Write it down if something was said anew; after an hour, say that we are here."""
        age = self._clock.monotonic() - self._stamped_at
        is_news = self._registry.definitions() is not self._written
        # Whoever slept for so long has let its schedules retire: they begin anew.
        if is_news or age > self._retire_after.total_seconds():
            self.write()
        elif age >= self._every:
            self._stamp()

    def write(self) -> None:
        """Write down everything that is defined: schedules, limits, and that it was seen.

        Raises:
            DefinitionError: Something that was said cannot be. Nothing was written.
        """
        definitions = self._registry.definitions()
        now = self._clock.now()
        entries = {entry.name: entry for entry in self._registry.schedules()}
        there = {
            row.spec.name: row
            for row in self._store.get_schedules([("", name) for name in entries])
        }

        def said_for(name: str, row: ScheduleRow | None) -> Said:
            return self._said(entries[name], definitions, row, now=now)

        # All of it before the first write: a fault in one definition stops them all.
        said = {name: said_for(name, there.get(name)) for name in entries}
        lasting = [each for each in definitions.values() if not each.is_adhoc]
        self._set_limits(lasting)
        new = {name: said[name] for name in entries if name not in there}
        added, overtaken = self._add(new, now=now)
        for row in overtaken:
            # Another program that starts at this moment was quicker.
            there[row.spec.name] = row
            said[row.spec.name] = said_for(row.spec.name, row)
        for name, row in there.items():
            self._change(row, said[name], now=now)
        self._jobs = sorted({definition.name for definition in lasting})
        self._schedules = [
            row.id for row in [*there.values(), *added] if row.spec.origin is Origin.CODE
        ]
        self._stamp()
        self._specs = {name: each.spec for name, each in said.items()}
        self._written = definitions

    def unwritten(self) -> list[Said]:
        """Schedules that this program defines and that no program has written down yet.

        What cannot be is left out: whoever writes it down is told, and not whoever looks.
        """
        definitions = self._registry.definitions()
        entries = {entry.name: entry for entry in self._registry.schedules()}
        rows = self._store.get_schedules([("", name) for name in entries])
        there = {row.spec.name for row in rows}
        now, found = self._clock.now(), []
        for name, entry in entries.items():
            if name not in there:
                with suppress(DefinitionError, ArgumentError):
                    found.append(self._said(entry, definitions, None, now=now))
        return found

    def _stamp(self) -> None:
        self._store.stamp_seen(jobs=self._jobs, schedules=self._schedules, now=self._clock.now())
        self._stamped_at = self._clock.monotonic()

    def _said(
        self,
        entry: Declaration,
        definitions: Mapping[str, Definition],
        row: ScheduleRow | None,
        *,
        now: datetime,
    ) -> Said:
        # Where an interval counts from is settled once, when it is first written down.
        anchor = now if row is None else row.created_at
        definition = definitions[entry.job_name]
        try:
            said = Said(*schedule_spec(entry, definition, tz=self._timezone, anchor=anchor))
            # A rule of the user's own class has no text that another program could read.
            from_text(said.spec.rule)
        except InvalidSchedule as fault:
            raise InvalidSchedule(
                f"The schedule {entry.name!r} cannot be: {fault.what}",
                why=f"It is defined at {entry.place}.",
                fix=fault.fix,
            ) from fault
        if said.rule.next_after(_BEGINNING) is None:
            raise InvalidSchedule(
                f"The schedule {entry.name!r} never fires: {said.rule.describe()}.",
                why=f"It is defined at {entry.place}.",
                fix="Look at its rule with preview().",
            )
        return said

    def _set_limits(self, definitions: Sequence[Definition]) -> None:
        limits: dict[str, int] = {}
        for definition in definitions:
            limits.update(definition.spec.slots_by_limit())
        news = {name: slots for name, slots in limits.items() if self._limits.get(name) != slots}
        if news:
            self._store.set_limits(news)
        self._limits = limits

    def _add(
        self, said: Mapping[str, Said], *, now: datetime
    ) -> tuple[list[ScheduleRow], list[ScheduleRow]]:
        """Add these; return the rows of those, and of those that were there by now."""
        new = [
            NewSchedule(
                ScheduleId(new_id(now)),
                each.spec,
                first_due(each.rule, after=now, until=each.spec.until),
            )
            for each in said.values()
        ]
        if not new:
            return [], []
        rows = self._store.add_schedules(new, now=now)
        ours = {one.id for one in new}
        return [row for row in rows if row.id in ours], [row for row in rows if row.id not in ours]

    def _change(self, row: ScheduleRow, said: Said, *, now: datetime) -> None:
        if row.spec.origin is not Origin.CODE:
            _log.warning(
                "The schedule %r was made by the API; the one in code is left out.", row.spec.name
            )
            return
        spec, rule = said
        is_back = row.is_retired(seen_after=now - self._retire_after)
        is_news = self._specs.get(spec.name) != spec and row.spec != spec
        if not is_back and not is_news:
            return
        next_due_at = row.next_due_at
        # Nobody is to make up for what passed while no program defined it.
        if is_back or is_retimed(row.spec, spec):
            next_due_at = due_again(row, rule, now=now, until=spec.until)
        # When somebody else has changed it since, they started later than we did: theirs counts.
        write_change(self._store, row, spec, rule, now=now, next_due_at=next_due_at)
