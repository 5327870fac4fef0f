"""For people: one run, many runs, counts; and pruning what nobody reads any more."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.run import Run
from tickwork._domain.status import FINAL, Phase
from tickwork.stores._sql.filters import filter_runs
from tickwork.stores._sql.operations.rates import prune_rates
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import (
    attempt_of,
    job_of,
    listed_run_of,
    log_line_of,
    micros,
    moment_or_none,
    pause_of,
    worker_of,
)
from tickwork.stores._sql.statement import Operation, Row
from tickwork.stores.contract import (
    Health,
    JobRow,
    LimitRow,
    Pause,
    PhaseCounts,
    Pruned,
    RunFilter,
    RunPage,
    RunRecord,
    TableHealth,
    WorkerRow,
)


def get_runs(query: Queries, run_ids: Sequence[RunId]) -> Operation[list[Run]]:
    """Runs by id, unfinished or finished."""
    if not run_ids:
        return []
    return [listed_run_of(row) for row in (yield query("get_runs", ids=list(run_ids)))]


def find_run_ids(query: Queries, prefix: str, *, limit: int) -> Operation[list[RunId]]:
    """Ids that begin like this."""
    return [row[0] for row in (yield query("find_run_ids", prefix=prefix.lower(), limit=limit))]


def list_runs(
    query: Queries, where: RunFilter, *, cursor: str | None, limit: int
) -> Operation[RunPage]:
    """Runs by id, newest first: the best of the living and of history, merged."""
    rows: list[Row] = []
    # What cannot be in a table is not looked for there: it would be read to its end.
    if not where.statuses or where.statuses - FINAL:
        rows += yield filter_runs(query, "list_live", where, cursor=cursor, limit=limit + 1)
    if not where.statuses or where.statuses & FINAL:
        rows += yield filter_runs(query, "list_history", where, cursor=cursor, limit=limit + 1)
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    runs = [listed_run_of(row) for row in rows[:limit]]
    return RunPage(runs, runs[-1].id if len(rows) > limit else None)


def run_record(query: Queries, run_id: RunId) -> Operation[RunRecord | None]:
    """A run with its attempts and its log."""
    found = yield from get_runs(query, [run_id])
    if not found:
        return None
    attempts = [attempt_of(row) for row in (yield query("get_attempts", id=run_id))]
    lines = [log_line_of(row) for row in (yield query("get_log", id=run_id))]
    return RunRecord(found[0], attempts, lines)


def count_runs(query: Queries, *, cap: int) -> Operation[PhaseCounts]:
    """Unfinished runs by phase, counted no further than ``cap``."""
    rows = yield query("count_phases", cap=cap)
    return PhaseCounts({Phase(row[0]): row[1] for row in rows}, cap)


def count_taken(query: Queries, keys: Sequence[str]) -> Operation[dict[str, int]]:
    """How many slots of these keys are taken."""
    found: dict[str, int] = dict((yield query("count_slots", keys=list(keys))))
    return {key: found.get(key, 0) for key in keys}


def slot_holders(query: Queries, key: str, *, limit: int) -> Operation[list[RunId]]:
    """Who holds the slots of a key."""
    return [row[0] for row in (yield query("slot_holders", key=key, limit=limit))]


def list_jobs(query: Queries, *, tenant: str | None) -> Operation[list[JobRow]]:
    """What happened to each job."""
    return [job_of(row) for row in (yield query("list_jobs", tenant=tenant))]


def list_limits(query: Queries) -> Operation[list[LimitRow]]:
    """All limits, by name."""
    return [LimitRow(*row) for row in (yield query("list_limits"))]


def list_pauses(query: Queries) -> Operation[list[Pause]]:
    """Paused queues and jobs."""
    return [pause_of(row) for row in (yield query("list_pauses"))]


def list_workers(query: Queries) -> Operation[list[WorkerRow]]:
    """All workers, the newest beat first."""
    return [worker_of(row) for row in (yield query("list_workers"))]


def health(query: Queries) -> Operation[Health]:
    """How the database itself is."""
    [(size, free, oldest)] = yield query("health")
    tables = tuple(TableHealth(*row) for row in (yield query("health_of_tables")))
    return Health(
        bytes=size, free_bytes=free, oldest_transaction_at=moment_or_none(oldest), tables=tables
    )


class OldDefinitions(NamedTuple):
    """Definitions that nobody needs any more, it seems."""

    schedules: list[str] = []  # noqa: RUF012  # never written to
    jobs: list[list[str]] = []  # noqa: RUF012  # as above


def old_definitions(query: Queries, *, before: datetime, limit: int) -> Operation[OldDefinitions]:
    """Find them without a lock: this may look at every schedule, and at every unfinished run."""
    edge = micros(before)
    schedules = [row[0] for row in (yield query("old_schedules", before=edge, limit=limit))]
    jobs = [list(row) for row in (yield query("old_jobs", before=edge, limit=limit))]
    return OldDefinitions(sorted(schedules), sorted(jobs))


NOTHING_OLD: Final = OldDefinitions()


def prune(
    query: Queries, *, before: datetime, limit: int, definitions: OldDefinitions = NOTHING_OLD
) -> Operation[Pruned]:
    """Remove one batch of what ended, or was last seen, before this instant."""
    edge = micros(before)
    ids = [row[0] for row in (yield query("old_runs", before=edge, limit=limit))]
    runs = (yield query("prune_runs", ids=sorted(ids)))[0][0] if ids else 0
    # A window may be longer than its run is kept: its key goes by itself.
    yield query.command("prune_keys", before=edge, limit=limit)
    yield from prune_rates(query, before=before, limit=limit)
    schedules = jobs = 0
    if definitions.schedules:
        rows = yield query("prune_schedules", before=edge, ids=definitions.schedules)
        schedules = rows[0][0]
    if definitions.jobs:
        jobs = (yield query("prune_jobs", before=edge, names=definitions.jobs))[0][0]
    return Pruned(runs, jobs, schedules)
