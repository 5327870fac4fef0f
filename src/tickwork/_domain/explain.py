"""Why has it not run? Facts in, reasons out, the one that decides first.

Facts are what rows say, gathered by somebody else: a process that did not cause any of it
comes to the same answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.job import Overlap, ScheduleRow
from tickwork._domain.rates import Turn, describe_rate, window_of
from tickwork._domain.run import Run
from tickwork._domain.status import Phase, RunStatus
from tickwork._domain.tick import MISSED, NOT_UNIQUE, STILL_RUNNING, STILL_WAITING
from tickwork._domain.transitions import EXPIRED


class Why(StrEnum):
    """A reason, by a word that stays the same."""

    # It ended.
    COMPLETED = "completed"
    FAILED_FOR_GOOD = "failed_for_good"
    CANCELED = "canceled"
    FILTERED = "filtered"  # `when` or `skip` said no
    EXPIRED = "expired"
    OVERLAPPED = "overlapped"  # the run before it had not finished
    NOT_UNIQUE = "not_unique"
    MISSED = "missed"  # nobody was there to fire it
    # It runs, or is said to.
    RUNNING = "running"
    CANCELING = "canceling"
    WORKER_DOWN = "worker_down"
    LEASE_ENDED = "lease_ended"
    # Somebody stopped it.
    PAUSED_QUEUE = "paused_queue"
    PAUSED_JOB = "paused_job"
    PAUSED_SCHEDULE = "paused_schedule"
    # It waits for a moment.
    RETRYING = "retrying"
    POSTPONED = "postponed"  # `when` said no, and is asked again
    SNOOZED = "snoozed"
    DELAYED = "delayed"
    NOT_DUE = "not_due"
    # It waits for others.
    LIMITED = "limited"
    RATED = "rated"  # so many may start in that time, and they have
    IN_THE_WAY = "in_the_way"  # an unfinished run of the same schedule
    # It waits for a worker.
    NO_WORKER = "no_worker"
    UNKNOWN_JOB = "unknown_job"
    UNTAKEN_QUEUE = "untaken_queue"
    BUSY = "busy"
    ABOUT_TO_START = "about_to_start"
    # It is a definition.
    RETIRED = "retired"
    ENDED = "ended"
    UNREADABLE = "unreadable"
    NOT_WRITTEN = "not_written"  # only in code so far
    FAILING = "failing"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason: a word for programs, a sentence, what to do, and the facts in it."""

    why: Why
    text: str
    fix: str = ""
    until: datetime | None = None
    runs: tuple[RunId, ...] = ()  # those that are in the way
    worker: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something has not run, with explanations of its schedules and runs.

    ``kind`` is run, schedule or job. The first cause is the decisive one. A job with many
    schedules and runs has a few of them in ``parts``; ``left_out`` counts the others.
    """

    kind: str
    name: str
    causes: tuple[Cause, ...]
    parts: "tuple[Explanation, ...]" = ()
    left_out: int = 0

    @property
    def reasons(self) -> tuple[Why, ...]:
        """The reason of each of its own causes."""
        return tuple(cause.why for cause in self.causes)


class WorkerFact(NamedTuple):
    """A worker as it last reported; ``is_silent`` when that was too long ago."""

    id: WorkerId
    host: str
    pid: int
    beat_at: datetime
    is_silent: bool
    queues: tuple[str, ...] | None
    jobs: frozenset[str]
    slots: int
    running: int


class PauseFact(NamedTuple):
    """A queue or a job that a person has stopped."""

    kind: str  # "queue" or "job"
    name: str
    note: str
    until: datetime | None


class LimitFact(NamedTuple):
    """A key of which a run needs a slot, and that has none left."""

    key: str
    slots: int
    holders: tuple[tuple[RunId, str], ...]  # runs, each with its job


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything that bears upon one run."""

    run: Run
    now: datetime
    workers: Sequence[WorkerFact] = ()
    pauses: Sequence[PauseFact] = ()
    full: Sequence[LimitFact] = ()
    turn: Turn | None = None  # where it stands under a rate
    ahead: int = 0  # ready runs that come before it


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """Everything that bears upon one schedule."""

    row: ScheduleRow
    now: datetime
    seen_after: datetime
    is_readable: bool = True
    workers: Sequence[WorkerFact] = ()
    last: Run | None = None  # the newest run, or row about skips
    unfinished: Sequence[Run] = field(default=())


