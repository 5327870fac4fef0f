"""Reads runs, jobs, limits and workers to show them, and prunes history."""

from collections.abc import Sequence
from datetime import datetime
from itertools import compress
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.retention import EndedRun, HistoryCursor
from tickwork._domain.run import Run
from tickwork._domain.status import FINAL, Phase, RunStatus
from tickwork.stores._sql.filters import filter_runs, find_floor
from tickwork.stores._sql.operations.rates import prune_rates
from tickwork.stores._sql.operations.schedules import list_schedules
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import (
    CHECKED_TABLES,
    attempt_of,
    describe_fault,
    job_of,
    limit_row_of,
    listed_run_of,
    log_line_of,
    micros,
    moment,
    moment_or_none,
    pause_of,
    shown_text,
    summary_of,
    worker_of,
)
from tickwork.stores._sql.statement import Operation, Row
from tickwork.stores.contract import (
    CountPrecision,
    Health,
    JobRow,
    LimitRow,
    Pause,
    PhaseCounts,
    Pruned,
    RowFault,
    RunCount,
    RunFilter,
    RunPage,
    RunRecord,
    SummaryPage,
    TableHealth,
    WorkerRow,
)

FIRST_ID: Final = RunId("00000000-0000-0000-0000-000000000000")
"""An id that is smaller than that of any run."""

_FAILED: Final = RunStatus.FAILED_PERMANENT.value


def get_runs(query: Queries, run_ids: Sequence[RunId]) -> Operation[list[Run]]:
    if not run_ids:
        return []
    return [listed_run_of(row) for row in (yield query("get_runs", ids=list(run_ids)))]


def find_run_ids(query: Queries, prefix: str, *, limit: int) -> Operation[list[RunId]]:
    return [row[0] for row in (yield query("find_run_ids", prefix=prefix.lower(), limit=limit))]


def list_runs(
    query: Queries, where: RunFilter, *, cursor: str | None, limit: int, scan_max: int | None
) -> Operation[RunPage]:
    names = ("list_live", "list_history")
    found = yield from _find_newest(query, names, where, cursor, limit, scan_max)
    return RunPage([listed_run_of(row) for row in found.rows], found.cursor, found.searched_to)


def list_summaries(
    query: Queries, where: RunFilter, *, cursor: str | None, limit: int, scan_max: int | None
) -> Operation[SummaryPage]:
    names = ("summarize_live", "summarize_history")
    found = yield from _find_newest(query, names, where, cursor, limit, scan_max)
    return SummaryPage(list(map(summary_of, found.rows)), found.cursor, found.searched_to)


def count_matches(
    query: Queries, where: RunFilter, *, cap: int, scan_max: int
) -> Operation[RunCount]:
    found = yield from _find_newest(query, _IDS, where, None, cap, scan_max)
    if found.cursor is None:
        return RunCount(len(found.rows), CountPrecision.EXACT)
    if where == RunFilter():
        tables = yield query("health_of_tables")
        rows = sum(row[1] for row in tables if row[0] in query.tables("run", "history"))
        if rows > cap:
            return RunCount(rows, CountPrecision.ABOUT)
    return RunCount(len(found.rows), CountPrecision.AT_LEAST)


class _FoundRows(NamedTuple):
    rows: list[Row]
    cursor: RunId | None
    searched_to: RunId | None


_IDS: Final = ("list_live_ids", "list_history_ids")


def _find_newest(  # noqa: PLR0917  # the parameters of a page
    query: Queries,
    names: tuple[str, str],
    where: RunFilter,
    cursor: str | None,
    limit: int,
    scan_max: int | None,
) -> Operation[_FoundRows]:
    """Run a list query on both tables; the first column is the id."""
    # A table that cannot contain these statuses is not searched: it would be read to its end.
    is_searched = (
        not where.statuses or bool(where.statuses - FINAL),
        not where.statuses or bool(where.statuses & FINAL),
    )
    floor: str | None = None
    if scan_max is not None:
        for name in compress(_IDS, is_searched):
            bound = find_floor(query, name, where, cursor=cursor, scan_max=scan_max)
            for row in () if bound is None else (yield bound):
                # What one table was not searched for is unknown: the page ends there.
                floor = max(floor or "", str(row[0]))
    rows: list[Row] = []
    for name in compress(names, is_searched):
        rows += yield filter_runs(query, name, where, cursor=cursor, limit=limit + 1, floor=floor)
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    if len(rows) > limit:
        return _FoundRows(rows[:limit], RunId(rows[limit - 1][0]), None)
    searched_to = None if floor is None else RunId(floor)
    return _FoundRows(rows, searched_to, searched_to)


def run_record(query: Queries, run_id: RunId) -> Operation[RunRecord | None]:
    found = yield from get_runs(query, [run_id])
    if not found:
        return None
    attempts = [attempt_of(row) for row in (yield query("get_attempts", id=run_id))]
    lines = [log_line_of(row) for row in (yield query("get_log", id=run_id))]
    return RunRecord(found[0], attempts, lines)


def count_runs(query: Queries, *, cap: int) -> Operation[PhaseCounts]:
    rows = yield query("count_phases", cap=cap)
    by_queue: dict[str, dict[Phase, int]] = {}
    for phase, queue, count in rows:
        by_queue.setdefault(shown_text(queue), {})[Phase(phase)] = count
    return PhaseCounts(by_queue, cap)


