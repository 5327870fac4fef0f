"""How fast runs arrive and finish."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.rollups import (
    ALL_JOBS,
    Histogram,
    Rollup,
    add_histograms,
    estimate_percentile,
    minute_of,
)
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.arrivals import COUNTED_MAX, RATE_MINUTES, Arrivals
from tickwork._inspect.backlogs import read_oldest
from tickwork._stores.contract import Creations, Store

MINUTES: Final = 60
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Seconds that half, 95 % and 99 % of the runs stayed below.

    They are estimated from counts of runs that took less than 1, 2, 4, 8 … milliseconds.
    """

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteCounts:
    """The runs that were created and that ended in one minute."""

    at: datetime
    created: int | None  # null where so many runs were created later that they are not counted
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """How many runs arrived and finished: counted for each minute of the last hour."""

    now: datetime
    since: datetime  # what has finished is counted from here on
    created_per_minute: float  # of the last five minutes
    finished_per_minute: float
    completed: int
    failed: int
    success_share: float | None  # of the finished runs; null if none has finished
    wait: Percentiles | None  # from due to started
    runtime: Percentiles | None
    oldest_ready_at: datetime | None  # due time of the run that has waited longest for a worker
    ready: int
    drain_seconds: float | None  # until the backlog is done at this rate; null: it grows
    minutes: list[MinuteCounts]


def read_activity(store: Store, *, now: datetime, ready: int) -> Activity:
    since = minute_of(now) - (MINUTES - 1) * _MINUTE
    # A clock that was set back may have left counts in the next minutes.
    ended = store.read_rollups(since=since, until=now + timedelta(hours=1), jobs=[ALL_JOBS])
    created = store.count_created(since=since, most=COUNTED_MAX)
    count_by_status = _count(ended)
    completed = count_by_status[RunStatus.COMPLETED]
    failed = count_by_status[RunStatus.FAILED_PERMANENT]
    recent = minute_of(now) - (RATE_MINUTES - 1) * _MINUTE
    out_rate = _count([each for each in ended if each.begins_at >= recent]).total() / _minutes(
        recent, now
    )
    arrived = [each for each in created.counts if each.minute >= recent]
    in_rate = Arrivals(max(created.since, recent), now, arrived).per_minute()
    oldest = read_oldest(store, now=now) if ready else {}
    surplus = out_rate - in_rate
    return Activity(
        now=now,
        since=since,
        created_per_minute=round(in_rate, 2),
        finished_per_minute=round(out_rate, 2),
        completed=completed,
        failed=failed,
        success_share=completed / (completed + failed) if completed + failed else None,
        wait=percentiles_of([each.waits for each in ended]),
        runtime=percentiles_of([each.runtimes for each in ended]),
        oldest_ready_at=min(oldest.values(), default=None),
        ready=ready,
        drain_seconds=0.0 if not oldest else ready / surplus * 60 if surplus > 0 else None,
        minutes=_count_minutes(created, ended, since=since),
    )


def percentiles_of(histograms: Sequence[Histogram]) -> Percentiles | None:
    """Estimate the percentiles of all values that these histograms count."""
    merged: Histogram = ()
    for each in histograms:
        merged = add_histograms(merged, each)
    p50, p95, p99 = (estimate_percentile(merged, share) for share in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(p50=p50, p95=p95, p99=p99)


def _count(rollups: Sequence[Rollup]) -> Counter[RunStatus]:
    """Count finished runs by status."""
    counted: Counter[RunStatus] = Counter()
    for each in rollups:
        if each.status is not RunStatus.FAILED:  # an attempt: the run is not finished
            counted[each.status] += each.ended
    return counted


def _minutes(since: datetime, now: datetime) -> float:
    return max((now - since) / _MINUTE, 1 / 60)


def _count_minutes(
    created: Creations, ended: Sequence[Rollup], *, since: datetime
) -> list[MinuteCounts]:
    arrivals: Counter[datetime] = Counter()
    for one in created.counts:
        arrivals[one.minute] += one.number
    complete_since = since
    if created.since > since:
        complete_since = minute_of(created.since) + _MINUTE
    ends: Counter[tuple[datetime, RunStatus]] = Counter()
    for each in ended:
        ends[each.begins_at, each.status] += each.ended
    minutes = [since + number * _MINUTE for number in range(MINUTES)]
    return [
        MinuteCounts(
            at=at,
            created=arrivals[at] if at >= complete_since else None,
            completed=ends[at, RunStatus.COMPLETED],
            failed=ends[at, RunStatus.FAILED_PERMANENT],
        )
        for at in minutes
    ]
