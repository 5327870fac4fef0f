"""What a store does, in the words of the domain. Every store passes one suite of tests.

Stores carry out what was decided elsewhere. They hold no rules, ask no clock (``now`` is
always handed in, and is the database's time) and make no ids. Each verb is one
transaction: it happens as a whole, or not at all.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.rates import Turn
from tickwork._domain.run import Claim, NewRun, Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._domain.tick import TickPlan
from tickwork._domain.transitions import Transition

# ---------------------------------------------------------------- runs


class Enqueued(NamedTuple):
    """Which run stands for one that was enqueued: itself, or the one that was there first."""

    run_id: RunId
    is_new: bool


class ClaimRequest(NamedTuple):
    """What a worker may take: its queues (None: all), the jobs it knows, and how many.

    ``is_starting`` says that those ``limit`` start at once, so that a worker that dies with them
    is known to have been running them. ``ahead`` is how many more may be taken to wait in the
    worker's hands: of those, runs with limit keys, and runs that were claimed before, are left
    where they are. Whatever became of them then may be their own doing. ``hold`` are more that
    wait, but for a moment only: those may have limit keys. ``may_wait`` are the jobs whose runs
    may be among them.
    """

    limit: int
    queues: tuple[str, ...] | None = None
    jobs: tuple[str, ...] | None = None  # None: whatever there is
    ahead: int = 0
    is_starting: bool = False
    hold: int = 0
    may_wait: frozenset[str] | None = None  # None: all


class HeldClaim(NamedTuple):
    """A claim that a worker still works on; ``started_at`` once its handler was called."""

    run_id: RunId
    token: int
    started_at: datetime | None = None


class HeartbeatResult(NamedTuple):
    """What a heartbeat learned.

    A run that is ``lost`` has been claimed by another, or taken back: its token differs, or
    it is not running. A run that is gone was finished, and is not lost.
    """

    lost: list[RunId]
    cancel_requested: list[RunId]


class PendingWork(NamedTuple):
    """What unfinished runs wait for: where nothing does, nobody need lock anything."""

    due_at: datetime | None  # when the next waiting run falls due
    lease_until: datetime | None  # when the first lease ends
    is_blocked: bool  # whether a run waits for a limit
    is_ready: bool  # whether a run waits for a worker, be it one that nobody may take
    turn_at: datetime | None = None  # when the turn of the next comes that waits for a rate


class ChangeResult(StrEnum):
    """What became of a request to cancel, or of one to reschedule."""

    DONE = "done"  # it was waiting, and is canceled (or due at another time) now
    REQUESTED = "requested"  # it runs: its worker will be told
    CLAIMED = "claimed"  # too late: it was claimed before
    FINISHED = "finished"
    UNKNOWN = "unknown"


class Expired(NamedTuple):
    """A claim whose lease has ended, for :func:`reap` to decide on."""

    claim: Claim
    has_started: bool
    is_cancel_requested: bool
    worker: WorkerId | None


ReapDecision: TypeAlias = Callable[[Expired], Transition]
Planner: TypeAlias = Callable[[Sequence[ScheduleRow], Collection[str]], TickPlan]
"""Makes the plan of a tick, from the schedules that are due and the keys that are taken."""
KeysOf: TypeAlias = Callable[[Sequence[ScheduleRow]], Collection[str]]


class LogLine(NamedTuple):
    """One line that a handler logged."""

    at: datetime
    level: str
    logger: str
    message: str


class RunStore(Protocol):
    """Runs: in, claimed, extended, recorded, taken back."""

    def enqueue(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        """Add runs, all or none; answer for each, in order.

        A run whose unique key is protected is not added: the answer names the run that
        holds the key. ``is_repeat`` says that an earlier try may have landed: ids that
        are here already, unfinished or finished, are not added again.
        """
        ...

    def stage(self, *, now: datetime, limit: int) -> int:
        """Move runs that fell due from waiting to ready; return how many."""
        ...

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
        """Claim ready runs by (priority, due_at, id), under their limits.

        Never more than ``limit``; nothing of a paused queue or job; at most one run that
        has crashed before. A run that finds a limit full, or a rate used up, is blocked on
        it. ``tag`` marks the rows, so that a claim whose answer was lost can be found again.
        """
        ...

    def claim_run(
        self, run_id: RunId, *, worker: WorkerId, tag: str, now: datetime, lease: timedelta
    ) -> Claim | None:
        """Claim exactly this run, due or not, to start at once; None when it cannot.

        It cannot when it is unknown, claimed or finished, when its queue or job is paused, or
        when a limit that it needs is full. Nothing has changed then.
        """
        ...

    def find_claims(self, *, worker: WorkerId, tag: str) -> list[Claim]:
        """The claims made under this tag that still hold: after a lost answer."""
        ...

    def extend_leases(self, held: Sequence[HeldClaim], *, until: datetime) -> HeartbeatResult:
        """Extend these leases, and note which handlers have started."""
        ...

    def record(self, steps: Sequence[Transition], *, is_repeat: bool = False) -> list[RunId]:
        """Write decided steps, each only under its claim's token; return the lost ones.

        One transaction: history, attempts, slots, unblocking, unique keys, job rows.
        ``is_repeat`` says that an earlier try may have landed: what is in history under
        the same token is not lost.
        """
        ...

    def reap(self, *, now: datetime, limit: int, verdict: ReapDecision) -> list[Transition]:
        """Take back runs whose lease has ended, as ``verdict`` decides for each."""
        ...

    def release_worker(self, worker: WorkerId, *, now: datetime) -> int:
        """End all leases of a worker that is known to be dead; the next reap takes them."""
        ...

    def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        """Finish a run, touching no gate and no job row; False when it was not ours to finish.

        Meant for a caller's own transaction: :meth:`after_complete` does the rest. After a
        False, because the claim was lost or the run is finished already, the transaction must
        not be committed: what belongs to the run was written by whoever finished it.
        """
        ...

    def after_complete(self, claims: Sequence[Claim]) -> list[RunId]:
        """Look which of these claims completed their run, and unblock, touch job rows for them.

        A run that is not in the answer was not completed under its claim: the caller's
        transaction was rolled back, or is open still, or the claim was lost. To ask again
        does no harm. Where nobody asks, :meth:`sweep` unblocks whoever waited.
        """
        ...

    def cancel(self, run_id: RunId, *, now: datetime, reason: str = "") -> ChangeResult:
        """Cancel a waiting run at once; ask a running one's worker to stop it."""
        ...

    def cancel_schedule(
        self, tenant: str, schedule: str, *, now: datetime, reason: str = ""
    ) -> int:
        """Cancel every waiting run of a schedule, ask running ones to stop; return how many."""
        ...

    def reschedule(self, run_id: RunId, *, due_at: datetime, now: datetime) -> ChangeResult:
        """Change when a run is due, while it was never claimed."""
        ...

    def sweep(self, *, now: datetime, limit: int) -> int:
        """Let out blocked runs whose limit has room; return how many."""
        ...

    def unblock_rated(self, *, now: datetime, limit: int) -> int:
        """Let out blocked runs whose turn under a rate has come; return how many.

        At most ``limit`` keys are looked at. One that another holds is left to it.
        """
        ...

    def ready_pairs(self) -> list[tuple[str, str]]:
        """The (queue, job) pairs that have ready runs."""
        ...

    def save_progress(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Keep a handler's progress or checkpoint; False when the claim was lost."""
        ...

    def append_logs(
        self, lines_by_run: Mapping[RunId, Sequence[LogLine]], *, lines_max: int
    ) -> None:
        """Keep log lines of runs that are known, the first ``lines_max`` of each."""
        ...

    def pending_work(self) -> PendingWork:
        """What there is to stage, reap, sweep and claim, now or later: one cheap look."""
        ...


class AsyncRuns(Protocol):
    """What can be done in a caller's transaction on an async connection."""

    async def enqueue(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        """As :meth:`RunStore.enqueue`."""
        ...

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        """As :meth:`RunStore.complete`."""
        ...


# ---------------------------------------------------------------- schedules


class NewSchedule(NamedTuple):
    """A schedule on its way into a store, and the first instant to be looked at."""

    id: ScheduleId
    spec: ScheduleSpec
    next_due_at: datetime | None


class ScheduleStore(Protocol):
    """Schedules: registered, fired, paused."""

    def add_schedules(self, new: Sequence[NewSchedule], *, now: datetime) -> list[ScheduleRow]:
        """Add schedules, all or none; answer with the row of each, in order.

        When (tenant, name) is there already, that row is the answer, unchanged.
        """
        ...

    def add_schedule(
        self,
        schedule_id: ScheduleId,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow:
        """Add one, as :meth:`add_schedules` does."""
        ...

    def change_schedule(
        self,
        row: ScheduleRow,
        spec: ScheduleSpec,
        *,
        now: datetime,
        next_due_at: datetime | None,
    ) -> ScheduleRow | None:
        """Replace what was said, if the row is still of ``row.revision``; None otherwise."""
        ...

    def remove_schedule(self, schedule_id: ScheduleId) -> bool:
        """Remove a schedule; its runs stay."""
        ...

    def stamp_seen(
        self, *, jobs: Sequence[str], schedules: Sequence[ScheduleId], now: datetime
    ) -> None:
        """Note that a live program defines these."""
        ...

    def pause_schedule(
        self,
        schedule_id: ScheduleId,
        *,
        now: datetime,
        note: str = "",
        until: datetime | None = None,
        next_due_at: datetime | None = None,
    ) -> bool:
        """Stop firing until resumed; False when there is no such row.

        With ``until`` it goes on by itself after that instant, at ``next_due_at``.
        """
        ...

    def resume_schedule(self, schedule_id: ScheduleId, *, next_due_at: datetime | None) -> bool:
        """Go on from this instant; False when there is no such row."""
        ...

    def get_schedule(self, tenant: str, name: str) -> ScheduleRow | None:
        """One schedule, by name."""
        ...

    def get_schedules(self, names: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        """Several by (tenant, name), in no particular order; what is unknown is left out."""
        ...

    def scheduled_jobs(self) -> list[str]:
        """The jobs that schedules name, each once, sorted: cheap when many name the same."""
        ...

    def list_schedules(
        self, *, tenant: str | None = None, after: tuple[str, str] | None = None, limit: int = 1000
    ) -> list[ScheduleRow]:
        """Schedules by (tenant, name), after this pair."""
        ...

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
        """One tick, in one transaction: lock what is due, plan, and write the plan.

        Only schedules of ``jobs`` are locked (None: of any), and of those that code defines
        only what a live program has stamped since ``seen_after``: the others are retired.
        A schedule that another ticker holds is left to it.
        """
        ...

    def next_firing_at(
        self, *, jobs: Collection[str] | None = None, seen_after: datetime | None = None
    ) -> datetime | None:
        """When the next schedule of these jobs, and not retired, falls due."""
        ...


# ---------------------------------------------------------------- limits, pauses, locks, workers


class PauseKind(StrEnum):
    """What a person can stop, besides schedules."""

    QUEUE = "queue"
    JOB = "job"


class Pause(NamedTuple):
    """A queue or job that a person has stopped."""

    kind: PauseKind
    name: str
    paused_at: datetime
    note: str = ""
    until: datetime | None = None


class LimitRow(NamedTuple):
    """A limit: what code says, and what an operator says instead (None: nothing).

    Slots are how many may run at a time; of a rate (``job/minute:send``), how many may start in
    its time.
    """

    name: str
    slots: int
    override: int | None = None

    @property
    def in_force(self) -> int:
        """What counts: an operator beats code until reset."""
        return self.slots if self.override is None else self.override


class LockRow(NamedTuple):
    """A named lock and who holds it."""

    name: str
    owner: str
    host: str
    pid: int
    acquired_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker process, as it last reported."""

    id: WorkerId
    host: str
    pid: int
    boot_id: str  # with pid and start time it names a process of this machine for good
    process_started: str
    started_at: datetime
    beat_at: datetime
    queues: tuple[str, ...] | None
    jobs: tuple[str, ...]
    slots: int = 0
    running: int = 0
    version: str = ""  # of the program, and of the time zones that it reads


class ControlStore(Protocol):
    """Limits, pauses, locks and workers."""

    def set_limits(self, slots_by_name: Mapping[str, int]) -> None:
        """What code says about limits; an operator's word is kept."""
        ...

    def change_limit(self, name: str, slots: int | None, *, now: datetime) -> None:
        """An operator's word (None: back to code's), effective for the next claim."""
        ...

    def list_limits(self) -> list[LimitRow]:
        """All limits, by name."""
        ...

    def pause(self, pause: Pause) -> None:
        """Stop a queue or job: nothing of it is claimed any more."""
        ...

    def resume(self, kind: PauseKind, name: str) -> bool:
        """Let it go on; False when it was not paused."""
        ...

    def list_pauses(self) -> list[Pause]:
        """Paused queues and jobs."""
        ...

    def acquire_lock(self, lock: LockRow, *, now: datetime) -> LockRow | None:
        """Take a lock that is free, expired or ours; None, or the row of its holder."""
        ...

    def renew_lock(self, name: str, owner: str, *, until: datetime, now: datetime) -> bool:
        """Hold it for longer; False when it was lost."""
        ...

    def release_lock(self, name: str, owner: str | None = None) -> bool:
        """Give it up; with no owner, whoever holds it. False when there was nothing to do."""
        ...

    def beat_worker(self, worker: WorkerRow) -> None:
        """Write how a worker is; the first beat registers it."""
        ...

    def remove_worker(self, worker: WorkerId) -> None:
        """Forget a worker that has ended."""
        ...

    def list_workers(self) -> list[WorkerRow]:
        """All workers, the newest beat first."""
        ...


# ---------------------------------------------------------------- reading and pruning


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list. What is left out may be anything."""

    tenant: str | None = None
    job: str | None = None
    queue: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    schedule: str | None = None
    tag: str | None = None
    since: datetime | None = None  # created at or after
    before: datetime | None = None  # created before
    is_retry: bool | None = None  # made by running a finished one again


class RunPage(NamedTuple):
    """Runs, newest first, and the cursor for the next page (None: there is none)."""

    runs: list[Run]
    cursor: str | None


class Attempt(NamedTuple):
    """One finished attempt of a run."""

    run_id: RunId
    token: int
    attempt: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime
    error: str
    traceback: str
    worker: WorkerId | None


class RunRecord(NamedTuple):
    """Everything that is known about one run."""

    run: Run
    attempts: list[Attempt]
    log: list[LogLine]


class JobRow(NamedTuple):
    """What happened to a job."""

    tenant: str
    name: str
    seen_at: datetime | None = None
    last_run_at: datetime | None = None
    last_success_at: datetime | None = None
    last_error_at: datetime | None = None
    last_error: str = ""
    failures: int = 0  # in a row


class PhaseCounts(NamedTuple):
    """How many unfinished runs there are, by phase; no bucket counts past ``cap``."""

    by_phase: dict[Phase, int]
    cap: int


class Pruned(NamedTuple):
    """How much one batch of pruning removed."""

    runs: int
    jobs: int
    schedules: int


class TableHealth(NamedTuple):
    """One table, as far as the database has counted: estimates, and cheap to have."""

    name: str
    rows: int
    dead_rows: int  # of no use to anybody, and not cleaned up yet
    bytes: int  # with its indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the database itself is: what grows when nobody cleans up.

    ``oldest_transaction_at`` is when the oldest transaction that is open began: nothing that
    was deleted since can be cleaned up. ``free_bytes`` are in the file and used by nothing,
    ``log_bytes`` in a log that waits to be brought over. What a database cannot tell is None.
    """

    bytes: int
    free_bytes: int | None = None
    log_bytes: int | None = None
    oldest_transaction_at: datetime | None = None
    tables: tuple[TableHealth, ...] = ()

    @property
    def dead_rows(self) -> int:
        """In all tables together."""
        return sum(table.dead_rows for table in self.tables)


class ReadStore(Protocol):
    """For people: nothing here is on the path of a run."""

    def get_run(self, run_id: RunId) -> Run | None:
        """One run, unfinished or finished."""
        ...

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        """Several, in no particular order; what is unknown is left out."""
        ...

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        """Ids that begin like this, of unfinished and finished runs."""
        ...

    def list_runs(self, where: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Runs by id, newest first, one page at a time: ids sort by time."""
        ...

    def due_runs(self, wanted: ClaimRequest, *, now: datetime) -> list[Run]:
        """What :meth:`RunStore.claim` would look at now: ready, wanted, not paused, in order.

        Those that expired are left out: they would be skipped.
        """
        ...

    def run_record(self, run_id: RunId) -> RunRecord | None:
        """A run with its attempts and its log."""
        ...

    def count_runs(self, *, cap: int = 10_000) -> PhaseCounts:
        """Unfinished runs by phase, counted no further than ``cap``."""
        ...

    def count_taken(self, keys: Sequence[str]) -> dict[str, int]:
        """How many slots of these keys are taken."""
        ...

    def slot_holders(self, key: str, *, limit: int = 10) -> list[RunId]:
        """Who holds the slots of a key."""
        ...

    def find_turn(self, run_id: RunId) -> Turn | None:
        """Where a run stands that waits for its turn under a rate; None when it does not."""
        ...

    def list_jobs(self, *, tenant: str | None = None) -> list[JobRow]:
        """What happened to each job."""
        ...

    def health(self) -> Health:
        """How large the tables are, what of it is dead, and who keeps it from being cleaned up."""
        ...

    def prune(self, *, before: datetime, limit: int, with_definitions: bool = True) -> Pruned:
        """Remove one batch of what ended, or was last seen, before this instant.

        Finished runs go with their attempts and logs. Jobs and code schedules that no
        program defines any more go when they have no unfinished runs; never what the
        API created or a person paused.
        """
        ...


# ---------------------------------------------------------------- schema


class Listener(Protocol):
    """Hears that there may be something to do. A hint: looking is the truth."""

    def wait(self, seconds: float) -> bool:
        """Whether something was heard within this time."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class SchemaStore(Protocol):
    """The tables themselves."""

    def install(self) -> int:
        """Create or upgrade the tables; return the version. Safe to run many at once."""
        ...

    def schema_version(self) -> int:
        """The version that is installed; 0 when there is none."""
        ...

    def check_schema(self) -> None:
        """Raise SchemaMissing, SchemaOutdated or SchemaTooNew when it does not fit this code."""
        ...

    def database_time(self) -> datetime:
        """What time it is for the database."""
        ...

    def listen(self) -> Listener | None:
        """Something that hears when others add work; None when only looking can tell."""
        ...

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        ...


class Store(RunStore, ScheduleStore, ControlStore, ReadStore, SchemaStore, Protocol):
    """All of it."""

    @property
    def connections_max(self) -> int:
        """How many verbs can be under way at once; more threads would wait for each other."""
        ...

    @property
    def pumps_max(self) -> int:
        """How many pumps of one worker claim and record at once; more would only wait.

        Two on a server: one claims while the other waits for its answer. One where the store
        has a single writer.
        """
        ...

    def using(self, connection: object) -> "Store":
        """The same store, every verb of which happens in the transaction of this connection.

        What the caller has open is neither committed nor rolled back: with it a verb is
        seen by others, or never was. A verb that fails is undone as a whole, and leaves the
        transaction as it found it. Where nothing is open and the connection is one that
        commits each statement by itself, the verb is committed as a whole.

        Raises:
            WrongConnection: it is of another kind, or leads elsewhere.
        """
        ...

    def using_async(self, connection: object) -> AsyncRuns:
        """The same for an async connection, with the verbs that programs need there.

        Raises:
            WrongConnection: it is of another kind.
        """
        ...
