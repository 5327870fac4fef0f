"""Adds runs, with or without unique keys. A repeated call adds no run twice."""

from collections.abc import Iterable, Sequence

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import NewRun
from tickwork._stores._sql.operations.notifications import is_soon, notify_queues
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, micros_or_none
from tickwork._stores._sql.statement import Operation, Row, Statement, WriteConflict
from tickwork._stores.contract import AddedRun


def add_runs(
    query: Queries, runs: Sequence[NewRun], *, may_be_stored: bool = False
) -> Operation[list[AddedRun]]:
    holder_by_id: dict[RunId, RunId] = {}
    fresh = runs
    if may_be_stored:
        # By id, not by key: a run of the earlier call may have finished and freed its key.
        stored = {row[0] for row in (yield query("find_ids", ids=[run.id for run in runs]))}
        holder_by_id = {run.id: run.id for run in runs if run.id in stored}
        fresh = [run for run in runs if run.id not in stored]
    if any(run.overlap_key or run.unique for run in fresh):
        holder_by_id.update((yield from _take_keys(query, fresh)))
        fresh = [run for run in fresh if run.id not in holder_by_id]
    if fresh:
        yield from insert_runs(query, fresh)
        # The earlier call may have committed since the query above, and its run may have finished.
        # It is no longer in tickwork_run, so the insert succeeded again: check history.
        if may_be_stored and (yield query("find_finished", ids=[run.id for run in fresh])):
            raise WriteConflict
    return [AddedRun(holder_by_id.get(run.id, run.id), run.id not in holder_by_id) for run in runs]


def insert_runs(query: Queries, runs: Sequence[NewRun]) -> Operation[None]:
    """Insert runs that hold their keys, and notify workers."""
    new_run_row = query.mappers.new_run_row
    rows = [new_run_row(run) for run in runs]
    # query.command(), written out: this runs for every dispatch.
    parts = query.parts_by_name["insert_runs"]
    yield Statement("insert_runs", parts, {}, rows, needs_result=False)
    if query.optional.notify:
        yield from notify_queues(
            query,
            (
                run.queue
                for run in runs
                if run.due_at is run.created_at or is_soon(run.due_at, now=run.created_at)
            ),
        )


def _take_keys(query: Queries, runs: Sequence[NewRun]) -> Operation[dict[RunId, RunId]]:
    """Take the keys that are free; return the holder of a taken key, by the run that needs it.

    A run that is not added takes none of its keys, so later runs of the same call can.
    """
    overlap_keys = sorted({run.overlap_key for run in runs if run.overlap_key})
    unique_keys = sorted({run.unique.key for run in runs if run.unique})
    held: dict[str, RunId] = {}
    if overlap_keys:
        held.update((yield query("overlap_holders", keys=overlap_keys)))
    if unique_keys:
        now = micros(max(run.created_at for run in runs))
        held.update((yield query("key_holders", keys=unique_keys, now=now)))
    holders: dict[RunId, RunId] = {}
    added: list[NewRun] = []
    for run in runs:
        keys = [run.overlap_key] if run.overlap_key else []
        if run.unique:
            keys.append(run.unique.key)
        holder = next((held[key] for key in keys if key in held), None)
        if holder is not None:
            holders[run.id] = holder
            continue
        held.update(dict.fromkeys(keys, run.id))
        added.append(run)
    yield from take_unique_keys(query, added)
    return holders


def take_unique_keys(query: Queries, runs: Iterable[NewRun]) -> Operation[None]:
    """Take the unique keys of runs that are about to be added: all of them are free."""
    rows: list[Row] = [
        (run.unique.key, run.id, micros_or_none(run.unique.until), micros(run.created_at))
        for run in runs
        if run.unique
    ]
    if rows:
        # In one order everywhere, so that two transactions do not deadlock.
        count = (yield query("protect_keys", many=sorted(rows)))[0][0]
        if count != len(rows):
            raise WriteConflict
