"""Reads runs, jobs, limits and workers to show them, and prunes history."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress, groupby, islice
from typing import Any, Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.runs.retention import EndedRun, HistoryCursor
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import FINAL, Phase, RunStatus
from tickwork._domain.shared_names import DefinitionRow
from tickwork._kernel.ids import first_id, time_of_id
from tickwork._stores._sql.filters import filter_runs, find_floor
from tickwork._stores._sql.operations.flows import FIRST_ID, list_steps
from tickwork._stores._sql.operations.rates import prune_rates
from tickwork._stores._sql.operations.schedules import list_schedules
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    CHECKED_TABLES,
    EPOCH,
    attempt_of,
    clamped_moment,
    definition_of,
    describe_fault,
    job_of,
    limit_row_of,
    log_line_of,
    micros,
    moment,
    moment_or_none,
    pause_of,
    shown_text,
    worker_of,
)
from tickwork._stores._sql.statement import Operation, Row
from tickwork._stores.contract import (
    CountPrecision,
    CreatedRuns,
    Creations,
    Health,
    JobRow,
    LimitRow,
    OpenTransaction,
    Pause,
    PhaseCounts,
    Pruned,
    RowFault,
    RunCount,
    RunFilter,
    RunPage,
    RunRecord,
    ScheduleOutcome,
    SummaryPage,
    TableHealth,
    WorkerRow,
)

"""An id that is smaller than that of any run."""

PAIRS_MAX: Final = 3_000
"""The most pairs of queue and phase that are counted."""

PRIORITIES_MAX: Final = 20
"""The most priorities of one queue and job in which the oldest run is searched."""

PRIORITY_MIN: Final = -(2**31) + 1

COUNTED_MAX: Final = 100_000
"""The most unfinished runs that are counted in all queues together."""

RUNNING_FACTOR: Final = 4
"""In all queues together, so many times more running runs are counted than in another phase."""

_EARLIEST: Final = EPOCH
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'?")

_FAILED: Final = RunStatus.FAILED_PERMANENT.value


def get_runs(query: Queries, run_ids: Sequence[RunId]) -> Operation[list[Run]]:
    if not run_ids:
        return []
    return [
        query.mappers.listed_run_of(row) for row in (yield query("get_runs", ids=list(run_ids)))
    ]


def find_run_ids(query: Queries, prefix: str, *, limit: int = 10) -> Operation[list[RunId]]:
    return [row[0] for row in (yield query("find_run_ids", prefix=prefix.lower(), limit=limit))]


def list_runs(
    query: Queries,
    where: RunFilter,
    *,
    cursor: str | None = None,
    limit: int = 50,
    scan_max: int | None = None,
) -> Operation[RunPage]:
    names = ("list_live", "list_history")
    newest = yield from _find_newest(query, names, where, cursor, limit, scan_max)
    runs = list(map(query.mappers.listed_run_of, newest.rows))
    return RunPage(runs, newest.cursor, newest.searched_to)


def list_summaries(
    query: Queries,
    where: RunFilter,
    *,
    cursor: str | None = None,
    limit: int = 50,
    scan_max: int | None = None,
) -> Operation[SummaryPage]:
    names = ("summarize_live", "summarize_history")
    newest = yield from _find_newest(query, names, where, cursor, limit, scan_max)
    runs = list(map(query.mappers.summary_of, newest.rows))
    return SummaryPage(runs, newest.cursor, newest.searched_to)


def count_matches(
    query: Queries, where: RunFilter, *, cap: int, scan_max: int
) -> Operation[RunCount]:
    newest = yield from _find_newest(query, _IDS, where, None, cap, scan_max)
    if newest.cursor is None:
        return RunCount(len(newest.rows), CountPrecision.EXACT)
    if where == RunFilter():
        tables = yield query("health_of_tables")
        rows = sum(row[1] for row in tables if row[0] in query.tables("run", "history"))
        if rows > cap:
            return RunCount(rows, CountPrecision.ABOUT)
    return RunCount(len(newest.rows), CountPrecision.AT_LEAST)


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
        not where.is_suspended and (not where.statuses or bool(where.statuses & FINAL)),
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


def list_outcomes(
    query: Queries,
    names: Sequence[tuple[str, str]],
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int,
) -> Operation[list[ScheduleOutcome]]:
    if not names:
        return []
    wanted = [list(name) for name in dict.fromkeys(names)]
    begin, end = since or _EARLIEST, before or _LATEST
    live = yield query(
        "live_outcomes", names=wanted, since=micros(begin), before=micros(end), limit=limit
    )
    ended = yield query(
        "history_outcomes",
        names=wanted,
        since_id=first_id(begin),
        before_id=first_id(end),
        limit=limit,
    )
    outcomes = [outcome for row in (*live, *ended) if (outcome := _outcome_of(row)) is not None]
    outcomes.sort(key=lambda run: (run.schedule, run.tenant, run.id), reverse=True)
    grouped = groupby(outcomes, key=lambda run: (run.schedule, run.tenant))
    return [run for _, runs in grouped for run in islice(runs, limit)]


def _outcome_of(row: Row) -> ScheduleOutcome | None:
    schedule, tenant, run_id, status, nominal_at, instants, started_at, ended_at = row
    try:
        return ScheduleOutcome(
            schedule,
            tenant,
            run_id,
            RunStatus(status),
            moment(nominal_at),
            instants,
            moment_or_none(started_at),
            moment_or_none(ended_at),
        )
    except Exception:  # noqa: BLE001  # another program has edited the row
        return None


def list_waiting(
    query: Queries,
    *,
    since: datetime,
    until: datetime,
    limit: int,
    job: str | None = None,
    schedule: str | None = None,
) -> Operation[list[Run]]:
    rows = yield query(
        "list_waiting",
        since=micros(since),
        until=micros(until),
        limit=limit,
        job=job,
        schedule=schedule,
    )
    return list(map(query.mappers.listed_run_of, rows))


def find_retries(query: Queries, run_id: RunId, *, limit: int = 10) -> Operation[list[RunId]]:
    return sorted(row[0] for row in (yield query("find_retries", id=run_id, limit=limit)))


def count_created(query: Queries, *, since: datetime, most: int) -> Operation[Creations]:
    floor = first_id(since)
    for name in ("live_floor", "history_floor"):
        for row in (yield query(name, since=floor, most=most)):
            floor = max(floor, row[0])
    rows = yield query("count_created", since=floor)
    begin = time_of_id(floor)
    return Creations(
        since if begin is None else max(since, begin),
        [CreatedRuns(_minute_of(minute), shown_text(queue), int(n)) for queue, minute, n in rows],
    )


def _minute_of(number: int) -> datetime:
    # Another program may have edited the id: its time may be after the year 9999.
    return clamped_moment(int(number) * 60_000_000) or EPOCH


def oldest_ready(
    query: Queries, pairs: Sequence[tuple[str, str]]
) -> Operation[dict[tuple[str, str], datetime]]:
    oldest: dict[tuple[str, str], int] = {}
    wanted = [[queue, job, PRIORITY_MIN - 1] for queue, job in dict.fromkeys(pairs)]
    # Within a priority, the index is in the order of due times. Most jobs have one priority.
    for _ in range(PRIORITIES_MAX):
        if not wanted:
            break
        rows = yield query("first_of_pairs", pairs=wanted)
        for queue, job, _, due_at in rows:
            oldest[queue, job] = min(due_at, oldest.get((queue, job), due_at))
        wanted = [[queue, job, priority] for queue, job, priority, _ in rows]
    moments = {pair: clamped_moment(due_at) for pair, due_at in oldest.items()}
    return {pair: due_at for pair, due_at in moments.items() if due_at is not None}


def count_starts(query: Queries, since_by_key: Mapping[str, datetime]) -> Operation[dict[str, int]]:
    counts: dict[str, int] = {}
    for key, since in since_by_key.items():
        [[counts[key]]] = yield query("count_starts", key=key, since=micros(since))
    return counts


def run_record(query: Queries, run_id: RunId) -> Operation[RunRecord | None]:
    runs = yield from get_runs(query, [run_id])
    if not runs:
        return None
    attempts = [attempt_of(row) for row in (yield query("get_attempts", id=run_id))]
    lines = [log_line_of(row) for row in (yield query("get_log", id=run_id))]
    steps = yield from list_steps(query, run_id)
    return RunRecord(runs[0], attempts, lines, steps)


def count_runs(query: Queries, *, cap: int = 10_000) -> Operation[PhaseCounts]:
    pairs = [list(row) for row in (yield query("queue_phases", limit=PAIRS_MAX))]
    if pairs:
        cap = min(cap, max(COUNTED_MAX // len(pairs), 100))
    # One more than the cap shows that there are more.
    rows = list((yield query("count_phases", pairs=pairs, cap=cap + 1)) if pairs else [])
    running_max = RUNNING_FACTOR * cap
    running = yield query("count_running", cap=running_max + 1)
    is_cut = sum(count for _, count in running) > running_max
    rows += [(queue, Phase.RUNNING.value, count) for queue, count in running]
    by_queue: dict[str, dict[Phase, int]] = {}
    capped: set[tuple[str, Phase]] = set()
    for name, phase_name, count in rows:
        queue, phase = shown_text(name), Phase(phase_name)
        if count:
            by_queue.setdefault(queue, {})[phase] = min(count, cap)
        if count > cap or (is_cut and phase is Phase.RUNNING):
            capped.add((queue, phase))
    return PhaseCounts(by_queue, cap, frozenset(capped))


def count_taken(query: Queries, keys: Sequence[str]) -> Operation[dict[str, int]]:
    count_by_key: dict[str, int] = dict((yield query("count_slots", keys=list(keys))))
    return {key: count_by_key.get(key, 0) for key in keys}


def slot_holders(query: Queries, key: str, *, limit: int = 10) -> Operation[list[RunId]]:
    return [row[0] for row in (yield query("slot_holders", key=key, limit=limit))]


def list_jobs(query: Queries, *, tenant: str | None = None) -> Operation[list[JobRow]]:
    return [job_of(row) for row in (yield query("list_jobs", tenant=tenant))]


def list_definitions(query: Queries, *, since: datetime) -> Operation[list[DefinitionRow]]:
    rows = yield query("list_definitions", since=micros(since))
    return [definition_of(row) for row in rows]


def list_limits(query: Queries) -> Operation[list[LimitRow]]:
    return [limit_row_of(row) for row in (yield query("list_limits"))]


def list_pauses(query: Queries) -> Operation[list[Pause]]:
    return [pause_of(row) for row in (yield query("list_pauses"))]


def list_workers(query: Queries) -> Operation[list[WorkerRow]]:
    return [worker_of(row) for row in (yield query("list_workers"))]


FAULTS_STEP: Final = 100
"""Runs that one statement reads to find faults: they come with their arguments."""


def find_faults(query: Queries, *, limit: int) -> Operation[list[RowFault]]:
    faults: list[RowFault] = []
    for name, key, check in CHECKED_TABLES:
        # All workers, limits, pauses and jobs are read, as a worker and every report do.
        for row in (yield query(f"list_{name}s", **({"tenant": None} if name == "job" else {}))):
            try:
                check(row)
            except Exception as error:  # noqa: BLE001  # any error is the row's own
                faults.append(RowFault(f"tickwork_{name}", str(row[key]), describe_fault(error)))
    schedules = yield from list_schedules(query, tenant=None, after=None, limit=limit)
    faults += [
        RowFault("tickwork_schedule", row.spec.name, row.fault) for row in schedules if row.fault
    ]
    cursor: RunId | None = None
    for at in range(0, limit, FAULTS_STEP):
        wanted = min(limit - at, FAULTS_STEP)
        live = yield filter_runs(query, "list_live", RunFilter(), cursor=cursor, limit=wanted)
        runs = list(map(query.mappers.listed_run_of, live))
        faults += [RowFault("tickwork_run", run.id, run.reason) for run in runs if run.is_finished]
        if len(runs) < wanted:
            break
        cursor = runs[-1].id
    return faults


def health(query: Queries) -> Operation[Health]:
    [(size, free, *oldest)] = yield query("health")
    tables = tuple(TableHealth(*row) for row in (yield query("health_of_tables")))
    outbox = yield query("oldest_outbox")
    return Health(
        bytes=size,
        free_bytes=free,
        oldest_transaction=open_transaction(oldest),
        tables=tables,
        outbox_at=time_of_id(outbox[0][0]) if outbox else None,
    )


def open_transaction(row: Sequence[Any]) -> OpenTransaction | None:
    """The oldest transaction; its statement without the values in it, which may be secret."""
    began_at, holder, statement, ending = row if row[0] is not None else (None, "", "", "")
    if began_at is None:
        return None
    return OpenTransaction(moment(began_at), holder, _LITERAL.sub("'…'", statement), ending)


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
    yield query.command("prune_events", now=micros(before))
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
    if definitions is not NOTHING_OLD:
        yield query.command("prune_definitions", before=before_micros)
    if definitions.jobs:
        jobs = (yield query("prune_jobs", before=before_micros, names=definitions.jobs))[0][0]
    return Pruned(runs, jobs, schedules)
