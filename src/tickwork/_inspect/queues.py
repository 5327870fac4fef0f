"""One queue: how far behind it is, when it will be empty, who serves it, and what holds it up."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tickwork._domain.identity import WorkerId
from tickwork._domain.limits.limits import limit_of_name
from tickwork._domain.runs.status import Phase
from tickwork._inspect.arrivals import Arrivals
from tickwork._inspect.limits import LimitView
from tickwork._inspect.statistics import QueueStatistics
from tickwork._inspect.status import QueueView, WorkerView
from tickwork._stores.contract import AuditEntry, Pause, PauseKind

PAUSE_ACTIONS: Final[Mapping[PauseKind, str]] = {
    PauseKind.QUEUE: "queue.pause",
    PauseKind.JOB: "job.pause",
}


class Backlog(StrEnum):
    """What happens to the runs of a queue that could start."""

    EMPTY = "empty"
    SHRINKS = "shrinks"
    GROWS = "grows"
    PAUSED = "paused"
    UNSERVED = "unserved"  # no live worker takes runs from the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView:
    """A queue or a job that is paused, by whom and why."""

    kind: PauseKind
    name: str
    paused_at: datetime
    until: datetime | None  # null: until it is resumed
    note: str
    actor: str  # who paused it; empty if the audit log does not have it


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWorker:
    """A worker that takes runs from a queue."""

    id: WorkerId
    host: str
    pid: int
    slots: int
    running: int  # of all its queues
    is_silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDetails:
    """A queue with its backlog, its speed, its workers, and its pauses."""

    counts: QueueView
    oldest_due_at: datetime | None  # due time of the ready run that has waited longest
    created_per_minute: float
    created_since: datetime  # in this time: less than five minutes if very many runs arrive
    finished_per_minute: float  # in the last five minutes
    backlog: Backlog
    drain_seconds: float | None  # until no run waits for a worker, if the backlog shrinks
    statistics: QueueStatistics | None  # of the last hour; null if nothing ended
    pauses: list[PauseView]  # of the queue, and of its jobs
    limits: list[LimitView]  # of the queue, and of its jobs
    workers: list[QueueWorker]


def view_queue(
    counts: QueueView,
    *,
    oldest_due_at: datetime | None,
    arrivals: Arrivals,
    statistics: QueueStatistics | None,
    pauses: list[PauseView],
    limits: list[LimitView],
    workers: Sequence[WorkerView],
) -> QueueDetails:
    serving = [each for each in workers if _serves(each, counts.name)]
    out_rate = 0.0 if statistics is None else statistics.finished_per_minute
    in_rate = arrivals.per_minute(counts.name)
    backlog = _judge(
        counts,
        is_served=any(not each.is_silent for each in serving),
        surplus=out_rate - in_rate,
    )
    is_shrinking = backlog is Backlog.SHRINKS and Phase.READY not in counts.capped
    return QueueDetails(
        counts=counts,
        oldest_due_at=oldest_due_at,
        created_per_minute=round(in_rate, 2),
        created_since=arrivals.since,
        finished_per_minute=out_rate,
        backlog=backlog,
        drain_seconds=0.0
        if backlog is Backlog.EMPTY
        else counts.ready / (out_rate - in_rate) * 60
        if is_shrinking
        else None,
        statistics=statistics,
        pauses=pauses,
        limits=limits,
        workers=[
            QueueWorker(
                id=each.id,
                host=each.host,
                pid=each.pid,
                slots=each.slots,
                running=each.running,
                is_silent=each.is_silent,
            )
            for each in serving
        ],
    )


def view_pause(pause: Pause, entries: Sequence[AuditEntry]) -> PauseView:
    """A pause, with the newest of these entries that can have made it."""
    action = PAUSE_ACTIONS[pause.kind]
    # The entry is written just before the pause.
    latest = pause.paused_at + timedelta(seconds=1)
    actor = next(
        (each.actor for each in entries if each.action == action and each.at <= latest), ""
    )
    return PauseView(
        kind=pause.kind,
        name=pause.name,
        paused_at=pause.paused_at,
        until=pause.until,
        note=pause.note,
        actor=actor,
    )


def is_pause_of(pause: PauseView, queue: str, pairs: Collection[tuple[str, str]]) -> bool:
    """Whether a pause holds runs of a queue back; ``pairs`` are queues with their jobs."""
    if pause.kind is PauseKind.QUEUE:
        return pause.name == queue
    return (queue, pause.name) in pairs


def is_limit_of(name: str, queue: str, pairs: Collection[tuple[str, str]]) -> bool:
    """Whether runs of a queue need slots of a limit."""
    return any(
        limit_of_name(name, job=job, queue=queue) is not None
        for other, job in pairs
        if other == queue
    )


def _serves(worker: WorkerView, queue: str) -> bool:
    return not worker.is_draining and (worker.queues is None or queue in worker.queues)


def _judge(counts: QueueView, *, is_served: bool, surplus: float) -> Backlog:
    if not counts.ready:
        return Backlog.EMPTY
    if counts.is_paused:
        return Backlog.PAUSED
    if not is_served:
        return Backlog.UNSERVED
    return Backlog.SHRINKS if surplus > 0 else Backlog.GROWS
