"""Merges consecutive equal skips of a schedule into one row that counts them."""

from collections import defaultdict
from collections.abc import Collection, Sequence

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.run import Claim
from tickwork._domain.runs.transitions import Transition
from tickwork._domain.skips import (
    NewSkip,
    ScheduleName,
    SkipMark,
    SkipPlan,
    may_merge,
    plan_skips,
)
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.rows import micros
from tickwork._stores._sql.statement import Operation, WriteConflict

Marks = dict[ScheduleName, SkipMark[int]]
Instants = dict[ScheduleName, set[int]]


def read_marks(
    query: Queries, schedules: Collection[ScheduleName]
) -> Operation[tuple[Marks, Instants]]:
    """Read the marks of schedules, and the first unfinished and finished firings after them.

    It locks the marks, so that two transactions that change one row run one after the other.
    """
    names = [list(schedule) for schedule in sorted(schedules)]
    yield query.command("lock_marks", names=names)
    rows = yield query("skip_marks", names=names)
    marks: Marks = {}
    others: Instants = defaultdict(set)
    for tenant, name, run_id, reason, last_at, *later in rows:
        # A mark that cannot be read is replaced by the next one.
        if isinstance(run_id, str) and isinstance(reason, str) and isinstance(last_at, int):
            marks[tenant, name] = SkipMark(RunId(run_id), reason, last_at)
            others[tenant, name].update(at for at in later if isinstance(at, int))
    return marks, others


def merge(
    query: Queries, skips: Sequence[NewSkip[int]], *, ended: Collection[tuple[str, str, int]] = ()
) -> Operation[SkipPlan[int]]:
    """Decide which skips are merged. ``ended`` are runs of this batch that were not skipped."""
    marks, others = yield from read_marks(query, {skip.schedule for skip in skips})
    spans = [list(span) for span in _spans(skips)]
    if spans:
        for tenant, name, at in (yield query("firings_between", spans=spans)):
            if isinstance(at, int):
                others[tenant, name].add(at)
    for tenant, name, at in ended:
        others[tenant, name].add(at)
    return plan_skips(skips, marks=marks, others=others)


def _spans(skips: Sequence[NewSkip[int]]) -> list[tuple[str, str, int, int, RunId]]:
    """Tenant, name, first and last skip of the schedules that have several; the id of the first."""
    found: dict[ScheduleName, list[tuple[int, RunId]]] = defaultdict(list)
    for skip in skips:
        found[skip.schedule].append((skip.first_at, skip.run_id))
    return sorted(
        (*name, min(each)[0], max(each)[0], min(each)[1])
        for name, each in found.items()
        if len(each) > 1
    )


def write_plan(query: Queries, plan: SkipPlan[int]) -> Operation[None]:
    """Write the rows that count more skips, and the marks of the schedules."""
    if plan.merged:
        count = (yield query("merge_skips", many=plan.merged))[0][0]
        if count != len(plan.merged):
            # Their row was pruned in the meantime: these skips would not be counted.
            raise WriteConflict
    if plan.marks:
        yield query.command(
            "set_skip_marks", many=[(*mark, *name) for name, mark in sorted(plan.marks.items())]
        )


def schedule_of(claim: Claim) -> ScheduleName:
    """The schedule that made this run."""
    assert claim.schedule is not None, claim
    return (claim.tenant, claim.schedule)


def instant_of(claim: Claim) -> int:
    """The instant of the schedule that this run was created for."""
    assert claim.nominal_at is not None, claim
    return micros(claim.nominal_at)


def mark_skips(query: Queries, transitions: Sequence[Transition]) -> Operation[None]:
    """Merge skipped runs of schedules; any other result ends a sequence of skips."""
    skips: list[NewSkip[int]] = []
    ended: set[tuple[str, str, int]] = set()
    for transition in transitions:
        schedule, at = schedule_of(transition.claim), instant_of(transition.claim)
        if transition.outcome is not OutcomeKind.SKIPPED:
            ended.add((*schedule, at))
            continue
        skips.append(
            NewSkip(
                schedule,
                transition.claim.run_id,
                transition.reason,
                first_at=at,
                last_at=at,
                ended_at=micros(transition.ended_at),
                may_merge=may_merge(transition),
            )
        )
    if skips:
        plan = yield from merge(query, skips, ended=ended)
        yield from write_plan(query, plan)
        if plan.without_row:
            rows = [(run_id,) for run_id in sorted(plan.without_row)]
            yield query.command("drop_history", many=rows)
    if ended:
        yield query.command("clear_skip_marks", many=sorted(ended))
