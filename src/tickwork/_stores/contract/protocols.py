"""The protocols of a store, one for each group of methods."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from tickwork._domain.alert_history import AlertChanges, AlertCursor, AlertRow
from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.limits.rates import Turn
from tickwork._domain.rollups import ROLLUPS_MAX, Rollup
from tickwork._domain.runs.handover import Handover
from tickwork._domain.runs.retention import EndedRun, HistoryCursor
from tickwork._domain.runs.run import Claim, NewRun, Run
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.stored_events import EventName, NewEvent
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.shared_names import DefinitionRow
from tickwork._domain.tick import Move, Skip, TickPlan
from tickwork._stores.cipher import Cipher
from tickwork._stores.contract.values import (
    AddedRun,
    AuditEntry,
    ChangeResult,
    ClaimCheck,
    ClaimRequest,
    Creations,
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
    ScheduleOutcome,
    SummaryPage,
    UpcomingRuns,
    WaitPage,
    WorkerRow,
)


class RunStore(Protocol):
    """The life of a run: add it, claim it, extend its lease, record its outcome, reap it."""

    @property
    def caller_transaction(self) -> object:
        """Identifies the caller's transaction in which the calls of this thread take part.

        None if each call has a transaction of its own, or one of a connection that was given.
        """

    def add_runs(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        """Add runs, all or none, and return one answer for each, in order.

        A run whose unique or overlap key is taken is not added: the answer names the run that
        holds the key. A run that ``replaces`` the holder of its overlap key changes it instead
        (``replace_run``), unless that one was claimed. Pass ``may_be_stored`` when an earlier call
        may have been committed: runs whose ids exist, unfinished or finished, are not added again.
        """

    def stage(self, *, now: datetime, limit: int) -> int:
        """Move runs that have become due from waiting to ready; return how many."""

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
        """Claim ready runs by (priority, due_at, id), within their limits.

        A claim takes no run of a paused queue or job, and at most one run that crashed before. A
        run whose limit is full, or whose rate is used up, becomes blocked. ``tag`` marks the rows,
        so that :meth:`find_claims` finds them when the answer was lost.
        """

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        """Claim this run, due or not, to start at once.

        Returns None, and changes nothing, when the run is unknown, claimed or finished, when its
        queue or job is paused, or when one of its limits is full.
        """

    def find_claims(self, *, worker: WorkerId, tag: str) -> list[Claim]:
        """The claims made with this tag that still hold."""

    def hand_over(self, handovers: Sequence[Handover]) -> None:
        """Store the external ids of claims, before their runs are submitted to another engine."""

    def accept(
        self,
        handovers: Sequence[Handover],
        *,
        worker: WorkerId,
        tag: str,
        until: datetime,
        started_at: datetime | None,
    ) -> list[Claim]:
        """Take over claims that were handed over, each with a new token; return those that hold.

        A claim is left out when its token differs: it was accepted before, or claimed again. So
        is a run whose cancellation was requested. Leases last at least ``until``. ``tag`` marks
        the rows, so that :meth:`find_claims` finds them when the answer was lost.
        """

    def extend_leases(self, held: Sequence[HeldClaim], *, until: datetime) -> HeartbeatResult:
        """Extend these leases, and store which handlers have started."""

    def check_claims(self, held: Sequence[HeldClaim]) -> ClaimCheck:
        """Read which of these claims still hold."""

    def record(
        self,
        transitions: Sequence[Transition],
        *,
        may_be_stored: bool = False,
        touches_jobs: bool = True,
    ) -> list[RunId]:
        """Write transitions, each only if its claim's token still matches; return the lost runs.

        One transaction updates history, attempts, slots, blocked runs, unique keys and job rows,
        and adds the follow-ups of the transitions that it writes, by the rules of :meth:`add_runs`.
        A suspension adds its steps; if the cancellation of the run was requested, it ends instead.
        Pass ``may_be_stored`` when an earlier call may have been committed: a run whose transition
        that call wrote is not lost. Without ``touches_jobs``, job rows stay as they are: the caller
        passes such successes to :meth:`touch_jobs` soon.
        """

    def touch_jobs(self, transitions: Sequence[Transition]) -> None:
        """Update the job rows after transitions that were recorded without them."""

    def reap(self, *, now: datetime, limit: int, decide: ReapDecision) -> list[Transition]:
        """Take back runs whose lease has expired, as ``decide`` says for each."""

    def release_worker(self, worker: WorkerId, *, now: datetime) -> int:
        """Expire all leases of a dead worker, for the next reap; return how many."""

    def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        """Finish a run in the caller's transaction; return False if the claim does not hold.

        It takes no lock that other workers wait for: :meth:`after_complete` frees slots and
        updates job rows. After False the caller must roll back: the run was lost or finished, and
        the effects of its handler were committed by the process that finished it.
        """

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        """Unblock runs and update job rows for completed claims; return the completed runs.

        A run that is not returned was not completed under its claim: the caller's transaction was
        rolled back or is still open, or the claim was lost. Calling it again does no harm. If it
        is never called, :meth:`sweep` unblocks the waiting runs.
        """

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> ChangeResult:
        """Cancel a waiting run at once; request that the worker of a running one stops it."""

    def cancel_schedule(
        self, tenant: str, schedule: str, *, now: datetime, reason: str = ""
    ) -> int:
        """Cancel all unfinished runs of a schedule, as :meth:`cancel` does; return how many."""

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> ChangeResult:
        """Change when a run is due, if no worker has claimed it."""

    def sweep(self, *, now: datetime, limit: int) -> int:
        """Unblock runs whose limit has room; return how many."""

    def unblock_rated(self, *, now: datetime, limit: int) -> int:
        """Unblock runs whose turn under a rate has come, of ``limit`` keys; return how many.

        A key that another process has locked is left to that process.
        """

    def ready_pairs(self) -> list[tuple[str, str]]:
        """The (queue, job) pairs that have ready runs."""

    def save_progress(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Store a handler's progress or checkpoint; return False when the claim was lost."""

    def add_retries(self, runs: Sequence[NewRun], *, may_be_stored: bool = False) -> list[AddedRun]:
        """As :meth:`add_runs`, for runs that continue failed ones (``retry_of``).

        Each gets the done steps of the run that it repeats, in the same transaction.
        """

    def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        """Store steps under the token of a claim; return False, and store none, if it was lost.

        A step that exists under its name is not changed: calling it again does no harm.
        """

    def load_steps(self, run_id: RunId) -> list[Step]:
        """The steps of a run, unfinished or finished, in the order in which they were stored."""

    def emit(self, event: NewEvent) -> bool:
        """Store an event; return False, and change nothing, if its name and key have one.

        It takes no lock that workers wait for. Runs that wait for it are woken by
        :meth:`work_outbox`, after the commit.
        """

    def find_event(self, name: EventName) -> str | None:
        """The data of an event; None if there is none."""

    def resolve_wait(
        self, claim: Claim, step: Step, name: EventName, *, now: datetime
    ) -> Step | None:
        """Decide a wait by its event, or else by its time, and store the step.

        The step is returned as it is if neither has come; None if the claim was lost.
        """

    def work_outbox(self, *, now: datetime, limit: int) -> int:
        """Wake the runs that wait for committed events; return how many rows were worked off."""

    def wake(self, run_id: RunId, *, now: datetime) -> ChangeResult:
        """End the sleep of a run: it continues now."""

    def append_logs(
        self, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
    ) -> None:
        """Store log lines of existing runs, at most ``lines_max`` for each run.

        It needs no token: what an attempt logged before it lost its lease helps to find out why.
        """

    def pending_work(self) -> PendingWork:
        """What there is to stage, reap, sweep and claim, now or later: one cheap query."""

    def next_due(self, *, now: datetime) -> UpcomingRuns:
        """When the next run is due: less than :meth:`pending_work`, for a timer."""


