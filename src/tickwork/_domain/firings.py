"""Decides which firings of one schedule are due now and which were missed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from tickwork._domain.job import Misfire, ScheduleRow
from tickwork._domain.schedules.contract import Schedule
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
    """The firings of a schedule in one tick. ``last_at`` is the last decided one."""

    instants: list[datetime]
    gap: Gap | None
    next_due_at: datetime | None
    last_at: datetime | None


def first_due(rule: Schedule, *, after: datetime, until: datetime | None = None) -> datetime | None:
    """The first firing of a schedule that is new, changed or resumed.

    It is strictly later than ``after``: firings during a pause are not made up for.

    Raises:
        InvalidSchedule: The rule returned a time that is not later.
    """
    found = rule.next_after(after)
    if found is None:
        return None
    # Compare in UTC: Python compares datetimes of one zone by wall clock, which is wrong for
    # one hour each year.
    instant = found.astimezone(UTC)
    if instant <= after:
        raise InvalidSchedule(f"The rule {rule.to_text()} does not advance from {after}.")
    return None if until is not None and instant > until else instant


def due_again(
    row: ScheduleRow, rule: Schedule, *, now: datetime, until: datetime | None
) -> datetime | None:
    """The next firing of an existing schedule, under this rule.

    Firings during a pause are not made up for. A firing is never decided twice.
    """
    after = max(filter(None, (now, row.paused_until, row.last_fired_at)))
    return first_due(rule, after=after, until=until)


def plan_firings(row: ScheduleRow, rule: Schedule, *, now: datetime) -> Firings:
    """Divide the firings of a schedule up to ``now`` into due and missed ones.

    A firing is missed when it is late by more than the grace period of the schedule. The misfire
    policy decides which missed firings still create runs.
    """
    due_at, until, last = row.next_due_at, row.spec.until, row.last_fired_at
    assert due_at is not None, row
    upcoming = due_at if until is None or due_at <= until else None
    if last is not None and due_at <= last:
        # The row was moved back. Firings that were decided are not decided again.
        upcoming = first_due(rule, after=last, until=until)

    instants: list[datetime] = []
    gap = None
    missed_before = now - row.spec.grace
    if upcoming is not None and upcoming < missed_before:
        if until is not None:
            missed_before = min(missed_before, until + _MICROSECOND)
        last = next(_backwards(rule, missed_before, upcoming), upcoming)
        instants, gap = _plan_missed(row.spec.misfire, rule, upcoming, last)
        upcoming = first_due(rule, after=last, until=until)

    room = CATCH_UP_MAX
    while upcoming is not None and upcoming <= now and room:
        instants.append(upcoming)
        last = upcoming
        upcoming = first_due(rule, after=upcoming, until=until)
        room -= 1

    assert upcoming is None or upcoming > due_at, row
    return Firings(instants, gap, upcoming, last)


def _plan_missed(
    misfire: Misfire, rule: Schedule, first: datetime, last: datetime
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


def _backwards(rule: Schedule, before: datetime, first: datetime) -> Iterator[datetime]:
    """The firings before this one, newest first, down to ``first``."""
    while True:  # ends at `first`: every step goes back
        found = rule.prev_before(before)
        if found is None:
            return
        instant = found.astimezone(UTC)
        if instant < first:
            return
        if instant >= before:
            raise InvalidSchedule(f"The rule {rule.to_text()} does not go back from {before}.")
        yield instant
        before = instant
