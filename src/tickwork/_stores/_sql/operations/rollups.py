"""Counts ended attempts, merges the counts, and reads them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork._domain.identity import RunId
from tickwork._domain.rollups import (
    ROLLUPS_MAX,
    EndedRuns,
    Rollup,
    RollupLevel,
    count_runs,
    merge_into,
    merge_rollups,
    old_before,
    with_queues,
)
from tickwork._domain.runs.status import RunStatus
from tickwork._stores._sql.faults import report_fault
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    describe_fault,
    micros,
    moment,
    moment_or_none,
    new_rollup_row,
    rollup_of,
)
from tickwork._stores._sql.statement import Operation, Row, Rows

_LATEST: Final = 2**63 - 1


def insert_rollups(
    query: Queries, rollups: Iterable[Rollup], level: RollupLevel = RollupLevel.PART
) -> Operation[None]:
    rows = [new_rollup_row(level, rollup) for rollup in rollups]
    if rows:
        yield query.command("insert_rollups", many=rows)


def count_history(query: Queries, ids: Sequence[RunId]) -> Operation[None]:
    """Count runs whose rows this transaction has moved to history."""
    rows = yield query("ended_runs", ids=list(ids))
    ended = [run for row in rows if (run := _ended_run_of(row)) is not None]
    yield from insert_rollups(query, count_runs(ended))


def _ended_run_of(row: Row) -> EndedRuns | None:
    job, queue, status, ended_at, started_at, due_at = row
    try:
        return EndedRuns(
            job,
            queue,
            RunStatus(status),
            moment(ended_at),
            moment_or_none(started_at),
            moment_or_none(due_at),
        )
    except Exception:  # noqa: BLE001  # it was moved because it cannot be read
        return None


def compact_rollups(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    """Merge rows into those of the next level; return how many rows were read.

    A concurrent call may leave two rows where one would do: their sum is right, and the next level
    merges them.
    """
    done = 0
    for level in (RollupLevel.PART, RollupLevel.MINUTE, RollupLevel.HOUR):
        is_part = level is RollupLevel.PART
        before = _LATEST if is_part else micros(old_before(level, now))
        rows = yield query("rollups_of_level", level=int(level), before=before, limit=limit)
        if rows:
            yield from _merge(query, rows, RollupLevel(level + 1))
            done += len(rows)
    last = RollupLevel.DAY
    before = micros(old_before(last, now))
    rows = yield query("rollups_of_level", level=int(last), before=before, limit=limit)
    if rows:
        yield query.command("delete_rollups", ids=[row[0] for row in rows])
    return done


def _merge(query: Queries, rows: Rows, level: RollupLevel) -> Operation[None]:
    """Replace these rows, and those of the level with the same keys, by their sums."""
    added = merge_into(level, _readable(row[1:] for row in rows))
    keys = {rollup.key for rollup in added}
    begins = [micros(rollup.begins_at) for rollup in added]
    gone = [row[0] for row in rows]
    kept: list[Rollup] = []
    if begins:
        locked = yield query("lock_rollups", level=int(level), first=min(begins), last=max(begins))
        for row in locked:
            for rollup in _readable([row[1:]]):
                if rollup.key in keys:
                    kept.append(rollup)
                    gone.append(row[0])
    yield query.command("delete_rollups", ids=gone)
    yield from insert_rollups(query, merge_rollups([*kept, *added]), level)


def read_rollups(
    query: Queries,
    *,
    since: datetime,
    until: datetime,
    jobs: Sequence[str],
    limit: int = ROLLUPS_MAX,
) -> Operation[list[Rollup]]:
    span: dict[str, Any] = {"since": micros(since), "until": micros(until), "limit": limit}
    merged = _readable((yield query("read_rollups", keys=sorted(set(jobs)), **span)))
    parts = _readable((yield query("read_new_rollups", **span)))
    wanted = frozenset(jobs)
    return merge_rollups([*merged, *(each for each in with_queues(parts) if each.job in wanted)])


def _readable(rows: Iterable[Row]) -> list[Rollup]:
    """The rollups of rows; another program may have made some of them unreadable."""
    rollups: list[Rollup] = []
    for row in rows:
        try:
            rollups.append(rollup_of(row))
        except Exception as error:  # noqa: BLE001  # any error is the row's own
            report_fault("tickwork_rollup", f"{row[1]} at {row[0]}", describe_fault(error))
    return rollups
