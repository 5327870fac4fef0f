"""Decides which firings of one schedule are due now and which were missed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from tickwork._domain.job import Misfire, ScheduleRow
from tickwork._domain.schedules.contract import Rule
from tickwork._kernel.step_budget import step_budget
from tickwork.errors import InvalidSchedule

CATCH_UP_MAX: Final = 1_000
"""The most missed firings that misfire ``all`` makes up for: the newest ones.

Also the most punctual firings of one schedule in one tick; the others stay due.
"""

_MICROSECOND: Final = timedelta(microseconds=1)


class Gap(NamedTuple):
    """Consecutive missed firings: the first, the last, and their number."""

    first_at: datetime
    last_at: datetime
    instants: int


class Firings(NamedTuple):
    """The firings of a schedule in one tick: ``times`` are those that make runs.

    ``last_at`` is the last decided one.
    ``gap`` are those that came too late, ``paused`` those of a pause that has ended.
    """

    times: list[datetime]
    gap: Gap | None
    next_due_at: datetime | None
    last_at: datetime | None
    paused: Gap | None = None


def first_due(rule: Rule, *, after: datetime, until: datetime | None = None) -> datetime | None:
    """The first firing of a schedule that is new, changed or resumed.

    It is strictly later than ``after``: firings during a pause are not made up for.

    Raises:
        InvalidSchedule: The rule returned a time that is not later.
    """
    due_at = rule.next_after(after)
    if due_at is None:
        return None
    # Compare in UTC: Python compares datetimes of one zone by wall clock, which is wrong for
    # one hour each year.
    due_at = due_at.astimezone(UTC)
    if due_at <= after:
        raise InvalidSchedule(f"The rule {rule.to_text()} does not advance from {after}.")
    return None if until is not None and due_at > until else due_at


def due_again(
    row: ScheduleRow, rule: Rule, *, now: datetime, until: datetime | None
) -> datetime | None:
    """The next firing of an existing schedule, under this rule.

    Firings during a pause are not made up for. A firing is never decided twice.
    """
    after = max(filter(None, (now, row.paused_until, row.last_fired_at)))
    return first_due(rule, after=after, until=until)


def after_pause(row: ScheduleRow, rule: Rule, *, end: datetime) -> datetime | None:
    """When a schedule that pauses until ``end`` is due next.

    Without a firing after the pause it is due at its end: a tick then records the firings of the
    pause, and that there are no others.
    """
    due_at = first_due(rule, after=end, until=row.spec.until)
    return end if due_at is None and row.next_due_at is not None else due_at


@step_budget()
def find_undecided(row: ScheduleRow, rule: Rule, *, until: datetime) -> Gap | None:
    """The firings up to ``until`` that neither made a run nor were skipped.

    While a schedule is paused, they begin with the pause: what was due before was decided then.

    Raises:
        RuleTooCostly: The rule takes too many steps.
    """
    first, end = row.next_due_at, row.spec.until
    decided = max(filter(None, (row.paused_at, row.last_fired_at)), default=None)
    if decided is not None and (row.is_paused or (first is not None and first <= decided)):
        first = first_due(rule, after=decided, until=end)
    last = until if end is None else min(until, end)
    if first is None or first > last:
        return None
    last = next(_backwards(rule, last + _MICROSECOND, first), first)
    return Gap(first, last, max(rule.count_between(first, last), 1))


@step_budget()
def plan_firings(row: ScheduleRow, rule: Rule, *, now: datetime) -> Firings:
    """Divide the firings of a schedule up to ``now`` into due and missed ones.

    A firing is missed when it is late by more than the grace period of the schedule. The misfire
    policy decides which missed firings still create runs.

    Raises:
        RuleTooCostly: The rule takes too many steps. Other schedules are not affected.
    """
    due_at, until, last = row.next_due_at, row.spec.until, row.last_fired_at
    assert due_at is not None, row
    upcoming = due_at if until is None or due_at <= until else None
    paused = None
    if row.paused_until is not None:
        paused = find_undecided(row, rule, until=row.paused_until)
        last = max(filter(None, (last, row.paused_until)))
        upcoming = first_due(rule, after=last, until=until)
        last = row.last_fired_at if paused is None else paused.last_at
    elif last is not None and due_at <= last:
        # The row was moved back. Firings that were decided are not decided again.
        upcoming = first_due(rule, after=last, until=until)

    times: list[datetime] = []
    gap = None
    missed_before = now - row.spec.grace
    if upcoming is not None and upcoming < missed_before:
        if until is not None:
            missed_before = min(missed_before, until + _MICROSECOND)
        last = next(_backwards(rule, missed_before, upcoming), upcoming)
        times, gap = _plan_missed(row.spec.misfire, rule, upcoming, last)
        upcoming = first_due(rule, after=last, until=until)

    room = CATCH_UP_MAX
    while upcoming is not None and upcoming <= now and room:
        times.append(upcoming)
        last = upcoming
        upcoming = first_due(rule, after=upcoming, until=until)
        room -= 1

    assert upcoming is None or upcoming > due_at, row
    return Firings(times, gap, upcoming, last, paused)


def _plan_missed(
    misfire: Misfire, rule: Rule, first: datetime, last: datetime
) -> tuple[list[datetime], Gap | None]:
    fire: list[datetime]
    match misfire:
        case Misfire.SKIP:
            fire = []
        case Misfire.ONE:
            fire = [last]
        case Misfire.ALL:
            older = islice(_backwards(rule, last, first), CATCH_UP_MAX - 1)
            fire = [last, *older][::-1]
    gap_until = next(_backwards(rule, fire[0], first), None) if fire else last
    if gap_until is None:
        return fire, None
    # The rule counts without iterating: after a year without a worker, a schedule of every
    # second has missed thirty million firings.
    return fire, Gap(first, gap_until, max(rule.count_between(first, gap_until), 1))


def _backwards(rule: Rule, before: datetime, first: datetime) -> Iterator[datetime]:
    """The firings before this one, newest first, down to ``first``."""
    while True:  # ends at `first`: every step goes back
        due_at = rule.prev_before(before)
        if due_at is None:
            return
        due_at = due_at.astimezone(UTC)
        if due_at < first:
            return
        if due_at >= before:
            raise InvalidSchedule(f"The rule {rule.to_text()} does not go back from {before}.")
        yield due_at
        before = due_at
