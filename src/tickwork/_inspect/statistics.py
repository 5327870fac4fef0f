"""How many attempts of each job ended, how long they took, and how long they had waited."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.rollups import ALL_JOBS, ROLLUPS_MAX, Rollup, day_of, hour_of, minute_of
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.activity import Percentiles, percentiles_of
from tickwork._inspect.arrivals import RATE_MINUTES
from tickwork._stores.contract import Store

JOBS_MAX: Final = 200
"""The most jobs of one list: 24 hours of 200 busy jobs are read within a tenth of a second."""

HOURLY_DAYS: Final = 14
"""A history of up to so many days is by the hour, a longer one by the day."""

_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_WEEK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatistics:
    """The attempts of a job that ended in the last 24 hours, in all tenants."""

    name: str
    since: datetime
    completed: int  # runs
    failed: int  # runs that failed for good
    retried: int  # attempts that failed, and after which the run got another one
    runtime: Percentiles | None
    wait: Percentiles | None  # from due to started
    runtime_week_ago: Percentiles | None  # of the same 24 hours a week ago
    wait_week_ago: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """The attempts of a queue that ended in the last hour."""

    name: str
    since: datetime
    finished_per_minute: float  # in the last five minutes
    completed: int
    failed: int
    wait: Percentiles | None
    runtime: Percentiles | None


def read_job_statistics(store: Store, jobs: Sequence[str], *, now: datetime) -> list[JobStatistics]:
    """Read the statistics of these jobs, in this order.

    Counts of more than two hours ago are those of whole hours: ``since`` is the first of them.
    """
    names = list(dict.fromkeys(jobs))[:JOBS_MAX]
    since = hour_of(now - _DAY)
    recent = _group(_read(store, since, now + _HOUR, names), by_queue=False)
    before = _group(_read(store, since - _WEEK, since - _WEEK + _DAY, names), by_queue=False)
    return [
        JobStatistics(
            name=name,
            since=since,
            completed=_total(recent.get(name, ()), RunStatus.COMPLETED),
            failed=_total(recent.get(name, ()), RunStatus.FAILED_PERMANENT),
            retried=_total(recent.get(name, ()), RunStatus.FAILED),
            runtime=percentiles_of([each.runtimes for each in recent.get(name, ())]),
            wait=percentiles_of([each.waits for each in recent.get(name, ())]),
            runtime_week_ago=percentiles_of([each.runtimes for each in before.get(name, ())]),
            wait_week_ago=percentiles_of([each.waits for each in before.get(name, ())]),
        )
        for name in names
    ]


def read_queue_statistics(store: Store, *, now: datetime) -> list[QueueStatistics]:
    """Read the statistics of all queues in which an attempt ended in the last hour."""
    since = minute_of(now) - 59 * _MINUTE
    recent = minute_of(now) - (RATE_MINUTES - 1) * _MINUTE
    minutes = max((now - recent) / _MINUTE, 1 / 60)
    by_queue = _group(_read(store, since, now + _HOUR, [ALL_JOBS]), by_queue=True)
    return [
        QueueStatistics(
            name=name,
            since=since,
            finished_per_minute=round(_count_finished(ended, since=recent) / minutes, 2),
            completed=_total(ended, RunStatus.COMPLETED),
            failed=_total(ended, RunStatus.FAILED_PERMANENT),
            wait=percentiles_of([each.waits for each in ended]),
            runtime=percentiles_of([each.runtimes for each in ended]),
        )
        for name, ended in sorted(by_queue.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStatistics:
    """The attempts that ended in a span of time."""

    at: datetime  # when it begins
    completed: int
    failed: int
    retried: int
    runtime: Percentiles | None
    wait: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsHistory:
    """The attempts of a job or of a queue over time, beside those of a week before."""

    name: str
    step_seconds: int  # the length of a span: an hour, or a day in UTC
    spans: list[SpanStatistics]  # the earliest first; those without attempts are left out
    total: SpanStatistics
    week_before: SpanStatistics  # as long as the total, and seven days earlier


def read_history(
    store: Store,
    *,
    job: str | None = None,
    queue: str | None = None,
    now: datetime,
    days: int = 1,
) -> StatisticsHistory:
    """Read the statistics of a job in all queues, of a queue with all jobs, or of both."""
    is_hourly = days <= HOURLY_DAYS
    begin_of = hour_of if is_hourly else day_of
    since = begin_of(now - days * _DAY)
    jobs = [ALL_JOBS if job is None else job]

    def read(begin: datetime, end: datetime) -> list[Rollup]:
        rows = _read(store, begin, end, jobs)
        return [each for each in rows if queue in {None, each.queue}]

    recent = read(since, now + _HOUR)
    before = read(since - _WEEK, now - _WEEK)
    by_span: dict[datetime, list[Rollup]] = {}
    for each in recent:
        by_span.setdefault(begin_of(each.begins_at), []).append(each)
    return StatisticsHistory(
        name=job or queue or "",
        step_seconds=(_HOUR if is_hourly else _DAY) // timedelta(seconds=1),
        spans=[_sum_up(at, each) for at, each in sorted(by_span.items())],
        total=_sum_up(since, recent),
        week_before=_sum_up(since - _WEEK, before),
    )


def _sum_up(at: datetime, rollups: Sequence[Rollup]) -> SpanStatistics:
    return SpanStatistics(
        at=at,
        completed=_total(rollups, RunStatus.COMPLETED),
        failed=_total(rollups, RunStatus.FAILED_PERMANENT),
        retried=_total(rollups, RunStatus.FAILED),
        runtime=percentiles_of([each.runtimes for each in rollups]),
        wait=percentiles_of([each.waits for each in rollups]),
    )


def _read(store: Store, since: datetime, until: datetime, jobs: Sequence[str]) -> list[Rollup]:
    return store.read_rollups(since=since, until=until, jobs=jobs, limit=ROLLUPS_MAX)


def _group(rollups: Iterable[Rollup], *, by_queue: bool) -> dict[str, list[Rollup]]:
    groups: dict[str, list[Rollup]] = {}
    for each in rollups:
        groups.setdefault(each.queue if by_queue else each.job, []).append(each)
    return groups


def _total(rollups: Iterable[Rollup], status: RunStatus) -> int:
    return sum(each.ended for each in rollups if each.status is status)


def _count_finished(rollups: Iterable[Rollup], *, since: datetime) -> int:
    return sum(
        each.ended
        for each in rollups
        if each.begins_at >= since and each.status is not RunStatus.FAILED
    )
