"""Writes transitions: the ends of attempts and runs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from oracle.store.keys import add_runs, free_slots, free_unique_keys, unblock
from oracle.store.rows import replace_fields
from oracle.store.tables import Tables
from tickwork._domain.identity import RunId
from tickwork._domain.rollups import EndedRuns, Rollup, count_runs, count_transitions
from tickwork._domain.runs.links import CALLED, CALLS, SUSPENDED, WAITS
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepState, SubRun, describe_end
from tickwork._domain.runs.transitions import Transition, cancel_suspension
from tickwork._domain.skips import (
    NewSkip,
    ScheduleName,
    SkipMark,
    SkipPlan,
    is_counted,
    may_merge,
    plan_skips,
)
from tickwork._kernel.ids import first_id
from tickwork._stores.contract import Attempt, JobRow

# After these outcomes the handler has not finished its work: the job row stays as it is.
_UNFINISHED_WORK: Final = frozenset(
    {
        OutcomeKind.SKIPPED,
        OutcomeKind.POSTPONED,
        OutcomeKind.INTERRUPTED,
        OutcomeKind.SNOOZED,
        OutcomeKind.SUSPENDED,
    }
)
_ERRORS: Final = frozenset({OutcomeKind.FAILED, OutcomeKind.CRASHED})


def is_claim_valid(tables: Tables, claim: Claim) -> bool:
    """Whether a claim still holds."""
    run = tables.runs.get(claim.run_id)
    return run is not None and run.status is RunStatus.RUNNING and run.token == claim.token


def was_committed(tables: Tables, step: Transition) -> bool:
    """Whether an earlier call has committed a step although its answer was lost."""
    made = step.claim.token, step.outcome.value, step.ended_at
    attempts = tables.attempts.get(step.claim.run_id, ())
    # Another worker may have claimed the run since then: its attempt is still there.
    if step.leaves_attempt and made in [(one.token, one.outcome, one.ended_at) for one in attempts]:
        return True
    unfinished = tables.runs.get(step.claim.run_id)
    if unfinished is not None:
        # If it waits under this token, the earlier call or the reaper released it.
        is_released = unfinished.status is not RunStatus.RUNNING
        return is_released and unfinished.token == step.claim.token
    ended = tables.history.get(step.claim.run_id)
    if ended is not None:
        # The reaper may have ended the run under our token, with another status.
        is_same_status = step.due_at is not None or ended.status is step.to_status
        return ended.token == step.claim.token and is_same_status
    if not may_merge(step):
        return False
    mark = _find_mark(tables, _schedule(step.claim))
    return is_counted(mark, reason=step.reason, at=_instant(step.claim))


def add_steps(tables: Tables, run_id: RunId, steps: Iterable[Step]) -> None:
    """Store steps of a run; those that exist stay as they are."""
    tables.steps[run_id] = {step.name: step for step in steps} | tables.steps.get(run_id, {})


def wake_run(tables: Tables, run_id: RunId, *, now: datetime) -> None:
    """Make a suspended run ready; one that runs already reads the event itself."""
    run = tables.runs.get(run_id)
    if run is not None and run.phase is Phase.WAITING:
        tables.runs[run_id] = replace_fields(run, phase=Phase.READY, due_at=now)


def _add_calls(tables: Tables, parent: RunId, calls: Sequence[SubRun]) -> None:
    """Add the runs that a suspended run calls, and remember that it waits for them."""
    for answer, call in zip(add_runs(tables, [each.run for each in calls]), calls, strict=True):
        if answer.is_new:
            child = tables.runs[answer.run_id]
            tables.runs[child.id] = replace_fields(child, links=child.links | CALLED)
        add_steps(tables, parent, [call.step._replace(ref=answer.run_id)])
        tables.edges[answer.run_id, parent, call.step.name] = answer.is_new


def release(tables: Tables, child: RunId, *, now: datetime) -> None:
    """Settle the calls of a run that has ended; callers that wait for no other one continue."""
    for edge in [each for each in tables.edges if each[0] == child]:
        _settle_call(tables, *edge)
        _wake_without_calls(tables, edge[1], now=now)


def _settle_call(tables: Tables, child: RunId, parent: RunId, name: str) -> None:
    ended = tables.history.get(child)
    job, status, reason = "", "deleted", "Its row was deleted."
    if ended is not None:
        job, status, reason = ended.job, ended.status.value, ended.reason
    is_done = ended is not None and ended.status is RunStatus.COMPLETED
    step = tables.steps.get(parent, {}).get(name)
    if step is not None and step.state is StepState.OPEN:
        settled = step._replace(
            state=StepState.DONE if is_done else StepState.FAILED,
            value=ended.result
            if is_done and ended is not None
            else describe_end(job, status, reason),
        )
        tables.steps[parent] = {**tables.steps[parent], name: settled}
    tables.edges.pop((child, parent, name), None)


def _wake_without_calls(tables: Tables, parent: RunId, *, now: datetime) -> None:
    if not any(edge[1] == parent for edge in tables.edges):
        wake_run(tables, parent, now=now)


def leave_calls(tables: Tables, run_id: RunId, *, now: datetime) -> None:
    """Leave a row in the outbox, if the run has called others that have not ended."""
    if any(parent == run_id for _, parent, _ in tables.edges):
        tables.outbox[first_id(now)[:-12] + run_id[-12:]] = run_id


def steps_of(tables: Tables, run_id: RunId) -> list[Step]:
    """The steps of a run, in the order in which they were stored."""
    steps = tables.steps.get(run_id, {}).values()
    return sorted(steps, key=lambda step: (step.place, step.name))


def write_steps(tables: Tables, steps: Sequence[Transition], *, touches_jobs: bool = True) -> None:
    """Write the steps of claims that hold, free their slots and update job rows."""
    freed: set[str] = set()
    for given in steps:
        run = tables.runs[given.claim.run_id]
        is_suspension = given.outcome is OutcomeKind.SUSPENDED
        is_canceled = is_suspension and run.cancel_requested_at is not None
        step = cancel_suspension(given) if is_canceled else given
        started_at = step.started_at or run.started_at
        if step.leaves_attempt:
            _add_attempt(tables, run, step, started_at)
        if step.steps:
            add_steps(tables, run.id, step.steps)
        if step.calls:
            _add_calls(tables, run.id, step.calls)
        if step.is_final:
            freed |= finish(
                tables,
                run,
                status=step.to_status,
                outcome=step.outcome,
                attempt=run.attempt - step.uncounted_attempts,
                crashes=run.crashes + step.crash,
                postponements=run.postponements + step.postponements,
                started_at=started_at,
                ended_at=step.ended_at,
                result=step.result,
                reason=step.reason,
            )
        else:
            _give_back(tables, run, step)
            freed |= free_slots(tables, run.id, is_final=False)
    fired = [step for step in steps if step.claim.schedule is not None and step.is_final]
    if fired:
        _mark_skips(tables, fired)  # after all of them have finished
    add_runs(tables, [run for step in steps for run in step.follow_ups])
    unblock(tables, freed)
    if touches_jobs:
        update_job_rows(tables, steps)
    add_counts(tables, count_transitions(steps))


def add_counts(tables: Tables, rollups: Iterable[Rollup]) -> None:
    """Keep what ended."""
    for rollup in rollups:
        tables.ended[len(tables.ended)] = rollup


def count_ended(tables: Tables, run_id: RunId) -> None:
    """Count a run that ended without the outcome of an attempt."""
    run = tables.history[run_id]
    assert run.ended_at is not None, run
    ended = EndedRuns(run.job, run.queue, run.status, run.ended_at, run.started_at, run.due_at)
    add_counts(tables, count_runs([ended]))


def finish(
    tables: Tables,
    run: Run,
    *,
    outcome: OutcomeKind,
    ended_at: datetime,
    releases: bool = True,
    **facts: Any,
) -> frozenset[str]:
    """Move a run to history with these values; return the keys of the slots it held."""
    del tables.runs[run.id]
    tables.claim_tags.pop(run.id, None)
    tables.waits.pop(run.id, None)
    tables.history[run.id] = replace_fields(
        run,
        phase=None,
        lease_until=None,
        overlap_key=None,
        blocked_on=None,
        links=0,
        ended_at=ended_at,
        outcome=outcome.value,
        **facts,
    )
    free_unique_keys(tables, run.id, now=ended_at)
    if run.links & CALLS and facts["status"] is not RunStatus.COMPLETED:
        leave_calls(tables, run.id, now=ended_at)
    if run.links & CALLED and releases:
        release(tables, run.id, now=ended_at)
    return free_slots(tables, run.id, is_final=True)


def complete_run(tables: Tables, claim: Claim, *, now: datetime, result: str | None) -> None:
    """Finish a run whose claim holds. Runs that wait for its slots stay blocked."""
    run, step = tables.runs[claim.run_id], _completed(claim, now)
    if step.leaves_attempt:
        _add_attempt(tables, run, step, run.started_at)
    finish(
        tables,
        run,
        status=step.to_status,
        outcome=step.outcome,
        ended_at=now,
        releases=False,
        result=result,
        reason="",
    )
    count_ended(tables, run.id)


def finish_completed(tables: Tables, claims: Iterable[Claim]) -> list[RunId]:
    """Unblock runs and update job rows for completed claims; return the completed runs."""
    steps = []
    for claim in claims:
        ended = tables.history.get(claim.run_id)
        if ended is None or (ended.token, ended.status) != (claim.token, RunStatus.COMPLETED):
            continue
        assert ended.ended_at is not None, ended
        steps.append(_completed(claim, ended.ended_at))
        if claim.links & CALLED:
            release(tables, claim.run_id, now=ended.ended_at)
    unblock(tables, {key for step in steps for key in step.claim.limit_keys})
    _mark_skips(tables, [step for step in steps if step.claim.is_fired])
    update_job_rows(tables, steps)
    return [step.claim.run_id for step in steps]


def _completed(claim: Claim, ended_at: datetime) -> Transition:
    return Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, ended_at)


def _give_back(tables: Tables, run: Run, step: Transition) -> None:
    assert step.due_at is not None, step
    is_suspension = step.outcome is OutcomeKind.SUSPENDED
    links = (SUSPENDED if is_suspension else 0) | (WAITS if step.wait is not None else 0)
    links |= CALLS if step.waits_for_runs else 0
    tables.claim_tags.pop(run.id, None)
    tables.runs[run.id] = replace_fields(
        run,
        status=step.to_status,
        phase=step.phase,
        due_at=step.due_at,
        attempt=run.attempt - step.uncounted_attempts,
        crashes=run.crashes + step.crash,
        postponements=run.postponements + step.postponements,
        attempts_max=step.attempts_max or run.attempts_max,
        lease_until=None,
        worker=None,
        started_at=None,
        reason=step.reason,
        links=run.links | links,
        expires_at=None if is_suspension else run.expires_at,
    )
    if step.waits_for_runs:
        for child, parent, name in list(tables.edges):
            if parent == run.id and child in tables.history:
                _settle_call(tables, child, parent, name)
        _wake_without_calls(tables, run.id, now=step.ended_at)
    if step.wait is not None and step.wait in tables.events:
        wake_run(tables, run.id, now=step.ended_at)
    elif step.wait is not None:
        tables.waits[run.id] = step.wait


def _add_attempt(tables: Tables, run: Run, step: Transition, started_at: datetime | None) -> None:
    attempt = Attempt(
        run_id=run.id,
        token=run.token,
        attempt=run.attempt,
        outcome=step.outcome.value,
        started_at=started_at,
        ended_at=step.ended_at,
        error=step.reason,
        traceback=step.traceback,
        worker=run.worker,
    )
    tables.attempts[run.id] = (*tables.attempts.get(run.id, ()), attempt)


def update_job_rows(tables: Tables, steps: Iterable[Transition]) -> None:
    for step in sorted(steps, key=lambda step: step.ended_at):
        if step.outcome in _UNFINISHED_WORK or (
            step.outcome is OutcomeKind.CRASHED and not step.crash
        ):
            continue
        name = (step.claim.tenant, step.claim.job)
        row = tables.jobs.get(name) or JobRow(*name)
        facts: dict[str, Any] = {}
        if step.outcome is OutcomeKind.SUCCEEDED:
            facts = {
                "last_success_at": _later(row.last_success_at, step.ended_at),
                "failures": 0,
            }
        elif step.outcome in _ERRORS:
            facts = {
                "last_error_at": _later(row.last_error_at, step.ended_at),
                "last_error": step.reason,
                "failures": row.failures + 1,
            }
        last_run_at = _later(row.last_run_at, step.ended_at)
        tables.jobs[name] = row._replace(last_run_at=last_run_at, **facts)


# ---------------------------------------------------------------- skips in a row


def merge_skips(
    tables: Tables,
    skips: Sequence[NewSkip[datetime]],
    *,
    ended: Iterable[tuple[ScheduleName, datetime]] = (),
) -> SkipPlan[datetime]:
    """Decide which skips are merged. ``ended`` are runs of this batch that were not skipped."""
    batches: dict[ScheduleName, list[NewSkip[datetime]]] = {}
    for skip in skips:
        batches.setdefault(skip.schedule, []).append(skip)
    marks: dict[ScheduleName, SkipMark[datetime]] = {}
    others: dict[ScheduleName, list[datetime]] = {}
    for name, batch in batches.items():
        before = max(skip.first_at for skip in batch)
        first = min(batch, key=lambda skip: (skip.first_at, skip.run_id))
        others[name] = tables.firings_between(
            name, since=first.first_at, since_id=first.run_id, before=before
        )
        mark = _find_mark(tables, name)
        if mark is not None:
            marks[name] = mark
            others[name] += tables.firings_between(
                name, since=mark.last_at, since_id=mark.run_id, before=before
            )
    for name, at in ended:
        others.setdefault(name, []).append(at)
    return plan_skips(skips, marks=marks, others=others)


def write_skips(tables: Tables, plan: SkipPlan[datetime]) -> None:
    """Write the rows that count more skips, and the marks of the schedules."""
    for merged in plan.merged:
        row = tables.history[merged.run_id]
        tables.history[row.id] = replace_fields(
            row,
            instants=row.instants + merged.instants,
            last_nominal_at=merged.last_at,
            ended_at=merged.ended_at,
        )
    for name, mark in plan.marks.items():
        if name in tables.skip_marks:  # otherwise the schedule was removed
            tables.skip_marks[name] = mark


def _mark_skips(tables: Tables, steps: Iterable[Transition]) -> None:
    """Merge skipped runs of schedules; any other result ends a sequence of skips."""
    skips: list[NewSkip[datetime]] = []
    ended: list[tuple[ScheduleName, datetime]] = []
    for step in steps:
        if step.outcome is OutcomeKind.SKIPPED:
            skips.append(_build_skip(step))
        else:
            ended.append((_schedule(step.claim), _instant(step.claim)))
    plan = merge_skips(tables, skips, ended=ended)
    write_skips(tables, plan)
    for run_id in plan.without_row:
        del tables.history[run_id]
        tables.logs.pop(run_id, None)
    for name, at in ended:
        mark = tables.skip_marks.get(name)
        if mark is not None and mark.last_at < at:
            tables.skip_marks[name] = None


def _find_mark(tables: Tables, name: ScheduleName) -> SkipMark[datetime] | None:
    """The mark of a schedule, with the reason that its row has now."""
    mark = tables.skip_marks.get(name)
    row = None if mark is None else tables.history.get(mark.run_id)
    return None if mark is None or row is None else mark._replace(reason=row.reason)


def _build_skip(step: Transition) -> NewSkip[datetime]:
    at = _instant(step.claim)
    return NewSkip(
        _schedule(step.claim),
        step.claim.run_id,
        step.reason,
        first_at=at,
        last_at=at,
        ended_at=step.ended_at,
        may_merge=may_merge(step),
    )


def _schedule(claim: Claim) -> ScheduleName:
    assert claim.schedule is not None, claim
    return (claim.tenant, claim.schedule)


def _instant(claim: Claim) -> datetime:
    assert claim.nominal_at is not None, claim
    return claim.nominal_at


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)
