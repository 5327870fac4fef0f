"""One pass over the due schedules: from rules and a time to runs, and rows that say why not.

The identity of a firing is (schedule, instant). A plan moves every schedule strictly
forward, so a plan that was carried out can never be made again, and one that was not is
made again with the same ids.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tickwork._domain.firings import plan_firings
from tickwork._domain.identity import RunId, ScheduleId, firing_id, spread
from tickwork._domain.job import JobSpec, Overlap, ScheduleRow
from tickwork._domain.limits import held_key, one_at_a_time, waiting_key
from tickwork._domain.run import NO_ARGS, NewRun
from tickwork._domain.schedules.contract import Schedule
from tickwork._kernel.codec import decode, encode

RUNS_MAX: Final = 5_000
"""Runs after which a plan takes in no further schedule: they stay due, for the next tick."""

MISSED: Final = "missed: nobody was there to fire it in time"
STILL_RUNNING: Final = "overlap: the run before it had not finished"
STILL_WAITING: Final = "overlap: another run was already waiting"
NOT_UNIQUE: Final = "unique: a run with the same key was there already"


class Skip(NamedTuple):
    """Instants that gave no run, in one row: from, to, how many, and why.

    Reasons are constants, so that equal ones in a row can be folded into one.
    """

    id: RunId
    schedule: ScheduleRow
    first_at: datetime
    last_at: datetime
    instants: int
    reason: str


class Move(NamedTuple):
    """A schedule's step forward, valid only while it still stands at ``due_at``."""

    schedule_id: ScheduleId
    due_at: datetime
    next_due_at: datetime | None
    last_fired_at: datetime | None


class SetAside(NamedTuple):
    """A schedule that this process cannot fire, and why. Its row stays as it is."""

    schedule_id: ScheduleId
    reason: str


class TickPlan(NamedTuple):
    """What one tick shall write, in one transaction.

    ``cancels`` are schedules whose runs shall be asked to stop, if they were claimed
    before: the run that this plan adds is not among them.
    """

    runs: list[NewRun]
    skips: list[Skip]
    moves: list[Move]
    cancels: list[ScheduleId]
    set_aside: list[SetAside]


RuleOf = Callable[[ScheduleRow], Schedule]


def plan_tick(
    due: Iterable[ScheduleRow],
    *,
    now: datetime,
    jobs: Mapping[str, JobSpec],
    rule_of: RuleOf,
    taken: Container[str] = frozenset(),
) -> TickPlan:
    """Decide what the due schedules give.

    ``taken`` holds the overlap and unique keys that runs hold at present, of those that
    :func:`keys_wanted` names. ``rule_of`` reads a schedule's rule, and may raise. Whatever
    is wrong with one schedule sets that one aside, and no other.
    """
    plan = TickPlan([], [], [], [], [])
    for row in due:
        if row.is_paused or row.next_due_at is None or row.next_due_at > now:
            continue
        if len(plan.runs) >= RUNS_MAX:
            break
        job = jobs.get(row.spec.job)
        if job is None:
            reason = f"The job {row.spec.job!r} is not known to this process."
            plan.set_aside.append(SetAside(row.id, reason))
            continue
        try:
            firings = plan_firings(row, rule_of(row), now=now)
            runs, skips = _carried(row, job, firings.instants, now=now, taken=taken)
        except Exception as error:  # noqa: BLE001  # a rule may be the user's own code
            plan.set_aside.append(SetAside(row.id, f"{type(error).__name__}: {error}"))
            continue
        plan.runs.extend(runs)
        plan.skips.extend(skips)
        if firings.gap is not None:
            plan.skips.append(
                Skip(firing_id(row.id, firings.gap.first_at), row, *firings.gap, MISSED)
            )
        plan.moves.append(Move(row.id, row.next_due_at, firings.next_due_at, firings.last_at))
        if row.spec.overlap is Overlap.CANCEL_RUNNING and firings.instants:
            plan.cancels.append(row.id)
    return plan


def keys_wanted(
    due: Iterable[ScheduleRow], *, now: datetime, jobs: Mapping[str, JobSpec]
) -> set[str]:
    """The overlap and unique keys that runs of these schedules would need."""
    wanted = set()
    for row in due:
        key = _overlap_key(row)
        if key is not None:
            wanted.add(key)
        job = jobs.get(row.spec.job)
        if job is not None and job.unique is not None and row.next_due_at is not None:
            args = _args(row, job)
            run = _run(row, job, row.next_due_at, now=now, args=args, overlap_key=key)
            assert run.unique is not None, run
            wanted.add(run.unique.key)
    return wanted


