"""The values that a store takes and returns, besides those of the domain."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tickwork._domain.identity import RunId, ScheduleId, WorkerId
from tickwork._domain.job import ScheduleRow, ScheduleSpec
from tickwork._domain.limits.limits import slots_in_force
from tickwork._domain.runs.run import Claim, Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.tick import TickPlan

# ---------------------------------------------------------------- runs


class AddedRun(NamedTuple):
    """The answer for one added run: its own id, or the id of the run that holds its key.

    ``is_replaced``: that run waited, and now has everything else from the added one.
    """

    run_id: RunId
    is_new: bool
    is_replaced: bool = False


class ClaimRequest(NamedTuple):
    """How many runs a worker wants to claim, and which.

    The first ``limit`` runs start at once. With ``is_starting`` the store notes that, so that a
    run whose worker dies counts as crashed.

    ``hold`` and ``ahead`` are further runs that the worker keeps in memory until a slot is free.
    Both take only runs that were never claimed before, of the jobs in ``may_wait``. ``hold`` runs
    wait for a moment only, so they may have limit keys; ``ahead`` runs may not, because a waiting
    run would occupy the slot of its limit.

    With ``may_stop_early`` the worker claims again at once: a store that has found runs need not
    search for more.
    """

    limit: int
    queues: tuple[str, ...] | None = None  # None: all
    jobs: tuple[str, ...] | None = None  # None: all
    ahead: int = 0
    is_starting: bool = False
    hold: int = 0
    may_wait: frozenset[str] | None = None  # None: all
    may_stop_early: bool = False


class HeldClaim(NamedTuple):
    """A claim that a worker still holds; ``started_at`` is set once its handler was called."""

    run_id: RunId
    token: int
    started_at: datetime | None = None


class ClaimCheck(NamedTuple):
    """Claims that do not hold any more, because the run is finished or has another token."""

    gone: list[RunId]
    cancel_requested: list[RunId]  # of those that hold


class HeartbeatResult(NamedTuple):
    """Claims that the worker must stop.

    A ``lost`` run was reaped or claimed by another worker: its token differs, or it is not
    running. A run that is in history was finished, and is not lost.
    """

    lost: list[RunId]
    cancel_requested: list[RunId]


class PendingWork(NamedTuple):
    """What unfinished runs wait for. A worker takes no lock for work that does not exist."""

    due_at: datetime | None  # of the waiting run that is due first
    lease_until: datetime | None  # of the claim whose lease expires first
    is_blocked: bool  # a run waits for a limit
    is_ready: bool  # a run waits for a worker; its queue may be paused, or its job unknown
    next_start_at: datetime | None = None  # when the next run that waits for a rate may start
    has_outbox: bool = False  # committed transactions have left work


class UpcomingRuns(NamedTuple):
    """What becomes due next. A timer asks for it often."""

    due_at: datetime | None  # of the waiting run that is due first
    next_start_at: datetime | None  # when the next run that waits for a rate may start
    has_outbox: bool = False  # committed transactions have left work


class ChangeResult(StrEnum):
    """The result of a request to cancel or to reschedule a run."""

    DONE = "done"  # it was waiting, and was canceled or rescheduled
    REQUESTED = "requested"  # it is running: the heartbeat of its worker reports the request
    CLAIMED = "claimed"  # it is claimed, and cannot be rescheduled
    FINISHED = "finished"
    UNKNOWN = "unknown"


class Expired(NamedTuple):
    """A claim whose lease has expired."""

    claim: Claim
    has_started: bool
    is_cancel_requested: bool
    worker: WorkerId | None


ReapDecision: TypeAlias = Callable[[Expired], Transition | None]
"""Decides what happens to a run whose lease has expired; None: it keeps its lease for now."""


class LogLine(NamedTuple):
    """One line that a handler logged."""

    at: datetime
    level: str
    logger: str
    message: str


# ---------------------------------------------------------------- schedules

Planner: TypeAlias = Callable[[Sequence[ScheduleRow], Collection[str]], TickPlan]
"""Plans a tick, given the schedules that are due and the keys that are taken."""

KeysOf: TypeAlias = Callable[[Sequence[ScheduleRow]], Collection[str]]
"""The unique and overlap keys that the firings of these schedules will need."""


class NewSchedule(NamedTuple):
    """A schedule to be added, and the first instant to be considered."""

    id: ScheduleId
    spec: ScheduleSpec
    next_due_at: datetime | None


# ---------------------------------------------------------------- limits, pauses, locks, workers


class PauseKind(StrEnum):
    """What can be paused, besides schedules."""

    QUEUE = "queue"
    JOB = "job"


class Pause(NamedTuple):
    """A paused queue or job; without ``until``, it is paused until it is resumed."""

    kind: PauseKind
    name: str
    paused_at: datetime
    note: str = ""
    until: datetime | None = None


class LimitRow(NamedTuple):
    """A limit as code defines it, and an operator's override (None: there is none).

    ``slots`` is the number of runs at a time; for a rate (``job/minute:send``), the number of
    starts within its window.
    """

    name: str
    slots: int
    override: int | None = None

    @property
    def in_force(self) -> int:
        """The override if there is one, or else the limit that code defines."""
        return slots_in_force(self.slots, self.override)


class LockRow(NamedTuple):
    """A named lock and its owner."""

    name: str
    owner: str
    host: str
    pid: int
    acquired_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker process, as its last heartbeat reported it."""

    id: WorkerId
    host: str
    pid: int
    boot_id: str  # with pid and process_started it identifies a process, also after a reboot
    process_started: str
    started_at: datetime
    beat_at: datetime
    queues: tuple[str, ...] | None
    jobs: tuple[str, ...]
    slots: int = 0
    running: int = 0
    version: str = ""  # of the program, and of its time zone data

    @property
    def is_remote(self) -> bool:
        """Whether it is a process of a remote engine, which claims no runs itself."""
        return self.queues == ()


