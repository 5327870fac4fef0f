"""Schedules in memory."""

from collections.abc import Collection, Sequence
from datetime import datetime

from oracle.store.keys import add_runs, overlap_holders, unique_holder
from oracle.store.rows import replace_fields
from oracle.store.runs import cancel_runs_of
from oracle.store.tables import TableHolder, Tables
from oracle.store.transitions import add_counts, merge_skips, write_skips
from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.rollups import EndedRuns, count_runs
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT, Run
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.shared_names import DefinitionRow
from tickwork._domain.skips import NewSkip, ScheduleName
from tickwork._domain.tick import REPLACED, Move, Skip, TickPlan
from tickwork._stores.contract import JobRow, KeysOf, NewSchedule, Planner


class OracleSchedules(TableHolder):
    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        rows = []
        with self._writing() as tables:
            for schedule_id, spec, next_due_at in new:
                row = _find_by_name(tables, spec.tenant, spec.name)
                if row is None:
                    assert schedule_id not in tables.schedules, spec
                    row = tables.schedules[schedule_id] = ScheduleRow(
                        id=schedule_id,
                        spec=spec,
                        created_at=now,
                        next_due_at=next_due_at,
                        seen_at=now,
                    )
                    tables.skip_marks[_name(row)] = None
                rows.append(row)
        return rows

    def add_schedule(
        self,
        schedule_id: ScheduleId,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow:
        [row] = self.add_schedules([NewSchedule(schedule_id, spec, next_due_at)], now=now)
        return row

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        assert (spec.tenant, spec.name) == (row.spec.tenant, row.spec.name), spec
        with self._writing() as tables:
            stored = tables.schedules.get(row.id)
            if stored is None or stored.revision != row.revision:
                return None
            changed = tables.schedules[row.id] = replace_fields(
                stored,
                spec=spec,
                next_due_at=next_due_at,
                revision=stored.revision + 1,
                seen_at=now,
            )
            return changed

    def remove_schedule(self, schedule_id: ScheduleId) -> bool:
        with self._writing() as tables:
            return delete_schedule(tables, schedule_id)

    def stamp_seen(
        self,
        *,
        jobs: Sequence[str],
        schedules: Sequence[ScheduleId],
        now: datetime,
        definitions: Sequence[DefinitionRow] = (),
    ) -> None:
        with self._writing() as tables:
            for definition in definitions:
                tables.definitions[definition[:3]] = definition
            for job in jobs:
                row = tables.jobs.get(("", job), JobRow("", job))
                tables.jobs["", job] = row._replace(seen_at=now)
            for schedule_id in schedules:
                if schedule_id in tables.schedules:
                    tables.schedules[schedule_id] = replace_fields(
                        tables.schedules[schedule_id], seen_at=now
                    )

    def pause_schedule(
        self,
        schedule_id: ScheduleId,
        *,
        now: datetime,
        note: str = "",
        until: datetime | None = None,
        next_due_at: datetime | None = None,
    ) -> bool:
        with self._writing() as tables:
            row = tables.schedules.get(schedule_id)
            if row is None:
                return False
            row = replace_fields(row, paused_at=now, paused_until=until, paused_note=note)
            if until is not None:
                row = replace_fields(row, next_due_at=next_due_at)
            tables.schedules[schedule_id] = row
            return True

    def resume_schedule(self, schedule_id: ScheduleId, *, next_due_at: datetime | None) -> bool:
        with self._writing() as tables:
            row = tables.schedules.get(schedule_id)
            if row is None:
                return False
            tables.schedules[schedule_id] = replace_fields(
                _clear_pause(row), next_due_at=next_due_at
            )
            return True

    def drop_firings(self, skip: Skip, move: Move, *, now: datetime) -> bool:
        with self._writing() as tables:
            row = tables.schedules.get(move.schedule_id)
            if row is None or row.next_due_at is None or row.next_due_at != move.due_at:
                return False
            _write(tables, TickPlan([], [skip], [move], [], []), now=now)
            return True

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None:
        with self._reading() as tables:
            return _find_by_name(tables, tenant, name)

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        with self._reading() as tables:
            return [row for row in tables.schedules.values() if _name(row) in names]

    def scheduled_jobs(self) -> list[str]:
        with self._reading() as tables:
            return sorted({row.spec.job for row in tables.schedules.values()})

    def list_schedules(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 1000
    ) -> list[ScheduleRow]:
        with self._reading() as tables:
            rows = [
                row
                for row in tables.schedules.values()
                if tenant in {None, row.spec.tenant} and (after is None or _name(row) > after)
            ]
            return sorted(rows, key=_name)[:limit]

    def list_expected_schedules(self, *, limit: int) -> list[ScheduleRow]:
        with self._reading() as tables:
            rows = [row for row in tables.schedules.values() if row.spec.expect_within is not None]
            return sorted(rows, key=_name)[:limit]

    # ------------------------------------------------------------ firing

    def fire(
        self,
        *,
        now: datetime,
        limit: int,
        jobs: Collection[str] | None,
        keys_of: KeysOf,
        plan: Planner,
        seen_after: datetime | None = None,
    ) -> TickPlan:
        with self._writing() as tables:
            due = _due(tables, now=now, limit=limit, jobs=jobs, seen_after=seen_after)
            if not due:
                return TickPlan([], [], [], [], [])
            wanted = keys_of(due)
            overlapping = overlap_holders(tables)
            taken = {
                key
                for key in wanted
                if key in overlapping or unique_holder(tables, key, now=now) is not None
            }
            planned = plan(due, taken)
            _write(tables, planned, now=now)
            return planned

    def next_firing_at(
        self, *, jobs: Collection[str] | None = None, seen_after: datetime | None = None
    ) -> datetime | None:
        with self._reading() as tables:
            instants = [
                row.next_due_at
                for row in tables.schedules.values()
                if row.next_due_at is not None
                and (jobs is None or row.spec.job in jobs)
                and (row.paused_at is None or row.paused_until is not None)
                and not _is_retired(row, seen_after)
            ]
            return min(instants, default=None)


def _due(
    tables: Tables,
    *,
    now: datetime,
    limit: int,
    jobs: Collection[str] | None,
    seen_after: datetime | None,
) -> list[ScheduleRow]:
    due = []
    for row in tables.schedules.values():
        if row.next_due_at is None or row.next_due_at > now:
            continue
        if jobs is not None and row.spec.job not in jobs:
            continue
        if row.is_paused and (row.paused_until is None or row.paused_until > now):
            continue
        if _is_retired(row, seen_after):
            continue
        due.append((row.next_due_at, row.id, row))
    return [row for _, _, row in sorted(due, key=lambda found: found[:2])[:limit]]


def _is_retired(row: ScheduleRow, seen_after: datetime | None) -> bool:
    return seen_after is not None and row.is_retired(seen_after=seen_after)


def _write(tables: Tables, plan: TickPlan, *, now: datetime) -> None:
    for schedule_id in plan.cancels:
        spec = tables.schedules[schedule_id].spec
        cancel_runs_of(tables, spec.tenant, spec.name, now=now, reason=REPLACED)
    for answer in add_runs(tables, plan.runs):
        # No key can have been taken since the plan was made, so a plan that needs a taken key is
        # wrong, and none of it may be written.
        assert answer.is_new, answer
    merging = merge_skips(tables, [_build_new_skip(skip, now=now) for skip in plan.skips])
    for skip in plan.skips:
        if skip.id not in merging.without_row and skip.id not in tables.history:
            tables.history[skip.id] = _build_skipped_run(skip, now=now)
    write_skips(tables, merging)
    for skip in plan.skips:
        spec = skip.schedule.spec
        queue = spec.queue or QUEUE_DEFAULT
        ended = EndedRuns(spec.job, queue, RunStatus.SKIPPED, now, number=skip.instants)
        add_counts(tables, count_runs([ended]))
    for move in plan.moves:
        tables.schedules[move.schedule_id] = _apply_move(tables.schedules[move.schedule_id], move)


def _apply_move(row: ScheduleRow, move: Move) -> ScheduleRow:
    assert row.next_due_at == move.due_at, row
    fired = [instant for instant in (row.last_fired_at, move.last_fired_at) if instant is not None]
    # Only a pause that has ended lets a schedule fire, so it is cleared.
    row = _clear_pause(row) if row.is_paused else row
    return replace_fields(row, next_due_at=move.next_due_at, last_fired_at=max(fired, default=None))


def _clear_pause(row: ScheduleRow) -> ScheduleRow:
    return replace_fields(row, paused_at=None, paused_until=None, paused_note="")


def _build_new_skip(skip: Skip, *, now: datetime) -> NewSkip[datetime]:
    return NewSkip(
        _name(skip.schedule),
        skip.id,
        skip.reason,
        first_at=skip.first_at,
        last_at=skip.last_at,
        ended_at=now,
        instants=skip.instants,
    )


def _build_skipped_run(skip: Skip, *, now: datetime) -> Run:
    spec = skip.schedule.spec
    return Run(
        id=skip.id,
        job=spec.job,
        status=RunStatus.SKIPPED,
        phase=None,
        created_at=now,
        due_at=skip.first_at,
        tenant=spec.tenant,
        queue=spec.queue or QUEUE_DEFAULT,
        priority=PRIORITY_DEFAULT if spec.priority is None else spec.priority,
        args=spec.args,
        schedule=spec.name,
        nominal_at=skip.first_at,
        ended_at=now,
        reason=skip.reason,
        instants=skip.instants,
        last_nominal_at=skip.last_at,
        outcome=OutcomeKind.SKIPPED.value,
    )


def _find_by_name(tables: Tables, tenant: str, name: str) -> ScheduleRow | None:
    found = (row for row in tables.schedules.values() if _name(row) == (tenant, name))
    return next(found, None)


def delete_schedule(tables: Tables, schedule_id: ScheduleId) -> bool:
    row = tables.schedules.pop(schedule_id, None)
    if row is None:
        return False
    del tables.skip_marks[_name(row)]
    return True


def _name(row: ScheduleRow) -> ScheduleName:
    return row.spec.tenant, row.spec.name
