"""Implements the store contract with operations. A dialect adds its connections and its SQL."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from tickwork._domain.handover import Handover
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.rates import Turn
from tickwork._domain.retention import EndedRun, HistoryCursor
from tickwork._domain.run import Claim, NewRun, Run
from tickwork._domain.status import RunStatus
from tickwork._domain.tick import TickPlan, Unfired, merge_plans
from tickwork._domain.transitions import Transition
from tickwork.stores._sql.faults import bisect_faults, may_be_fault_of_row
from tickwork.stores._sql.operations import (
    audit,
    claim,
    control,
    enqueue,
    leases,
    limits,
    rates,
    reads,
    record,
    run_by_id,
    schedules,
)
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.rows import describe_fault
from tickwork.stores._sql.statement import Operation, Rows, Statement
from tickwork.stores.contract import (
    AuditEntry,
    ChangeResult,
    ClaimCheck,
    ClaimRequest,
    Enqueued,
    Health,
    HeartbeatResult,
    HeldClaim,
    IdempotentRequest,
    JobRow,
    KeysOf,
    LimitRow,
    LockRow,
    LogLine,
    NewSchedule,
    Pause,
    PauseKind,
    PendingWork,
    PhaseCounts,
    Planner,
    Pruned,
    ReapDecision,
    RowFault,
    RunCount,
    RunFilter,
    RunPage,
    RunRecord,
    SummaryPage,
    WorkerRow,
)

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Connection(Protocol):
    """What an operation needs of a connection."""

    def execute(self, statement: Statement) -> Rows: ...


def drive(operation: Operation[T], connection: Connection) -> T:
    """Run an operation in the open transaction: send each statement, and feed its rows back."""
    try:
        statement = next(operation)
        # Ends: an operation yields a bounded number of statements.
        while True:
            statement = operation.send(connection.execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result


class SqlStore(ABC):
    """Every method of the contract is one operation, run by :meth:`_write` or :meth:`_read`."""

    query: Queries
    _swept_up_to: str = ""  # the last limit key that sweep() checked
    caller_transaction: object = None
    _may_retry: bool = True  # whether a transaction that the database rejected can be retried

    @abstractmethod
    def _write(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction; retry it after a transient failure."""

    @abstractmethod
    def _is_data_error(self, error: Exception) -> bool:
        """Whether the database rejected a value: it is too large, or violates a constraint."""

    @abstractmethod
    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do the same as :meth:`_write` for an operation that only reads."""

    # ------------------------------------------------------------ runs

    def enqueue(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[Enqueued]:
        if not runs:
            return []
        return self._write(enqueue.enqueue, runs, may_be_stored=may_be_stored)

    def stage(self, *, now: datetime, limit: int) -> int:
        return self._write(claim.stage, now=now, limit=limit)

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
        def claim_part(only: Sequence[RunId] | None) -> list[Claim]:
            return self._write(
                claim.claim,
                wanted,
                worker=worker,
                tag=tag,
                now=now,
                lease=lease,
                lease_by_job=lease_by_job,
                only=only,
                seen=seen,
            )

        seen: list[RunId] = []
        return self._fail_faulty_runs(claim_part, seen, now=now)

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        return self._write(
            run_by_id.claim_run, run_id, worker=worker, tag=tag, now=now, lease=lease
        )

    def find_claims(self, *, worker: WorkerId, tag: str) -> list[Claim]:
        return self._read(claim.find_claims, worker=worker, tag=tag)

    def hand_over(self, handovers: Sequence[Handover]) -> None:
        if handovers:
            self._write(leases.hand_over, handovers)

    def accept(
        self,
        handovers: Sequence[Handover],
        *,
        worker: WorkerId,
        tag: str,
        until: datetime,
        started_at: datetime | None,
    ) -> list[Claim]:
        if not handovers:
            return []
        return self._write(
            leases.accept, handovers, worker=worker, tag=tag, until=until, started_at=started_at
        )

    def extend_leases(self, held: Sequence[HeldClaim], *, until: datetime) -> HeartbeatResult:
        if not held:
            return HeartbeatResult([], [])
        return self._write(leases.extend_leases, held, until=until)

    def check_claims(self, held: Sequence[HeldClaim]) -> ClaimCheck:
        if not held:
            return ClaimCheck([], [])
        return self._read(leases.check_claims, held)

    def record(self, steps: Sequence[Transition], *, may_be_stored: bool = False) -> list[RunId]:
        if not steps:
            return []
        # Only the first try is optimistic: if the database rejects it, the retry is not.
        tries = itertools.count(0 if self._may_retry else 1)
        try:
            return self._write(
                lambda query: record.record(
                    query, steps, may_be_stored=may_be_stored, is_optimistic=next(tries) == 0
                )
            )
        except Exception as error:
            # The worker halves a batch, and writes as little as possible of the run at fault. If
            # that is rejected, too, the row itself is the cause.
            is_last = len(steps) == 1 and steps[0].to_status is RunStatus.FAILED_PERMANENT
            if not is_last or not self._is_data_error(error):
                raise
            cause = error
        return self._write(record.fail_unwritable, steps[0], cause)

    def reap(self, *, now: datetime, limit: int, decide: ReapDecision) -> list[Transition]:
        def reap_part(only: Sequence[RunId] | None) -> list[Transition]:
            return self._write(
                record.reap, now=now, limit=limit, decide=decide, only=only, seen=seen
            )

        seen: list[RunId] = []
        return self._fail_faulty_runs(reap_part, seen, now=now)

    def _fail_faulty_runs(
        self,
        act: Callable[[Sequence[RunId] | None], list[R]],
        seen: list[RunId],
        *,
        now: datetime,
    ) -> list[R]:
        """Call ``act`` for all runs; if that fails, for halves of those that it added to ``seen``.

        Runs at fault fail permanently. If the database did not reject a value, they do so only if
        ``act`` succeeded for other runs: otherwise the cause may have nothing to do with runs.
        """
        try:
            return act(None)
        except Exception as error:
            if not seen or not may_be_fault_of_row(error):
                raise
            cause = error
        results, faults = bisect_faults(list(dict.fromkeys(seen)), act, cause)
        broken = [
            (run_id, error) for run_id, error in faults if results or self._is_data_error(error)
        ]
        if broken:
            self._write(claim.fail_unusable, broken, now=now)
        elif faults:
            raise cause
        return [found for result in results for found in result]

    def release_worker(self, worker: WorkerId, *, now: datetime) -> int:
        return self._write(leases.release_worker, worker, now=now)

    def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return self._write(record.complete, claim, now=now, result=result)

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        if not claims:
            return []
        return self._write(record.after_complete, claims)

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> ChangeResult:
        return self._write(control.cancel, run_id, now=now, reason=reason)

    def cancel_schedule(
        self, tenant: str, schedule: str, *, now: datetime, reason: str = ""
    ) -> int:
        return self._write(control.cancel_schedule, tenant, schedule, now=now, reason=reason)

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> ChangeResult:
        return self._write(control.reschedule, run_id, due_at=due_at, now=now)

    def sweep(self, *, now: datetime, limit: int) -> int:
        after = self._swept_up_to
        swept = self._write(limits.sweep, now=now, limit=limit, after=after)
        count, self._swept_up_to = swept
        return count

    def unblock_rated(self, *, now: datetime, limit: int) -> int:
        return self._write(rates.unblock_rated, now=now, limit=limit)

    def ready_pairs(self) -> list[tuple[str, str]]:
        return self._read(claim.ready_pairs)

    def save_progress(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        return self._write(leases.save_progress, claim, progress=progress, checkpoint=checkpoint)

    def append_logs(
        self, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
    ) -> None:
        if any(lines_by_run.values()):
            self._write(leases.append_logs, lines_by_run, lines_max=lines_max)

    def pending_work(self) -> PendingWork:
        return self._read(claim.pending_work)

    # ------------------------------------------------------------ schedules

    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        if not new:
            return []
        return self._write(schedules.add_schedules, new, now=now)

    def add_schedule(
        self,
        schedule_id: ScheduleId,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow:
        [row] = self.add_schedules([NewSchedule(schedule_id, spec, next_due_at)], now=now)
        return row

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        return self._write(schedules.change_schedule, row, spec, now=now, next_due_at=next_due_at)

    def remove_schedule(self, schedule_id: ScheduleId) -> bool:
        return self._write(schedules.remove_schedule, schedule_id)

    def stamp_seen(
        self, *, jobs: Sequence[str], schedules: Sequence[ScheduleId], now: datetime
    ) -> None:
        self._write(control.stamp_seen, jobs=jobs, schedules=schedules, now=now)

    def pause_schedule(
        self,
        schedule_id: ScheduleId,
        *,
        now: datetime,
        note: str = "",
        until: datetime | None = None,
        next_due_at: datetime | None = None,
    ) -> bool:
        return self._write(
            schedules.pause_schedule,
            schedule_id,
            now=now,
            note=note,
            until=until,
            next_due_at=next_due_at,
        )

    def resume_schedule(self, schedule_id: ScheduleId, *, next_due_at: datetime | None) -> bool:
        return self._write(schedules.resume_schedule, schedule_id, next_due_at=next_due_at)

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None:
        return next(iter(self.get_schedules([(tenant, name)])), None)

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        if not names:
            return []
        return self._read(schedules.get_schedules, names)

    def scheduled_jobs(self) -> list[str]:
        return self._read(schedules.scheduled_jobs)

    def list_schedules(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 1000
    ) -> list[ScheduleRow]:
        return self._read(schedules.list_schedules, tenant=tenant, after=after, limit=limit)

    def list_expected_schedules(self, *, limit: int) -> list[ScheduleRow]:
        return self._read(schedules.list_expected_schedules, limit=limit)

    def fire(
        self,
        *,
        now: datetime,
        limit: int,
        jobs: Collection[str] | None,
        keys_of: KeysOf,
        plan: Planner,
        seen_after: datetime | None = None,
    ) -> TickPlan:
        def fire_part(
            only: Sequence[ScheduleId] | None, *, may_be_stored: bool = False
        ) -> TickPlan:
            return self._write(
                schedules.fire,
                now=now,
                limit=limit,
                jobs=jobs,
                keys_of=keys_of,
                plan=plan,
                seen_after=seen_after,
                only=only,
                seen=seen,
                may_be_stored=may_be_stored,
            )

        seen: list[ScheduleId] = []
        try:
            return fire_part(None)
        except Exception as error:
            if not seen or not may_be_fault_of_row(error):
                raise
            cause = error
        plans, faults = bisect_faults(list(dict.fromkeys(seen)), fire_part, cause)
        unfired: list[Unfired] = []
        for schedule_id, fault in faults:
            try:
                plans.append(fire_part([schedule_id], may_be_stored=True))
            except Exception as error:
                if not may_be_fault_of_row(error):
                    raise
                unfired.append(Unfired(schedule_id, describe_fault(fault)))
        if not plans and not self._is_data_error(cause):
            raise cause
        return merge_plans([*plans, TickPlan([], [], [], [], unfired)])

    def next_firing_at(
        self, *, jobs: Collection[str] | None = None, seen_after: datetime | None = None
    ) -> datetime | None:
        return self._read(schedules.next_firing_at, jobs=jobs, seen_after=seen_after)

    # ------------------------------------------------------------ control

    def set_limits(self, slots_by_name: Mapping[str, int]) -> None:
        self._write(limits.set_limits, slots_by_name)

    def change_limit(self, name: str, slots: int | None, *, now: datetime) -> None:  # noqa: ARG002
        self._write(limits.change_limit, name, slots)

    def list_limits(self) -> list[LimitRow]:
        return self._read(reads.list_limits)

    def pause(self, pause: Pause) -> None:
        self._write(control.pause, pause)

    def resume(self, kind: PauseKind, name: str) -> bool:
        return self._write(control.resume, kind, name)

    def list_pauses(self) -> list[Pause]:
        return self._read(reads.list_pauses)

    def acquire_lock(self, lock: LockRow, *, now: datetime) -> LockRow | None:
        return self._write(control.acquire_lock, lock, now=now)

    def get_lock(self, name: str) -> LockRow | None:
        return self._read(control.get_lock, name)

    def renew_lock(self, name: str, owner: str, *, until: datetime, now: datetime) -> bool:
        return self._write(control.renew_lock, name, owner, until=until, now=now)

    def release_lock(self, name: str, owner: str | None = None) -> bool:
        return self._write(control.release_lock, name, owner)

    def beat_worker(self, worker: WorkerRow) -> None:
        self._write(control.beat_worker, worker)

    def remove_worker(self, worker: WorkerId) -> None:
        self._write(control.remove_worker, worker)

    def list_workers(self) -> list[WorkerRow]:
        return self._read(reads.list_workers)

    # ------------------------------------------------------------ audit

    def add_audit(self, entry: AuditEntry) -> None:
        self._write(audit.add_audit, entry)

    def list_audit(
        self, *, subject: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        return self._read(audit.list_audit, subject=subject, before=before, limit=limit)

    def prune_audit(self, *, before: str, limit: int) -> int:
        return self._write(audit.prune_audit, before=before, limit=limit)

    def reserve_request(self, request: IdempotentRequest, *, now: datetime) -> IdempotentRequest:
        return self._write(audit.reserve_request, request, now=now)

    # ------------------------------------------------------------ reads

    def get_run(self, run_id: RunId) -> Run | None:
        return next(iter(self.get_runs([run_id])), None)

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        return self._read(reads.get_runs, run_ids)

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        return self._read(reads.find_run_ids, prefix, limit=limit)

    def list_runs(
        self,
        where: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scan_max: int | None = None,
    ) -> RunPage:
        return self._read(reads.list_runs, where, cursor=cursor, limit=limit, scan_max=scan_max)

    def list_summaries(
        self,
        where: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scan_max: int | None = None,
    ) -> SummaryPage:
        return self._read(
            reads.list_summaries, where, cursor=cursor, limit=limit, scan_max=scan_max
        )

    def count_matches(self, where: RunFilter, *, cap: int, scan_max: int) -> RunCount:
        return self._read(reads.count_matches, where, cap=cap, scan_max=scan_max)

    def due_runs(self, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
        return self._read(run_by_id.due_runs, wanted, now=now)

    def run_record(self, run_id: RunId) -> RunRecord | None:
        return self._read(reads.run_record, run_id)

    def count_runs(self, *, cap: int = 10_000) -> PhaseCounts:
        return self._read(reads.count_runs, cap=cap)

    def count_taken(self, keys: Sequence[str]) -> dict[str, int]:
        return self._read(reads.count_taken, keys)

    def slot_holders(self, key: str, *, limit: int = 10) -> list[RunId]:
        return self._read(reads.slot_holders, key, limit=limit)

    def find_turn(self, run_id: RunId) -> Turn | None:
        return self._read(rates.find_turn, run_id)

    def list_jobs(self, *, tenant: str | None = None) -> list[JobRow]:
        return self._read(reads.list_jobs, tenant=tenant)

    def find_faults(self, *, limit: int) -> list[RowFault]:
        return self._read(reads.find_faults, limit=limit)

    def health(self) -> Health:
        return self._read(reads.health)

    def list_ended(
        self, *, after: HistoryCursor | None, before: datetime, limit: int
    ) -> list[EndedRun]:
        return self._read(reads.list_ended, after=after, before=before, limit=limit)

    def delete_runs(self, run_ids: Sequence[RunId]) -> int:
        return self._write(reads.delete_runs, run_ids)

    def clear_results(self, run_ids: Sequence[RunId], *, reason: str) -> int:
        return self._write(reads.clear_results, run_ids, reason=reason)

    def prune_keys(self, *, before: datetime, limit: int) -> None:
        self._write(reads.prune_keys, before=before, limit=limit)

    def prune(self, *, before: datetime, limit: int, with_definitions: bool = True) -> Pruned:
        found = reads.NOTHING_OLD
        if with_definitions:
            found = self._read(reads.old_definitions, before=before, limit=limit)
        return self._write(reads.prune, before=before, limit=limit, definitions=found)