def count_taken(query: Queries, keys: Sequence[str]) -> Operation[dict[str, int]]:
    found: dict[str, int] = dict((yield query("count_slots", keys=list(keys))))
    return {key: found.get(key, 0) for key in keys}


def slot_holders(query: Queries, key: str, *, limit: int) -> Operation[list[RunId]]:
    return [row[0] for row in (yield query("slot_holders", key=key, limit=limit))]


def list_jobs(query: Queries, *, tenant: str | None) -> Operation[list[JobRow]]:
    return [job_of(row) for row in (yield query("list_jobs", tenant=tenant))]


def list_limits(query: Queries) -> Operation[list[LimitRow]]:
    return [limit_row_of(row) for row in (yield query("list_limits"))]


def list_pauses(query: Queries) -> Operation[list[Pause]]:
    return [pause_of(row) for row in (yield query("list_pauses"))]


def list_workers(query: Queries) -> Operation[list[WorkerRow]]:
    return [worker_of(row) for row in (yield query("list_workers"))]


def find_faults(query: Queries, *, limit: int) -> Operation[list[RowFault]]:
    found: list[RowFault] = []
    for name, key, check in CHECKED_TABLES:
        # All workers, limits, pauses and jobs are read, as a worker and every report do.
        for row in (yield query(f"list_{name}s", **({"tenant": None} if name == "job" else {}))):
            try:
                check(row)
            except Exception as error:  # noqa: BLE001  # any error is the row's own
                found.append(RowFault(f"tickwork_{name}", str(row[key]), describe_fault(error)))
    schedules = yield from list_schedules(query, tenant=None, after=None, limit=limit)
    found += [
        RowFault("tickwork_schedule", row.spec.name, row.fault) for row in schedules if row.fault
    ]
    live = yield filter_runs(query, "list_live", RunFilter(), cursor=None, limit=limit)
    runs = map(listed_run_of, live)
    found += [RowFault("tickwork_run", run.id, run.reason) for run in runs if run.is_finished]
    return found


def health(query: Queries) -> Operation[Health]:
    [(size, free, oldest)] = yield query("health")
    tables = tuple(TableHealth(*row) for row in (yield query("health_of_tables")))
    return Health(
        bytes=size, free_bytes=free, oldest_transaction_at=moment_or_none(oldest), tables=tables
    )


def list_ended(
    query: Queries, *, after: HistoryCursor | None, before: datetime, limit: int
) -> Operation[list[EndedRun]]:
    ended_at, run_id = (0, FIRST_ID) if after is None else (micros(after.ended_at), after.run_id)
    rows = yield query(
        "list_ended", after=ended_at, after_id=run_id, before=micros(before), limit=limit
    )
    return [
        # A status that this version does not know must not stop the pruning of other runs.
        EndedRun(RunId(row[0]), row[1], row[2] == _FAILED, moment(row[3]), bool(row[4]))
        for row in rows
    ]


def delete_runs(query: Queries, run_ids: Sequence[RunId]) -> Operation[int]:
    if not run_ids:
        return 0
    # Locked in one order, and without waiting: two programs may prune at the same time.
    ids = [row[0] for row in (yield query("lock_ended", ids=sorted(run_ids)))]
    count: int = (yield query("prune_runs", ids=sorted(ids)))[0][0] if ids else 0
    return count


def clear_results(query: Queries, run_ids: Sequence[RunId], *, reason: str) -> Operation[int]:
    if not run_ids:
        return 0
    ids = [row[0] for row in (yield query("lock_ended", ids=sorted(run_ids)))]
    if ids:
        yield query.command("clear_results", ids=sorted(ids), reason=reason)
    return len(ids)


def prune_keys(query: Queries, *, before: datetime, limit: int) -> Operation[None]:
    yield query.command("prune_keys", before=micros(before), limit=limit)
    yield query.command("prune_requests", before=micros(before), limit=limit)
    yield from prune_rates(query, before=before, limit=limit)


class OldDefinitions(NamedTuple):
    """Candidates for pruning: jobs and schedules that no program seems to define any more."""

    schedules: list[str] = []  # noqa: RUF012  # never written to
    jobs: list[list[str]] = []  # noqa: RUF012  # as above


def old_definitions(query: Queries, *, before: datetime, limit: int) -> Operation[OldDefinitions]:
    """Find candidates without a lock: this may read every schedule and every unfinished run."""
    before_micros = micros(before)
    schedules = [
        row[0] for row in (yield query("old_schedules", before=before_micros, limit=limit))
    ]
    jobs = [list(row) for row in (yield query("old_jobs", before=before_micros, limit=limit))]
    return OldDefinitions(sorted(schedules), sorted(jobs))


NOTHING_OLD: Final = OldDefinitions()


def prune(
    query: Queries, *, before: datetime, limit: int, definitions: OldDefinitions = NOTHING_OLD
) -> Operation[Pruned]:
    before_micros = micros(before)
    ids = [row[0] for row in (yield query("old_runs", before=before_micros, limit=limit))]
    runs = (yield query("prune_runs", ids=sorted(ids)))[0][0] if ids else 0
    # A window may be longer than the retention of its run, so keys are pruned on their own.
    yield from prune_keys(query, before=before, limit=limit)
    schedules = jobs = 0
    if definitions.schedules:
        rows = yield query("prune_schedules", before=before_micros, ids=definitions.schedules)
        schedules = rows[0][0]
    if definitions.jobs:
        jobs = (yield query("prune_jobs", before=before_micros, names=definitions.jobs))[0][0]
    return Pruned(runs, jobs, schedules)
