"""Why something has not run.

This module reads the facts from the database; ``_domain.explain`` draws the conclusions.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tickwork._define.registry import Registry
from tickwork._domain.explain import (
    Explanation,
    JobFacts,
    LimitFact,
    PauseFact,
    Refusal,
    RunFacts,
    ScheduleFacts,
    WorkerFact,
    explain_job,
    explain_run,
    explain_schedule,
)
from tickwork._domain.identity import RunId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.limits.debounce import Debounce
from tickwork._domain.limits.limits import limit_of, room_of, slots_in
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import FINAL, Phase, RunStatus
from tickwork._inspect.backlogs import read_pauses
from tickwork._inspect.run_reader import list_without_payloads
from tickwork._inspect.runs import find_run_id
from tickwork._inspect.status import is_silent
from tickwork._inspect.upcoming_firings import is_readable, read_schedule_rows
from tickwork._kernel.clock import Clock
from tickwork._stores.contract import ClaimRequest, JobRow, RunFilter, Store
from tickwork.errors import HandlerNotAllowed, JobNotFound, RunNotFound

HOLDERS_MAX: Final = 10
RUNS_MAX: Final = 3
"""The most unfinished runs that are explained for a job or a schedule."""

SCHEDULES_SHOWN: Final = 5
UNFINISHED_MAX: Final = 1_000
AHEAD_MAX: Final = 200
"""Runs that are counted because they start first. They come with their arguments."""

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_UNFINISHED: Final = frozenset(RunStatus) - FINAL


class Explainer:
    """Explains jobs, schedules and runs from rows alone, for ``app.explain()``."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        registry: Registry,
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._retire_after = retire_after

    def explain(self, what: str, *, tenant: str = "") -> Explanation:
        """Explain a job, a schedule or a run. A name takes precedence over an id.

        Raises:
            JobNotFound: Nothing has that name.
            RunNotFound: ``what`` looks like an id, and no run has it.
            AmbiguousRun: The ids of several runs begin with ``what``.
        """
        schedule = self._store.get_schedule(tenant, what)
        jobs = self._read_job_names()
        if what in jobs:
            return self._explain_job(what)
        if schedule is not None:
            return self.explain_schedule(schedule)
        try:
            run_id = find_run_id(self._store, what)
        except RunNotFound:
            if what[:8].strip("0123456789abcdefABCDEF"):
                rows = self._store.list_schedules(tenant=tenant)
                known = jobs | {row.spec.name for row in rows}
                raise JobNotFound(what, known=known) from None
            raise
        return self.explain_run(run_id)

    def explain_job(self, name: str) -> Explanation:
        """Explain a job.

        Raises:
            JobNotFound: Nothing is known of it.
        """
        known = self._read_job_names()
        if name not in known:
            raise JobNotFound(name, known=known)
        return self._explain_job(name)

    def explain_run(self, run_id: RunId) -> Explanation:
        run = self._store.get_run(run_id)
        if run is None:
            raise RunNotFound(run_id)
        return self._explain_run(run)

    def _explain_run(self, run: Run) -> Explanation:
        now = self._clock.now()
        facts = RunFacts(run=run, now=now)
        if not run.is_finished:
            facts = RunFacts(
                run=run,
                now=now,
                workers=self._read_workers(now),
                refusal=self._find_refusal(run.job),
                pauses=self._read_pauses(now),
                full=self._find_full_limits(run),
                turn=self._store.find_turn(run.id) if run.phase is Phase.BLOCKED else None,
                ahead=self._count_ahead(run, now),
                ahead_max=AHEAD_MAX,
                **self._find_wait(run, now),
                debounce=self._find_debounce(run),
            )
        return Explanation(kind="run", name=run.id, causes=tuple(explain_run(facts)))

    def explain_schedule(self, row: ScheduleRow) -> Explanation:
        now = self._clock.now()
        where = RunFilter(tenant=row.spec.tenant, schedule=row.spec.name)
        unfinished = replace(where, statuses=_UNFINISHED)
        last: list[Run] = []
        if row.last_fired_at is not None:  # otherwise there is no run to search for
            last = self._store.list_runs(replace(where, job=row.spec.job), limit=1).runs
        facts = ScheduleFacts(
            row=row,
            now=now,
            seen_after=now - self._retire_after,
            is_readable=is_readable(row),
            workers=self._read_workers(now),
            refusal=self._find_refusal(row.spec.job),
            last=last[0] if last else None,
            unfinished=self._store.list_runs(unfinished, limit=RUNS_MAX).runs,
        )
        return Explanation(
            kind="schedule",
            name=row.spec.name,
            causes=tuple(explain_schedule(facts)),
            parts=tuple(self._explain_run(run) for run in facts.unfinished),
        )

    def _explain_job(self, name: str) -> Explanation:
        now = self._clock.now()
        definition = self._registry.definitions().get(name)
        name = name if definition is None else definition.name
        rows = [row for row in self._store.list_jobs() if row.name == name]
        schedules = [row for row in read_schedule_rows(self._store) if row.spec.job == name]
        # The earliest due first: an overdue schedule is what the question is about.
        schedules.sort(key=lambda row: (row.next_due_at or _NEVER, row.spec.name))
        open_runs = RunFilter(job=name, statuses=_UNFINISHED)
        runs = list_without_payloads(self._store, open_runs, limit=UNFINISHED_MAX)[::-1]
        dispatched = [run for run in runs if run.schedule is None]
        failing: JobRow | None = max(rows, key=lambda row: row.failures, default=None)
        facts = JobFacts(
            name=name,
            now=now,
            workers=self._read_workers(now),
            refusal=self._find_refusal(name),
            pauses=self._read_pauses(now),
            is_written=bool(rows or schedules or runs),
            has_schedules=bool(schedules),
            has_unfinished=bool(runs),
            failures=failing.failures if failing else 0,
            last_error=failing.last_error if failing else "",
            last_error_at=failing.last_error_at if failing else None,
        )
        parts = [self.explain_schedule(row) for row in schedules[:SCHEDULES_SHOWN]]
        parts += [self._explain_run(run) for run in dispatched[:RUNS_MAX]]
        return Explanation(
            kind="job",
            name=name,
            causes=tuple(explain_job(facts)),
            parts=tuple(parts),
            left_out=len(schedules) + len(dispatched) - len(parts),
        )

    def _read_job_names(self) -> set[str]:
        return {
            *self._registry.definitions(),
            *(row.name for row in self._store.list_jobs()),
            *self._store.scheduled_jobs(),
            *(job for _, job in self._store.ready_pairs()),
        }

    def _read_workers(self, now: datetime) -> list[WorkerFact]:
        return [
            WorkerFact(
                id=row.id,
                host=row.host,
                pid=row.pid,
                beat_at=row.beat_at,
                is_silent=is_silent(row, now),
                queues=row.queues,
                jobs=frozenset(row.jobs),
                slots=row.slots,
                running=row.running,
            )
            for row in self._store.list_workers()
        ]

    def _find_refusal(self, job: str) -> Refusal | None:
        """Why a worker of this program does not run a job that a row names by path."""
        try:
            self._registry.get(job)
        except HandlerNotAllowed as error:
            refused: BaseException | None = error
        except Exception as error:  # noqa: BLE001  # a row may name a module that fails in any way
            refused = (
                error.__cause__
            )  # JobNotFound names a similar job, and the refusal as its cause
        else:
            return None
        if not isinstance(refused, HandlerNotAllowed):
            return None
        return Refusal(f"{refused.what} {refused.why}", refused.fix)

    def _find_debounce(self, run: Run) -> Debounce | None:
        definition = self._registry.definitions().get(run.job)
        return None if definition is None else definition.spec.debounce

    def _find_wait(self, run: Run, now: datetime) -> dict[str, Any]:
        """The step for which the run waits, and the runs that it has called."""
        if run.phase is not Phase.WAITING or not run.was_suspended:
            return {}
        waits = [step for step in self._store.load_steps(run.id) if not step.is_over(now)]
        called = [step.ref for step in waits if step.ref is not None]
        return {"wait": waits[-1] if waits else None, "called": called}

    def _read_pauses(self, now: datetime) -> list[PauseFact]:
        return [
            PauseFact(row.kind.value, row.name, row.note, row.until)
            for row in read_pauses(self._store, now)
        ]

    def _find_full_limits(self, run: Run) -> list[LimitFact]:
        """The limits that the run needs and that have no free slot."""
        keys = slots_in(run.limit_keys)
        if not keys or run.phase is Phase.RUNNING:
            return []
        slots = {row.name: row.in_force for row in self._store.list_limits()}
        taken = self._store.count_taken(keys)
        limits = []
        for key in keys:
            if room_of(key, taken=taken, slots_by_limit=slots) != 0:
                continue
            ids = self._store.slot_holders(key, limit=HOLDERS_MAX + 1)
            if run.id in ids:
                continue  # it keeps its own slot while it waits for its retry
            holders = self._store.get_runs(ids[:HOLDERS_MAX])
            limits.append(
                LimitFact(
                    key,
                    slots.get(limit_of(key), 1),
                    tuple(sorted((each.id, each.job) for each in holders)),
                )
            )
        return limits

    def _count_ahead(self, run: Run, now: datetime) -> int:
        if run.phase is not Phase.READY:
            return 0
        wanted = ClaimRequest(AHEAD_MAX, queues=(run.queue,))
        ready: Sequence[Run] = self._store.due_runs(wanted, now=now)
        ids = [each.id for each in ready]
        return ids.index(run.id) if run.id in ids else len(ids)
