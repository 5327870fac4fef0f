"""Writes transitions, each only if the token of its claim still matches."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId
from tickwork._domain.limits import gate_of, is_kept_between_attempts, slots_in
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim
from tickwork._domain.skips import is_counted, may_merge
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork.stores._sql.columns import ATTEMPT, CLAIM, names
from tickwork.stores._sql.operations.claim import fail_unusable
from tickwork.stores._sql.operations.enqueue import enqueue
from tickwork.stores._sql.operations.limits import free_slots, unblock
from tickwork.stores._sql.operations.notifications import is_soon, notify_queues
from tickwork.stores._sql.operations.skips import (
    instant_of,
    mark_skips,
    read_marks,
    schedule_of,
)
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import (
    attempt_row,
    finished_row,
    micros,
    micros_or_none,
    moment,
    plain_rows,
    returned_row,
    stored_claim_of,
)
from tickwork.stores._sql.statement import Operation, Row
from tickwork.stores.contract import Expired, ReapDecision

_ATTEMPT_IDENTITY: Final = [names(ATTEMPT).index(name) for name in ("token", "outcome", "ended_at")]
"""What identifies an attempt. The token is not enough: the reaper writes under the same one."""


class _BatchResult(NamedTuple):
    """What became of a batch. A step that is in neither was committed by an earlier call."""

    written: list[Transition]
    lost: set[RunId]


def record(
    query: Queries,
    steps: Sequence[Transition],
    *,
    may_be_stored: bool = False,
    is_optimistic: bool = True,
) -> Operation[list[RunId]]:
    """Write transitions; return the runs whose claims were lost.

    With ``may_be_stored``, an earlier call may have been committed: its steps are not lost.
    ``is_optimistic`` assumes that no claim was lost; the database rejects the batch if one was.
    """
    plain: list[Transition] = []
    others: list[Transition] = []
    succeeded = OutcomeKind.SUCCEEDED  # for each step, the look-up in the enum takes 0.2 µs
    for step in steps:
        claim = step.claim
        # Most runs need only a row in the history. A step that may be stored already is checked.
        if (
            step.outcome is succeeded
            and claim.attempt == 1
            and not (step.reason or claim.crashes or step.follow_ups or may_be_stored)
        ):
            plain.append(step)
        else:
            others.append(step)
    if is_optimistic and not others and "finish_all" in query:
        # The end of a run with limits also changes slots; that of a run of a schedule, skips.
        claims = [step.claim for step in plain]
        if not any(claim.limit_keys or claim.schedule is not None for claim in claims):
            yield from _finish_all(query, plain)
            return []
    lost: set[RunId] = set()
    written: list[Transition] = []
    tokens: dict[RunId, int] = {}
    if others:
        # Lock the plain runs of schedules, too: canceling a schedule locks its runs by id, and the
        # order must be the same.
        wanted = [*others, *(step for step in plain if step.claim.schedule is not None)]
        tokens = dict((yield query("lock_running", ids=sorted(s.claim.run_id for s in wanted))))
    if plain:
        result = yield from _finish_plain(query, plain)
        written += result.written
        lost |= result.lost
    if others:
        result = yield from _write_locked(query, others, tokens, may_be_stored=may_be_stored)
        written += result.written
        lost |= result.lost
    follow_ups = [run for step in written if step.follow_ups for run in step.follow_ups]
    if follow_ups:
        yield from enqueue(query, follow_ups)
    # After the rows of all runs: this is the lock order everywhere.
    slots = [
        (step.claim.run_id, key)
        for step in written
        if step.claim.limit_keys
        for key in slots_in(step.claim.limit_keys)
        if step.due_at is None or not is_kept_between_attempts(key)
    ]
    if slots:
        yield from free_slots(query, slots)
    if plain and others:
        # In the given order: if two runs ended at the same time, the later step sets the job row.
        place = {step.claim.run_id: number for number, step in enumerate(steps)}
        written.sort(key=lambda step: place[step.claim.run_id])
    fired = [step for step in written if step.claim.schedule is not None and step.due_at is None]
    if fired:
        yield from mark_skips(query, fired)
    job_rows = merge_job_rows(written)
    if job_rows:
        yield query.command("touch_jobs", many=job_rows)
    return [step.claim.run_id for step in steps if step.claim.run_id in lost] if lost else []


def fail_unwritable(query: Queries, step: Transition, error: Exception) -> Operation[list[RunId]]:
    """Permanently fail a run whose end cannot be written in any other way."""
    run_id, token = _key(step)
    if dict((yield query("lock_running", ids=[run_id]))) != {run_id: token}:
        return [run_id]
    yield from fail_unusable(query, [(run_id, error)], now=step.ended_at)
    return []


def _finish_all(query: Queries, steps: list[Transition]) -> Operation[None]:
    """Move runs that succeeded at their first attempt to history, if no claim was lost."""
    yield query.command("finish_all", many=sorted(plain_rows(steps)))
    ids = [step.claim.run_id for step in steps]
    yield from _free_keys(query, ids, now=max(map(_ended_at, steps)))
    yield query.command("touch_jobs", many=merge_job_rows(steps))


def _finish_plain(query: Queries, steps: list[Transition]) -> Operation[_BatchResult]:
    """Move runs that succeeded at their first attempt to history, each under its token.

    The rows are sorted, so that all transactions lock runs in the order of their ids.
    """
    count = (yield query("finish_plain", many=sorted(plain_rows(steps))))[0][0]
    result = yield from _find_written(query, steps, count)
    ids = [step.claim.run_id for step in result.written]
    if ids and "drop_finished" in query:
        yield query.command("drop_finished", ids=ids)
    yield from _free_keys(query, ids, now=max(map(_ended_at, steps)))
    return result


def _finish(query: Queries, steps: list[Transition]) -> Operation[_BatchResult]:
    """Move finished runs to history, each under its token."""
    count = (yield query("finish_runs", many=sorted(map(finished_row, steps))))[0][0]
    result = yield from _find_written(query, steps, count)
    ids = [step.claim.run_id for step in result.written]
    yield from _free_keys(query, ids, now=max(map(_ended_at, steps)))
    return result


def _find_written(query: Queries, steps: list[Transition], count: int) -> Operation[_BatchResult]:
    """Find out which steps were written: ``count`` of them."""
    if count == len(steps):
        return _BatchResult(steps, set())
    ids = [step.claim.run_id for step in steps]
    found = yield from _statuses(query, ids)
    written = [step for step in steps if found.get(_key(step)) == step.to_status]
    return _BatchResult(written, set(ids) - {step.claim.run_id for step in written})


def _statuses(query: Queries, ids: list[RunId]) -> Operation[dict[tuple[RunId, int], str]]:
    """The final statuses of finished runs, by id and token."""
    rows = yield query("find_finished", ids=ids)
    return {(run_id, token): status for run_id, token, status in rows}


def _key(step: Transition) -> tuple[RunId, int]:
    return step.claim.run_id, step.claim.token


def _free_keys(query: Queries, ids: list[RunId], *, now: datetime) -> Operation[None]:
    """Free the unique keys of finished runs, unless a window protects them for longer."""
    if ids:
        yield query.command("free_keys", ids=ids, now=micros(now))


def _write_locked(
    query: Queries,
    steps: Sequence[Transition],
    token_by_id: Mapping[RunId, int],
    *,
    may_be_stored: bool,
) -> Operation[_BatchResult]:
    """Write steps that change several tables; their rows are locked, with these tokens."""
    ours: list[Transition] = []
    gone: list[Transition] = []
    for step in steps:
        is_ours = token_by_id.get(step.claim.run_id) == step.claim.token
        (ours if is_ours else gone).append(step)
    attempts = [attempt_row(step) for step in ours if step.leaves_attempt]
    if attempts:
        yield query.command("insert_attempts", many=attempts)
    finished = [step for step in ours if step.due_at is None]
    if finished:
        result = yield from _finish(query, finished)
        assert not result.lost, result.lost
    returned = [step for step in ours if step.due_at is not None]
    if returned:
        yield query.command("return_runs", many=[returned_row(step) for step in returned])
        soon = [
            step for step in returned if step.due_at and is_soon(step.due_at, now=step.ended_at)
        ]
        yield from notify_queues(query, (step.claim.queue for step in soon))
    lost = {step.claim.run_id for step in gone}
    if gone and may_be_stored:
        lost -= yield from _find_committed(query, gone)
    return _BatchResult(ours, lost)


def _find_committed(query: Queries, steps: Sequence[Transition]) -> Operation[set[RunId]]:
    """Find the steps that an earlier call has committed although its answer was lost."""
    ids = [step.claim.run_id for step in steps]
    ended = yield from _statuses(query, ids)
    # A run with our token that is not running waits again: the earlier call, or the reaper, has
    # returned it.
    waiting = {(row[0], row[1]) for row in (yield query("held_rows", ids=ids))}
    committed = {
        step.claim.run_id
        for step in steps
        if _key(step) in waiting
        # The reaper may have ended the run under our token, with another status.
        or ended.get(_key(step)) == step.to_status
        or (step.due_at is not None and _key(step) in ended)
    }
    for step in steps:
        # Another worker may have claimed the run since then. The row of our attempt is still there.
        if step.claim.run_id not in committed and step.leaves_attempt:
            attempts = yield query("get_attempts", id=step.claim.run_id)
            wanted = (step.claim.token, step.outcome.value, micros(step.ended_at))
            if wanted in [tuple(row[place] for place in _ATTEMPT_IDENTITY) for row in attempts]:
                committed.add(step.claim.run_id)
    # Only a run that was merged into another row has no row of its own.
    stored = {run_id for run_id, _ in (*ended, *waiting)}
    skipped = [step for step in steps if may_merge(step) and step.claim.run_id not in stored]
    if skipped:
        marks, _ = yield from read_marks(query, {schedule_of(step.claim) for step in skipped})
        for step in skipped:
            mark = marks.get(schedule_of(step.claim))
            if is_counted(mark, reason=step.reason, at=instant_of(step.claim)):
                committed.add(step.claim.run_id)
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


def merge_job_rows(steps: Iterable[Transition]) -> list[Row]:
    """Make the rows for ``touch_jobs``, one for each job, sorted: that is the lock order."""
    facts_by_job: dict[tuple[str, str], _JobFacts] = {}
    tenant = job = ""
    facts: _JobFacts | None = None
    succeeded = OutcomeKind.SUCCEEDED
    for step in sorted(steps, key=_ended_at):
        outcome, ended_at = step.outcome, step.ended_at
        if outcome is not succeeded and not _affects_job(step):
            continue
        claim = step.claim
        if facts is None or claim.job != job or claim.tenant != tenant:
            tenant, job = claim.tenant, claim.job
            facts = facts_by_job.get((tenant, job))
            if facts is None:
                facts = facts_by_job[tenant, job] = _JobFacts()
        facts.run_at = ended_at
        if outcome is succeeded:
            facts.success_at, facts.failures, facts.has_success = ended_at, 0, True
        elif outcome is not OutcomeKind.CANCELED:
            facts.error_at, facts.error = ended_at, step.reason
            facts.failures += 1
    return [
        (
            tenant,
            job,
            micros_or_none(facts.run_at),
            micros_or_none(facts.success_at),
            micros_or_none(facts.error_at),
            facts.error,
            facts.failures,
            int(facts.has_success),
        )
        for (tenant, job), facts in sorted(facts_by_job.items())
    ]


def _affects_job(step: Transition) -> bool:
    # If a run had not started when its worker died, the job did not fail.
    if step.outcome is OutcomeKind.CRASHED:
        return step.crash > 0
    return step.outcome in {OutcomeKind.FAILED, OutcomeKind.CANCELED}


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
    steps: list[Transition] = []
    broken: list[tuple[RunId, Exception]] = []
    rows = yield query("expired_runs", now=micros(now), limit=limit)
    if seen is not None:
        seen += [row[0] for row in rows]
    for row in rows:
        if only is not None and row[0] not in only:
            continue
        started_at, cancel_requested_at, worker = row[len(CLAIM) :]
        try:
            claim = stored_claim_of(row[: len(CLAIM)])
        except Exception as error:  # noqa: BLE001  # any error concerns only this row
            broken.append((row[0], error))
            continue
        has_started, is_canceled = started_at is not None, cancel_requested_at is not None
        step = decide(Expired(claim, has_started, is_canceled, worker))
        if step is not None:
            steps.append(step)
    if broken:
        yield from fail_unusable(query, broken, now=now)
    if steps:
        lost = yield from record(query, steps)
        assert not lost, lost
    return steps


# ---------------------------------------------------------------- in a caller's transaction


def complete(
    query: Queries, claim: Claim, *, now: datetime, result: str | None = None
) -> Operation[bool]:
    step = _completed(claim, now)._replace(result=result)
    if step.leaves_attempt:
        rows = yield query("lock_running", ids=[claim.run_id])
        if [tuple(row) for row in rows] != [(claim.run_id, claim.token)]:
            return False
        yield query.command("insert_attempts", many=[attempt_row(step)])
    # Unlike record(), it does not accept a run that is in history under our token: the effects of
    # the handler were committed with it, and the caller must not commit them a second time.
    if not (yield query("finish_runs", many=[finished_row(step)]))[0][0]:
        return False
    yield from _free_keys(query, [claim.run_id], now=now)
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
    steps = [
        _completed(claim, ended_at[claim.run_id, claim.token])
        for claim in claims
        if (claim.run_id, claim.token) in ended_at
    ]
    keys = sorted({key for step in steps for key in slots_in(step.claim.limit_keys)})
    if keys:
        yield query.command("lock_gates", gates=sorted({gate_of(key) for key in keys}))
        yield from unblock(query, keys)
    fired = [step for step in steps if step.claim.is_fired]
    if fired:
        yield from mark_skips(query, fired)
    job_rows = merge_job_rows(steps)
    if job_rows:
        yield query.command("touch_jobs", many=job_rows)
    return [step.claim.run_id for step in steps]


def _completed(claim: Claim, ended_at: datetime) -> Transition:
    return Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, ended_at)
