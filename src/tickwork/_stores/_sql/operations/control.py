"""Cancels, reschedules and pauses; named locks; the rows of workers."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.limits import gate_of, slots_in
from tickwork._domain.runs.links import CALLED, CALLS
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.shared_names import DefinitionRow
from tickwork._stores._sql.operations.calls import find_edges, leave_calls, release
from tickwork._stores._sql.operations.limits import free_slots
from tickwork._stores._sql.operations.notifications import is_soon, notify_all
from tickwork._stores._sql.operations.rollups import count_history
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    definition_params,
    keys_of,
    lock_of,
    lock_params,
    micros,
    pause_params,
    worker_params,
)
from tickwork._stores._sql.statement import Operation, Rows
from tickwork._stores.contract import ChangeResult, LockRow, Pause, PauseKind, WorkerRow

CALLER_ENDED: Final = "The run that called it ended without success."
CANCEL_MAX: Final = 10_000
"""The most runs of schedules that one call cancels."""


def cancel(
    query: Queries, run_id: RunId, *, now: datetime, reason: str = ""
) -> Operation[ChangeResult]:
    rows = yield query("lock_run", id=run_id)
    if not rows:
        return (yield from _finished_or_unknown(query, run_id))
    status, _, _, limit_keys, links = rows[0]
    if status == RunStatus.RUNNING:
        yield query.command("request_cancel", id=run_id, now=micros(now))
        return ChangeResult.REQUESTED
    yield from _cancel_waiting(query, [(run_id, limit_keys, links)], now=now, reason=reason)
    return ChangeResult.DONE


def cancel_schedule(
    query: Queries, tenant: str, schedule: str, *, now: datetime, reason: str = ""
) -> Operation[int]:
    return (yield from cancel_schedules(query, [(tenant, schedule)], now=now, reason=reason))


def cancel_schedules(
    query: Queries, names: Collection[tuple[str, str]], *, now: datetime, reason: str
) -> Operation[int]:
    """Cancel the unfinished runs of schedules; return how many, at most :data:`CANCEL_MAX`."""
    wanted = [list(name) for name in sorted(names)]
    rows = yield query("runs_of_schedules", names=wanted, limit=CANCEL_MAX)
    waiting = [(row[0], row[2], row[3]) for row in rows if row[1] != RunStatus.RUNNING]
    if len(waiting) < len(rows):
        many = [(micros(now), schedule, tenant) for tenant, schedule in wanted]
        yield query.command("request_cancel_of_schedules", many=many)
    if waiting:
        yield from _cancel_waiting(query, waiting, now=now, reason=reason)
    return len(rows)


def _cancel_waiting(query: Queries, runs: Rows, *, now: datetime, reason: str) -> Operation[None]:
    ids = sorted(row[0] for row in runs)
    yield query.command("cancel_waiting", ids=ids, now=micros(now), reason=reason)
    yield from count_history(query, ids)
    yield query.command("free_keys", ids=ids, now=micros(now))
    yield query.command("delete_waits", ids=ids)
    # The run may hold slots from an earlier attempt. Or it was unblocked and has not taken its slot
    # yet: then the next blocked run must be unblocked in its place.
    slots = [
        (run_id, key) for run_id, limit_keys, _ in runs for key in slots_in(keys_of(limit_keys))
    ]
    yield from leave_calls(query, [row[0] for row in runs if row[2] & CALLS], now=now)
    edges = yield from find_edges(query, [row[0] for row in runs if row[2] & CALLED])
    if edges:
        gates = {edge.gate for edge in edges} | {gate_of(key) for _, key in slots}
        yield query.command("lock_gates", gates=sorted(gates))
        yield from release(query, edges, now=now)
    if slots:
        yield from free_slots(query, slots)


def cancel_calls(
    query: Queries, callers: Collection[RunId], *, now: datetime
) -> Operation[set[RunId]]:
    """Cancel the runs that these have called; return the callers that have no more.

    Runs that existed before the call are left alone: others may need them.
    """
    rows = (yield query("edges_of_parents", ids=sorted(callers)))[:CANCEL_MAX]
    # Before they end: these callers do not wait for them any more. Others may.
    for parent, child, _ in rows:
        yield query.command("delete_edge", child=child, parent=parent)
    own = {child for _, child, is_own in rows if is_own}
    own -= {edge.child for edge in (yield from find_edges(query, own))}
    found = (yield query("lock_called", ids=sorted(own))) if own else []
    waiting = [(row[0], row[2], row[3]) for row in found if row[1] != RunStatus.RUNNING]
    for run_id, status, *_ in found:
        if status == RunStatus.RUNNING:
            yield query.command("request_cancel", id=run_id, now=micros(now))
    if waiting:
        yield from _cancel_waiting(query, waiting, now=now, reason=CALLER_ENDED)
    return set(callers) if len(rows) < CANCEL_MAX else set()


def reschedule(
    query: Queries, run_id: RunId, *, due_at: datetime, now: datetime
) -> Operation[ChangeResult]:
    rows = yield query("lock_run", id=run_id)
    if not rows:
        return (yield from _finished_or_unknown(query, run_id))
    if rows[0][0] == RunStatus.RUNNING:
        return ChangeResult.CLAIMED
    yield query.command("move_run", id=run_id, due_at=micros(due_at), now=micros(now))
    if is_soon(due_at, now=now):
        yield from notify_all(query)
    return ChangeResult.DONE


def _finished_or_unknown(query: Queries, run_id: RunId) -> Operation[ChangeResult]:
    is_finished = (yield query("is_finished", id=run_id))[0][0]
    return ChangeResult.FINISHED if is_finished else ChangeResult.UNKNOWN


# ---------------------------------------------------------------- pauses, locks, workers


def pause(query: Queries, pause: Pause) -> Operation[None]:
    yield query.command("insert_pause", **pause_params(pause))


def resume(query: Queries, kind: PauseKind, name: str) -> Operation[bool]:
    yield from notify_all(query)
    return bool((yield query("delete_pause", kind=kind.value, name=name))[0][0])


def acquire_lock(query: Queries, lock: LockRow, *, now: datetime) -> Operation[LockRow | None]:
    yield query.command("take_lock", now=micros(now), **lock_params(lock))
    holder = lock_of((yield query("get_lock", name=lock.name))[0])
    return None if holder.owner == lock.owner else holder


def get_lock(query: Queries, name: str) -> Operation[LockRow | None]:
    rows = yield query("get_lock", name=name)
    return lock_of(rows[0]) if rows else None


def renew_lock(
    query: Queries, name: str, owner: str, *, until: datetime, now: datetime
) -> Operation[bool]:
    rows = yield query("renew_lock", name=name, owner=owner, until=micros(until), now=micros(now))
    return bool(rows[0][0])


def release_lock(query: Queries, name: str, owner: str | None = None) -> Operation[bool]:
    return bool((yield query("release_lock", name=name, owner=owner))[0][0])


def beat_worker(query: Queries, worker: WorkerRow) -> Operation[None]:
    yield query.command("beat_worker", **worker_params(worker))


def remove_worker(query: Queries, worker: WorkerId) -> Operation[None]:
    yield query.command("delete_worker", id=worker)


def stamp_seen(
    query: Queries,
    *,
    jobs: Sequence[str],
    schedules: Sequence[str],
    now: datetime,
    definitions: Sequence[DefinitionRow] = (),
) -> Operation[None]:
    if definitions:
        rows = [tuple(definition_params(each).values()) for each in sorted(definitions)]
        yield query.command("stamp_definitions", many=rows)
    if jobs:
        yield query.command("stamp_jobs", many=[(job, micros(now)) for job in sorted(jobs)])
    if schedules:
        yield query.command("stamp_schedules", ids=sorted(schedules), now=micros(now))
