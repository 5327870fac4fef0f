"""Decides which skips of a schedule are counted by one row."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.transitions import Transition

Instant = TypeVar("Instant", int, datetime)
"""A datetime in memory, microseconds in the tables."""

ScheduleName = tuple[str, str]
"""The tenant of a schedule, and its name."""


class SkipMark(NamedTuple, Generic[Instant]):
    """The row that counts the newest skips of a schedule."""

    run_id: RunId
    reason: str
    last_at: Instant


class NewSkip(NamedTuple, Generic[Instant]):
    """One or more instants that were skipped. Without ``may_merge``, they keep their own row."""

    schedule: ScheduleName
    run_id: RunId
    reason: str
    first_at: Instant
    last_at: Instant
    ended_at: Instant
    instants: int = 1
    may_merge: bool = True


class MergedSkips(NamedTuple, Generic[Instant]):
    """The instants to add to a row, and its new last instant and end."""

    instants: int
    last_at: Instant
    ended_at: Instant
    run_id: RunId


class SkipPlan(NamedTuple, Generic[Instant]):
    """What to write about new skips."""

    merged: list[MergedSkips[Instant]]  # changes of rows that count more skips
    without_row: set[RunId]  # skips that another row counts
    marks: dict[ScheduleName, SkipMark[Instant]]  # those that change


def plan_skips(
    skips: Iterable[NewSkip[Instant]],
    *,
    marks: Mapping[ScheduleName, SkipMark[Instant]],
    others: Mapping[ScheduleName, Collection[Instant]],
) -> SkipPlan[Instant]:
    """Merge each skip into the newest row of its schedule, if that has the same reason.

    ``others`` are the instants of runs that were not skipped, or that are not finished. No row
    counts skips both before and after such an instant.
    """
    current = dict(marks)
    changed: dict[ScheduleName, SkipMark[Instant]] = {}
    merged: dict[RunId, MergedSkips[Instant]] = {}
    without_row: set[RunId] = set()
    for skip in sorted(skips, key=lambda skip: skip.first_at):
        mark = current.get(skip.schedule)
        if mark is not None and skip.last_at <= mark.last_at:
            continue  # it keeps its row, and a newer row stays marked
        if mark is not None and _continues(skip, mark, others.get(skip.schedule, ())):
            before = merged[mark.run_id].instants if mark.run_id in merged else 0
            merged[mark.run_id] = MergedSkips(
                before + skip.instants, skip.last_at, skip.ended_at, mark.run_id
            )
            without_row.add(skip.run_id)
            mark = mark._replace(last_at=skip.last_at)
        else:
            mark = SkipMark(skip.run_id, skip.reason, skip.last_at)
        current[skip.schedule] = changed[skip.schedule] = mark
    return SkipPlan(list(merged.values()), without_row, changed)


def _continues(
    skip: NewSkip[Instant], mark: SkipMark[Instant], others: Collection[Instant]
) -> bool:
    return (
        skip.may_merge
        and mark.reason == skip.reason
        and mark.last_at < skip.first_at
        and not any(mark.last_at < at < skip.first_at for at in others)
    )


def is_counted(mark: SkipMark[Instant] | None, *, reason: str, at: Instant) -> bool:
    """Whether the newest row of skips counts this instant already."""
    return mark is not None and mark.reason == reason and at <= mark.last_at


def may_merge(transition: Transition) -> bool:
    """Whether the run was skipped at its first claim. Others may have attempts: they keep a row."""
    return (
        transition.outcome is OutcomeKind.SKIPPED
        and transition.claim.is_fired
        and transition.claim.token == 1
    )
