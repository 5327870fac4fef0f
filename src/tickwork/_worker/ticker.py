"""Fires schedules: reads due ones, plans their runs and writes them, in one transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from tickwork._domain.job import JobSpec, ScheduleOrigin, ScheduleRow
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.tick import TickPlan, keys_wanted, plan_tick
from tickwork._kernel.clock import Clock
from tickwork.stores.contract import ScheduleStore

SCHEDULES_MAX: Final = 2_000
"""The most schedules that one transaction fires; the others stay due for the next one."""

RETIRE_AFTER: Final = timedelta(days=7)
"""How long a schedule defined in code still fires after a program last registered it."""


class Ticker:
    """Fires the due schedules of jobs that this process knows. Any number of tickers may run."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        clock: Clock,
        specs: Callable[[], Mapping[str, JobSpec]],
        retire_after: timedelta = RETIRE_AFTER,
    ) -> None:
        self._store = store
        self._clock = clock
        self._specs = specs
        self._retire_after = retire_after

    def tick(self) -> TickPlan:
        """Fire at most :data:`SCHEDULES_MAX` due schedules, in one transaction."""
        jobs = self._specs()
        now = self._clock.now()

        def keys_of(due: Sequence[ScheduleRow]) -> Collection[str]:
            return keys_wanted(due, now=now, jobs=jobs)

        def plan(due: Sequence[ScheduleRow], taken: Collection[str]) -> TickPlan:
            return plan_tick(due, now=now, jobs=jobs, rule_of=rule_of, taken=taken)

        return self._store.fire(
            now=now,
            limit=SCHEDULES_MAX,
            jobs=jobs.keys(),
            keys_of=keys_of,
            plan=plan,
            seen_after=now - self._retire_after,
        )

    def next_at(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next schedule of a known job is due.

        With ``after``, schedules that are due earlier do not count: the caller could not fire
        them. All schedules are read then.
        """
        jobs, seen_after = self._specs().keys(), self._clock.now() - self._retire_after
        if after is None:
            return self._store.next_firing_at(jobs=jobs, seen_after=seen_after)
        found: list[datetime] = []
        last: tuple[str, str] | None = None
        rows = self._store.list_schedules(limit=SCHEDULES_MAX)
        while rows:
            found += [
                row.next_due_at
                for row in rows
                if row.spec.job in jobs
                and row.next_due_at is not None
                and row.next_due_at > after
                and (not row.is_paused or row.paused_until is not None)
                and (row.spec.origin is not ScheduleOrigin.CODE or _is_seen(row, since=seen_after))
            ]
            if len(rows) < SCHEDULES_MAX:
                break  # without another query: a last name that is not Unicode is no cursor
            last = rows[-1].spec.tenant, rows[-1].spec.name
            rows = self._store.list_schedules(after=last, limit=SCHEDULES_MAX)
        return min(found, default=None)


def _is_seen(row: ScheduleRow, *, since: datetime) -> bool:
    return row.seen_at is not None and row.seen_at >= since


def rule_of(row: ScheduleRow) -> Schedule:
    return _rule(row.spec.rule)


@lru_cache(maxsize=20_000)
def _rule(text: str) -> Schedule:
    return from_text(text)
