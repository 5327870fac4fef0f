"""Writes transitions, each only if the token of its claim still matches."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.limits.limits import gate_of, is_kept_between_attempts, slots_in
from tickwork._domain.rollups import count_transitions
from tickwork._domain.runs.links import WAITS
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition, cancel_suspension
from tickwork._domain.skips import is_counted, may_merge
from tickwork._stores._sql.columns import ATTEMPT, CLAIM, names
from tickwork._stores._sql.era_memory import BEGINNING
from tickwork._stores._sql.operations.calls import (
    add_calls,
    called_runs,
    continue_callers,
    failed_callers,
    find_edges,
    gate_of_caller,
    leave_calls,
    release,
)
from tickwork._stores._sql.operations.claim import UnusableRun, end_unusable, fail_unusable
from tickwork._stores._sql.operations.eras import count_dead
from tickwork._stores._sql.operations.flows import add_waits, insert_steps
from tickwork._stores._sql.operations.inserts import add_runs
from tickwork._stores._sql.operations.limits import free_slots, unblock
from tickwork._stores._sql.operations.notifications import is_soon, notify_queues
from tickwork._stores._sql.operations.rollups import count_history, insert_rollups
from tickwork._stores._sql.operations.skips import (
    instant_of,
    mark_skips,
    read_marks,
    schedule_of,
)
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import (
    attempt_row,
    micros,
    micros_or_none,
    moment,
    returned_row,
)
from tickwork._stores._sql.statement import Operation, Row, Rows
from tickwork._stores.contract import Expired, ReapDecision

_ATTEMPT_IDENTITY: Final = [names(ATTEMPT).index(name) for name in ("token", "outcome", "ended_at")]
"""What identifies an attempt. The token is not enough: the reaper writes under the same one."""

_LEASE_UNTIL: Final = names(CLAIM).index("lease_until")


class _BatchResult(NamedTuple):
    """What became of a batch. A transition that is in neither was committed by an earlier call."""

    written: list[Transition]
    lost: set[RunId]


def record(
    query: Queries,
    transitions: Sequence[Transition],
    *,
    may_be_stored: bool = False,
    is_optimistic: bool = True,
    touches_jobs: bool = True,
) -> Operation[list[RunId]]:
    """Write transitions; return the runs whose claims were lost.

    With ``may_be_stored``, an earlier call may have been committed: its transitions are not lost.
    ``is_optimistic`` assumes that no claim was lost; the database rejects the batch if one was.
    """
    plain: list[Transition] = []
    others: list[Transition] = []
    succeeded = OutcomeKind.SUCCEEDED  # for each transition, the look-up in the enum takes 0.2 µs
    for transition in transitions:
        claim = transition.claim
        # Most runs need only a row in the history. What may be stored already is checked.
        if (
            transition.outcome is succeeded
            and claim.attempt == 1
            and not (
                transition.reason
                or claim.crashes
                or claim.links
                or transition.follow_ups
                or may_be_stored
            )
        ):
            plain.append(transition)
        else:
            others.append(transition)
    if is_optimistic and not others and query.optional.finish_all:
        # The end of a run with limits also changes slots; that of a run of a schedule, skips.
        claims = [transition.claim for transition in plain]
        if not any(claim.limit_keys or claim.schedule is not None for claim in claims):
            yield from _finish_all(query, plain, touches_jobs=touches_jobs)
            return []
    lost: set[RunId] = set()
    written: list[Transition] = []
    tokens: dict[RunId, int] = {}
    if others:
        # Lock the plain runs of schedules, too: canceling a schedule locks its runs by id, and the
        # order must be the same.
        wanted = [*others, *(each for each in plain if each.claim.schedule is not None)]
        ids = sorted(each.claim.run_id for each in wanted)
        tokens = dict((yield query("lock_running", ids=ids)))
    if plain:
        result = yield from _finish_plain(query, plain)
        written += result.written
        lost |= result.lost
    if others:
        result = yield from _write_locked(query, others, tokens, may_be_stored=may_be_stored)
        written += result.written
        lost |= result.lost
    follow_ups = [run for each in written if each.follow_ups for run in each.follow_ups]
    if follow_ups:
        yield from add_runs(query, follow_ups)
    # After the rows of all runs: this is the lock order everywhere.
    slots = _slots_of(written)
    if others:
        yield from _continue_flows(query, written, gates={gate_of(key) for _, key in slots})
    if slots:
        yield from free_slots(query, slots)
    if plain and others:
        # In the given order: if two runs ended at the same time, the later one sets the job row.
        place = {each.claim.run_id: number for number, each in enumerate(transitions)}
        written.sort(key=lambda each: place[each.claim.run_id])
    fired = [each for each in written if each.claim.schedule is not None and each.due_at is None]
    if fired:
        yield from mark_skips(query, fired)
    yield from insert_rollups(query, count_transitions(written))
    if touches_jobs:
        yield from touch_jobs(query, written)
    return (
        [transition.claim.run_id for transition in transitions if transition.claim.run_id in lost]
        if lost
        else []
    )


def _slots_of(transitions: Sequence[Transition]) -> list[tuple[RunId, str]]:
    """The slots of limits that these transitions free."""
    return [
        (each.claim.run_id, key)
        for each in transitions
        if each.claim.limit_keys
        for key in slots_in(each.claim.limit_keys)
        if each.due_at is None or not is_kept_between_attempts(key)
    ]


def end_unwritable(
    query: Queries, transition: Transition, error: Exception
) -> Operation[list[RunId]]:
    """End a run whose row cannot be written in any other way.

    A run that succeeded is completed. One that would get another attempt fails permanently.
    """
    run_id, token = _key(transition)
    if dict((yield query("lock_running", ids=[run_id]))) != {run_id: token}:
        return [run_id]
    if transition.is_final:
        run = UnusableRun(
            run_id, transition.ended_at, error, transition.to_status, transition.outcome
        )
        yield from end_unusable(query, [run])
    else:
        yield from fail_unusable(query, [(run_id, error)], now=transition.ended_at)
    return []


def touch_jobs(query: Queries, transitions: Sequence[Transition]) -> Operation[None]:
    """Update the rows of the jobs of transitions. All workers write them: so last, and in order."""
    rows = merge_job_rows(transitions)
    if rows:
        yield query.command("touch_jobs", many=rows)


def _continue_flows(
    query: Queries, written: Sequence[Transition], *, gates: set[int]
) -> Operation[None]:
    """Add the waits of suspended runs, and let the callers of runs continue that have ended.

    ``gates`` are those of limits: all are locked at once.
    """
    failed = failed_callers(written)
    if failed:
        yield from leave_calls(query, failed, now=max(map(_ended_at, written)))
    edges = yield from find_edges(query, called_runs(written))
    callers = [each.claim.run_id for each in written if each.waits_for_runs]
    gates = gates | {edge.gate for edge in edges} | set(map(gate_of_caller, callers))
    if any(transition.wait for transition in written):
        yield from add_waits(query, written, gates=gates)
    elif edges or callers:
        yield query.command("lock_gates", gates=sorted(gates))
    if edges:
        yield from release(query, edges, now=max(map(_ended_at, written)))
    if callers:
        yield from continue_callers(query, callers, now=max(map(_ended_at, written)))


def _finish_all(
    query: Queries, transitions: list[Transition], *, touches_jobs: bool
) -> Operation[None]:
    """Move runs that succeeded at their first attempt to history, if no claim was lost."""
    yield query.command("finish_all", many=sorted(query.mappers.plain_rows(transitions)))
    ids = [step.claim.run_id for step in transitions]
    yield from _free_keys(query, ids, now=max(map(_ended_at, transitions)))
    yield from insert_rollups(query, count_transitions(transitions))
    if touches_jobs:
        yield from touch_jobs(query, transitions)


def _finish_plain(query: Queries, transitions: list[Transition]) -> Operation[_BatchResult]:
    """Move runs that succeeded at their first attempt to history, each under its token.

    The rows are sorted, so that all transactions lock runs in the order of their ids.
    """
    count = (yield query("finish_plain", many=sorted(query.mappers.plain_rows(transitions))))[0][0]
    result = yield from _find_written(query, transitions, count)
    ids = [transition.claim.run_id for transition in result.written]
    if ids and query.optional.drop_finished:
        yield query.command("drop_finished", ids=ids)
    yield from _free_keys(query, ids, now=max(map(_ended_at, transitions)))
    return result


def _finish(query: Queries, transitions: list[Transition]) -> Operation[_BatchResult]:
    """Move finished runs to history, each under its token."""
    count = (yield query("finish_runs", many=sorted(map(query.mappers.finished_row, transitions))))[
        0
    ][0]
    result = yield from _find_written(query, transitions, count)
    ids = [transition.claim.run_id for transition in result.written]
    yield from _free_keys(query, ids, now=max(map(_ended_at, transitions)))
    return result


def _find_written(
    query: Queries, transitions: list[Transition], count: int
) -> Operation[_BatchResult]:
    """Find out which transitions were written: ``count`` of them."""
    if count == len(transitions):
        return _BatchResult(transitions, set())
    ids = [transition.claim.run_id for transition in transitions]
    status_by_key = yield from _statuses(query, ids)
    written = [
        transition
        for transition in transitions
        if status_by_key.get(_key(transition)) == transition.to_status
    ]
    return _BatchResult(written, set(ids) - {transition.claim.run_id for transition in written})


def _statuses(query: Queries, ids: list[RunId]) -> Operation[dict[tuple[RunId, int], str]]:
    """The final statuses of finished runs, by id and token."""
    rows = yield query("find_finished", ids=ids)
    return {(run_id, token): status for run_id, token, status in rows}


def _key(transition: Transition) -> tuple[RunId, int]:
    return transition.claim.run_id, transition.claim.token


def _free_keys(query: Queries, ids: list[RunId], *, now: datetime) -> Operation[None]:
    """Free the unique keys of finished runs, unless a window protects them for longer."""
    if ids:
        yield query.command("free_keys", ids=ids, now=micros(now))


def _write_locked(
    query: Queries,
    transitions: Sequence[Transition],
    token_by_id: Mapping[RunId, int],
    *,
    may_be_stored: bool,
) -> Operation[_BatchResult]:
    """Write transitions that change several tables; their rows are locked, with these tokens."""
    ours: list[Transition] = []
    gone: list[Transition] = []
    for transition in transitions:
        is_ours = token_by_id.get(transition.claim.run_id) == transition.claim.token
        (ours if is_ours else gone).append(transition)
    ours = yield from _cancel_suspensions(query, ours)
    attempts = [attempt_row(transition) for transition in ours if transition.leaves_attempt]
    if attempts:
        yield query.command("insert_attempts", many=attempts)
    steps = [(transition.claim.run_id, step) for transition in ours for step in transition.steps]
    steps += yield from add_calls(query, ours)
    if steps:
        yield from insert_steps(query, steps)
    finished = [transition for transition in ours if transition.due_at is None]
    if finished:
        result = yield from _finish(query, finished)
        assert not result.lost, result.lost
        waited = [each.claim.run_id for each in finished if each.claim.links & WAITS]
        if waited:
            yield query.command("delete_waits", ids=waited)
    returned = [transition for transition in ours if transition.due_at is not None]
    if returned:
        yield query.command(
            "return_runs", many=[returned_row(transition) for transition in returned]
        )
        soon = [
            transition
            for transition in returned
            if transition.due_at and is_soon(transition.due_at, now=transition.ended_at)
        ]
        yield from notify_queues(query, (transition.claim.queue for transition in soon))
    lost = {transition.claim.run_id for transition in gone}
    if gone and may_be_stored:
        lost -= yield from _find_committed(query, gone)
    return _BatchResult(ours, lost)


def _cancel_suspensions(
    query: Queries, transitions: list[Transition]
) -> Operation[list[Transition]]:
    """End the runs that suspend themselves after their cancellation was requested.

    Their rows are locked: a request that comes later finds a run that waits, and cancels it.
    """
    suspended = OutcomeKind.SUSPENDED
    ids = [each.claim.run_id for each in transitions if each.outcome is suspended]
    if not ids:
        return transitions
    rows = yield query("held_rows", ids=ids)
    canceled = {run_id for run_id, _, _, requested_at in rows if requested_at is not None}
    return [
        cancel_suspension(each)
        if each.outcome is suspended and each.claim.run_id in canceled
        else each
        for each in transitions
    ]


def _find_committed(query: Queries, transitions: Sequence[Transition]) -> Operation[set[RunId]]:
    """Find the transitions that an earlier call has committed although its answer was lost."""
    ids = [transition.claim.run_id for transition in transitions]
    ended = yield from _statuses(query, ids)
    # A run with our token that is not running waits again: the earlier call, or the reaper, has
    # returned it.
    waiting = {(row[0], row[1]) for row in (yield query("held_rows", ids=ids))}
    committed = {
        transition.claim.run_id
        for transition in transitions
        if _key(transition) in waiting
        # The reaper may have ended the run under our token, with another status.
        or ended.get(_key(transition)) == transition.to_status
        or (transition.due_at is not None and _key(transition) in ended)
    }
    for transition in transitions:
        # Another worker may have claimed the run since then. The row of our attempt is still there.
        if transition.claim.run_id not in committed and transition.leaves_attempt:
            attempts = yield query("get_attempts", id=transition.claim.run_id)
            wanted = (transition.claim.token, transition.outcome.value, micros(transition.ended_at))
            if wanted in [tuple(row[place] for place in _ATTEMPT_IDENTITY) for row in attempts]:
                committed.add(transition.claim.run_id)
    # Only a run that was merged into another row has no row of its own.
    stored = {run_id for run_id, _ in (*ended, *waiting)}
    skipped = [
        transition
        for transition in transitions
        if may_merge(transition) and transition.claim.run_id not in stored
    ]
    if skipped:
        marks, _ = yield from read_marks(
            query, {schedule_of(transition.claim) for transition in skipped}
        )
        for transition in skipped:
            mark = marks.get(schedule_of(transition.claim))
            if is_counted(mark, reason=transition.reason, at=instant_of(transition.claim)):
                committed.add(transition.claim.run_id)
    return committed


# ---------------------------------------------------------------- job rows


class _JobFacts:
    """The changes of one job row, merged in the order in which the runs of a batch ended."""

    __slots__ = ("error", "error_at", "failures", "has_success", "run_at", "success_at")

    def __init__(self) -> None:
        self.run_at: datetime | None = None
        self.success_at: datetime | None = None
        self.error_at: datetime | None = None
        self.error = ""
        self.failures = 0
        self.has_success = False


def merge_job_rows(transitions: Iterable[Transition]) -> list[Row]:
    """Make the rows for ``touch_jobs``, one for each job, sorted: that is the lock order."""
    facts_by_job: dict[tuple[str, str], _JobFacts] = {}
    tenant = job = ""
    job_row: _JobFacts | None = None
    succeeded = OutcomeKind.SUCCEEDED
    for transition in sorted(transitions, key=_ended_at):
        outcome, ended_at = transition.outcome, transition.ended_at
        if outcome is not succeeded and not _affects_job(transition):
            continue
        claim = transition.claim
        if job_row is None or claim.job != job or claim.tenant != tenant:
            tenant, job = claim.tenant, claim.job
            job_row = facts_by_job.get((tenant, job))
            if job_row is None:
                job_row = facts_by_job[tenant, job] = _JobFacts()
        job_row.run_at = ended_at
        if outcome is succeeded:
            job_row.success_at, job_row.failures, job_row.has_success = ended_at, 0, True
        elif outcome is not OutcomeKind.CANCELED:
            job_row.error_at, job_row.error = ended_at, transition.reason
            job_row.failures += 1
    return [
        (
            tenant,
            job,
            micros_or_none(job_row.run_at),
            micros_or_none(job_row.success_at),
            micros_or_none(job_row.error_at),
            job_row.error,
            job_row.failures,
            int(job_row.has_success),
        )
        for (tenant, job), job_row in sorted(facts_by_job.items())
    ]


def _affects_job(transition: Transition) -> bool:
    # If a run had not started when its worker died, the job did not fail.
    if transition.outcome is OutcomeKind.CRASHED:
        return transition.crash > 0
    return transition.outcome in {OutcomeKind.FAILED, OutcomeKind.CANCELED}


_ended_at = attrgetter("ended_at")


# ---------------------------------------------------------------- expired leases


def reap(
    query: Queries,
    *,
    now: datetime,
    limit: int,
    decide: ReapDecision,
    only: Collection[RunId] | None = None,
    seen: list[RunId] | None = None,
) -> Operation[list[Transition]]:
    """Take back runs whose lease has expired. ``only`` and ``seen`` are as for a claim."""
    transitions: list[Transition] = []
    broken: list[tuple[RunId, Exception]] = []
    rows = yield from _find_expired(query, now=micros(now), limit=limit)
    if seen is not None:
        seen += [row[0] for row in rows]
    for row in rows:
        if only is not None and row[0] not in only:
            continue
        started_at, cancel_requested_at, worker = row[len(CLAIM) :]
        try:
            claim = query.mappers.stored_claim_of(row[: len(CLAIM)])
        except Exception as error:  # noqa: BLE001  # any error concerns only this row
            broken.append((row[0], error))
            continue
        has_started, is_canceled = started_at is not None, cancel_requested_at is not None
        transition = decide(Expired(claim, has_started, is_canceled, worker))
        if transition is not None:
            transitions.append(transition)
    if broken:
        yield from fail_unusable(query, broken, now=now)
    if transitions:
        lost = yield from record(query, transitions)
        assert not lost, lost
    return transitions


def _find_expired(query: Queries, *, now: int, limit: int) -> Operation[Rows]:
    """Lock the runs whose lease expired first. Skip dead entries before them, if there are many."""
    memory = query.eras
    if memory is None:
        return (yield query("expired_runs", now=now, limit=limit, lowest=BEGINNING))
    lowest = memory.leases.lowest
    before = (yield from count_dead(query)) if lowest == BEGINNING else None
    rows = yield query("expired_runs", now=now, limit=limit, lowest=lowest)
    if before is not None:
        dead = (yield from count_dead(query)).leases - before.leases
        memory.leases.learn(rows[0][_LEASE_UNTIL] if rows else now, dead=dead)
    return rows


# ---------------------------------------------------------------- in a caller's transaction


def complete(
    query: Queries, claim: Claim, *, now: datetime, result: str | None = None
) -> Operation[bool]:
    transition = _completed(claim, now)._replace(result=result)
    if transition.leaves_attempt:
        rows = yield query("lock_running", ids=[claim.run_id])
        if [tuple(row) for row in rows] != [(claim.run_id, claim.token)]:
            return False
        yield query.command("insert_attempts", many=[attempt_row(transition)])
    # Unlike record(), it does not accept a run that is in history under our token: the effects of
    # the handler were committed with it, and the caller must not commit them a second time.
    if not (yield query("finish_runs", many=[query.mappers.finished_row(transition)]))[0][0]:
        return False
    yield from count_history(query, [claim.run_id])
    yield from _free_keys(query, [claim.run_id], now=now)
    if claim.links & WAITS:
        yield query.command("delete_waits", ids=[claim.run_id])
    slots = [(claim.run_id, key) for key in slots_in(claim.limit_keys)]
    if slots:
        yield query.command("delete_slots", many=slots)
    return True


def after_complete(query: Queries, claims: Sequence[Claim]) -> Operation[list[RunId]]:
    """Unblock runs and update job rows after runs were completed; return the completed runs.

    A repeat does no harm: free slots are counted again, a run that is unblocked without
    need finds the limit full, and the job rows do not change.
    """
    rows = yield query("completed_runs", ids=sorted(claim.run_id for claim in claims))
    ended_at = {(row[0], row[1]): moment(row[2]) for row in rows}
    transitions = [
        _completed(claim, ended_at[claim.run_id, claim.token])
        for claim in claims
        if (claim.run_id, claim.token) in ended_at
    ]
    keys = sorted(
        {key for transition in transitions for key in slots_in(transition.claim.limit_keys)}
    )
    edges = yield from find_edges(query, called_runs(transitions))
    gates = {gate_of(key) for key in keys} | {edge.gate for edge in edges}
    if gates:
        yield query.command("lock_gates", gates=sorted(gates))
    if edges:
        yield from release(query, edges, now=max(map(_ended_at, transitions)))
    if keys:
        yield from unblock(query, keys)
    fired = [transition for transition in transitions if transition.claim.is_fired]
    if fired:
        yield from mark_skips(query, fired)
    job_rows = merge_job_rows(transitions)
    if job_rows:
        yield query.command("touch_jobs", many=job_rows)
    return [transition.claim.run_id for transition in transitions]


def _completed(claim: Claim, ended_at: datetime) -> Transition:
    return Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, ended_at)
