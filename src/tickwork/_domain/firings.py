"""Which instants of one schedule fire now, which were missed, and where it stands then."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

from tickwork._domain.job import Misfire, ScheduleRow
from tickwork._domain.schedules.contract import Schedule
from tickwork.errors import InvalidSchedule

CATCH_UP_MAX: Final = 1_000
"""Runs for missed instants under misfire ``all``: the newest ones. The rest is a gap.

Also the most instants on time that one tick fires for one schedule; the rest stays due.
"""

_INSTANT: Final = timedelta(microseconds=1)


class Gap(NamedTuple):
    """Instants in a row that were missed: the first, the last, and how many."""

    first_at: datetime
    last_at: datetime
    instants: int


class Firings(NamedTuple):
    """What a schedule gives at one tick. ``last_at`` is the last instant decided on."""

    instants: list[datetime]
    gap: Gap | None
    next_due_at: datetime | None
    last_at: datetime | None


def first_due(rule: Schedule, *, after: datetime, until: datetime | None = None) -> datetime | None:
    """The instant at which a schedule that is new, changed or resumed falls due first.

    It is strictly later: what passed while a schedule was paused is not made up for.

    Raises:
        InvalidSchedule: The rule does not keep its promise to move on.
    """
    found = rule.next_after(after)
    if found is None:
        return None
    # In UTC from here on: Python compares datetimes of one zone by their wall clocks,
    # which is wrong for an hour each year.
    instant = found.astimezone(UTC)
    if instant <= after:
        raise InvalidSchedule(f"The rule {rule.to_text()} does not move on from {after}.")
    return None if until is not None and instant > until else instant


def due_again(
    row: ScheduleRow, rule: Schedule, *, now: datetime, until: datetime | None
) -> datetime | None:
    """The instant at which a schedule that is there goes on, under this rule.

    What lies within a pause that ends by itself is not made up for either, and what was
    decided on once is never decided again.
    """
    after = max(filter(None, (now, row.paused_until, row.last_fired_at)))
    return first_due(rule, after=after, until=until)


def plan_firings(row: ScheduleRow, rule: Schedule, *, now: datetime) -> Firings:
    """Sort a schedule's instants up to ``now`` into those that fire and those it missed.

    An instant is missed when it is more than the schedule's grace late; before that,
    each one fires. The misfire policy decides which of the missed ones fire all the same.
    """
    due_at, until, last = row.next_due_at, row.spec.until, row.last_fired_at
    assert due_at is not None, row
    upcoming = due_at if until is None or due_at <= until else None
    if last is not None and due_at <= last:
        # Somebody moved the row back. What was decided once is not decided again.
        upcoming = first_due(rule, after=last, until=until)

    instants: list[datetime] = []
    gap = None
    missed_before = now - row.spec.grace
    if upcoming is not None and upcoming < missed_before:
        if until is not None:
            missed_before = min(missed_before, until + _INSTANT)
        last = next(_backwards(rule, missed_before, upcoming), upcoming)
        instants, gap = _missed(row.spec.misfire, rule, upcoming, last)
        upcoming = first_due(rule, after=last, until=until)

    room = CATCH_UP_MAX
    while upcoming is not None and upcoming <= now and room:
        instants.append(upcoming)
        last = upcoming
        upcoming = first_due(rule, after=upcoming, until=until)
        room -= 1

    assert upcoming is None or upcoming > due_at, row
    return Firings(instants, gap, upcoming, last)


def _missed(
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
    # The rule counts, and nobody walks: after a year without a worker, a schedule of
    # every second has missed thirty million instants.
    return fire, Gap(first, gap_until, max(rule.count_between(first, gap_until), 1))


def _backwards(rule: Schedule, before: datetime, first: datetime) -> Iterator[datetime]:
    """The instants before this one, newest first, down to ``first``."""
    while True:  # ends at `first` at the latest, because every step goes back
        found = rule.prev_before(before)
        if found is None:
            return
        instant = found.astimezone(UTC)
        if instant < first:
            return
        if instant >= before:
            raise InvalidSchedule(f"The rule {rule.to_text()} does not move back from {before}.")
        yield instant
        before = instant
