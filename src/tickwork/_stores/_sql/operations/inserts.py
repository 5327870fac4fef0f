"""Adds runs, with or without unique keys. A repeated call adds no run twice."""

from collections.abc import Iterable, Mapping, Sequence

from tickwork._domain.identity import RunId
from tickwork._domain.runs.replacement import ReplacedRun, WaitingRun, replace_run, wait_of
from tickwork._domain.runs.run import NewRun
from tickwork._stores._sql.operations.notifications import is_soon, notify_all, notify_queues
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, micros_or_none, waiting_run_of
from tickwork._stores._sql.statement import Operation, Row, Statement, WriteConflict
from tickwork._stores.contract import AddedRun


def add_runs(
    query: Queries, runs: Sequence[NewRun], *, may_be_stored: bool = False
) -> Operation[list[AddedRun]]:
    answers: dict[RunId, AddedRun] = {}
    fresh = runs
    if may_be_stored:
        # By id, not by key: a run of the earlier call may have finished and freed its key.
        stored = {row[0] for row in (yield query("find_ids", ids=[run.id for run in runs]))}
        answers = {run.id: AddedRun(run.id, is_new=False) for run in runs if run.id in stored}
        fresh = [run for run in runs if run.id not in stored]
    if any(run.overlap_key or run.unique for run in fresh):
        fresh, held = yield from _take_keys(query, fresh)
        answers.update(held)
    if fresh:
        yield from insert_runs(query, fresh)
        # The earlier call may have committed since the query above, and its run may have finished.
        # It is no longer in tickwork_run, so the insert succeeded again: check history.
        if may_be_stored and (yield query("find_finished", ids=[run.id for run in fresh])):
            raise WriteConflict
    return [answers.get(run.id) or AddedRun(run.id, is_new=True) for run in runs]


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


def _take_keys(
    query: Queries, runs: Sequence[NewRun]
) -> Operation[tuple[list[NewRun], dict[RunId, AddedRun]]]:
    """Take the keys that are free; return the runs to add, and the answers for the others.

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
    waiting: dict[str, WaitingRun] = {}
    replacing = {run.overlap_key for run in runs if run.replaces and run.overlap_key}
    if replacing & held.keys():
        waiting = yield from _lock_waiting(query, [held[key] for key in replacing & held.keys()])
        held = {
            key: run_id for key, run_id in held.items() if key not in replacing - waiting.keys()
        }
    answers: dict[RunId, AddedRun] = {}
    added: dict[RunId, NewRun] = {}
    replaced: dict[RunId, ReplacedRun] = {}
    for run in runs:
        keys = [run.overlap_key] if run.overlap_key else []
        if run.unique:
            keys.append(run.unique.key)
        if run.replaces and keys[0] in waiting:
            change = replace_run(waiting[keys[0]], run)
            waiting[keys[0]] = change.waiting
            holder = change.run.id
            if holder in added:
                added[holder] = change.run
            else:
                replaced[holder] = change
            answers[run.id] = AddedRun(holder, is_new=False, is_replaced=True)
            continue
        taken = next((held[key] for key in keys if key in held), None)
        if taken is not None:
            answers[run.id] = AddedRun(taken, is_new=False)
            continue
        if run.replaces:
            waiting[keys[0]] = wait_of(run)
        held.update(dict.fromkeys(keys, run.id))
        added[run.id] = run
    if replaced:
        yield from _write_replaced(query, replaced)
    yield from take_unique_keys(query, added.values())
    if replacing:
        # In one order everywhere, so that two transactions do not deadlock.
        return sorted(added.values(), key=lambda run: run.overlap_key or ""), answers
    return list(added.values()), answers


def _lock_waiting(query: Queries, ids: Sequence[RunId]) -> Operation[dict[str, WaitingRun]]:
    """Lock those of these runs that still wait, by key. A claim frees the key.

    The key was read without a lock: one that is locked first, and its row second, would be locked
    in another order than a claim has.
    """
    rows = yield query("lock_waiting", ids=sorted(ids))
    return {row[0]: waiting_run_of(row[1:]) for row in rows if row[0] is not None}


def _write_replaced(query: Queries, replaced: Mapping[RunId, ReplacedRun]) -> Operation[None]:
    row_of = query.mappers.replaced_run_row
    changes = [replaced[run_id] for run_id in sorted(replaced)]
    yield query.command("replace_runs", many=[row_of(change) for change in changes])
    if any(each.is_sooner and is_soon(each.run.due_at, now=each.now) for each in changes):
        yield from notify_all(query)


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