class AsyncRuns(Protocol):
    """The methods that are available in a transaction of the caller's async connection."""

    async def add_runs(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[AddedRun]:
        """As :meth:`RunStore.add_runs`."""

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        """As :meth:`RunStore.complete`."""

    async def emit(self, event: NewEvent) -> bool:
        """As :meth:`RunStore.emit`."""

    async def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        """As :meth:`RunStore.save_steps`."""


class ScheduleStore(Protocol):
    """Schedules: add, change, pause and fire them."""

    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        """Add schedules, all or none, and return the row of each, in order.

        For a (tenant, name) that exists, the existing row is returned unchanged.
        """

    def add_schedule(
        self,
        schedule_id: ScheduleId,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow:
        """Add one schedule, as :meth:`add_schedules` does."""

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        """Replace the spec if the revision is still that of ``row``; return None otherwise."""

    def remove_schedule(self, schedule_id: ScheduleId) -> bool:
        """Delete a schedule; its runs stay."""

    def stamp_seen(
        self,
        *,
        jobs: Sequence[str],
        schedules: Sequence[ScheduleId],
        now: datetime,
        definitions: Sequence[DefinitionRow] = (),
    ) -> None:
        """Store that a live program defines these jobs and schedules, and which program it is."""

    def list_definitions(self, *, since: datetime) -> list[DefinitionRow]:
        """List what applications have reported since then, by kind, name and application."""

    def pause_schedule(
        self,
        schedule_id: ScheduleId,
        *,
        now: datetime,
        note: str = "",
        until: datetime | None = None,
        next_due_at: datetime | None = None,
    ) -> bool:
        """Pause a schedule until it is resumed; return False when there is no such schedule.

        With ``until`` it resumes by itself after that instant, at ``next_due_at``.
        """

    def resume_schedule(self, schedule_id: ScheduleId, *, next_due_at: datetime | None) -> bool:
        """Resume a schedule at this instant; return False when there is no such schedule."""

    def drop_firings(self, skip: Skip, move: Move, *, now: datetime) -> bool:
        """Store why firings made no runs, and move their schedule, whose pause ends.

        Returns False, and stores nothing, when the schedule has moved meanwhile.
        """

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None: ...

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        """The schedules with these (tenant, name), in any order; unknown ones are left out."""

    def scheduled_jobs(self) -> list[str]:
        """The names of all jobs that have schedules, sorted; cheap with any number of schedules."""

    def list_schedules(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 1000
    ) -> list[ScheduleRow]:
        """Schedules sorted by (tenant, name), starting after this pair."""

    def list_expected_schedules(self, *, limit: int) -> list[ScheduleRow]:
        """Schedules whose firings must complete within some time, sorted by (tenant, name)."""

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
        """One tick in one transaction: lock the schedules that are due, plan, write the plan.

        It fires schedules of ``jobs`` only (None: of all jobs). A schedule that code defines is
        fired only if a live program has stamped it since ``seen_after``; older ones are retired.
        A schedule that another ticker has locked is left to it.
        """

    def next_firing_at(
        self, *, jobs: Collection[str] | None = None, seen_after: datetime | None = None
    ) -> datetime | None:
        """When the next schedule of these jobs is due; retired schedules do not count."""


class ControlStore(Protocol):
    """Limits, pauses, locks and workers."""

    def set_limits(self, slots_by_name: Mapping[str, int]) -> None:
        """Store the limits that code defines; an operator's overrides stay."""

    def change_limit(self, name: str, slots: int | None, *, now: datetime) -> None:
        """Override a limit (None: remove the override), effective for the next claim."""

    def list_limits(self) -> list[LimitRow]:
        """All limits, sorted by name."""

    def pause(self, pause: Pause) -> None:
        """Pause a queue or job: its runs are not claimed any more."""

    def resume(self, kind: PauseKind, name: str) -> bool:
        """Resume a queue or job; return False when it was not paused."""

    def list_pauses(self) -> list[Pause]: ...

    def acquire_lock(self, lock: LockRow, *, now: datetime) -> LockRow | None:
        """Take a lock that is free, expired or our own; return None, or the row of its owner."""

    def get_lock(self, name: str) -> LockRow | None:
        """The row of a lock, expired or not; None when there is none."""

    def renew_lock(self, name: str, owner: str, *, until: datetime, now: datetime) -> bool:
        """Extend a lock; return False when it was lost."""

    def release_lock(self, name: str, owner: str | None = None) -> bool:
        """Release a lock of this owner (None: of any owner); return False if there was none."""

    def beat_worker(self, worker: WorkerRow) -> None:
        """Store the state of a worker; its first heartbeat registers it."""

    def remove_worker(self, worker: WorkerId) -> None:
        """Delete the row of a worker that has shut down."""

    def list_workers(self) -> list[WorkerRow]:
        """All workers, the latest heartbeat first."""


class AuditStore(Protocol):
    """The audit log, the idempotency keys of requests, and the history of alerts."""

    def add_audit(self, entry: AuditEntry) -> None: ...

    def list_audit(
        self,
        *,
        subject: str | None = None,
        action: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """Entries, newest first: of one subject, one action or all, those before this id."""

    def prune_audit(self, *, before: str, limit: int) -> int:
        """Delete one batch of the entries before this id; return how many."""

    def reserve_request(self, request: IdempotentRequest, *, now: datetime) -> IdempotentRequest:
        """Store a request if its key is free; return the request that holds the key.

        :meth:`ReadStore.prune_keys` deletes requests whose time is over.
        """

    def change_alerts(self, changes: AlertChanges, *, now: datetime) -> None:
        """Write the begin and the end of alerts.

        A name that has an open row keeps it: the new row is left out. A row that has ended, or
        was reopened, meanwhile stays as it is.
        """

    def list_open_alerts(self) -> list[AlertRow]:
        """The alerts without an end, at most 2,000."""

    def list_ended_alerts(
        self,
        *,
        since: datetime | None = None,
        before: AlertCursor | None = None,
        limit: int = 50,
    ) -> list[AlertRow]:
        """Alerts that have ended, at this instant or later, the last end first."""

    def prune_alerts(self, *, before: datetime, limit: int) -> int:
        """Delete one batch of the alerts that ended before this instant; return how many."""


class ReadStore(Protocol):
    """Reads for people and pruning: nothing here is needed to run a job."""

    def get_run(self, run_id: RunId) -> Run | None:
        """One run, unfinished or finished."""

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Several runs, in any order; unknown ones are left out."""

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        """The ids of unfinished and finished runs that start with this prefix."""

    def list_runs(
        self,
        where: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scan_max: int | None = None,
    ) -> RunPage:
        """One page of runs, newest first: ids sort by time.

        With ``scan_max``, about so many rows of each table are read to find those that match. The
        page then says how far it has searched.
        """

    def list_summaries(
        self,
        where: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scan_max: int | None = None,
    ) -> SummaryPage:
        """The same runs as :meth:`list_runs`, with the columns that people search."""

    def count_matches(self, where: RunFilter, *, cap: int, scan_max: int) -> RunCount:
        """Count the runs that match, up to ``cap``, in ``scan_max`` rows of each table.

        All runs may be estimated.
        """

    def due_runs(self, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
        """The runs that :meth:`RunStore.claim` would consider now, in the same order.

        Expired runs are left out: a worker would skip them.
        """

    def list_outcomes(
        self,
        names: Sequence[tuple[str, str]],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int,
    ) -> list[ScheduleOutcome]:
        """The newest runs of each of these (tenant, name), at most ``limit`` of each, newest first.

        The time of a run is its instant, or its creation if that is later: a backfill.
        """

    def list_waiting(
        self,
        *,
        since: datetime,
        until: datetime,
        limit: int,
        job: str | None = None,
        schedule: str | None = None,
    ) -> list[Run]:
        """Runs that wait for a time in this span, in the order of that time."""

    def list_waits(self, *, after: RunId | None = None, limit: int) -> WaitPage:
        """Suspended runs that wait for events, in the order of their ids, after this one."""

    def find_callers(self, run_id: RunId, *, limit: int = 10) -> list[RunId]:
        """The runs that have called this one, unfinished or finished."""

    def find_retries(self, run_id: RunId, *, limit: int = 10) -> list[RunId]:
        """The runs that repeat this one, oldest first."""

    def count_created(self, *, since: datetime, most: int) -> Creations:
        """Count the runs that were created since an instant: the newest of them, if there are more.

        At least ``most`` runs are counted, if so many exist.
        """

    def oldest_ready(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], datetime]:
        """The earliest due time of the ready runs of each (queue, job) that has some."""

    def count_starts(self, since_by_key: Mapping[str, datetime]) -> dict[str, int]:
        """How many runs have started under each key of a rate after an instant."""

    def run_record(self, run_id: RunId) -> RunRecord | None:
        """A run with its attempts, its steps and its log."""

    def count_runs(self, *, cap: int = 10_000) -> PhaseCounts:
        """Count unfinished runs by queue and phase, each up to ``cap``.

        The cap may be lowered where there are many queues.
        """

    def count_taken(self, keys: Sequence[str]) -> dict[str, int]:
        """How many slots of these keys are taken."""

    def slot_holders(self, key: str, *, limit: int = 10) -> list[RunId]:
        """The runs that hold the slots of a key."""

    def find_turn(self, run_id: RunId) -> Turn | None:
        """The position of a run that waits for a rate; None when it does not wait for one."""

    def list_jobs(self, *, tenant: str | None = None) -> list[JobRow]:
        """The last results of each job."""

    def find_faults(self, *, limit: int) -> list[RowFault]:
        """Rows that cannot be used as they are, among ``limit`` rows of each table."""

    def health(self) -> Health: ...

    def list_ended(
        self, *, after: HistoryCursor | None, before: datetime, limit: int
    ) -> list[EndedRun]:
        """Finished runs that ended before this instant, in the order of their end.

        ``after`` is the last run of the page before.
        """

    def delete_runs(self, run_ids: Sequence[RunId]) -> int:
        """Delete finished runs with their attempts and logs; return how many there were.

        Runs that another process deletes at the same time are left to it.
        """

    def clear_results(self, run_ids: Sequence[RunId], *, reason: str) -> int:
        """Delete the results of finished runs, which get this reason; return how many."""

    def read_rollups(
        self, *, since: datetime, until: datetime, jobs: Sequence[str], limit: int = ROLLUPS_MAX
    ) -> list[Rollup]:
        """Read the counts of ended attempts, sorted by time: those that begin in this span.

        ``ALL_JOBS`` among ``jobs`` stands for the counts of all jobs, one for each queue. Recent
        counts are by minute, older ones by hour and by day (``KEEP``). Not more than ``limit``
        rows are read: the result of more is incomplete.
        """

    def compact_rollups(self, *, now: datetime, limit: int) -> int:
        """Merge counts of single transactions and of past hours; return how many were merged."""

    def prune_keys(self, *, before: datetime, limit: int) -> None:
        """Delete one batch of keys, requests and rates whose time was over before this instant."""

    def prune(self, *, before: datetime, limit: int, with_definitions: bool = True) -> Pruned:
        """Delete one batch of rows that ended, or were last seen, before this instant.

        Finished runs are deleted with their attempts and logs. Jobs and code schedules that no
        program defines any more are deleted when they have no unfinished runs. Schedules that were
        created through the API, or that a person has paused, are kept.
        """


class Listener(Protocol):
    """Waits for notifications. They are hints: some may be missed, so a worker polls as well."""

    def wait(self, seconds: float) -> bool:
        """Whether a notification arrived within this time."""

    def close(self) -> None: ...


class SchemaStore(Protocol):
    """The tables, the database's clock and the connections."""

    def install(self) -> int:
        """Create or upgrade the tables; return the version. Concurrent calls are safe."""

    def would_install_wait(self) -> bool:
        """Whether :meth:`install` would wait for a transaction that a caller has begun.

        So it is where one connection at a time can write, unless the tables exist.
        """

    def schema_version(self) -> int:
        """The installed version; 0 when there are no tables."""

    def check_schema(self) -> None:
        """Raise SchemaMissing, SchemaOutdated or SchemaTooNew when it does not fit this code."""

    def check_tables(self) -> None:
        """Raise SchemaDamaged when a table or a column is missing.

        It needs the right to read all tables. Workers call it when they start.
        """

    def database_time(self) -> datetime: ...

    def listen(self) -> Listener | None:
        """A listener for new work; None when a worker can only poll."""

    def close(self) -> None:
        """Close all connections. Idempotent."""


class Store(RunStore, ScheduleStore, ControlStore, AuditStore, ReadStore, SchemaStore, Protocol):
    """Everything that a store does. Not stable before version 1.0."""

    @property
    def connections_max(self) -> int:
        """How many calls can run at once; more threads would wait for a connection."""

    @property
    def clock_seconds(self) -> float:
        """How long a measurement of :meth:`database_time` stays valid."""

    @property
    def pumps_max(self) -> int:
        """How many pumps of one worker claim and record at once; more would only wait.

        Two on a server: one claims while the other waits for its answer. One where the store
        has a single writer.
        """

    def with_cipher(self, cipher: Cipher) -> "Store":
        """This store, encrypting payloads: arguments, results, checkpoints and progress.

        It uses the same connections. Values in plain text are read as they are.
        """

    def using(self, connection: object) -> "Store":
        """This store, with every call in the transaction of the caller's connection.

        The caller's open transaction is neither committed nor rolled back: the change becomes
        visible to others when the caller commits. A call that fails is undone as a whole, and the
        transaction stays usable. If no transaction is open and the connection is in autocommit
        mode, the call has a transaction of its own.

        Raises:
            WrongConnection: The connection is of an unknown type, or of another database.
        """

    def using_async(self, connection: object) -> AsyncRuns:
        """The methods for a caller's async connection; otherwise as :meth:`using`.

        Raises:
            WrongConnection: The connection is of an unknown type.
        """
