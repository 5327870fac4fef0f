"""Stores and reads the steps of runs, and the events for which they wait."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import gate_of
from tickwork._domain.runs.links import HAS_STEPS, WAITS
from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepState
from tickwork._domain.runs.stored_events import EventName, NewEvent
from tickwork._domain.runs.transitions import Transition
from tickwork._stores._sql.operations.calls import CALLER
from tickwork._stores._sql.operations.control import cancel_calls
from tickwork._stores._sql.operations.inserts import add_runs
from tickwork._stores._sql.operations.notifications import ANY_QUEUE, notify_queues
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros, shown_moment, shown_text
from tickwork._stores._sql.statement import Operation
from tickwork._stores.contract import AddedRun, ChangeResult, OpenWait, WaitPage

FIRST_ID: Final = RunId("00000000-0000-0000-0000-000000000000")

EVENT: Final = "event"
"""The kind of a row of the outbox: the runs that wait for this event are to be woken."""

WOKEN_MAX: Final = 1_000
"""The most runs that one transaction wakes for one event. The others follow in the next one."""


def save_steps(query: Queries, claim: Claim, steps: Sequence[Step]) -> Operation[bool]:
    """Store steps under the token of a claim; return False if it was lost.

    The write and its condition are one statement. If it adds fewer rows, an earlier call was
    committed although its answer was lost, or the claim was lost.
    """
    count = yield from insert_steps(query, [(claim.run_id, step) for step in steps])
    if count == len(steps):
        return True
    rows = yield query("held_rows", ids=[claim.run_id])
    held = [(token, status) for _, token, status, _ in rows]
    return held == [(claim.token, RunStatus.RUNNING.value)]


def insert_steps(query: Queries, steps: Sequence[tuple[RunId, Step]]) -> Operation[int]:
    """Add steps of runs that are running under the tokens of the steps; return how many."""
    row_of = query.mappers.step_row
    rows = sorted((run_id, *row_of(step)) for run_id, step in steps)
    return int((yield query("insert_steps", many=rows))[0][0])


def add_retries(
    query: Queries, runs: Sequence[NewRun], *, may_be_stored: bool = False
) -> Operation[list[AddedRun]]:
    """Add runs that continue failed ones: each gets the steps of the run that it repeats."""
    answers = yield from add_runs(query, runs, may_be_stored=may_be_stored)
    for run, answer in zip(runs, answers, strict=True):
        if answer.is_new and run.retry_of is not None:
            now = micros(run.created_at)
            yield query.command("copy_steps", id=run.id, old=run.retry_of, now=now)
            yield query.command("set_links", id=run.id, links=HAS_STEPS)
    return answers


def load_steps(query: Queries, run_id: RunId) -> Operation[list[Step]]:
    step_of = query.mappers.step_of
    return [step_of(row) for row in (yield query("get_steps", id=run_id))]


def list_steps(query: Queries, run_id: RunId) -> Operation[list[Step]]:
    """The same to show them: of a row that cannot be read, it returns what can be read."""
    step_of = query.mappers.listed_step_of
    return [step_of(row) for row in (yield query("get_steps", id=run_id))]


# ---------------------------------------------------------------- events


def _params(name: EventName) -> dict[str, Any]:
    return name._asdict()


def emit(query: Queries, event: NewEvent) -> Operation[bool]:
    """Store an event, unless one of its name and key exists; return whether it is this one.

    It takes no lock that workers wait for, so it may be part of a caller's transaction. The row in
    the outbox has the runs woken after the commit, by :func:`work_outbox`.
    """
    name = _params(event.name)
    yield query.command(
        "insert_event",
        **name,
        id=event.id,
        data=query.mappers.write_payload(event.data),
        at=micros(event.at),
        until=micros(event.until),
    )
    [(stored, _)] = yield query("find_event", **name)
    is_new = bool(stored == event.id)
    if is_new:
        yield query.command("insert_outbox", id=event.id, kind=EVENT, **name)
    return is_new


def find_event(query: Queries, name: EventName) -> Operation[str | None]:
    """The data of an event; None if there is none."""
    rows = yield query("find_event", **_params(name))
    return query.mappers.read_payload(rows[0][1]) if rows else None


def list_waits(query: Queries, *, after: RunId | None = None, limit: int) -> Operation[WaitPage]:
    rows = yield query("list_waits", after=after or FIRST_ID, limit=limit)
    waits = [
        OpenWait(
            RunId(run_id),
            shown_text(job),
            shown_text(queue),
            shown_text(tenant),
            shown_text(event),
            shown_text(key),
            since=shown_moment(since or 0),
            until=shown_moment(until),
        )
        for run_id, job, queue, tenant, event, key, since, until in rows
        if until is not None  # otherwise the run does not wait any more
    ]
    return WaitPage(waits, RunId(rows[-1][0]) if len(rows) == limit else None)


def resolve_wait(
    query: Queries, claim: Claim, step: Step, name: EventName, *, now: datetime
) -> Operation[Step | None]:
    """Decide a wait: by the event if it is stored, else by the time; store the step.

    Returns the step, which is open if neither has happened; None if the claim was lost. The gate of
    the event makes the decision one for ever: an event that comes later finds the step stored.
    """
    rows = yield query("lock_running", ids=[claim.run_id])
    if [tuple(row) for row in rows] != [(claim.run_id, claim.token)]:
        return None
    yield query.command("lock_gates", gates=[gate_of(name.gate_key)])
    data = yield from find_event(query, name)
    if data is not None:
        step = step._replace(state=StepState.DONE, value=data)
    elif step.until is not None and step.until <= now:
        step = step._replace(state=StepState.TIMEOUT)
    else:
        return step
    step = step._replace(token=claim.token)
    yield query.command(
        "settle_step",
        run=claim.run_id,
        name=step.name,
        state=step.state.value,
        value=query.mappers.write_payload(step.value),
        token=claim.token,
    )
    yield from insert_steps(query, [(claim.run_id, step)])
    if claim.links & WAITS:
        yield query.command("delete_waits", ids=[claim.run_id])
    return step


def add_waits(
    query: Queries, transitions: Sequence[Transition], *, gates: set[int]
) -> Operation[None]:
    """Add the waits of runs that are suspended; those whose event is stored become ready.

    ``gates`` are the others that the transaction needs: all are locked at once, in ascending order.
    Each look-up is a new statement: it sees what was committed before the gate was free.
    """
    waiting = [each for each in transitions if each.wait is not None]
    gates = gates | {gate_of(each.wait.gate_key) for each in waiting if each.wait is not None}
    yield query.command("lock_gates", gates=sorted(gates))
    yield query.command("delete_waits", ids=[each.claim.run_id for each in waiting])
    for each in waiting:
        assert each.wait is not None, each
        rows = yield query("find_event", **_params(each.wait))
        if rows:
            yield query.command("wake_runs", ids=[each.claim.run_id], now=micros(each.ended_at))
            yield from notify_queues(query, [each.claim.queue])
        else:
            yield query.command("insert_wait", run=each.claim.run_id, **_params(each.wait))


def work_outbox(query: Queries, *, now: datetime, limit: int) -> Operation[int]:
    """Wake the runs that wait for events that were committed; return how many rows were done.

    A run whose row another transaction has locked keeps its wait, and the row of the outbox stays
    until the next call.
    """
    taken = yield query("take_outbox", limit=limit)
    callers = {row[4]: row[0] for row in taken if row[1] == CALLER}
    if callers:
        ended = yield from cancel_calls(query, callers.keys(), now=now)
        if ended:
            yield query.command("delete_outbox", ids=sorted(callers[run_id] for run_id in ended))
        return len(callers)  # the events follow: their locks come before those of runs
    rows = [(row[0], *row[2:]) for row in taken]
    if not rows:
        return 0
    names = {EventName(*row[1:]) for row in rows}
    yield query.command("lock_gates", gates=sorted({gate_of(each.gate_key) for each in names}))
    left: set[EventName] = set()
    woken = False
    for name in sorted(names):
        waits = yield query("waits_of_event", **_params(name), limit=WOKEN_MAX)
        ids = [row[0] for row in waits]
        if not ids:
            continue
        locked: dict[RunId, str] = dict((yield query("lock_suspended", ids=ids)))
        live = {row[0] for row in (yield query("live_ids", ids=ids))}
        ready = sorted(run_id for run_id, phase in locked.items() if phase == Phase.WAITING.value)
        if ready:
            yield query.command("wake_runs", ids=ready, now=micros(now))
            woken = True
        # Others run already, and read the event when they resolve their wait, or do not exist.
        done = [run_id for run_id in ids if run_id in locked or run_id not in live]
        if done:
            yield query.command("delete_waits", ids=sorted(done))
        if len(done) < len(ids) or len(ids) == WOKEN_MAX:
            left.add(name)
    done_rows = [row[0] for row in rows if EventName(*row[1:]) not in left]
    if done_rows:
        yield query.command("delete_outbox", ids=sorted(done_rows))
    if woken:
        yield from notify_queues(query, [ANY_QUEUE])
    return len(done_rows)


def wake(query: Queries, run_id: RunId, *, now: datetime) -> Operation[ChangeResult]:
    """End the sleep of a run: it continues now. A wait for an event goes on."""
    rows = yield query("lock_run", id=run_id)
    if not rows:
        is_finished = (yield query("is_finished", id=run_id))[0][0]
        return ChangeResult.FINISHED if is_finished else ChangeResult.UNKNOWN
    if rows[0][1] != Phase.WAITING.value:
        return ChangeResult.CLAIMED
    if not (yield query("end_sleeps", run=run_id))[0][0]:
        return ChangeResult.CLAIMED  # it does not sleep
    yield query.command("wake_runs", ids=[run_id], now=micros(now))
    yield from notify_queues(query, [ANY_QUEUE])
    return ChangeResult.DONE
