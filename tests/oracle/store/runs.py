"""Runs in memory: add, claim, extend leases, record, reap."""

from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nsmallest
from operator import attrgetter

from oracle.store.keys import (
    add_runs,
    claim_order,
    decide_and_take,
    set_missing_turns,
    unblock,
    unblock_rated,
)
from oracle.store.rows import replace_fields
from oracle.store.tables import TableHolder, Tables
from oracle.store.transitions import (
    add_steps,
    complete_run,
    count_ended,
    finish,
    finish_completed,
    is_claim_valid,
    release,
    steps_of,
    update_job_rows,
    wake_run,
    was_committed,
    write_steps,
)
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.limits.limits import is_released_by_claim
from tickwork._domain.limits.rates import is_rate
from tickwork._domain.runs.handover import Handover
from tickwork._domain.runs.lease import has_expired
from tickwork._domain.runs.links import HAS_STEPS
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim, NewRun, Run, check_claim
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind, StepState
from tickwork._domain.runs.stored_events import EventName, NewEvent
from tickwork._domain.runs.transitions import Transition
from tickwork._stores.contract import (
    AddedRun,
    ChangeResult,
    ClaimCheck,
    ClaimRequest,
    Expired,
    HeartbeatResult,
    HeldClaim,
    LogLine,
    PauseKind,
    PendingWork,
    ReapDecision,
    UpcomingRuns,
)


