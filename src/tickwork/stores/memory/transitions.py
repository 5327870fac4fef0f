"""Writes transitions: the ends of attempts and runs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import OutcomeKind
from tickwork._domain.run import Claim, Run
from tickwork._domain.status import RunStatus
from tickwork._domain.transitions import Transition
from tickwork.stores.contract import Attempt, JobRow
from tickwork.stores.memory.keys import add_runs, free_slots, free_unique_keys, unblock
from tickwork.stores.memory.rows import replace_fields
from tickwork.stores.memory.tables import Tables

# After these outcomes the handler has not finished its work: the job row stays as it is.
_UNFINISHED_WORK: Final = frozenset(
    {OutcomeKind.SKIPPED, OutcomeKind.POSTPONED, OutcomeKind.INTERRUPTED, OutcomeKind.SNOOZED}
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
    if not _may_merge(step):
        return False
    return any(
        row.status is RunStatus.SKIPPED
        and row.reason == step.reason
        and _belongs_to(row, step.claim.tenant, step.claim.schedule)
        and row.last_nominal_at is not None
        and _first_instant(row) < _instant(step.claim) <= row.last_nominal_at
        for row in tables.history.values()
    )


def write_steps(tables: Tables, steps: Sequence[Transition]) -> None:
    """Write the steps of claims that hold, free their slots and update job rows."""
    freed: set[str] = set()
    for step in steps:
        run = tables.runs[step.claim.run_id]
        started_at = step.started_at or run.started_at
        if step.leaves_attempt:
            _add_attempt(tables, run, step, started_at)
        if step.is_final:
            freed |= finish(
                tables,
                run,
                status=step.to_status,
                outcome=step.outcome,
                attempt=run.attempt - step.refund,
                crashes=run.crashes + step.crash,
                put_offs=run.put_offs + step.put_off,
                started_at=started_at,
                ended_at=step.ended_at,
                result=step.result,
                reason=step.reason,
            )
        else:
            _give_back(tables, run, step)
            freed |= free_slots(tables, run.id, is_final=False)
    # After all of them have finished, and in the order of their instants.
    for step in sorted(filter(_may_merge, steps), key=lambda step: _instant(step.claim)):
        _merge_run(tables, step)
    add_runs(tables, [run for step in steps for run in step.follow_ups])
    unblock(tables, freed)
    _update_job_rows(tables, steps)


def finish(
    tables: Tables, run: Run, *, outcome: OutcomeKind, ended_at: datetime, **facts: Any
) -> frozenset[str]:
    """Move a run to history with these values; return the keys of the slots it held."""
    del tables.runs[run.id]
    tables.claim_tags.pop(run.id, None)
    tables.history[run.id] = replace_fields(
        run,
        phase=None,
        lease_until=None,
        overlap_key=None,
        blocked_on=None,
        ended_at=ended_at,
        outcome=outcome.value,
        **facts,
    )
    free_unique_keys(tables, run.id, now=ended_at)
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
        result=result,
        reason="",
    )


def finish_completed(tables: Tables, claims: Iterable[Claim]) -> list[RunId]:
    """Unblock runs and update job rows for completed claims; return the completed runs."""
    steps = []
    for claim in claims:
        ended = tables.history.get(claim.run_id)
        if ended is None or (ended.token, ended.status) != (claim.token, RunStatus.COMPLETED):
            continue
        assert ended.ended_at is not None, ended
        steps.append(_completed(claim, ended.ended_at))
    unblock(tables, {key for step in steps for key in step.claim.limit_keys})
    _update_job_rows(tables, steps)
    return [step.claim.run_id for step in steps]


def _completed(claim: Claim, ended_at: datetime) -> Transition:
    return Transition(claim, RunStatus.COMPLETED, OutcomeKind.SUCCEEDED, ended_at)


def _give_back(tables: Tables, run: Run, step: Transition) -> None:
    assert step.due_at is not None, step
    tables.claim_tags.pop(run.id, None)
    tables.runs[run.id] = replace_fields(
        run,
        status=step.to_status,
        phase=step.phase,
        due_at=step.due_at,
        attempt=run.attempt - step.refund,
        crashes=run.crashes + step.crash,
        put_offs=run.put_offs + step.put_off,
        attempts_max=step.attempts_max or run.attempts_max,
        lease_until=None,
        worker=None,
        started_at=None,
        reason=step.reason,
    )


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


def _update_job_rows(tables: Tables, steps: Iterable[Transition]) -> None:
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


def keep_skip(tables: Tables, skip: Run) -> None:
    """Store a skipped firing: in the row of the previous skip if that has the same reason."""
    before = _firing_before(tables, skip)
    if before is None or before.status is not RunStatus.SKIPPED or before.reason != skip.reason:
        kept = skip
    else:
        kept = replace_fields(
            before,
            instants=before.instants + skip.instants,
            last_nominal_at=_last_instant(skip),
            ended_at=skip.ended_at,
        )
    tables.history[kept.id] = kept
    tables.note_firing(kept)


def _may_merge(step: Transition) -> bool:
    # Only a run that was skipped at its first claim: any other has attempts to show, and keeps its
    # row.
    return step.outcome is OutcomeKind.SKIPPED and step.claim.is_fired and step.claim.token == 1


def _merge_run(tables: Tables, step: Transition) -> None:
    run_id = step.claim.run_id
    keep_skip(tables, tables.history.pop(run_id))
    if run_id not in tables.history:
        tables.logs.pop(run_id, None)


def _firing_before(tables: Tables, skip: Run) -> Run | None:
    """The run of the schedule's previous instant, unfinished or in history."""
    assert skip.schedule is not None, skip
    found = tables.last_firings(skip.tenant, skip.schedule, before=_first_instant(skip))
    # A retried firing has two runs for one instant: the unfinished one counts.
    return min(found, key=lambda run: run.id not in tables.runs, default=None)


def _belongs_to(run: Run, tenant: str, schedule: str | None) -> bool:
    return run.schedule == schedule and run.tenant == tenant


def _first_instant(run: Run) -> datetime:
    assert run.nominal_at is not None, run
    return run.nominal_at


def _last_instant(run: Run) -> datetime:
    return run.last_nominal_at or _first_instant(run)


def _instant(claim: Claim) -> datetime:
    assert claim.nominal_at is not None, claim
    return claim.nominal_at


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)