# ---------------------------------------------------------------- audit


class AuditEntry(NamedTuple):
    """One action that a person or a program took through the dashboard or the API.

    The id sorts by time. ``source`` is the address of the client, ``detail`` a JSON object.
    """

    id: str
    at: datetime
    actor: str
    source: str
    action: str
    subject: str
    detail: str = "{}"


class IdempotentRequest(NamedTuple):
    """An idempotency key, and the run that the first request with this key makes.

    ``digest`` identifies the content of the request. The key is free again after ``until``.
    """

    key: str
    digest: str
    run_id: RunId
    until: datetime


# ---------------------------------------------------------------- reads


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list. A field that is left out matches every run."""

    tenant: str | None = None
    job: str | None = None
    queue: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    schedule: str | None = None
    tag: str | None = None
    since: datetime | None = None  # created at or after
    before: datetime | None = None  # created before
    is_retry: bool | None = None  # created by retrying a finished run
    ended_since: datetime | None = None  # ended at or after, or is between attempts or in one
    worker: WorkerId | None = None  # that executes it, or did so last
    is_suspended: bool = False  # it sleeps, or waits for an event


class OpenWait(NamedTuple):
    """A suspended run, and the event for which it waits."""

    run_id: RunId
    job: str
    queue: str
    tenant: str
    event: str
    key: str  # the id of the run, if the event is a signal
    since: datetime
    until: datetime  # FOREVER: the wait has no limit


class WaitPage(NamedTuple):
    """Open waits, the oldest run first, and the cursor of the next page (None: this is the last).

    A page may be shorter than its limit, and have a cursor.
    """

    waits: list[OpenWait]
    cursor: RunId | None


class RowFault(NamedTuple):
    """A row that cannot be used as it is, and the reason."""

    table: str
    key: str
    reason: str


class RunPage(NamedTuple):
    """Runs, newest first, and the cursor of the next page (None: this is the last).

    ``searched_to`` is set if the search ended at ``scan_max`` rows, before the page was full: older
    runs than this one may match, and the next page goes on there.
    """

    runs: list[Run]
    cursor: str | None
    searched_to: RunId | None = None


class RunSummary(NamedTuple):
    """The columns of a run in which people search, and its times: a tenth of the cost of a run."""

    id: RunId
    job: str
    status: RunStatus
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    reason: str
    target: str | None
    args: str


class SummaryPage(NamedTuple):
    """A :class:`RunPage` of summaries."""

    runs: list[RunSummary]
    cursor: str | None
    searched_to: RunId | None = None


class CountPrecision(StrEnum):
    """What a number of runs means."""

    EXACT = "exact"
    AT_LEAST = "at_least"  # counting ended at a limit
    ABOUT = "about"  # the database's own estimate


class RunCount(NamedTuple):
    """How many runs match a filter."""

    number: int
    precision: CountPrecision


class ScheduleOutcome(NamedTuple):
    """A run of a schedule, or consecutive skipped instants of it that are stored as one run."""

    schedule: str
    tenant: str
    id: RunId
    status: RunStatus
    nominal_at: datetime  # the first instant
    instants: int
    started_at: datetime | None
    ended_at: datetime | None


class CreatedRuns(NamedTuple):
    """How many runs were created in one queue, in one minute."""

    minute: datetime
    queue: str
    number: int


class Creations(NamedTuple):
    """How many runs were created since an instant, finished ones included."""

    since: datetime  # later than requested if there are too many
    counts: list[CreatedRuns]


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
    """A run with its attempts, its log and its steps."""

    run: Run
    attempts: list[Attempt]
    log: list[LogLine]
    steps: list[Step]


class JobRow(NamedTuple):
    """The last results of a job."""

    tenant: str
    name: str
    seen_at: datetime | None = None  # when a program that defines it last reported
    last_run_at: datetime | None = None
    last_success_at: datetime | None = None
    last_error_at: datetime | None = None
    last_error: str = ""
    failures: int = 0  # in a row


class PhaseCounts(NamedTuple):
    """The number of unfinished runs by queue and phase, each up to ``cap``.

    ``capped`` are the counts that ended there: there are more runs.
    """

    by_queue: Mapping[str, Mapping[Phase, int]]
    cap: int
    capped: frozenset[tuple[str, Phase]] = frozenset()

    @property
    def by_phase(self) -> dict[Phase, int]:
        """The number of runs in each phase, in all queues."""
        return {
            phase: sum(counts.get(phase, 0) for counts in self.by_queue.values()) for phase in Phase
        }

    @property
    def capped_phases(self) -> frozenset[Phase]:
        """The phases in which some queue has more runs than were counted."""
        return frozenset(phase for _, phase in self.capped)


class Pruned(NamedTuple):
    """How many rows one batch of pruning deleted."""

    runs: int
    jobs: int
    schedules: int


class TableHealth(NamedTuple):
    """The size of one table, as the database estimates it."""

    name: str
    rows: int
    dead_rows: int  # deleted, and not vacuumed yet
    bytes: int  # with its indexes


class OpenTransaction(NamedTuple):
    """The oldest open transaction: rows that die after its beginning cannot be removed."""

    began_at: datetime
    holder: str = ""  # its session: process, user, program, address
    query: str = ""  # the beginning of its last statement
    ending: str = ""  # the statement that ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The size of the database, and what keeps it from being vacuumed.

    ``free_bytes`` are unused space in the file, ``log_bytes`` a write-ahead
    log that was not checkpointed yet. A value that the database does not report is None.
    ``outbox_at`` is when the oldest event was emitted whose runs are not woken yet.
    """

    bytes: int
    free_bytes: int | None = None
    log_bytes: int | None = None
    oldest_transaction: OpenTransaction | None = None
    tables: tuple[TableHealth, ...] = ()
    outbox_at: datetime | None = None

    @property
    def dead_rows(self) -> int:
        """Of all tables together."""
        return sum(table.dead_rows for table in self.tables)
