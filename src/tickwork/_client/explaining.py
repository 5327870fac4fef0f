"""Why has it not run? Gathers what rows say; the domain decides what it means."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tickwork._client.inspect import SILENT_AFTER, Inspection
from tickwork._define.registry import Registry
from tickwork._domain.explain import (
    Cause,
    JobFacts,
    LimitFact,
    PauseFact,
    RunFacts,
    ScheduleFacts,
    Why,
    WorkerFact,
    explain_job,
    explain_run,
    explain_schedule,
)
from tickwork._domain.identity import RunId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.limits import limit_of, room_of, slots_in
from tickwork._domain.run import Run
from tickwork._domain.schedules.rules import from_text
from tickwork._domain.status import FINAL, Phase, RunStatus
from tickwork._kernel.clock import Clock
from tickwork.errors import InvalidSchedule, JobNotFound, RunNotFound
from tickwork.stores.contract import JobRow, RunFilter, Store, Wanted

HOLDERS_MAX: Final = 10
RUNS_MAX: Final = 3
"""Unfinished runs of a job, the oldest, that are told about each."""

SCHEDULES_SHOWN: Final = 5
AHEAD_MAX: Final = 1_000
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_UNFINISHED: Final = frozenset(RunStatus) - FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something has not run: about itself, and about its schedules and runs.

    ``kind`` is run, schedule or job. The first cause is the one that decides. Of many
    schedules and runs a few are told about; ``left_out`` is how many are not.
    """

    kind: str
    name: str
    causes: tuple[Cause, ...]
    parts: "tuple[Explanation, ...]" = ()
    left_out: int = 0

    @property
    def reasons(self) -> tuple[Why, ...]:
        """The words of its own causes."""
        return tuple(cause.why for cause in self.causes)


