"""Counts of ended attempts by time, job, queue and status.

Pages that read the newest runs show wrong figures as soon as there is a backlog, and none of
pruned runs. These counts are written in the transaction that ends the attempts, so they are exact.
A store adds rows and never changes one. Workers replace many rows by one with the same sum, so a
reader only adds up what it finds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
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
_MILLISECOND: Final = timedelta(milliseconds=1)


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


@dataclass(slots=True)
class _Sums:
    """What was counted under one key."""

    count: int = 0
    runtimes: list[int] = field(default_factory=list)  # in whole milliseconds
    waits: list[int] = field(default_factory=list)


_Key: TypeAlias = tuple[datetime, str, str, RunStatus]


def count_transitions(transitions: Iterable[Transition]) -> list[Rollup]:
    """Count the transitions that end a run, and those after a failed attempt."""
    sums_by_key: dict[_Key, _Sums] = {}
    sums: _Sums | None = None
    job = queue = ""
    status: RunStatus = RunStatus.PENDING
    pending = RunStatus.PENDING  # for each transition, the look-up in the enum takes 0.2 µs
    begins_at = ends_at = datetime.min.replace(tzinfo=UTC)
    # This runs for every run. Most transitions of a batch are counted together with the one before.
    for transition in transitions:
        claim, ended_at, started_at = transition.claim, transition.ended_at, transition.started_at
        if (
            sums is None
            or transition.to_status is not status
            or claim.job != job
            or claim.queue != queue
            or not begins_at <= ended_at < ends_at
        ):
            if transition.to_status is pending:
                continue
            job, queue, status = claim.job, claim.queue, transition.to_status
            begins_at = minute_of(ended_at)
            ends_at = begins_at + _MINUTE
            sums = sums_by_key.setdefault((begins_at, job, queue, status), _Sums())
        sums.count += 1
        if started_at is not None:
            sums.runtimes.append((ended_at - started_at) // _MILLISECOND)
            sums.waits.append((started_at - claim.due_at) // _MILLISECOND)
    return [
        Rollup(*key, sums.count, _histogram_of(sums.runtimes), _histogram_of(sums.waits))
        for key, sums in sums_by_key.items()
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


def _histogram_of(milliseconds: list[int]) -> Histogram:
    if not milliseconds:
        return ()
    if min(milliseconds) < 0:  # the clock was set back in between
        milliseconds = [max(length, 0) for length in milliseconds]
    places = Counter(map(int.bit_length, milliseconds))
    last = min(max(places), PLACES)
    counts = [places[place] for place in range(last + 1)]
    counts[last] += sum(count for place, count in places.items() if place > last)
    return tuple(counts)


def _histogram_between(begin: datetime | None, end: datetime | None) -> Histogram:
    if begin is None or end is None:
        return ()
    return _histogram_of([(end - begin) // _MILLISECOND])
