"""Adds, changes, pauses and fires schedules."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork._domain.identity import ScheduleId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.limits.limits import is_overlap_key
from tickwork._domain.rollups import EndedRuns, count_runs
from tickwork._domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.skips import NewSkip
from tickwork._domain.tick import REPLACED, Move, Skip, TickPlan, Unfired
from tickwork._stores._sql.operations.control import cancel_schedules
from tickwork._stores._sql.operations.inserts import insert_runs, take_unique_keys
from tickwork._stores._sql.operations.notifications import notify_all
from tickwork._stores._sql.operations.rollups import insert_rollups
from tickwork._stores._sql.operations.skips import merge, write_plan
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    clamped_moment,
    describe_fault,
    micros,
    micros_or_none,
    moment,
)
from tickwork._stores._sql.statement import Operation, Row, Rows, WriteConflict
from tickwork._stores.contract import KeysOf, NewSchedule, Planner

HEAD_FACTOR: Final = 4
"""A tick reads so many times its limit of the due schedules, before it goes by job."""
HEAD_MIN: Final = 64

TOGETHER_MIN: Final = 16
"""From this many schedules on, those with the same times are moved by one plain statement."""


def add_schedules(
    query: Queries, new: Sequence[NewSchedule], *, now: datetime
) -> Operation[list[ScheduleRow]]:
    first_by_name: dict[tuple[str, str], NewSchedule] = {}
    for one in new:
        first_by_name.setdefault((one.spec.tenant, one.spec.name), one)
    # In one order everywhere: programs that start together add the same schedules.
    names = sorted(first_by_name)
    yield query.command(
        "insert_schedules",
        many=[
            query.mappers.new_schedule_row(first_by_name[name], now=micros(now)) for name in names
        ],
    )
    # It may be due before idle workers would poll.
    yield from notify_all(query)
    rows = yield from get_schedules(query, names)
    row_by_name = {(row.spec.tenant, row.spec.name): row for row in rows}
    return [row_by_name[one.spec.tenant, one.spec.name] for one in new]


def change_schedule(
    query: Queries,
    row: ScheduleRow,
    spec: ScheduleSpec,
    *,
    now: datetime,
    next_due_at: datetime | None,
) -> Operation[ScheduleRow | None]:
    yield query.command(
        "update_schedule",
        id=row.id,
        revision=row.revision,
        now=micros(now),
        next_due_at=micros_or_none(next_due_at),
        **query.mappers.spec_params(spec),
    )
    yield from notify_all(query)
    rows = yield query("get_schedule_by_id", id=row.id)
    if not rows:
        return None
    stored = query.mappers.listed_schedule_of(rows[0])
    is_ours = stored.revision == row.revision + 1 and stored.spec == spec
    return stored if is_ours else None


def remove_schedule(query: Queries, schedule_id: ScheduleId) -> Operation[bool]:
    return bool((yield query("delete_schedule", id=schedule_id))[0][0])


def pause_schedule(
    query: Queries,
    schedule_id: ScheduleId,
    *,
    now: datetime,
    note: str = "",
    until: datetime | None = None,
    next_due_at: datetime | None = None,
) -> Operation[bool]:
    rows = yield query(
        "pause_schedule",
        id=schedule_id,
        now=micros(now),
        note=note,
        until=micros_or_none(until),
        next_due_at=micros_or_none(next_due_at),
    )
    return bool(rows[0][0])


def resume_schedule(
    query: Queries, schedule_id: ScheduleId, *, next_due_at: datetime | None
) -> Operation[bool]:
    yield from notify_all(query)
    rows = yield query("resume_schedule", id=schedule_id, next_due_at=micros_or_none(next_due_at))
    return bool(rows[0][0])


def drop_firings(query: Queries, skip: Skip, move: Move, *, now: datetime) -> Operation[bool]:
    if not (yield from _move(query, [move])):
        return False
    yield from _write_skips(query, [skip], now=micros(now))
    yield from notify_all(query)
    return True


def get_schedules(query: Queries, names: Sequence[tuple[str, str]]) -> Operation[list[ScheduleRow]]:
    rows = yield query("get_schedules", names=[list(name) for name in sorted(set(names))])
    return list(map(query.mappers.listed_schedule_of, rows))


def scheduled_jobs(query: Queries) -> Operation[list[str]]:
    return [row[0] for row in (yield query("scheduled_jobs")) if isinstance(row[0], str)]


def list_schedules(
    query: Queries,
    *,
    tenant: str | None = None,
    after: tuple[str, str] | None = None,
    limit: int = 1000,
) -> Operation[list[ScheduleRow]]:
    after_tenant, after_name = after or (None, None)
    rows = yield query(
        "list_schedules",
        tenant=tenant,
        after_tenant=after_tenant,
        after_name=after_name,
        limit=limit,
    )
    return list(map(query.mappers.listed_schedule_of, rows))


def list_expected_schedules(query: Queries, *, limit: int) -> Operation[list[ScheduleRow]]:
    rows = yield query("list_expected_schedules", limit=limit)
    return list(map(query.mappers.listed_schedule_of, rows))


def next_firing_at(
    query: Queries, *, jobs: Collection[str] | None = None, seen_after: datetime | None = None
) -> Operation[datetime | None]:
    seen = micros_or_none(seen_after)
    if jobs is None:
        rows = yield query("next_firing", seen_after=seen)
    else:
        rows = yield query("next_firing_of", jobs=sorted(jobs), seen_after=seen)
    return clamped_moment(rows[0][0])


def fire(
    query: Queries,
    *,
    now: datetime,
    limit: int,
    jobs: Collection[str] | None,
    keys_of: KeysOf,
    plan: Planner,
    seen_after: datetime | None = None,
    only: Collection[ScheduleId] | None = None,
    seen: list[ScheduleId] | None = None,
    may_be_stored: bool = False,
) -> Operation[TickPlan]:
    """Fire schedules. ``only`` some of them, if others are at fault; ``seen`` gets all due ones.

    With ``may_be_stored``, firings that have a run already are left out: the schedule was set back.
    """
    rows = yield from _due(query, now=now, limit=limit, jobs=jobs, seen_after=seen_after)
    if seen is not None:
        seen += [row[0] for row in rows]
    if only is not None:
        rows = [row for row in rows if row[0] in only]
    due, broken = _readable(query, rows)
    keys = sorted(keys_of(due))
    others = [key for key in keys if not is_overlap_key(key)]
    taken: set[str] = set()
    if keys:
        # Read after the schedules are locked: keys may have been freed until now, and no other
        # transaction can take a key of these schedules.
        rows = yield query("taken_keys", keys=keys, others=others, now=micros(now))
        taken = {row[0] for row in rows}
    made = plan(due, taken)
    if may_be_stored and made.runs:
        stored = {row[0] for row in (yield query("find_ids", ids=[run.id for run in made.runs]))}
        made = made._replace(runs=[run for run in made.runs if run.id not in stored])
    if made.cancels and made.runs:
        # Before the new runs are added: they may need keys of the canceled ones.
        ids, fired = set(made.cancels), {(run.tenant, run.schedule) for run in made.runs}
        names = {(row.spec.tenant, row.spec.name) for row in due if row.id in ids} & fired
        yield from cancel_schedules(query, names, now=now, reason=REPLACED)
    if made.runs:
        # If a key was taken all the same, the database rejects it, and with it the whole tick.
        yield from take_unique_keys(query, made.runs)
        yield from insert_runs(query, made.runs)
    if made.skips:
        yield from _write_skips(query, made.skips, now=micros(now))
    if made.moves:
        moved = yield from _move(query, made.moves)
        if moved != len(made.moves):
            raise WriteConflict
    return made._replace(unfired=[*made.unfired, *broken])


def _move(query: Queries, moves: Sequence[Move]) -> Operation[int]:
    """Move schedules forward; return how many. On servers, those with the same times go together.

    SQLite executes a statement for each schedule as fast as one for all of them.
    """
    ids_by_times: dict[tuple[datetime | None, ...], list[ScheduleId]] = {}
    for move in moves:
        ids_by_times.setdefault(move[1:], []).append(move.schedule_id)
    moved = 0
    alone: list[Row] = []
    for times, ids in ids_by_times.items():
        due_at, next_due_at, last_fired_at = map(micros_or_none, times)
        # At most eight groups: each is a round trip.
        if not query.optional.move_together or len(ids) < max(TOGETHER_MIN, len(moves) // 8):
            alone += [(schedule_id, due_at, next_due_at, last_fired_at) for schedule_id in ids]
            continue
        rows = yield query(
            "move_together",
            ids=ids,
            due_at=due_at,
            next_due_at=next_due_at,
            last_fired_at=last_fired_at,
        )
        moved += rows[0][0]
    if alone:
        moved += (yield query("move_schedules", many=alone))[0][0]
    return moved


def _due(
    query: Queries,
    *,
    now: datetime,
    limit: int,
    jobs: Collection[str] | None,
    seen_after: datetime | None,
) -> Operation[Rows]:
    """Lock due schedules: the first of all, or the first of each known job.

    As with claims, the head is enough while it has schedules of known jobs.
    """
    head_size = max(HEAD_FACTOR * limit, HEAD_MIN)
    known = None if jobs is None else sorted(jobs)
    values: dict[str, Any] = {
        "now": micros(now),
        "seen_after": micros_or_none(seen_after),
        "limit": limit,
    }
    rows = yield query("due_schedules", jobs=known, head_size=head_size, **values)
    if len(rows) >= limit or known == []:
        return rows
    if (yield query("count_due", now=values["now"], head_size=head_size))[0][0] < head_size:
        return rows
    if known is None:
        known = yield from scheduled_jobs(query)
    return (yield query("due_by_job", jobs=known, **values))


def _readable(query: Queries, rows: Sequence[Row]) -> tuple[list[ScheduleRow], list[Unfired]]:
    """The schedules of these rows. Rows that cannot be read are reported, and stop no others."""
    due: list[ScheduleRow] = []
    broken: list[Unfired] = []
    for row in rows:
        try:
            due.append(query.mappers.schedule_of(row))
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            broken.append(Unfired(row[0], describe_fault(error)))
    return due, broken


def _write_skips(query: Queries, skips: Sequence[Skip], *, now: int) -> Operation[None]:
    new = [
        NewSkip(
            (skip.schedule.spec.tenant, skip.schedule.spec.name),
            skip.id,
            skip.reason,
            first_at=micros(skip.first_at),
            last_at=micros(skip.last_at),
            ended_at=now,
            instants=skip.instants,
        )
        for skip in skips
    ]
    plan = yield from merge(query, new)
    rows = [
        query.mappers.skip_row(skip, now=now, queue=QUEUE_DEFAULT, priority=PRIORITY_DEFAULT)
        for skip in skips
        if skip.id not in plan.without_row
    ]
    if rows:
        yield query.command("insert_skips", many=rows)
    yield from write_plan(query, plan)
    ended = [
        EndedRuns(
            job=skip.schedule.spec.job,
            queue=skip.schedule.spec.queue or QUEUE_DEFAULT,
            status=RunStatus.SKIPPED,
            ended_at=moment(now),
            number=skip.instants,
        )
        for skip in skips
    ]
    yield from insert_rollups(query, count_runs(ended))