def asked_run(
    row: ScheduleRow,
    job: JobSpec,
    run_id: RunId,
    *,
    nominal_at: datetime,
    now: datetime,
    is_queued: bool = False,
) -> NewRun:
    """A run of a schedule because somebody asked for it: due at once, and never spread.

    It gives way to others as a firing of this moment would. With ``is_queued`` it waits for
    its turn instead: there may be a hundred of them.
    """
    overlap = row.spec.overlap
    if is_queued and overlap is not Overlap.ALLOW:
        overlap = Overlap.QUEUE_ALL
    asked = replace(row, spec=replace(row.spec, overlap=overlap, jitter=timedelta(0)))
    made = _run(asked, job, now, now=now, args=_args(row, job), overlap_key=_overlap_key(asked))
    return made._replace(id=run_id, nominal_at=nominal_at)


def _carried(
    row: ScheduleRow,
    job: JobSpec,
    instants: list[datetime],
    *,
    now: datetime,
    taken: Container[str],
) -> tuple[list[NewRun], list[Skip]]:
    """Runs for those instants that nothing stands in the way of; rows for the others."""
    if not instants:
        return [], []
    runs: list[NewRun] = []
    skips: list[Skip] = []
    args = _args(row, job)
    overlap_key = _overlap_key(row)
    overlapping = STILL_RUNNING if row.spec.overlap is Overlap.SKIP else STILL_WAITING
    held: set[str] = set()  # by runs of this very plan
    for instant in instants:
        if overlap_key is not None and (overlap_key in held or overlap_key in taken):
            _fold(skips, row, instant, overlapping)
            continue
        run = _run(row, job, instant, now=now, args=args, overlap_key=overlap_key)
        if run.unique is not None:
            if run.unique.key in held or run.unique.key in taken:
                _fold(skips, row, instant, NOT_UNIQUE)
                continue
            held.add(run.unique.key)
        if overlap_key is not None:
            held.add(overlap_key)
        runs.append(run)
    return runs, skips


def _run(
    row: ScheduleRow,
    job: JobSpec,
    nominal_at: datetime,
    *,
    now: datetime,
    args: str,
    overlap_key: str | None,
) -> NewRun:
    spec = row.spec
    overlap = spec.overlap
    due_at = nominal_at
    if spec.jitter:
        due_at += spread(row.id, nominal_at, within=spec.jitter)
    # By identity: to be found in a set, a member of an enum is hashed by Python.
    has_queue = overlap is not Overlap.SKIP and overlap is not Overlap.ALLOW
    return job.new_run(
        firing_id(row.id, nominal_at),
        now=now,
        due_at=due_at,
        args=args,
        tenant=spec.tenant,
        queue=spec.queue,
        priority=spec.priority,
        expires=spec.expires,
        tags=spec.tags,
        overlap_key=overlap_key,
        one_at_a_time=one_at_a_time(row.id) if has_queue else None,
        schedule=spec.name,
        nominal_at=nominal_at,
        target=spec.target,
    )


def _fold(skips: list[Skip], row: ScheduleRow, instant: datetime, reason: str) -> None:
    if skips and skips[-1].reason == reason:
        skips[-1] = skips[-1]._replace(last_at=instant, instants=skips[-1].instants + 1)
    else:
        skips.append(Skip(firing_id(row.id, instant), row, instant, instant, 1, reason))


def _overlap_key(row: ScheduleRow) -> str | None:
    match row.spec.overlap:
        case Overlap.SKIP:
            return held_key(row.id)
        case Overlap.QUEUE_ONE | Overlap.CANCEL_RUNNING:
            return waiting_key(row.id)
        case Overlap.QUEUE_ALL | Overlap.ALLOW:
            return None


def _args(row: ScheduleRow, job: JobSpec) -> str:
    """The schedule's arguments over the job's, key by key."""
    if job.args == NO_ARGS:
        return row.spec.args
    if row.spec.args == NO_ARGS:
        return job.args
    return encode({**decode(job.args), **decode(row.spec.args)})
