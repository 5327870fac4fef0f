"""Explains why a run, a schedule or a job has not run. The decisive reason comes first.

The caller reads the facts from the database, so every process gives the same explanation.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import Overlap, ScheduleRow
from tickwork._domain.limits.debounce import Debounce, is_debounced
from tickwork._domain.limits.rates import Turn, describe_rate, window_of
from tickwork._domain.runs.handover import state_of
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import Step, StepKind
from tickwork._domain.runs.transitions import EXPIRED
from tickwork._domain.tick import (
    MISSED,
    NOT_UNIQUE,
    PAUSED,
    REPLACED,
    RULE_CHANGED,
    STILL_RUNNING,
    STILL_WAITING,
)
from tickwork._kernel.durations import human_duration
from tickwork._kernel.plain_text import count_of
from tickwork._program import name_commands

CALLED_SHOWN: Final = 10
"""How many of the runs that a run waits for are listed."""


class Why(StrEnum):
    """A reason, as a stable code."""

    # The run has finished.
    COMPLETED = "completed"
    FAILED_PERMANENT = "failed_permanent"
    CANCELED = "canceled"
    FILTERED = "filtered"  # `when` or `skip` rejected it
    EXPIRED = "expired"
    OVERLAPPED = "overlapped"  # the run before it had not finished
    NOT_UNIQUE = "not_unique"
    MISSED = "missed"  # no worker fired it in time
    RULE_CHANGED = "rule_changed"  # before it fired
    # The run is claimed.
    SUBMITTED = "submitted"  # to a remote engine, none of whose processes has accepted it
    RUNNING = "running"
    CANCELING = "canceling"
    WORKER_DOWN = "worker_down"
    LEASE_EXPIRED = "lease_expired"
    # Something is paused.
    PAUSED_QUEUE = "paused_queue"
    PAUSED_JOB = "paused_job"
    PAUSED_SCHEDULE = "paused_schedule"
    # The run is not due.
    RETRYING = "retrying"
    POSTPONED = "postponed"  # `when` rejected it for now
    SNOOZED = "snoozed"
    SLEEPING = "sleeping"  # the handler called ctx.sleep
    WAITS_FOR_EVENT = "waits_for_event"  # the handler called ctx.wait_for
    WAITS_FOR_RUNS = "waits_for_runs"  # the handler called ctx.call or ctx.gather
    DELAYED = "delayed"
    DEBOUNCING = "debouncing"  # another dispatch with its key would delay it
    NOT_DUE = "not_due"
    # A limit is reached.
    LIMITED = "limited"
    RATE_LIMITED = "rate_limited"  # a rate limit
    UNFINISHED_RUN = "unfinished_run"  # an unfinished run of the same schedule
    # No worker can start it now.
    NO_WORKER = "no_worker"
    UNKNOWN_JOB = "unknown_job"
    HANDLER_NOT_ALLOWED = "handler_not_allowed"  # a path that is not allowed in a stored run
    UNSERVED_QUEUE = "unserved_queue"
    BUSY = "busy"
    ABOUT_TO_START = "about_to_start"
    # The schedule or the job itself.
    RETIRED = "retired"
    ENDED = "ended"
    UNREADABLE = "unreadable"
    NOT_STORED = "not_stored"  # no worker has stored it yet
    FAILING = "failing"
    NO_RUNS = "no_runs"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason: a code for programs, a sentence, what to do, and the values in it."""

    why: Why
    text: str
    fix: str = ""
    _: KW_ONLY
    until: datetime | None = None
    runs: tuple[RunId, ...] = ()  # the runs that it waits for
    worker: WorkerId | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fix", name_commands(self.fix))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something has not run.

    ``kind`` is run, schedule or job. The first cause is the decisive one. ``parts`` explains
    the schedules and runs of a job, a few of each; ``left_out`` counts the others.
    """

    kind: str
    name: str
    causes: tuple[Cause, ...]
    parts: "tuple[Explanation, ...]" = ()
    left_out: int = 0

    @property
    def reasons(self) -> tuple[Why, ...]:
        return tuple(cause.why for cause in self.causes)


class WorkerFact(NamedTuple):
    """A worker. ``is_silent``: its last heartbeat is too old."""

    id: WorkerId
    host: str
    pid: int
    beat_at: datetime
    is_silent: bool
    queues: tuple[str, ...] | None
    jobs: frozenset[str]
    slots: int
    running: int


class Refusal(NamedTuple):
    """Why the path of a handler is not allowed in a stored run."""

    why: str
    fix: str


class PauseFact(NamedTuple):
    kind: str  # "queue" or "job"
    name: str
    note: str
    until: datetime | None


class LimitFact(NamedTuple):
    key: str
    slots: int
    holders: tuple[tuple[RunId, str], ...]  # runs, each with its job


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    run: Run
    now: datetime
    workers: Sequence[WorkerFact] = ()
    refusal: Refusal | None = None  # this program refuses the path of the handler
    pauses: Sequence[PauseFact] = ()
    full: Sequence[LimitFact] = ()
    turn: Turn | None = None  # its place under a rate limit
    ahead: int = 0  # ready runs that come before it
    ahead_max: int | None = None  # how many are counted at most
    wait: Step | None = None  # the step for which it waits
    debounce: Debounce | None = None  # of its job, as this program defines it
    called: Sequence[RunId] = ()  # the runs that it has called and that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    row: ScheduleRow
    now: datetime
    seen_after: datetime
    is_readable: bool = True
    workers: Sequence[WorkerFact] = ()
    refusal: Refusal | None = None  # this program refuses the path of the handler
    last: Run | None = None  # the newest run or skip
    unfinished: Sequence[Run] = field(default=())


# ---------------------------------------------------------------- runs


def explain_run(facts: RunFacts) -> list[Cause]:
    run = facts.run
    if run.is_finished:
        return [_explain_finished(run)]
    if run.status is RunStatus.RUNNING:
        return [_explain_claim(facts)]
    causes = [*_explain_pauses(facts), *_explain_wait(facts), *_explain_limits(facts)]
    lacking = find_missing_worker(
        facts.workers, job=run.job, queue=run.queue, refusal=facts.refusal
    )
    causes += lacking
    if run.expires_at is not None and run.expires_at < facts.now:
        causes.insert(
            0,
            Cause(
                Why.EXPIRED,
                "It did not start before its expiry: the next worker that claims it skips it.",
                until=run.expires_at,
            ),
        )
    return causes or [_explain_next(facts)]


def _explain_finished(run: Run) -> Cause:
    assert run.ended_at is not None, run
    match run.status:
        case RunStatus.COMPLETED:
            return Cause(Why.COMPLETED, "The run has completed.", until=run.ended_at)
        case RunStatus.CANCELED:
            reason = f": {run.reason}" if run.reason else "."
            return Cause(
                Why.CANCELED,
                f"The run was canceled{reason}",
                f"tickwork retry {run.id}",
                until=run.ended_at,
            )
        case RunStatus.SKIPPED:
            return _explain_skip(run)
        case _:
            return Cause(
                Why.FAILED_PERMANENT,
                f"Attempt {run.attempt} of {run.attempts_max} {_ending(run)}: "
                f"{_first_line(run.reason)}",
                f"tickwork retry {run.id}",
                until=run.ended_at,
            )


def _ending(run: Run) -> str:
    # The handler raised Discard, or an error that its job does not retry.
    is_last = run.attempt >= run.attempts_max
    return "was the last one and failed" if is_last else "failed and is not retried"


_SKIPS: Final = {
    EXPIRED: (Why.EXPIRED, "The run was skipped: it did not start before its expiry."),
    STILL_RUNNING: (Why.OVERLAPPED, "The run was skipped: the previous run had not finished."),
    STILL_WAITING: (Why.OVERLAPPED, "The run was skipped: another run was waiting already."),
    REPLACED: (Why.OVERLAPPED, "The firing was skipped: a later one replaced it."),
    NOT_UNIQUE: (Why.NOT_UNIQUE, "The run was skipped: another run had the same unique key."),
    MISSED: (Why.MISSED, "The firing was missed: no worker was running at that time."),
    PAUSED: (Why.PAUSED_SCHEDULE, "The firing was skipped: the schedule was paused."),
    RULE_CHANGED: (
        Why.RULE_CHANGED,
        "The firing was skipped: its schedule got another rule first.",
    ),
}


def _explain_skip(run: Run) -> Cause:
    why, text = _SKIPS.get(run.reason.splitlines()[-1] if run.reason else "", (None, ""))
    if why is None:
        why, text = Why.FILTERED, f"A filter skipped the run: {run.reason}."
    if run.instants > 1:
        text += f" The same happened to {run.instants:,} firings in a row."
    return Cause(why, text, until=run.last_nominal_at or run.nominal_at or run.ended_at)


def _explain_claim(facts: RunFacts) -> Cause:
    run, now = facts.run, facts.now
    assert run.lease_until is not None, run
    worker = next((each for each in facts.workers if each.id == run.worker), None)
    place = f"process {worker.pid} on {worker.host}" if worker else f"worker {run.worker}"
    if run.lease_until <= now:
        return Cause(
            Why.LEASE_EXPIRED,
            f"The lease of {place} has expired, and no worker has taken over the run yet.",
            "" if _is_up(facts.workers) else "Start a worker: tickwork work",
            until=run.lease_until,
            worker=run.worker,
        )
    if worker is None or worker.is_silent:
        state = "is gone" if worker is None else "sends no heartbeats"
        return Cause(
            Why.WORKER_DOWN,
            f"The run is claimed, but {place} {state}. When the lease expires, another "
            "worker takes over.",
            "" if _is_up(facts.workers) else "Start a worker: tickwork work",
            until=run.lease_until,
            worker=run.worker,
        )
    if run.cancel_requested_at is not None:
        return Cause(
            Why.CANCELING,
            f"It is running in {place}; its cancellation is requested.",
            until=run.cancel_requested_at,
            worker=run.worker,
        )
    handover = state_of(run)
    if handover is not None and not handover.is_accepted:
        return Cause(
            Why.SUBMITTED,
            f"The worker in {place} has handed it over as {handover.external_id}. No process "
            "of its engine has accepted it yet.",
            "Start a process of the engine, or check its broker: tickwork doctor",
            worker=run.worker,
        )
    place += "" if handover is None else f", where it was handed over as {handover.external_id}"
    return Cause(
        Why.RUNNING,
        f"It is running in {place}, attempt {run.attempt} of {run.attempts_max}.",
        until=run.started_at,
        worker=run.worker,
    )


def _explain_pauses(facts: RunFacts) -> list[Cause]:
    run = facts.run
    causes = []
    for pause in facts.pauses:
        if (pause.kind, pause.name) not in {("queue", run.queue), ("job", run.job)}:
            continue
        why = Why.PAUSED_QUEUE if pause.kind == "queue" else Why.PAUSED_JOB
        note = f" ({pause.note})" if pause.note else ""
        causes.append(
            Cause(
                why,
                f"The {pause.kind} {pause.name!r} is paused{note}.",
                f"tickwork resume --{pause.kind} {pause.name}",
                until=pause.until,
            )
        )
    return causes


def _explain_wait(facts: RunFacts) -> list[Cause]:
    run = facts.run
    wait = facts.wait
    if facts.called:
        count = count_of(len(facts.called), "run")
        text = f"The run waits, without a worker, for {count} that it has called."
        fix = f"tickwork explain {facts.called[0]}"
        return [Cause(Why.WAITS_FOR_RUNS, text, fix, runs=tuple(facts.called[:CALLED_SHOWN]))]
    if wait is not None and wait.kind is StepKind.WAIT:
        limit = "" if wait.until else ", for ever"
        text = f"The run waits, without a worker{limit}: its step {wait.name!r}."
        fix = f"tickwork signal {run.id} NAME"
        return [Cause(Why.WAITS_FOR_EVENT, text, fix, until=wait.until)]
    if run.phase is not Phase.WAITING or run.due_at <= facts.now:
        return []
    if run.status is RunStatus.FAILED:
        why = Why.RETRYING
        text = (
            f"Attempt {run.attempt} of {run.attempts_max} failed ({_first_line(run.reason)}); "
            "the run waits for its retry."
        )
    elif run.postponements:
        times = "once" if run.postponements == 1 else f"{run.postponements} times"
        why = Why.POSTPONED
        text = f"A filter postponed the run {times} ({run.reason}). It is checked again when due."
    elif facts.wait is not None:
        why = Why.SLEEPING
        text = f"The run sleeps, without a worker: its step {facts.wait.name!r}."
    elif run.token:
        why = Why.SNOOZED
        text = f"The handler snoozed the run{_because(run.reason)}."
    elif run.schedule is not None:
        why, text = (
            Why.NOT_DUE,
            f"The run is not due yet: the schedule {run.schedule!r} has a jitter.",
        )
    elif run.overlap_key is not None and is_debounced(run.overlap_key):
        why, text = Why.DEBOUNCING, _describe_debounce(facts.debounce)
    else:
        why, text = Why.DELAYED, "The run was dispatched for a later time."
        if run.overlap_key is not None:
            text += " Another dispatch with its key replaces it."
    return [Cause(why, text, until=run.due_at)]


def _describe_debounce(debounce: Debounce | None) -> str:
    equal = "the same key"
    if debounce is not None:
        equal = f"the same {' and '.join(debounce.by)}" if debounce.by else "the same arguments"
    text = f"The run is debounced: it starts when no dispatch with {equal} has come for a while"
    if debounce is None:
        return f"{text}."
    text += f" ({human_duration(debounce.quiet)})"
    if debounce.max is None:
        return f"{text}."
    return f"{text}, and at the latest {human_duration(debounce.max)} after the first one."


def _explain_limits(facts: RunFacts) -> list[Cause]:
    causes = []
    if facts.turn is not None:
        rate = describe_rate(facts.turn.starts_max, window_of(facts.turn.key))
        causes.append(
            Cause(
                Why.RATE_LIMITED,
                f"The rate limit {facts.turn.key!r} allows {rate}: the run is number "
                f"{facts.turn.place:,} in the queue.",
                until=facts.turn.at,
            )
        )
    for limit in facts.full:
        names = sorted({job for _, job in limit.holders})
        who = f", all of {names[0]!r}" if len(names) == 1 else f" of {', '.join(names)}"
        causes.append(
            Cause(
                Why.LIMITED,
                f"The concurrency limit {limit.key!r} is reached: other runs"
                f"{who if names else ''} use {count_of(limit.slots, 'slot')}.",
                runs=tuple(run_id for run_id, _ in limit.holders),
            )
        )
    return causes


def find_missing_worker(
    workers: Sequence[WorkerFact],
    *,
    job: str,
    queue: str | None = None,
    refusal: Refusal | None = None,
) -> list[Cause]:
    """Why no worker can start runs of this job in this queue. Empty if one can."""
    workers = [each for each in workers if each.queues != ()]  # those that claim runs
    up = [each for each in workers if not each.is_silent]
    if refusal is not None and not any(job in each.jobs for each in up):
        return [Cause(Why.HANDLER_NOT_ALLOWED, refusal.why, refusal.fix)]
    if not up:
        silent = (
            f" {count_of(len(workers), 'worker')} stopped sending heartbeats." if workers else ""
        )
        return [Cause(Why.NO_WORKER, f"No worker is running.{silent}", "Start one: tickwork work")]
    knowing = [each for each in up if job in each.jobs]
    if not knowing:
        return [
            Cause(
                Why.UNKNOWN_JOB,
                f"No worker knows the job {job!r}.",
                "Start a worker of the program that defines it: tickwork -a MODULE:NAME work",
            )
        ]
    if queue is not None and not any(
        each.queues is None or queue in each.queues for each in knowing
    ):
        return [
            Cause(
                Why.UNSERVED_QUEUE,
                f"No worker that knows the job {job!r} serves the queue {queue!r}.",
                f"Start one: tickwork work --queue {queue}",
            )
        ]
    return []


def _explain_next(facts: RunFacts) -> Cause:
    run = facts.run
    able = [
        each
        for each in facts.workers
        if not each.is_silent
        and run.job in each.jobs
        and (each.queues is None or run.queue in each.queues)
    ]
    if facts.ahead or all(each.running >= each.slots for each in able):
        bound = "At least " if facts.ahead == facts.ahead_max else ""
        first = f"{bound}{count_of(facts.ahead, 'run')} will start first. " if facts.ahead else ""
        running, slots = sum(each.running for each in able), sum(each.slots for each in able)
        return Cause(
            Why.BUSY,
            f"{first}The workers for this job use {running:,} of {count_of(slots, 'slot')}.",
            "Raise --slots, start another worker, or give the run a lower priority number.",
        )
    return Cause(Why.ABOUT_TO_START, "The run can start: the next free worker claims it.")


def _is_up(workers: Sequence[WorkerFact]) -> bool:
    return any(not each.is_silent for each in workers)


# ---------------------------------------------------------------- schedules


def explain_schedule(facts: ScheduleFacts) -> list[Cause]:
    row, now = facts.row, facts.now
    spec = row.spec
    causes: list[Cause] = []
    if row.is_paused_at(now):
        note = f" ({row.paused_note})" if row.paused_note else ""
        causes.append(
            Cause(
                Why.PAUSED_SCHEDULE,
                f"The schedule {spec.name!r} is paused{note}.",
                f"tickwork resume --schedule {spec.name}",
                until=row.paused_until,
            )
        )
    if row.is_retired(seen_after=facts.seen_after):
        causes.append(
            Cause(
                Why.RETIRED,
                "The schedule is retired: no program has defined it for a long time.",
                "Start a worker of the program that defines it.",
                until=row.seen_at,
            )
        )
    elif row.fault:
        causes.append(
            Cause(
                Why.UNREADABLE,
                f"{row.fault}.",
                "Correct the row, or delete it and create the schedule again.",
            )
        )
    elif not facts.is_readable:
        causes.append(
            Cause(
                Why.UNREADABLE,
                "This version cannot read the rule. A newer version may have written it.",
                "Upgrade this program.",
            )
        )
    elif row.next_due_at is None:
        causes.append(
            Cause(
                Why.ENDED,
                "The schedule has ended: its rule has no more firings.",
                until=row.last_fired_at,
            )
        )
    elif row.next_due_at > now and not causes:
        causes.append(Cause(Why.NOT_DUE, "The schedule is not due yet.", until=row.next_due_at))
    if not causes or causes[0].why is Why.NOT_DUE:
        lacking = find_missing_worker(facts.workers, job=spec.job, refusal=facts.refusal)
        if not causes and not lacking:
            lacking = [
                Cause(
                    Why.ABOUT_TO_START,
                    "The schedule is due, and a worker that knows its job is running.",
                    until=row.next_due_at,
                )
            ]
        # A missing worker matters more than the next due time.
        causes = [*lacking, *causes]
    return [*causes, *_explain_last_skip(facts), *_explain_unfinished(facts)]


def _explain_last_skip(facts: ScheduleFacts) -> list[Cause]:
    last = facts.last
    return [_explain_skip(last)] if last is not None and last.status is RunStatus.SKIPPED else []


def _explain_unfinished(facts: ScheduleFacts) -> list[Cause]:
    if facts.row.spec.overlap is Overlap.ALLOW or not facts.unfinished:
        return []
    if facts.row.spec.overlap is Overlap.SKIP:
        text = "A run of this schedule has not finished. New firings are skipped until then."
    else:
        text = "A run of this schedule has not finished. The next runs wait for it."
    return [Cause(Why.UNFINISHED_RUN, text, runs=tuple(run.id for run in facts.unfinished))]


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    name: str
    now: datetime
    workers: Sequence[WorkerFact] = ()
    refusal: Refusal | None = None  # this program refuses the path of the handler
    pauses: Sequence[PauseFact] = ()
    is_written: bool = True  # a worker has stored it
    has_schedules: bool = False
    has_unfinished: bool = False
    failures: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None


def explain_job(facts: JobFacts) -> list[Cause]:
    """Causes that concern the job itself, not its schedules and runs."""
    causes = []
    for pause in facts.pauses:
        if (pause.kind, pause.name) == ("job", facts.name):
            note = f" ({pause.note})" if pause.note else ""
            causes.append(
                Cause(
                    Why.PAUSED_JOB,
                    f"The job {facts.name!r} is paused{note}.",
                    f"tickwork resume --job {facts.name}",
                    until=pause.until,
                )
            )
    if not facts.is_written:
        causes.append(
            Cause(
                Why.NOT_STORED,
                "The job is defined in code, but no worker has started with it yet.",
                "Start one: tickwork work",
            )
        )
    else:
        causes += find_missing_worker(facts.workers, job=facts.name, refusal=facts.refusal)
    if facts.failures:
        runs = "run" if facts.failures == 1 else f"{facts.failures:,} runs"
        causes.append(
            Cause(
                Why.FAILING,
                f"The last {runs} failed: {_first_line(facts.last_error)}",
                f"tickwork runs --job {facts.name} --status failed_permanent",
                until=facts.last_error_at,
            )
        )
    if not facts.has_schedules and not facts.has_unfinished:
        causes.append(
            Cause(
                Why.NO_RUNS,
                "The job has no schedules and no waiting runs.",
                f"tickwork dispatch {facts.name}",
            )
        )
    return causes


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no reason given"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