# ---------------------------------------------------------------- runs


def explain_run(facts: RunFacts) -> list[Cause]:
    """Why a run has not run, or what became of it; what decides comes first."""
    run = facts.run
    if run.is_finished:
        return [_finished(run)]
    if run.status is RunStatus.RUNNING:
        return [_under_way(facts)]
    causes = [*_paused(facts), *_waiting(facts), *_limited(facts)]
    lacking = why_nobody(facts.workers, job=run.job, queue=run.queue)
    causes += lacking
    if run.expires_at is not None and run.expires_at < facts.now:
        causes.insert(
            0,
            Cause(
                why=Why.EXPIRED,
                text="It should have started by then: it will be skipped as soon as a worker "
                "looks at it.",
                until=run.expires_at,
            ),
        )
    return causes or [_next(facts)]


def _finished(run: Run) -> Cause:
    assert run.ended_at is not None, run
    match run.status:
        case RunStatus.COMPLETED:
            return Cause(why=Why.COMPLETED, text="It has run, and completed.", until=run.ended_at)
        case RunStatus.CANCELED:
            reason = f": {run.reason}" if run.reason else "."
            return Cause(
                why=Why.CANCELED,
                text=f"Somebody canceled it{reason}",
                fix=f"tickwork retry {run.id}",
                until=run.ended_at,
            )
        case RunStatus.SKIPPED:
            return _skipped(run)
        case _:
            return Cause(
                why=Why.FAILED_FOR_GOOD,
                text=f"It failed for the last time, at attempt {run.attempt} of "
                f"{run.attempts_max}: {_first_line(run.reason)}",
                fix=f"tickwork retry {run.id}",
                until=run.ended_at,
            )


_SKIPS: Final = {
    EXPIRED: (Why.EXPIRED, "It could not start before it expired, and was skipped."),
    STILL_RUNNING: (Why.OVERLAPPED, "The run before it had not finished, so it was skipped."),
    STILL_WAITING: (Why.OVERLAPPED, "Another run was waiting already, so it was skipped."),
    NOT_UNIQUE: (Why.NOT_UNIQUE, "A run with the same unique key was there, so it was skipped."),
    MISSED: (Why.MISSED, "No worker was there to fire it in time."),
}


def _skipped(run: Run) -> Cause:
    why, text = _SKIPS.get(run.reason.splitlines()[-1] if run.reason else "", (None, ""))
    if why is None:
        why, text = Why.FILTERED, f"A filter said no: {run.reason}."
    if run.instants > 1:
        text += f" So were {run.instants} instants in a row."
    return Cause(why=why, text=text, until=run.last_nominal_at or run.nominal_at or run.ended_at)


def _under_way(facts: RunFacts) -> Cause:
    run, now = facts.run, facts.now
    assert run.lease_until is not None, run
    worker = next((each for each in facts.workers if each.id == run.worker), None)
    place = f"{worker.host}, process {worker.pid}" if worker else f"a worker, {run.worker},"
    if run.lease_until <= now:
        return Cause(
            why=Why.LEASE_ENDED,
            text=f"It was running on {place} and its lease has ended: no worker has taken it "
            "back yet.",
            fix="" if _is_up(facts.workers) else "Start a worker: tickwork work",
            until=run.lease_until,
            worker=run.worker,
        )
    if worker is None or worker.is_silent:
        since = "and there is no such worker any more" if worker is None else "which is silent"
        return Cause(
            why=Why.WORKER_DOWN,
            text=f"It was claimed by {place} {since}. When the lease ends, another one takes it.",
            fix="" if _is_up(facts.workers) else "Start a worker: tickwork work",
            until=run.lease_until,
            worker=run.worker,
        )
    if run.cancel_requested_at is not None:
        return Cause(
            why=Why.CANCELING,
            text=f"It runs on {place}, and was asked to stop.",
            until=run.cancel_requested_at,
            worker=run.worker,
        )
    return Cause(
        why=Why.RUNNING,
        text=f"It runs now, on {place}, attempt {run.attempt} of {run.attempts_max}.",
        until=run.started_at,
        worker=run.worker,
    )


