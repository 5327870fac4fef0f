"""What runs in a span of time: firings of schedules, delayed runs, and retries."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from tickwork._domain.identity import RunId
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.upcoming_firings import Firing, UpcomingFirings

ENTRIES_MAX: Final = 1_000
LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)


class AgendaKind(StrEnum):
    """Why a run will start."""

    FIRING = "firing"
    DELAYED = "delayed"
    RETRY = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgendaEntry:
    """Something that is due in a span of time."""

    at: datetime
    kind: AgendaKind
    job: str
    tenant: str
    schedule: str | None
    run: RunId | None  # null for a firing: its run does not exist yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingRuns(UpcomingFirings):
    """The next firings, the runs that are due later, and how many schedules have no firing."""

    runs: list[AgendaEntry]  # delayed runs and retries, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What is due in a span of time, in order."""

    since: datetime
    until: datetime  # earlier than requested if there is more
    entries: list[AgendaEntry]
    has_more: bool


def build_agenda(
    firings: list[Firing], runs: list[Run], *, since: datetime, until: datetime, limit: int
) -> Agenda:
    """Merge firings with waiting runs; each list has one more than the limit, if it has more."""
    entries = [
        AgendaEntry(
            at=each.at,
            kind=AgendaKind.FIRING,
            job=each.job,
            tenant=each.tenant,
            schedule=each.schedule,
            run=None,
        )
        for each in firings
        if each.at >= since
    ]
    entries += map(_entry_of, runs)
    entries.sort(key=lambda each: (each.at, each.job, each.schedule or "", each.run or ""))
    has_more = len(entries) > limit
    shown = entries[:limit]
    return Agenda(
        since=since,
        until=shown[-1].at if has_more else until,
        entries=shown,
        has_more=has_more,
    )


def merge_coming(upcoming: UpcomingFirings, runs: list[Run], *, limit: int) -> ComingRuns:
    """The first firings and waiting runs, ``limit`` in all."""
    times = sorted([each.at for each in upcoming.firings] + [run.due_at for run in runs])
    last = times[limit - 1] if len(times) > limit else LATEST
    firings = [each for each in upcoming.firings if each.at <= last][:limit]
    waiting = [_entry_of(run) for run in runs if run.due_at <= last][: limit - len(firings)]
    return ComingRuns(
        now=upcoming.now,
        firings=firings,
        paused=upcoming.paused,
        retired=upcoming.retired,
        finished=upcoming.finished,
        runs=waiting,
    )


def _entry_of(run: Run) -> AgendaEntry:
    return AgendaEntry(
        at=run.due_at,
        kind=AgendaKind.RETRY if run.status is RunStatus.FAILED else AgendaKind.DELAYED,
        job=run.job,
        tenant=run.tenant,
        schedule=run.schedule,
        run=run.id,
    )
