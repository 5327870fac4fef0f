"""Plans one pass over the due schedules: which firings create runs, and which are skipped.

The identity of a firing is (schedule, time). A plan moves every schedule strictly forward. So a
plan that was written is never made again, and a plan that was lost is made again with the same
run ids.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tickwork._domain.firings import Firings, Gap, plan_firings
from tickwork._domain.identity import RunId, ScheduleId, firing_id, jitter_of
from tickwork._domain.job import JobSpec, Overlap, ScheduleRow
from tickwork._domain.limits.limits import held_key, one_at_a_time, waiting_key
from tickwork._domain.runs.run import NO_ARGS, NewRun
from tickwork._domain.schedules.contract import Rule
from tickwork._payload.codec import merge_objects
from tickwork.errors import RuleTooCostly

RUNS_MAX: Final = 5_000
"""After this many runs, the remaining schedules stay due for the next tick."""

COSTLY_MAX: Final = 5
"""The same after so many rules that took too many steps: seconds, while a transaction is open."""

MISSED: Final = "missed: no worker fired it in time"
STILL_RUNNING: Final = "overlap: the previous run had not finished"
STILL_WAITING: Final = "overlap: another run was already waiting"
REPLACED: Final = "overlap: a later firing replaced it"
NOT_UNIQUE: Final = "unique: another run had the same key"
PAUSED: Final = "paused: the schedule was paused"
RULE_CHANGED: Final = "changed: the rule of the schedule changed before it fired"


class Skip(NamedTuple):
    """Consecutive firings that were skipped for the same reason, in one row."""

    id: RunId
    schedule: ScheduleRow
    first_at: datetime
    last_at: datetime
    instants: int
    reason: str


class Move(NamedTuple):
    """Moves a schedule forward. Valid only while its ``next_due_at`` is still ``due_at``."""

    schedule_id: ScheduleId
    due_at: datetime
    next_due_at: datetime | None
    last_fired_at: datetime | None


class Unfired(NamedTuple):
    """A due schedule that this process cannot fire. Its row stays unchanged."""

    schedule_id: ScheduleId
    reason: str


class TickPlan(NamedTuple):
    """What one tick writes, in one transaction.

    ``cancels`` are schedules whose unfinished runs are canceled before the new runs are added.
    """

    runs: list[NewRun]
    skips: list[Skip]
    moves: list[Move]
    cancels: list[ScheduleId]
    unfired: list[Unfired]


def merge_plans(plans: Iterable[TickPlan]) -> TickPlan:
    """Merge the plans of several transactions."""
    merged = TickPlan([], [], [], [], [])
    for plan in plans:
        for all_of, part in zip(merged, plan, strict=True):
            all_of.extend(part)  # type: ignore[attr-defined]  # lists of different elements
    return merged


RuleOf = Callable[[ScheduleRow], Rule]


def plan_tick(
    due: Iterable[ScheduleRow],
    *,
    now: datetime,
    jobs: Mapping[str, JobSpec],
    rule_of: RuleOf,
    taken: Container[str] = frozenset(),
) -> TickPlan:
    """Decide what the due schedules create.

    ``taken`` contains the keys of :func:`keys_wanted` that other runs hold now. ``rule_of``
    parses the rule of a schedule and may raise. An error concerns only its own schedule.
    """
    plan, costly = TickPlan([], [], [], [], []), 0
    firings_cache: dict[tuple[object, ...], tuple[Rule, Firings]] = {}
    for row in due:
        if row.is_paused_at(now) or row.next_due_at is None or row.next_due_at > now:
            continue
        if len(plan.runs) >= RUNS_MAX or costly >= COSTLY_MAX:
            break
        job = jobs.get(row.spec.job)
        if job is None:
            reason = f"The job {row.spec.job!r} is not known to this process."
            plan.unfired.append(Unfired(row.id, reason))
            continue
        rule = None
        try:
            rule, spec = rule_of(row), row.spec
            # Many schedules have the same rule and the same times. The rule is kept as well: the
            # id of an object that is gone may be used again.
            cache_key = (
                *(id(rule), row.next_due_at, row.last_fired_at, row.paused_at, row.paused_until),
                *(spec.until, spec.grace, id(spec.misfire)),
            )
            cached = firings_cache.get(cache_key)
            if cached is None:
                cached = firings_cache[cache_key] = (rule, plan_firings(row, rule, now=now))
            firings = cached[1]
            runs, skips = _plan_runs(row, job, firings.times, now=now, taken=taken)
        except Exception as error:  # noqa: BLE001  # a rule may be the user's own code
            plan.unfired.append(Unfired(row.id, f"{type(error).__name__}: {error}"))
            costly += rule is not None and isinstance(error, RuleTooCostly)
            continue
        plan.runs.extend(runs)
        plan.skips.extend(skips)
        if firings.paused is not None:
            plan.skips.append(new_skip(row, firings.paused, PAUSED))
        if firings.gap is not None:
            plan.skips.append(new_skip(row, firings.gap, MISSED))
        plan.moves.append(Move(row.id, row.next_due_at, firings.next_due_at, firings.last_at))
        if row.spec.overlap is Overlap.CANCEL_RUNNING and runs:
            plan.cancels.append(row.id)
    return plan


def new_skip(row: ScheduleRow, gap: Gap, reason: str) -> Skip:
    """One row for firings that make no runs."""
    return Skip(firing_id(row.id, gap.first_at), row, *gap, reason)


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
            if run.unique is not None:
                wanted.add(run.unique.key)
    return wanted


def new_manual_run(
    row: ScheduleRow,
    job: JobSpec,
    run_id: RunId,
    *,
    nominal_at: datetime,
    now: datetime,
    is_queued: bool = False,
) -> NewRun:
    """A run of a schedule outside of its times: due at once, without jitter.

    The overlap policy applies as for a firing of this moment. With ``is_queued`` the run waits
    for the others instead: a backfill creates many runs.
    """
    overlap = row.spec.overlap
    if is_queued and overlap is not Overlap.ALLOW:
        overlap = Overlap.QUEUE_ALL
    manual = replace(row, spec=replace(row.spec, overlap=overlap, jitter=timedelta(0)))
    made = _run(manual, job, now, now=now, args=_args(row, job), overlap_key=_overlap_key(manual))
    return made._replace(id=run_id, nominal_at=nominal_at)


def _plan_runs(
    row: ScheduleRow,
    job: JobSpec,
    times: list[datetime],
    *,
    now: datetime,
    taken: Container[str],
) -> tuple[list[NewRun], list[Skip]]:
    """Runs for the firings that no other run prevents, and skips for the others."""
    if not times:
        return [], []
    runs: list[NewRun] = []
    skips: list[Skip] = []
    if row.spec.overlap is Overlap.CANCEL_RUNNING:
        for nominal_at in times[:-1]:
            _merge_skip(skips, row, nominal_at, REPLACED)
        times = times[-1:]
    args = _args(row, job)
    overlap_key = _overlap_key(row)
    overlapping = STILL_RUNNING if row.spec.overlap is Overlap.SKIP else STILL_WAITING
    held: set[str] = set()  # by runs of this plan
    for nominal_at in times:
        if overlap_key is not None and (overlap_key in held or overlap_key in taken):
            _merge_skip(skips, row, nominal_at, overlapping)
            continue
        run = _run(row, job, nominal_at, now=now, args=args, overlap_key=overlap_key)
        if run.unique is not None:
            if run.unique.key in held or run.unique.key in taken:
                _merge_skip(skips, row, nominal_at, NOT_UNIQUE)
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
        due_at += jitter_of(row.id, nominal_at, within=spec.jitter)
    # By identity: a lookup in a set would hash the enum in Python code.
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


def _merge_skip(skips: list[Skip], row: ScheduleRow, nominal_at: datetime, reason: str) -> None:
    if skips and skips[-1].reason == reason:
        skips[-1] = skips[-1]._replace(last_at=nominal_at, instants=skips[-1].instants + 1)
    else:
        skips.append(Skip(firing_id(row.id, nominal_at), row, nominal_at, nominal_at, 1, reason))


def _overlap_key(row: ScheduleRow) -> str | None:
    match row.spec.overlap:
        case Overlap.SKIP:
            return held_key(row.id)
        case Overlap.QUEUE_ONE:
            return waiting_key(row.id)
        case Overlap.QUEUE_ALL | Overlap.CANCEL_RUNNING | Overlap.ALLOW:
            return None


def _args(row: ScheduleRow, job: JobSpec) -> str:
    """The arguments of the job, overridden by those of the schedule."""
    if job.args == NO_ARGS:
        return row.spec.args
    if row.spec.args == NO_ARGS:
        return job.args
    return merge_objects(job.args, row.spec.args)