def _paused(facts: RunFacts) -> list[Cause]:
    run = facts.run
    found = []
    for pause in facts.pauses:
        if (pause.kind, pause.name) not in {("queue", run.queue), ("job", run.job)}:
            continue
        why = Why.PAUSED_QUEUE if pause.kind == "queue" else Why.PAUSED_JOB
        note = f" ({pause.note})" if pause.note else ""
        found.append(
            Cause(
                why=why,
                text=f"The {pause.kind} {pause.name!r} is paused{note}.",
                fix=f"tickwork resume --{pause.kind} {pause.name}",
                until=pause.until,
            )
        )
    return found


def _waiting(facts: RunFacts) -> list[Cause]:
    run = facts.run
    if run.phase is not Phase.WAITING or run.due_at <= facts.now:
        return []
    if run.status is RunStatus.FAILED:
        why = Why.RETRYING
        text = (
            f"Attempt {run.attempt} of {run.attempts_max} failed ({_first_line(run.reason)}); "
            "it waits for the next one."
        )
    elif run.put_offs:
        times = "once" if run.put_offs == 1 else f"{run.put_offs} times"
        why = Why.POSTPONED
        text = f"A filter said no {times} ({run.reason}); it is asked again."
    elif run.token:
        why = Why.SNOOZED
        text = f"Its handler asked to be called later{_because(run.reason)}."
    elif run.schedule is not None:
        why, text = Why.NOT_DUE, f"The schedule {run.schedule!r} has spread it: it is not due yet."
    else:
        why, text = Why.DELAYED, "It was dispatched for later."
    return [Cause(why=why, text=text, until=run.due_at)]


def _limited(facts: RunFacts) -> list[Cause]:
    found = []
    if facts.turn is not None:
        rate = describe_rate(facts.turn.starts_max, window_of(facts.turn.key))
        found.append(
            Cause(
                why=Why.RATED,
                text=f"Only {rate} may start under {facts.turn.key!r}: it is number "
                f"{facts.turn.place:,} of those who wait for their turn.",
                until=facts.turn.at,
            )
        )
    for limit in facts.full:
        names = sorted({job for _, job in limit.holders})
        who = f", all of {names[0]!r}" if len(names) == 1 else f" of {', '.join(names)}"
        places = "place is" if limit.slots == 1 else f"{limit.slots} places are"
        found.append(
            Cause(
                why=Why.LIMITED,
                text=f"The limit {limit.key!r} is full: its {places} taken by other runs"
                f"{who if names else ''}.",
                runs=tuple(run_id for run_id, _ in limit.holders),
            )
        )
    return found


def why_nobody(workers: Sequence[WorkerFact], *, job: str, queue: str | None = None) -> list[Cause]:
    """Why no worker would take a run of this job from this queue; nothing when one would."""
    up = [each for each in workers if not each.is_silent]
    if not up:
        silent = f" {len(workers)} have been silent for too long." if workers else ""
        return [
            Cause(
                why=Why.NO_WORKER,
                text=f"No worker is up.{silent}",
                fix="Start one: tickwork work",
            )
        ]
    knowing = [each for each in up if job in each.jobs]
    if not knowing:
        return [
            Cause(
                why=Why.UNKNOWN_JOB,
                text=f"No worker knows the job {job!r}: {len(up)} are up, with other jobs.",
                fix="Start a worker with the program that defines it: tickwork -a MODULE:NAME work",
            )
        ]
    if queue is not None and not any(
        each.queues is None or queue in each.queues for each in knowing
    ):
        return [
            Cause(
                why=Why.UNTAKEN_QUEUE,
                text=f"No worker that knows {job!r} takes the queue {queue!r}.",
                fix=f"Start one that does: tickwork work --queue {queue}",
            )
        ]
    return []


def _next(facts: RunFacts) -> Cause:
    run = facts.run
    able = [
        each
        for each in facts.workers
        if not each.is_silent
        and run.job in each.jobs
        and (each.queues is None or run.queue in each.queues)
    ]
    if facts.ahead or all(each.running >= each.slots for each in able):
        first = f"{facts.ahead:,} runs come before it. " if facts.ahead else ""
        return Cause(
            why=Why.BUSY,
            text=f"{first}The workers that can take it run {sum(e.running for e in able)} runs "
            f"in {sum(e.slots for e in able)} slots.",
            fix="Give them more --slots, start another worker, or give it a lower priority number.",
        )
    return Cause(why=Why.ABOUT_TO_START, text="Nothing is in its way: a worker takes it next.")


def _is_up(workers: Sequence[WorkerFact]) -> bool:
    return any(not each.is_silent for each in workers)


