"""The outcomes of a schedule: its last runs, and its days over months."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Final, TypeAlias

from tickwork._domain.rollups import hour_of
from tickwork._stores.contract import ScheduleOutcome, Store

LAST: Final = 30
"""How many runs of each schedule a list shows."""

READ_MAX: Final = 20_000
"""The most runs that are read for the days of one schedule, or of all of a calendar."""

LEAST: Final = 100
"""How many of them each schedule of a calendar gets at least."""

ScheduleKey: TypeAlias = tuple[str, str]
"""The tenant and the name of a schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOutcomes:
    """How many instants of a day came to which end."""

    day: date
    runs: Mapping[str, int]  # instants by the status of their runs


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeDays:
    """The outcomes of a schedule by day, in a time zone."""

    zone: str
    days: list[DayOutcomes]  # the earliest first; those without runs are left out
    begins_at: datetime
    complete_since: datetime  # days before this one are not complete: there are too many runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFirings:
    """The past runs of several schedules in a span of time."""

    runs: list[ScheduleOutcome]
    cut: Mapping[ScheduleKey, datetime]  # of schedules with too many: since when all were read


def last_outcomes(
    store: Store, names: Sequence[ScheduleKey], *, limit: int = LAST
) -> dict[ScheduleKey, list[ScheduleOutcome]]:
    """The last runs of each schedule, the oldest first."""
    outcomes_by_schedule: dict[ScheduleKey, list[ScheduleOutcome]] = {name: [] for name in names}
    for each in store.list_outcomes(names, limit=limit):
        outcomes_by_schedule[each.tenant, each.schedule].insert(0, each)
    return outcomes_by_schedule


def count_days(store: Store, name: ScheduleKey, *, since: datetime, zone: tzinfo) -> OutcomeDays:
    """Count the outcomes of a schedule by the days of a time zone."""
    runs = store.list_outcomes([name], since=since, limit=READ_MAX)
    complete_since = since
    if len(runs) == READ_MAX:
        complete_since = hour_of(min(run.nominal_at for run in runs)) + timedelta(days=1)
    by_day: dict[date, Counter[str]] = {}
    for run in runs:
        if run.nominal_at >= since:
            day = run.nominal_at.astimezone(zone).date()
            by_day.setdefault(day, Counter())[run.status.value] += run.instants
    return OutcomeDays(
        zone=str(zone),
        days=[DayOutcomes(day=day, runs=counts) for day, counts in sorted(by_day.items())],
        begins_at=since,
        complete_since=complete_since,
    )


def past_firings(
    store: Store, names: Sequence[ScheduleKey], *, since: datetime, before: datetime
) -> PastFirings:
    """Read the runs of schedules whose instants are in a span of time.

    A backfill may have made some of them later. They are missing only if there are too many runs.
    """
    limit = max(READ_MAX // max(len(names), 1), LEAST)
    outcomes_by_schedule = _group(store.list_outcomes(names, since=since, limit=limit))
    full = [name for name, runs in outcomes_by_schedule.items() if len(runs) >= limit]
    if full:
        outcomes_by_schedule |= _group(
            store.list_outcomes(full, since=since, before=before, limit=limit)
        )
    cut = {
        name: min(run.nominal_at for run in outcomes_by_schedule[name])
        for name in full
        if len(outcomes_by_schedule[name]) >= limit
    }
    runs = [
        run
        for each in outcomes_by_schedule.values()
        for run in each
        if since <= run.nominal_at < before
    ]
    return PastFirings(runs=runs, cut=cut)


def _group(runs: Iterable[ScheduleOutcome]) -> dict[ScheduleKey, list[ScheduleOutcome]]:
    outcomes_by_schedule: dict[ScheduleKey, list[ScheduleOutcome]] = {}
    for run in runs:
        outcomes_by_schedule.setdefault((run.tenant, run.schedule), []).append(run)
    return outcomes_by_schedule