class OracleRuns(TableHolder):
    def add_runs(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        with self._writing() as tables:
            return add_runs(tables, runs, may_be_stored=may_be_stored)

    def stage(self, *, now: datetime, limit: int) -> int:
        with self._writing() as tables:
            due = (run for run in _in_phase(tables, Phase.WAITING) if run.due_at <= now)
            staged = nsmallest(limit, due, key=lambda run: (run.due_at, run.id))
            for run in staged:
                tables.runs[run.id] = replace_fields(run, phase=Phase.READY)
            return len(staged)

    # ------------------------------------------------------------ claims and leases

    def claim(
        self,
        wanted: ClaimRequest,
        *,
        worker: WorkerId,
        tag: str,
        now: datetime,
        lease: timedelta,
        lease_by_job: Mapping[str, timedelta] | None = None,
    ) -> list[Claim]:
        with self._writing() as tables:
            granted: list[RunId] = []
            # This ends: a round without a grant blocks all runs that it picked. A run that it
            # unblocks is granted in the next round, or blocked on another key for good, because
            # nothing frees slots here.
            while not granted and (picked := _pick(tables, wanted, now=now)):
                granted = _grant(tables, picked, now=now)
            started_at = now if wanted.is_starting else None
            start_by_run: dict[RunId, datetime | None] = {}
            start_by_run.update(dict.fromkeys(granted[: wanted.limit], started_at))
            start_by_run.update(dict.fromkeys(granted[wanted.limit :]))
            if len(granted) >= wanted.limit:
                chosen = _pick_ahead(tables, wanted, exclude=start_by_run, now=now)
                start_by_run.update(dict.fromkeys(chosen))
            claims = []
            for run_id, starts in start_by_run.items():
                length = (lease_by_job or {}).get(tables.runs[run_id].job, lease)
                claims.append(
                    _take(tables, run_id, worker, tag, until=now + length, started_at=starts)
                )
            return claims

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        with self._writing() as tables:
            run = tables.runs.get(run_id)
            if run is None or run.status is RunStatus.RUNNING or _is_paused(tables, run, now=now):
                return None
            if not decide_and_take(tables, [run], now=now, may_block=False).granted:
                return None
            return _take(tables, run_id, worker, tag, until=now + lease, started_at=now)

    def find_claims(self, *, worker: WorkerId, tag: str) -> list[Claim]:
        with self._reading() as tables:
            found = [
                run
                for run in _in_phase(tables, Phase.RUNNING)
                if run.worker == worker and tables.claim_tags[run.id] == tag
            ]
            return [_claim_of(run) for run in sorted(found, key=claim_order)]

    def hand_over(self, handovers: Sequence[Handover]) -> None:
        with self._writing() as tables:
            for handover in handovers:
                run = tables.runs.get(handover.run_id)
                if run is not None and run.lease_until is not None and run.token == handover.token:
                    tables.runs[run.id] = replace_fields(run, external_id=handover.external_id)

    def accept(
        self,
        handovers: Sequence[Handover],
        *,
        worker: WorkerId,
        tag: str,
        until: datetime,
        started_at: datetime | None,
    ) -> list[Claim]:
        with self._writing() as tables:
            for run_id, token in handovers:
                run = tables.runs.get(run_id)
                if run is None or run.lease_until is None or run.token != token:
                    continue
                if run.cancel_requested_at is not None:
                    continue
                tables.runs[run_id] = replace_fields(
                    run,
                    token=token + 1,
                    worker=worker,
                    lease_until=max(run.lease_until, until),
                    started_at=started_at,
                )
                tables.claim_tags[run_id] = tag
        return self.find_claims(worker=worker, tag=tag)

    def extend_leases(self, held: Sequence[HeldClaim], *, until: datetime) -> HeartbeatResult:
        result = HeartbeatResult([], [])
        with self._writing() as tables:
            for run_id, token, started_at in held:
                run = tables.runs.get(run_id)
                if run is None:
                    continue
                if run.lease_until is None or run.token != token:
                    result.lost.append(run_id)
                    continue
                tables.runs[run_id] = replace_fields(
                    run,
                    lease_until=max(run.lease_until, until),
                    started_at=run.started_at or started_at,
                )
                if run.cancel_requested_at is not None:
                    result.cancel_requested.append(run_id)
        return result

    def check_claims(self, held: Sequence[HeldClaim]) -> ClaimCheck:
        check = ClaimCheck([], [])
        with self._reading() as tables:
            for run_id, token, _ in held:
                run = tables.runs.get(run_id)
                if run is None or run.lease_until is None or run.token != token:
                    check.gone.append(run_id)
                elif run.cancel_requested_at is not None:
                    check.cancel_requested.append(run_id)
        return check

    # ------------------------------------------------------------ ends of attempts

    def touch_jobs(self, steps: Sequence[Transition]) -> None:
        with self._writing() as tables:
            update_job_rows(tables, steps)

    def record(
        self,
        steps: Sequence[Transition],
        *,
        may_be_stored: bool = False,
        touches_jobs: bool = True,
    ) -> list[RunId]:
        with self._writing() as tables:
            valid = [step for step in steps if is_claim_valid(tables, step.claim)]
            lost = [
                step.claim.run_id
                for step in steps
                if not is_claim_valid(tables, step.claim)
                and not (may_be_stored and was_committed(tables, step))
            ]
            write_steps(tables, valid, touches_jobs=touches_jobs)
            return lost

    def reap(self, *, now: datetime, limit: int, decide: ReapDecision) -> list[Transition]:
        with self._writing() as tables:
            expired = [
                (run.lease_until, run.id, run)
                for run in _in_phase(tables, Phase.RUNNING)
                if run.lease_until is not None and has_expired(run.lease_until, now=now)
            ]
            decided = [
                decide(
                    Expired(
                        claim=_claim_of(run),
                        has_started=run.started_at is not None,
                        is_cancel_requested=run.cancel_requested_at is not None,
                        worker=run.worker,
                    )
                )
                for _, _, run in sorted(expired, key=lambda row: row[:2])[:limit]
            ]
            steps = [step for step in decided if step is not None]
            write_steps(tables, steps)
            return steps

    def release_worker(self, worker: WorkerId, *, now: datetime) -> int:
        released = 0
        with self._writing() as tables:
            for run in _in_phase(tables, Phase.RUNNING):
                assert run.lease_until is not None, run
                if run.worker == worker and not has_expired(run.lease_until, now=now):
                    tables.runs[run.id] = replace_fields(run, lease_until=now)
                    released += 1
        return released

    def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        with self._writing() as tables:
            if not is_claim_valid(tables, claim):
                return False
            complete_run(tables, claim, now=now, result=result)
            return True

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        with self._writing() as tables:
            return finish_completed(tables, claims)

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> ChangeResult:
        with self._writing() as tables:
            run = tables.runs.get(run_id)
            if run is None:
                return ChangeResult.FINISHED if run_id in tables.history else ChangeResult.UNKNOWN
            answer = _cancel(tables, run, now=now, reason=reason)
            if answer is ChangeResult.DONE:
                unblock(tables, run.limit_keys)
            return answer

    def cancel_schedule(
        self, tenant: str, schedule: str, *, now: datetime, reason: str = ""
    ) -> int:
        with self._writing() as tables:
            return cancel_runs_of(tables, tenant, schedule, now=now, reason=reason)

    # ------------------------------------------------------------ due times and phases

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> ChangeResult:
        with self._writing() as tables:
            run = tables.runs.get(run_id)
            if run is None:
                return ChangeResult.FINISHED if run_id in tables.history else ChangeResult.UNKNOWN
            if run.status is RunStatus.RUNNING:
                return ChangeResult.CLAIMED
            if due_at > now:
                run = replace_fields(run, phase=Phase.WAITING, blocked_on=None)
            elif run.phase is Phase.WAITING:
                run = replace_fields(run, phase=Phase.READY)
            tables.runs[run_id] = replace_fields(run, due_at=due_at)
            return ChangeResult.DONE

    def sweep(self, *, now: datetime, limit: int) -> int:  # SQL stores may need it
        with self._writing() as tables:
            keys = {run.blocked_on for run in tables.runs.values() if run.blocked_on is not None}
            set_missing_turns(tables, filter(is_rate, keys))
            lost = [edge for edge in tables.edges if edge[0] not in tables.runs]
            for child in sorted({edge[0] for edge in lost}):
                release(tables, child, now=now)
            return unblock(tables, keys, limit=limit) + len(lost)

    def unblock_rated(self, *, now: datetime, limit: int) -> int:
        with self._writing() as tables:
            return unblock_rated(tables, now=now, limit=limit)

    def ready_pairs(self) -> list[tuple[str, str]]:
        with self._reading() as tables:
            return sorted({(run.queue, run.job) for run in _in_phase(tables, Phase.READY)})

    def due_runs(self, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
        with self._reading() as tables:
            due = [
                run
                for run in _in_phase(tables, Phase.READY)
                if _is_wanted(tables, run, wanted, now=now)
                and (run.expires_at is None or run.expires_at >= now)
            ]
            return sorted(due, key=claim_order)[: wanted.limit]

    def next_due(self, *, now: datetime) -> UpcomingRuns:  # the oracle reads everything
        pending = self.pending_work()
        return UpcomingRuns(pending.due_at, pending.next_start_at, pending.has_outbox)

    def pending_work(self) -> PendingWork:
        with self._reading() as tables:
            runs = list(tables.runs.values())
            if not runs:
                has_outbox = bool(tables.outbox)
                return PendingWork(
                    None, None, False, False, tables.next_turn_at(), has_outbox=has_outbox
                )
            return PendingWork(
                min((run.due_at for run in runs if run.phase is Phase.WAITING), default=None),
                min((run.lease_until for run in runs if run.lease_until is not None), default=None),
                any(run.phase is Phase.BLOCKED for run in runs),
                any(run.phase is Phase.READY for run in runs),
                tables.next_turn_at(),
                bool(tables.outbox),
            )

    # ------------------------------------------------------------ progress and logs

    def save_progress(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        with self._writing() as tables:
            if not is_claim_valid(tables, claim):
                return False
            run = tables.runs[claim.run_id]
            tables.runs[run.id] = replace_fields(
                run,
                progress=run.progress if progress is None else progress,
                checkpoint=run.checkpoint if checkpoint is None else checkpoint,
            )
            return True

    def add_retries(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        with self._writing() as tables:
            answers = add_runs(tables, runs, may_be_stored=may_be_stored)
            for run, answer in zip(runs, answers, strict=True):
                if not answer.is_new or run.retry_of is None:
                    continue
                done = [
                    step
                    for step in steps_of(tables, run.retry_of)
                    if step.state is StepState.DONE
                    or (step.until is not None and step.until <= run.created_at)
                ]
                add_steps(tables, run.id, done)
                links = tables.runs[run.id].links | HAS_STEPS
                tables.runs[run.id] = replace_fields(tables.runs[run.id], links=links)
            return answers

    def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        with self._writing() as tables:
            if not is_claim_valid(tables, claim):
                return False
            add_steps(tables, claim.run_id, steps)
            return True

    def load_steps(self, run_id: RunId) -> list[Step]:
        with self._reading() as tables:
            return steps_of(tables, run_id)

    def emit(self, event: NewEvent) -> bool:
        with self._writing() as tables:
            stored = tables.events.get(event.name)
            if stored is None:
                tables.events[event.name] = event
            if stored is None or stored.id == event.id:
                tables.outbox[event.id] = event.name
                return True
            return False

    def find_event(self, name: EventName) -> str | None:
        with self._reading() as tables:
            event = tables.events.get(name)
            return None if event is None else event.data

    def resolve_wait(
        self, claim: Claim, step: Step, name: EventName, *, now: datetime
    ) -> Step | None:
        with self._writing() as tables:
            if not is_claim_valid(tables, claim):
                return None
            event = tables.events.get(name)
            if event is not None:
                step = step._replace(state=StepState.DONE, value=event.data, token=claim.token)
            elif step.until is not None and step.until <= now:
                step = step._replace(state=StepState.TIMEOUT, token=claim.token)
            else:
                return step
            stored = tables.steps.get(claim.run_id, {})
            old = stored.get(step.name)
            if old is None or old.state is StepState.OPEN:
                tables.steps[claim.run_id] = {**stored, step.name: step}
            tables.waits.pop(claim.run_id, None)
            return step

    def work_outbox(self, *, now: datetime, limit: int) -> int:
        with self._writing() as tables:
            done = sorted(tables.outbox.items())[:limit]
            callers = [(row_id, each) for row_id, each in done if isinstance(each, str)]
            for row_id, caller in callers:
                _cancel_calls(tables, caller, now=now)
                del tables.outbox[row_id]
            if callers:
                return len(callers)
            for event_id, name in done:
                assert isinstance(name, EventName), name
                for run_id in [each for each, wanted in tables.waits.items() if wanted == name]:
                    wake_run(tables, run_id, now=now)
                    del tables.waits[run_id]
                del tables.outbox[event_id]
            return len(done)

    def wake(self, run_id: RunId, *, now: datetime) -> ChangeResult:
        with self._writing() as tables:
            run = tables.runs.get(run_id)
            if run is None:
                known = run_id in tables.history
                return ChangeResult.FINISHED if known else ChangeResult.UNKNOWN
            if run.phase is not Phase.WAITING:
                return ChangeResult.CLAIMED
            if not any(
                step.kind is StepKind.SLEEP and step.state is StepState.OPEN
                for step in steps_of(tables, run_id)
            ):
                return ChangeResult.CLAIMED
            tables.steps[run_id] = {
                name: step._replace(state=StepState.DONE)
                if step.kind is StepKind.SLEEP and step.state is StepState.OPEN
                else step
                for name, step in tables.steps.get(run_id, {}).items()
            }
            wake_run(tables, run_id, now=now)
            return ChangeResult.DONE

    def append_logs(
        self, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
    ) -> None:
        with self._writing() as tables:
            for run_id, lines in lines_by_run.items():
                if run_id in tables.runs or run_id in tables.history:
                    kept = tables.logs.get(run_id, ())
                    room = max(0, lines_max - len(kept))
                    tables.logs[run_id] = (*kept, *lines[:room])


# ---------------------------------------------------------------- claiming


def _take(
    tables: Tables,
    run_id: RunId,
    worker: WorkerId,
    tag: str,
    *,
    until: datetime,
    started_at: datetime | None,
) -> Claim:
    run = tables.runs[run_id]
    overlap_key = run.overlap_key
    if overlap_key is not None and is_released_by_claim(overlap_key):
        overlap_key = None
    run = tables.runs[run_id] = replace_fields(
        run,
        status=RunStatus.RUNNING,
        phase=Phase.RUNNING,
        blocked_on=None,
        token=run.token + 1,
        attempt=run.attempt + 1,
        lease_until=until,
        worker=worker,
        overlap_key=overlap_key,
        started_at=started_at,
        external_id=None,
    )
    tables.claim_tags[run_id] = tag
    return _claim_of(run)


def _is_paused(tables: Tables, run: Run, *, now: datetime) -> bool:
    names = ((PauseKind.QUEUE, run.queue), (PauseKind.JOB, run.job))
    found = (tables.pauses.get(name) for name in names)
    return any(pause is not None and _is_in_effect(pause.until, now) for pause in found)


def _is_wanted(tables: Tables, run: Run, wanted: ClaimRequest, *, now: datetime) -> bool:
    if wanted.queues is not None and run.queue not in wanted.queues:
        return False
    if wanted.jobs is not None and run.job not in wanted.jobs:
        return False
    return not _is_paused(tables, run, now=now)


def _may_wait(run: Run, wanted: ClaimRequest) -> bool:
    return not run.token and (wanted.may_wait is None or run.job in wanted.may_wait)


def _pick_ahead(
    tables: Tables, wanted: ClaimRequest, *, exclude: Container[RunId], now: datetime
) -> list[RunId]:
    """The first runs that the worker may prefetch."""
    ready = sorted(_in_phase(tables, Phase.READY), key=claim_order)
    chosen = [
        run.id
        for run in ready
        if run.id not in exclude
        and not run.limit_keys
        and _may_wait(run, wanted)
        and _is_wanted(tables, run, wanted, now=now)
    ]
    return chosen[: wanted.ahead]


def _pick(tables: Tables, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
    """The first ready runs that this worker may claim; at most one that crashed before."""
    picked: list[Run] = []
    for run in sorted(_in_phase(tables, Phase.READY), key=claim_order):
        if len(picked) >= wanted.limit + wanted.hold:
            break
        if not _is_wanted(tables, run, wanted, now=now):
            continue
        if len(picked) >= wanted.limit and not _may_wait(run, wanted):
            continue
        if run.crashes and any(other.crashes for other in picked):
            continue
        picked.append(run)
    return picked


def _grant(tables: Tables, picked: Sequence[Run], *, now: datetime) -> list[RunId]:
    """Give slots to the runs that get all they need, and block the others."""
    if not any(run.limit_keys for run in picked):
        return [run.id for run in picked]
    grants = decide_and_take(tables, picked, now=now)
    for run_id, key in grants.blocked_on.items():
        tables.runs[run_id] = replace_fields(
            tables.runs[run_id], phase=Phase.BLOCKED, blocked_on=key
        )
    unblock(tables, grants.room_by_key)
    return grants.granted


_claim_fields = attrgetter("id", *Claim._fields[1:])
assert Claim._fields[0] == "run_id"


def _claim_of(run: Run) -> Claim:
    assert run.lease_until is not None, run
    return check_claim(Claim._make(_claim_fields(run)))


# ---------------------------------------------------------------- rows


def cancel_runs_of(
    tables: Tables, tenant: str, schedule: str, *, now: datetime, reason: str
) -> int:
    """Cancel the unfinished runs of a schedule; return how many."""
    runs = tables.unfinished_of(tenant, schedule)
    canceled = [
        run for run in runs if _cancel(tables, run, now=now, reason=reason) is ChangeResult.DONE
    ]
    unblock(tables, [key for run in canceled for key in run.limit_keys])
    return len(runs)


CALLER_ENDED = "The run that called it ended without success."


def _cancel_calls(tables: Tables, caller: RunId, *, now: datetime) -> None:
    """Cancel the runs that this one has called, unless others wait for them, too."""
    edges = [edge for edge in tables.edges if edge[1] == caller]
    own = {edge[0] for edge in edges if tables.edges[edge]}
    for edge in edges:
        del tables.edges[edge]
    for child in sorted(own - {edge[0] for edge in tables.edges}):
        if child in tables.runs:
            run = tables.runs[child]
            if _cancel(tables, run, now=now, reason=CALLER_ENDED) is ChangeResult.DONE:
                unblock(tables, run.limit_keys)


def _cancel(tables: Tables, run: Run, *, now: datetime, reason: str) -> ChangeResult:
    run = replace_fields(run, cancel_requested_at=run.cancel_requested_at or now)
    if run.status is RunStatus.RUNNING:
        tables.runs[run.id] = run
        return ChangeResult.REQUESTED
    finish(
        tables,
        run,
        status=RunStatus.CANCELED,
        outcome=OutcomeKind.CANCELED,
        ended_at=now,
        reason=reason,
    )
    count_ended(tables, run.id)
    return ChangeResult.DONE


def _is_in_effect(until: datetime | None, now: datetime) -> bool:
    return until is None or until > now


def _in_phase(tables: Tables, phase: Phase) -> list[Run]:
    return [run for run in tables.runs.values() if run.phase is phase]
