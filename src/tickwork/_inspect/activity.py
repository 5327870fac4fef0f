"""How fast runs arrive and finish, measured on the newest ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tickwork._domain.status import FINAL, RunStatus
from tickwork.stores.contract import ClaimRequest, RunFilter, RunSummary, Store

SAMPLE_MAX: Final = 1_000
"""The newest runs that are read. A busy database finishes them within seconds."""

MINUTES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Seconds that half, 95 % and 99 % of the runs stayed below."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteCounts:
    """The runs of the sample that were created and that ended in one minute."""

    at: datetime
    created: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The rates and delays of the newest runs, at most a thousand, and of the last hour."""

    now: datetime
    since: datetime  # the sample is complete from here on
    created_per_minute: float
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
    begin = now - timedelta(minutes=MINUTES)
    # Without a condition on the time: with few new runs it would read the whole history.
    created = store.list_summaries(RunFilter(), limit=SAMPLE_MAX).runs
    finished = store.list_summaries(RunFilter(statuses=FINAL), limit=SAMPLE_MAX).runs
    since = begin
    for sample in (created, finished):
        if len(sample) == SAMPLE_MAX:
            since = max(since, min(run.created_at for run in sample))
    created = [run for run in created if run.created_at >= since]
    ended = [run for run in finished if run.created_at >= since and run.ended_at is not None]
    minutes = max((now - since).total_seconds() / 60, 1 / 60)
    counted = [run for run in ended if run.status is not RunStatus.SKIPPED]
    completed = sum(run.status is RunStatus.COMPLETED for run in counted)
    failed = sum(run.status is RunStatus.FAILED_PERMANENT for run in counted)
    in_rate, out_rate = len(created) / minutes, len(ended) / minutes
    waiting = store.due_runs(ClaimRequest(1), now=now) if ready else []
    surplus = out_rate - in_rate
    return Activity(
        now=now,
        since=since,
        created_per_minute=round(in_rate, 2),
        finished_per_minute=round(out_rate, 2),
        completed=completed,
        failed=failed,
        success_share=completed / (completed + failed) if completed + failed else None,
        wait=_percentiles([run.started_at - run.due_at for run in ended if run.started_at]),
        runtime=_percentiles(
            [run.ended_at - run.started_at for run in ended if run.started_at and run.ended_at]
        ),
        oldest_ready_at=min((run.due_at for run in waiting), default=None),
        ready=ready,
        drain_seconds=0.0 if not waiting else ready / surplus * 60 if surplus > 0 else None,
        minutes=_count_minutes(created, ended, now=now),
    )


def _percentiles(lengths: Sequence[timedelta]) -> Percentiles | None:
    found = sorted(max(length.total_seconds(), 0.0) for length in lengths)
    if not found:
        return None
    p50, p95, p99 = (
        found[min(int(len(found) * share), len(found) - 1)] for share in (0.5, 0.95, 0.99)
    )
    return Percentiles(p50=p50, p95=p95, p99=p99)


def _count_minutes(
    created: Sequence[RunSummary], ended: Sequence[RunSummary], *, now: datetime
) -> list[MinuteCounts]:
    last = now.replace(second=0, microsecond=0)
    arrivals = Counter(run.created_at.replace(second=0, microsecond=0) for run in created)
    ends = Counter(
        (run.ended_at.replace(second=0, microsecond=0), run.status)
        for run in ended
        if run.ended_at is not None
    )
    found = []
    for back in range(MINUTES - 1, -1, -1):
        at = last - timedelta(minutes=back)
        found.append(
            MinuteCounts(
                at=at,
                created=arrivals[at],
                completed=ends[at, RunStatus.COMPLETED],
                failed=ends[at, RunStatus.FAILED_PERMANENT],
            )
        )
    return found