# ---------------------------------------------------------------- schedules


def explain_schedule(facts: ScheduleFacts) -> list[Cause]:
    """Why a schedule has given no run; what decides comes first."""
    row, now = facts.row, facts.now
    spec = row.spec
    causes: list[Cause] = []
    if row.is_paused_at(now):
        note = f" ({row.paused_note})" if row.paused_note else ""
        causes.append(
            Cause(
                why=Why.PAUSED_SCHEDULE,
                text=f"The schedule {spec.name!r} is paused{note}.",
                fix=f"tickwork resume --schedule {spec.name}",
                until=row.paused_until,
            )
        )
    if row.is_retired(seen_after=facts.seen_after):
        causes.append(
            Cause(
                why=Why.RETIRED,
                text="No program has defined it for long, so it is retired.",
                fix="Start a worker with the program that defines it; it goes on then.",
                until=row.seen_at,
            )
        )
    elif not facts.is_readable:
        causes.append(
            Cause(
                why=Why.UNREADABLE,
                text="This version cannot read its rule: a newer one wrote it, or a hand.",
                fix="Upgrade this program.",
            )
        )
    elif row.next_due_at is None:
        causes.append(
            Cause(why=Why.ENDED, text="Its rule has no instant left.", until=row.last_fired_at)
        )
    elif row.next_due_at > now and not causes:
        causes.append(Cause(why=Why.NOT_DUE, text="It is not due yet.", until=row.next_due_at))
    if not causes or causes[0].why is Why.NOT_DUE:
        lacking = why_nobody(facts.workers, job=spec.job)
        if not causes and not lacking:
            lacking = [
                Cause(
                    why=Why.ABOUT_TO_START,
                    text="It is due, and a worker that knows its job is up.",
                    until=row.next_due_at,
                )
            ]
        # What is due, and what nobody would fire, is more urgent than when it is due.
        causes = [*lacking, *causes]
    return [*causes, *_skips(facts), *_in_the_way(facts)]


def _skips(facts: ScheduleFacts) -> list[Cause]:
    last = facts.last
    return [_skipped(last)] if last is not None and last.status is RunStatus.SKIPPED else []


def _in_the_way(facts: ScheduleFacts) -> list[Cause]:
    if facts.row.spec.overlap is Overlap.ALLOW or not facts.unfinished:
        return []
    if facts.row.spec.overlap is Overlap.SKIP:
        text = "A run of it has not finished: until it has, instants are skipped."
    else:
        text = "A run of it has not finished: the next ones wait for it."
    return [Cause(why=Why.IN_THE_WAY, text=text, runs=tuple(run.id for run in facts.unfinished))]


# ---------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Everything that bears upon a job as such."""

    name: str
    now: datetime
    workers: Sequence[WorkerFact] = ()
    pauses: Sequence[PauseFact] = ()
    is_written: bool = True  # some program has run with it
    has_schedules: bool = False
    has_unfinished: bool = False
    failures: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None


def explain_job(facts: JobFacts) -> list[Cause]:
    """What can be said about a job besides its schedules and its runs."""
    causes = []
    for pause in facts.pauses:
        if (pause.kind, pause.name) == ("job", facts.name):
            note = f" ({pause.note})" if pause.note else ""
            causes.append(
                Cause(
                    why=Why.PAUSED_JOB,
                    text=f"The job {facts.name!r} is paused{note}.",
                    fix=f"tickwork resume --job {facts.name}",
                    until=pause.until,
                )
            )
    if not facts.is_written:
        causes.append(
            Cause(
                why=Why.NOT_WRITTEN,
                text="It is defined in code, and no worker has started with it yet.",
                fix="Start one: tickwork work",
            )
        )
    else:
        causes += why_nobody(facts.workers, job=facts.name)
    if facts.failures:
        times = "time" if facts.failures == 1 else f"{facts.failures} times in a row"
        causes.append(
            Cause(
                why=Why.FAILING,
                text=f"It failed the last {times}: {_first_line(facts.last_error)}",
                fix=f"tickwork runs --job {facts.name} --status failed_permanent",
                until=facts.last_error_at,
            )
        )
    if not facts.has_schedules and not facts.has_unfinished:
        causes.append(
            Cause(
                why=Why.NOTHING,
                text="It has no schedule, and no run of it waits.",
                fix=f"tickwork dispatch {facts.name}",
            )
        )
    return causes


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no reason was given"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
