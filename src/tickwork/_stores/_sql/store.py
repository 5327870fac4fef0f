"""Implements the store contract with operations. A dialect adds its connections and its SQL."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.runs.handover import Handover
from tickwork._domain.runs.run import Claim, NewRun, Run
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.tick import TickPlan, Unfired, merge_plans
from tickwork._stores._sql.faults import (
    Rejection,
    bisect_faults,
    may_be_fault_of_row,
    reject_unencodable,
    report_fault,
)
from tickwork._stores._sql.migrate import check_version
from tickwork._stores._sql.operations import (
    alerts,
    audit,
    calls,
    control,
    flows,
    inserts,
    leases,
    limits,
    rates,
    reads,
    rollups,
    run_by_id,
    schedules,
)
from tickwork._stores._sql.operations import claim as claims
from tickwork._stores._sql.operations import record as records
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import describe_fault
from tickwork._stores._sql.statement import Operation, Rows, Statement
from tickwork._stores._sql.table_check import check_tables, versions
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract import (
    AddedRun,
    ClaimCheck,
    ClaimRequest,
    HeartbeatResult,
    HeldClaim,
    KeysOf,
    LogLine,
    NewSchedule,
    Planner,
    Pruned,
    ReapDecision,
)
from tickwork.errors import RowRejected, ValueRejected

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


def writer_of(
    operation: Callable[Concatenate[Queries, P], Operation[T]],
) -> Callable[Concatenate["SqlStore", P], T]:
    """A method of a store that is this operation, in a transaction that writes."""

    @wraps(operation)
    def write(store: "SqlStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store._write(operation, *args, **kwargs)  # noqa: SLF001  # a method of the store

    return write


def reader_of(
    operation: Callable[Concatenate[Queries, P], Operation[T]],
) -> Callable[Concatenate["SqlStore", P], T]:
    """The same for an operation that only reads."""

    @wraps(operation)
    def read(store: "SqlStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store._read(operation, *args, **kwargs)  # noqa: SLF001  # a method of the store

    return read


class SqlStore(ABC):
    """Every method of the contract is one operation, run by :meth:`_write` or :meth:`_read`.

    A method that only runs an operation is declared with :func:`writer_of` or :func:`reader_of`.
    """

    url: str
    query: Queries
    _swept_edges: RunId | None = None  # the last run whose callers sweep() checked
    _swept_up_to: str = ""  # the last limit key that sweep() checked
    caller_transaction: object = None
    _origin: "SqlStore | None" = None  # stays open: a store in memory closes its connection
    _may_retry: bool = True  # whether a transaction that the database rejected can be retried

    @abstractmethod
    def _write(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run an operation in a transaction; retry it after a transient failure."""

    def _find_rejection(self, error: Exception) -> Rejection | None:
        """Return what an error says about a row; None if the database did not reject a row."""
        if isinstance(error, UnicodeError | OverflowError):
            return reject_unencodable(error)
        return error if isinstance(error, ValueRejected | RowRejected) else None

    @abstractmethod
    def _read(
        self,
        operation: Callable[Concatenate[Queries, P], Operation[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do the same as :meth:`_write` for an operation that only reads."""

    def with_cipher(self, cipher: Cipher) -> Self:
        store = copy(self)
        store.query = self.query.with_cipher(cipher)
        store._origin = self  # noqa: SLF001  # its own class
        return store

    # ------------------------------------------------------------ schema

    def would_install_wait(self) -> bool:
        return False

    def schema_version(self) -> int:
        return self._versions()[0]

    def check_schema(self) -> None:
        installed, compatible_from = self._versions()
        check_version(self.url, installed=installed, compatible_from=compatible_from)

    def check_tables(self) -> None:
        self._read(check_tables)

    def _versions(self) -> tuple[int, int]:
        return self._read(versions, url=self.url)

    # ------------------------------------------------------------ runs

    def add_runs(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        if not runs:
            return []
        if may_be_stored:
            return self._write(self._add_runs_again, runs)
        return self._write(inserts.add_runs, runs)

    def _add_runs_again(self, query: Queries, runs: Sequence[NewRun]) -> Operation[list[AddedRun]]:
        return inserts.add_runs(query, runs, may_be_stored=True)

    stage = writer_of(claims.stage)

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
                claims.claim,
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

    claim_run = writer_of(run_by_id.claim_run)
    find_claims = reader_of(claims.find_claims)

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

    def record(
        self,
        transitions: Sequence[Transition],
        *,
        may_be_stored: bool = False,
        touches_jobs: bool = True,
    ) -> list[RunId]:
        if not transitions:
            return []
        # Only the first try is optimistic: if the database rejects it, the retry is not.
        tries = itertools.count(0 if self._may_retry else 1)
        try:
            return self._write(
                lambda query: records.record(
                    query,
                    transitions,
                    may_be_stored=may_be_stored,
                    is_optimistic=next(tries) == 0,
                    touches_jobs=touches_jobs,
                )
            )
        except Exception as error:
            rejection = self._find_rejection(error)
            if rejection is None:
                raise
            # The worker halves a batch, and writes as little as possible of the run at fault. If
            # that is rejected, too, the row itself is the cause.
            is_last = len(transitions) == 1 and transitions[0].is_short
            if not is_last or not isinstance(rejection, ValueRejected):
                if rejection is error:
                    raise
                raise rejection from error
        return self._write(records.end_unwritable, transitions[0], rejection)

    touch_jobs = writer_of(records.touch_jobs)

    def reap(self, *, now: datetime, limit: int, decide: ReapDecision) -> list[Transition]:
        def reap_part(only: Sequence[RunId] | None) -> list[Transition]:
            return self._write(
                records.reap, now=now, limit=limit, decide=decide, only=only, seen=seen
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
        A run that a trigger rejected stays as it is: the next call tries it again.
        """
        try:
            return act(None)
        except Exception as error:
            if not seen or not may_be_fault_of_row(error):
                raise
            cause = error
        results, faults = bisect_faults(list(dict.fromkeys(seen)), act, cause)
        broken: list[tuple[RunId, Exception]] = []
        for fault in faults:
            rejection = self._find_rejection(fault.error)
            if isinstance(rejection, RowRejected):
                report_fault("tickwork_run", fault.item, str(rejection))
            elif results or rejection is not None:
                broken.append((fault.item, fault.error))
        if broken:
            self._write(claims.fail_unusable, broken, now=now)
        elif faults and not results:
            raise cause
        return [claim for result in results for claim in result]

    release_worker = writer_of(leases.release_worker)
    complete = writer_of(records.complete)

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        if not claims:
            return []
        return self._write(records.after_complete, claims)

    cancel = writer_of(control.cancel)
    cancel_schedule = writer_of(control.cancel_schedule)
    reschedule = writer_of(control.reschedule)

    def sweep(self, *, now: datetime, limit: int) -> int:
        after = self._swept_up_to
        swept = self._write(limits.sweep, now=now, limit=limit, after=after)
        count, self._swept_up_to = swept
        begin = self._swept_edges or flows.FIRST_ID
        settled, self._swept_edges = self._write(
            calls.sweep_calls, now=now, limit=limit, after=begin
        )
        return count + settled

    unblock_rated = writer_of(rates.unblock_rated)
    ready_pairs = reader_of(claims.ready_pairs)
    save_progress = writer_of(leases.save_progress)
    add_retries = writer_of(flows.add_retries)
    save_steps = writer_of(flows.save_steps)
    load_steps = reader_of(flows.load_steps)
    emit = writer_of(flows.emit)
    find_event = reader_of(flows.find_event)
    find_callers = reader_of(calls.find_callers)
    list_waits = reader_of(flows.list_waits)
    resolve_wait = writer_of(flows.resolve_wait)
    work_outbox = writer_of(flows.work_outbox)
    wake = writer_of(flows.wake)

    def append_logs(
        self, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
    ) -> None:
        if any(lines_by_run.values()):
            self._write(leases.append_logs, lines_by_run, lines_max=lines_max)

    pending_work = reader_of(claims.pending_work)
    next_due = reader_of(claims.next_due)

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

    change_schedule = writer_of(schedules.change_schedule)
    remove_schedule = writer_of(schedules.remove_schedule)
    stamp_seen = writer_of(control.stamp_seen)
    pause_schedule = writer_of(schedules.pause_schedule)
    resume_schedule = writer_of(schedules.resume_schedule)
    drop_firings = writer_of(schedules.drop_firings)

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None:
        return next(iter(self.get_schedules([(tenant, name)])), None)

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        if not names:
            return []
        return self._read(schedules.get_schedules, names)

    scheduled_jobs = reader_of(schedules.scheduled_jobs)
    list_schedules = reader_of(schedules.list_schedules)
    list_expected_schedules = reader_of(schedules.list_expected_schedules)

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
        if not plans and self._find_rejection(cause) is None:
            raise cause
        return merge_plans([*plans, TickPlan([], [], [], [], unfired)])

    next_firing_at = reader_of(schedules.next_firing_at)

    # ------------------------------------------------------------ control

    set_limits = writer_of(limits.set_limits)

    def change_limit(self, name: str, slots: int | None, *, now: datetime) -> None:  # noqa: ARG002
        self._write(limits.change_limit, name, slots)

    list_limits = reader_of(reads.list_limits)
    list_definitions = reader_of(reads.list_definitions)
    pause = writer_of(control.pause)
    resume = writer_of(control.resume)
    list_pauses = reader_of(reads.list_pauses)
    acquire_lock = writer_of(control.acquire_lock)
    get_lock = reader_of(control.get_lock)
    renew_lock = writer_of(control.renew_lock)
    release_lock = writer_of(control.release_lock)
    beat_worker = writer_of(control.beat_worker)
    remove_worker = writer_of(control.remove_worker)
    list_workers = reader_of(reads.list_workers)

    # ------------------------------------------------------------ audit

    add_audit = writer_of(audit.add_audit)
    list_audit = reader_of(audit.list_audit)
    prune_audit = writer_of(audit.prune_audit)
    reserve_request = writer_of(audit.reserve_request)
    change_alerts = writer_of(alerts.change_alerts)
    list_open_alerts = reader_of(alerts.list_open_alerts)
    list_ended_alerts = reader_of(alerts.list_ended_alerts)
    prune_alerts = writer_of(alerts.prune_alerts)

    # ------------------------------------------------------------ reads

    def get_run(self, run_id: RunId) -> Run | None:
        return next(iter(self.get_runs([run_id])), None)

    get_runs = reader_of(reads.get_runs)
    find_run_ids = reader_of(reads.find_run_ids)
    list_runs = reader_of(reads.list_runs)
    list_summaries = reader_of(reads.list_summaries)
    count_matches = reader_of(reads.count_matches)
    due_runs = reader_of(run_by_id.due_runs)
    list_outcomes = reader_of(reads.list_outcomes)
    list_waiting = reader_of(reads.list_waiting)
    find_retries = reader_of(reads.find_retries)
    count_created = reader_of(reads.count_created)
    oldest_ready = reader_of(reads.oldest_ready)
    count_starts = reader_of(reads.count_starts)
    run_record = reader_of(reads.run_record)
    count_runs = reader_of(reads.count_runs)
    count_taken = reader_of(reads.count_taken)
    slot_holders = reader_of(reads.slot_holders)
    find_turn = reader_of(rates.find_turn)
    list_jobs = reader_of(reads.list_jobs)
    find_faults = reader_of(reads.find_faults)
    health = reader_of(reads.health)
    list_ended = reader_of(reads.list_ended)
    delete_runs = writer_of(reads.delete_runs)
    clear_results = writer_of(reads.clear_results)
    read_rollups = reader_of(rollups.read_rollups)
    compact_rollups = writer_of(rollups.compact_rollups)
    prune_keys = writer_of(reads.prune_keys)

    def prune(self, *, before: datetime, limit: int, with_definitions: bool = True) -> Pruned:
        definitions = reads.NOTHING_OLD
        if with_definitions:
            definitions = self._read(reads.old_definitions, before=before, limit=limit)
        return self._write(reads.prune, before=before, limit=limit, definitions=definitions)