class Explainer:
    """``app.explain(...)``: from rows alone."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        registry: Registry,
        inspection: Inspection,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._inspection = inspection
        self._retire_after = retire_after

    def explain(self, what: str, *, tenant: str = "") -> Explanation:
        """Why a job, a schedule or a run has not run. Names come before ids.

        Raises:
            JobNotFound: Nothing has that name; the close one is suggested.
            RunNotFound: It looks like an id, and no run has it.
            AmbiguousRun: Several runs begin like that.
        """
        schedule = self._store.get_schedule(tenant, what)
        jobs = self._job_names()
        if what in jobs:
            return self._job(what)
        if schedule is not None:
            return self._schedule(schedule)
        try:
            run_id = self._inspection.find(what)
        except RunNotFound:
            if what[:8].strip("0123456789abcdefABCDEF"):
                rows = self._store.list_schedules(tenant=tenant)
                known = jobs | {row.spec.name for row in rows}
                raise JobNotFound(what, known=known) from None
            raise
        return self.run(run_id)

    def run(self, run_id: RunId) -> Explanation:
        """Why one run has not run."""
        run = self._store.get_run(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return self._run(run)

    # ------------------------------------------------------------ gathering

    def _run(self, run: Run) -> Explanation:
        now = self._clock.now()
        facts = RunFacts(run=run, now=now)
        if not run.is_finished:
            facts = RunFacts(
                run=run,
                now=now,
                workers=self._workers(now),
                pauses=self._pauses(now),
                full=self._full(run),
                turn=self._store.find_turn(run.id) if run.phase is Phase.BLOCKED else None,
                ahead=self._ahead(run, now),
            )
        return Explanation(kind="run", name=run.id, causes=tuple(explain_run(facts)))

    def _schedule(self, row: ScheduleRow) -> Explanation:
        now = self._clock.now()
        where = RunFilter(tenant=row.spec.tenant, schedule=row.spec.name)
        unfinished = replace(where, statuses=_UNFINISHED)
        last: list[Run] = []
        if row.last_fired_at is not None:  # otherwise there is none, however long one looks
            last = self._store.list_runs(replace(where, job=row.spec.job), limit=1).runs
        facts = ScheduleFacts(
            row=row,
            now=now,
            seen_after=now - self._retire_after,
            is_readable=_is_readable(row),
            workers=self._workers(now),
            last=last[0] if last else None,
            unfinished=self._store.list_runs(unfinished, limit=RUNS_MAX).runs,
        )
        return Explanation(
            kind="schedule",
            name=row.spec.name,
            causes=tuple(explain_schedule(facts)),
            parts=tuple(self._run(run) for run in facts.unfinished),
        )

    def _job(self, name: str) -> Explanation:
        now = self._clock.now()
        definition = self._registry.definitions().get(name)
        name = name if definition is None else definition.name
        rows = [row for row in self._store.list_jobs() if row.name == name]
        schedules = [row for row in self._inspection.schedule_rows() if row.spec.job == name]
        # Those that should have fired first: they are what somebody asks about.
        schedules.sort(key=lambda row: (row.next_due_at or _NEVER, row.spec.name))
        open_runs = RunFilter(job=name, statuses=_UNFINISHED)
        runs = self._store.list_runs(open_runs, limit=AHEAD_MAX).runs[::-1]
        apart = [run for run in runs if run.schedule is None]
        failing: JobRow | None = max(rows, key=lambda row: row.failures, default=None)
        facts = JobFacts(
            name=name,
            now=now,
            workers=self._workers(now),
            pauses=self._pauses(now),
            is_written=bool(rows or schedules or runs),
            has_schedules=bool(schedules),
            has_unfinished=bool(runs),
            failures=failing.failures if failing else 0,
            last_error=failing.last_error if failing else "",
            last_error_at=failing.last_error_at if failing else None,
        )
        parts = [self._schedule(row) for row in schedules[:SCHEDULES_SHOWN]]
        parts += [self._run(run) for run in apart[:RUNS_MAX]]
        return Explanation(
            kind="job",
            name=name,
            causes=tuple(explain_job(facts)),
            parts=tuple(parts),
            left_out=len(schedules) + len(apart) - len(parts),
        )

    def _job_names(self) -> set[str]:
        return {
            *self._registry.definitions(),
            *(row.name for row in self._store.list_jobs()),
            *self._store.scheduled_jobs(),
            *(job for _, job in self._store.ready_pairs()),
        }

    def _workers(self, now: datetime) -> list[WorkerFact]:
        return [
            WorkerFact(
                id=row.id,
                host=row.host,
                pid=row.pid,
                beat_at=row.beat_at,
                is_silent=now - row.beat_at > SILENT_AFTER,
                queues=row.queues,
                jobs=frozenset(row.jobs),
                slots=row.slots,
                running=row.running,
            )
            for row in self._store.list_workers()
        ]

    def _pauses(self, now: datetime) -> list[PauseFact]:
        return [
            PauseFact(row.kind.value, row.name, row.note, row.until)
            for row in self._store.list_pauses()
            if row.until is None or row.until > now
        ]

    def _full(self, run: Run) -> list[LimitFact]:
        """The limits in its way: those that it needs, and that have no room."""
        keys = slots_in(run.limit_keys)
        if not keys or run.phase is Phase.RUNNING:
            return []
        slots = {row.name: row.in_force for row in self._store.list_limits()}
        taken = self._store.count_taken(keys)
        found = []
        for key in keys:
            if room_of(key, taken=taken, slots_by_limit=slots) != 0:
                continue
            ids = self._store.slot_holders(key, limit=HOLDERS_MAX + 1)
            if run.id in ids:
                continue  # it keeps its own place while it waits for its retry
            holders = self._store.get_runs(ids[:HOLDERS_MAX])
            found.append(
                LimitFact(
                    key,
                    slots.get(limit_of(key), 1),
                    tuple(sorted((each.id, each.job) for each in holders)),
                )
            )
        return found

    def _ahead(self, run: Run, now: datetime) -> int:
        if run.phase is not Phase.READY:
            return 0
        wanted = Wanted(AHEAD_MAX, queues=(run.queue,))
        ready: Sequence[Run] = self._store.due_runs(wanted, now=now)
        ids = [each.id for each in ready]
        return ids.index(run.id) if run.id in ids else len(ids)


def _is_readable(row: ScheduleRow) -> bool:
    try:
        from_text(row.spec.rule)
    except InvalidSchedule:
        return False
    return True
