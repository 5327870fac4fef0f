"""Counts of ended attempts by time, job, queue and status.

Pages that read the newest runs show wrong figures as soon as there is a backlog, and none of
pruned runs. These counts are written in the transaction that ends the attempts, so they are exact.
A store adds rows and never changes one. Workers replace many rows by one with the same sum, so a
reader only adds up what it finds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition

Histogram: TypeAlias = tuple[int, ...]
"""How many lengths of time had so many bits, in whole milliseconds: place 0 counts those below
one, place 1 those below two, place 2 those below four, and so on."""

PLACES: Final = 40
"""The last place of a histogram counts everything that is longer: 17 years."""

ALL_JOBS: Final = ""
"""The job of rows that count all jobs of a queue."""

ROLLUPS_MAX: Final = 50_000
"""The most rows that one read takes, unless it states another number."""

_MINUTE: Final = timedelta(minutes=1)
_PLACE_ENDS: Final = [timedelta(milliseconds=1 << place) for place in range(PLACES)]
"""The first length that is too long for each place."""


class RollupLevel(IntEnum):
    """How far a row was merged with others."""

    PART = 0  # of one transaction
    MINUTE = 1
    HOUR = 2
    DAY = 3  # in UTC


KEEP: Final[Mapping[RollupLevel, timedelta]] = {
    RollupLevel.MINUTE: timedelta(hours=2),
    RollupLevel.HOUR: timedelta(days=35),
    RollupLevel.DAY: timedelta(days=400),
}
"""Rows of this age are merged into the next level, and deleted in the last one. Those of single
transactions are merged at once."""


class Rollup(NamedTuple):
    """How many attempts ended with one status, from ``begins_at`` for a minute, an hour or a day.

    The status is that of the run after the attempt. ``FAILED`` counts attempts after which the
    run gets another one; all others count finished runs. ``runtimes`` are from start to end,
    ``waits`` from due to start. Both count only attempts that were started.
    """

    begins_at: datetime
    job: str
    queue: str
    status: RunStatus
    ended: int
    runtimes: Histogram = ()
    waits: Histogram = ()

    @property
    def key(self) -> "_Key":
        """What rollups that are added up have in common."""
        return self[:4]


class EndedRuns(NamedTuple):
    """A run that ended without an attempt of a worker, or several skips of a schedule."""

    job: str
    queue: str
    status: RunStatus
    ended_at: datetime
    started_at: datetime | None = None
    due_at: datetime | None = None
    number: int = 1


_Key: TypeAlias = tuple[datetime, str, str, RunStatus]


def count_transitions(transitions: Sequence[Transition]) -> list[Rollup]:
    """Count the transitions that end a run, and those after a failed attempt."""
    return [
        Rollup(*key, len(alike), _histogram_of(_runtimes(alike)), _histogram_of(_waits(alike)))
        for key, alike in _group(transitions)
    ]


def _group(transitions: Sequence[Transition]) -> Iterable[tuple[_Key, Sequence[Transition]]]:
    """Group transitions that are counted together. This runs for every run."""
    if not transitions:
        return ()
    first = transitions[0]
    status, job, queue = first.to_status, first.claim.job, first.claim.queue
    # Most batches are of one job, and succeeded. The minutes are compared once for all of them.
    is_mixed = [
        True
        for each in transitions
        if each.to_status is not status or each.claim.job != job or each.claim.queue != queue
    ]
    ended_at = [each.ended_at for each in transitions]
    begins_at = minute_of(min(ended_at))
    if not is_mixed and max(ended_at) < begins_at + _MINUTE:
        key = (begins_at, job, queue, status)
        return [(key, transitions)] if status is not RunStatus.PENDING else ()
    groups: dict[_Key, list[Transition]] = {}
    for each in transitions:
        if each.to_status is not RunStatus.PENDING:
            claim = each.claim
            key = (minute_of(each.ended_at), claim.job, claim.queue, each.to_status)
            groups.setdefault(key, []).append(each)
    return groups.items()


def _runtimes(transitions: Iterable[Transition]) -> list[timedelta]:
    return [each.ended_at - each.started_at for each in transitions if each.started_at is not None]


def _waits(transitions: Iterable[Transition]) -> list[timedelta]:
    return [
        each.started_at - each.claim.due_at for each in transitions if each.started_at is not None
    ]


def count_runs(ended: Iterable[EndedRuns]) -> list[Rollup]:
    """Count runs that ended in another way, such as a cancellation before their first attempt."""
    return merge_rollups(
        Rollup(
            minute_of(run.ended_at),
            run.job,
            run.queue,
            run.status,
            run.number,
            _histogram_between(run.started_at, run.ended_at),
            _histogram_between(run.due_at, run.started_at),
        )
        for run in ended
    )


def merge_rollups(rollups: Iterable[Rollup]) -> list[Rollup]:
    """Add up rollups with the same key; the result is sorted by key."""
    merged: dict[_Key, Rollup] = {}
    for rollup in rollups:
        before = merged.get(rollup.key)
        merged[rollup.key] = rollup if before is None else _add(before, rollup)
    return [merged[key] for key in sorted(merged)]


def add_histograms(first: Histogram, second: Histogram) -> Histogram:
    """Add two histograms.

    >>> add_histograms((1, 2), (0, 1, 5))
    (1, 3, 5)
    """
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    return (*map(int.__add__, longer, shorter), *longer[len(shorter) :])


def estimate_percentile(histogram: Histogram, share: float) -> float | None:
    """The seconds that this share of the values stayed below; None if there are no values.

    The values of one place are taken to be spread evenly, so the result is less than a factor of
    two from the true one.

    >>> estimate_percentile((0, 0, 0, 100), 0.5)  # all of them took 4 to 8 ms
    0.006
    """
    left = share * sum(histogram)
    if not left:
        return None
    for place, count in enumerate(histogram):
        if left <= count:
            begin, end = (1 << place) >> 1, 1 << place
            return round((begin + (end - begin) * left / count) / 1000, 6)
        left -= count
    return float(1 << len(histogram)) / 1000  # a rounding error of the share


def merge_into(level: RollupLevel, rollups: Iterable[Rollup]) -> list[Rollup]:
    """Merge rows of the level below. Those of single transactions also count for their queue."""
    if level is RollupLevel.MINUTE:
        rollups = with_queues(rollups)
    begin_of = _BEGIN_OF[level]
    return merge_rollups(each._replace(begins_at=begin_of(each.begins_at)) for each in rollups)


def with_queues(rollups: Iterable[Rollup]) -> Iterator[Rollup]:
    """Count each rollup of a job for its queue, too."""
    for rollup in rollups:
        yield rollup
        yield rollup._replace(job=ALL_JOBS)


def old_before(level: RollupLevel, now: datetime) -> datetime:
    """Rows of this level that begin before this instant are merged into the next level."""
    # A whole unit of the next level at a time: a reader never finds half of an hour in two rows.
    begin_of = _BEGIN_OF[RollupLevel(min(level + 1, RollupLevel.DAY))]
    return begin_of(now - KEEP[level])


def minute_of(moment: datetime) -> datetime:
    """The begin of the minute of an instant."""
    return moment.replace(second=0, microsecond=0)


def hour_of(moment: datetime) -> datetime:
    """The begin of the hour of an instant, in UTC."""
    return moment.replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    """The begin of the day of an instant, in UTC."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


_BEGIN_OF: Final[Mapping[RollupLevel, Callable[[datetime], datetime]]] = {
    RollupLevel.MINUTE: minute_of,
    RollupLevel.HOUR: hour_of,
    RollupLevel.DAY: day_of,
}


def _add(first: Rollup, second: Rollup) -> Rollup:
    return first._replace(
        ended=first.ended + second.ended,
        runtimes=add_histograms(first.runtimes, second.runtimes),
        waits=add_histograms(first.waits, second.waits),
    )


def _histogram_of(lengths: list[timedelta]) -> Histogram:
    """Count lengths by place; a negative one, after a clock was set back, has place 0."""
    if not lengths:
        return ()
    last = bisect_right(_PLACE_ENDS, max(lengths))
    if last == bisect_right(_PLACE_ENDS, min(lengths)):
        return (*[0] * last, len(lengths))
    lengths = sorted(lengths)
    ends = [0, *[bisect_left(lengths, end) for end in _PLACE_ENDS[:last]], len(lengths)]
    return tuple([end - begin for begin, end in pairwise(ends)])


def _histogram_between(begin: datetime | None, end: datetime | None) -> Histogram:
    return () if begin is None or end is None else _histogram_of([end - begin])
