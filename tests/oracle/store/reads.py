"""Reading and pruning in memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from oracle.store.keys import claim_order, rates_of, taken_by_key
from oracle.store.schedules import delete_schedule
from oracle.store.tables import TableHolder, Tables
from oracle.store.transitions import steps_of
from tickwork._domain.identity import RunId
from tickwork._domain.job import ScheduleOrigin
from tickwork._domain.limits.rates import Turn, is_rate
from tickwork._domain.rollups import ROLLUPS_MAX, Rollup, merge_rollups, with_queues
from tickwork._domain.runs.links import SUSPENDED
from tickwork._domain.runs.retention import EndedRun, HistoryCursor
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase, RunStatus
from tickwork._domain.runs.steps import StepKind, StepState
from tickwork._domain.shared_names import DefinitionRow
from tickwork._kernel.ids import first_id, time_of_id
from tickwork._stores.contract import (
    CountPrecision,
    CreatedRuns,
    Creations,
    Health,
    JobRow,
    OpenWait,
    PauseKind,
    PhaseCounts,
    Pruned,
    RowFault,
    RunCount,
    RunFilter,
    RunPage,
    RunRecord,
    RunSummary,
    ScheduleOutcome,
    SummaryPage,
    TableHealth,
    WaitPage,
)


class OracleReads(TableHolder):
    def get_run(self, run_id: RunId) -> Run | None:
        with self._reading() as tables:
            return tables.runs.get(run_id) or tables.history.get(run_id)

    def get_runs(self, run_ids: Sequence[RunId]) -> list[Run]:
        with self._reading() as tables:
            known = {**tables.history, **tables.runs}
            return [known[run_id] for run_id in set(run_ids) if run_id in known]

    def find_run_ids(self, prefix: str, *, limit: int = 10) -> list[RunId]:
        with self._reading() as tables:
            ids = {*tables.runs, *tables.history}
            return sorted(run_id for run_id in ids if run_id.startswith(prefix.lower()))[:limit]

    def list_runs(
        self,
        where: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        scan_max: int | None = None,
    ) -> RunPage:
        with self._reading() as tables:
            runs = {**tables.history, **tables.runs}
        ids = sorted((run_id for run_id in runs if cursor is None or run_id < cursor), reverse=True)
        by_index = RunFilter()
        if where.schedule is not None and where.tenant is not None:
            by_index = RunFilter(schedule=where.schedule, tenant=where.tenant)
        is_bounded = scan_max is not None and where != by_index and len(ids) > scan_max
        searched_to = ids[scan_max] if is_bounded and scan_max is not None else None
        found = [
            runs[run_id]
            for run_id in ids
            if _fits(runs[run_id], where) and run_id >= (searched_to or "")
        ]
        page = found[:limit]
        if page and len(found) > limit:
            return RunPage(page, page[-1].id)
        return RunPage(page, searched_to, searched_to)

    def list_summaries(self, where: RunFilter, **options: Any) -> SummaryPage:
        page = self.list_runs(where, **options)
        summaries = [
            RunSummary(*(getattr(run, name) for name in RunSummary._fields)) for run in page.runs
        ]
        return SummaryPage(summaries, page.cursor, page.searched_to)

    def count_matches(self, where: RunFilter, *, cap: int, scan_max: int) -> RunCount:
        page = self.list_runs(where, limit=cap, scan_max=scan_max)
        is_exact = page.cursor is None
        precision = CountPrecision.EXACT if is_exact else CountPrecision.AT_LEAST
        return RunCount(len(page.runs), precision)

    def list_outcomes(
        self,
        names: Sequence[tuple[str, str]],
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int,
    ) -> list[ScheduleOutcome]:
        with self._reading() as tables:
            runs = [*tables.runs.values(), *tables.history.values()]
        found: dict[tuple[str, str], list[ScheduleOutcome]] = {}
        for run in sorted(runs, key=lambda run: run.id, reverse=True):
            if run.schedule is None or run.nominal_at is None:
                continue
            at = time_of_id(run.id) if run.is_finished else run.nominal_at
            assert at is not None
            if (since is None or at >= since) and (before is None or at < before):
                found.setdefault((run.tenant, run.schedule), []).append(
                    ScheduleOutcome(
                        run.schedule,
                        run.tenant,
                        run.id,
                        run.status,
                        run.nominal_at,
                        run.instants,
                        run.started_at,
                        run.ended_at,
                    )
                )
        return [
            run
            for name in sorted(set(names), key=lambda name: name[::-1], reverse=True)
            for run in found.get(name, [])[:limit]
        ]

    def list_waiting(
        self,
        *,
        since: datetime,
        until: datetime,
        limit: int,
        job: str | None = None,
        schedule: str | None = None,
    ) -> list[Run]:
        with self._reading() as tables:
            waiting = [run for run in tables.runs.values() if run.phase is Phase.WAITING]
        waiting = [
            run
            for run in waiting
            if since <= run.due_at <= until
            and job in {None, run.job}
            and schedule in {None, run.schedule}
        ]
        return sorted(waiting, key=lambda run: run.due_at)[:limit]

    def list_waits(self, *, after: RunId | None = None, limit: int) -> WaitPage:
        with self._reading() as tables:
            found = sorted(item for item in tables.waits.items() if item[0] > (after or ""))[:limit]
            waits = []
            for run_id, name in found:
                run = tables.runs.get(run_id)
                if run is not None and run.phase is Phase.WAITING:
                    steps = tables.steps.get(run_id, {}).values()
                    since = [
                        step.at
                        for step in steps
                        if step.kind is StepKind.WAIT and step.state is StepState.OPEN
                    ]
                    waits.append(
                        OpenWait(
                            run_id,
                            run.job,
                            run.queue,
                            run.tenant,
                            name.event,
                            name.key,
                            max(since),
                            run.due_at,
                        )
                    )
        return WaitPage(waits, found[-1][0] if len(found) == limit else None)

    def find_callers(self, run_id: RunId, *, limit: int = 10) -> list[RunId]:
        with self._reading() as tables:
            found = [
                caller
                for caller, steps in tables.steps.items()
                if any(step.ref == run_id for step in steps.values())
            ]
        return sorted(found)[:limit]

    def find_retries(self, run_id: RunId, *, limit: int = 10) -> list[RunId]:
        with self._reading() as tables:
            runs = [*tables.runs.values(), *tables.history.values()]
        return sorted(run.id for run in runs if run.retry_of == run_id)[:limit]

    def count_created(self, *, since: datetime, most: int) -> Creations:
        with self._reading() as tables:
            runs = [*tables.runs.values(), *tables.history.values()]
            newest = [sorted(table, reverse=True) for table in (tables.runs, tables.history)]
        floor = max(first_id(since), *(ids[most] for ids in newest if len(ids) > most), "")
        counted = Counter(
            (run.queue, run.created_at.replace(second=0, microsecond=0))
            for run in runs
            if run.id >= floor
        )
        counts = [CreatedRuns(minute, queue, n) for (queue, minute), n in counted.items()]
        return Creations(max(since, time_of_id(floor) or since), counts)

    def oldest_ready(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], datetime]:
        with self._reading() as tables:
            ready = [run for run in tables.runs.values() if run.phase is Phase.READY]
        found: dict[tuple[str, str], datetime] = {}
        for run in ready:
            pair = run.queue, run.job
            if pair in pairs:
                found[pair] = min(run.due_at, found.get(pair, run.due_at))
        return found

    def count_starts(self, since_by_key: Mapping[str, datetime]) -> dict[str, int]:
        with self._reading() as tables:
            rates = rates_of(tables, list(since_by_key))
        return {
            key: sum(at > since for at in rates[key].past.values())
            for key, since in since_by_key.items()
        }

    def run_record(self, run_id: RunId) -> RunRecord | None:
        with self._reading() as tables:
            run = tables.runs.get(run_id) or tables.history.get(run_id)
            if run is None:
                return None
            attempts = list(tables.attempts.get(run_id, ()))
            lines = list(tables.logs.get(run_id, ()))
            return RunRecord(run, attempts, lines, steps_of(tables, run_id))

    def count_runs(self, *, cap: int = 10_000) -> PhaseCounts:
        with self._reading() as tables:
            counted = Counter((run.queue, run.phase) for run in tables.runs.values() if run.phase)
            by_queue: dict[str, dict[Phase, int]] = {}
            for (queue, phase), count in counted.items():
                by_queue.setdefault(queue, {})[phase] = min(count, cap)
            capped = frozenset(key for key, count in counted.items() if count > cap)
            return PhaseCounts(by_queue, cap, capped)

    def count_taken(self, keys: Sequence[str]) -> dict[str, int]:
        with self._reading() as tables:
            taken = taken_by_key(tables)
            return {key: taken[key] for key in keys}

    def slot_holders(self, key: str, *, limit: int = 10) -> list[RunId]:
        with self._reading() as tables:
            return sorted(run_id for run_id, keys in tables.slots.items() if key in keys)[:limit]

    def find_turn(self, run_id: RunId) -> Turn | None:
        with self._reading() as tables:
            run = tables.runs.get(run_id)
            if run is None or run.blocked_on is None or not is_rate(run.blocked_on):
                return None
            key = run.blocked_on
            [rate] = rates_of(tables, [key]).values()
            blocked = (other for other in tables.runs.values() if other.blocked_on == key)
            place = sum(claim_order(other) <= claim_order(run) for other in blocked)
            at = rate.turn_of(place) if rate.starts_max else None
            return None if at is None else Turn(key, rate.starts_max, place, at)

    def list_jobs(self, *, tenant: str | None = None) -> list[JobRow]:
        with self._reading() as tables:
            return [row for _, row in sorted(tables.jobs.items()) if tenant in {None, row.tenant}]

    def list_definitions(self, *, since: datetime) -> list[DefinitionRow]:
        with self._reading() as tables:
            return [row for _, row in sorted(tables.definitions.items()) if row.seen_at >= since]

    def find_faults(self, *, limit: int) -> list[RowFault]:  # part of the contract
        return []

    def health(self) -> Health:
        with self._reading() as tables:
            counts = [(name, len(getattr(tables, name))) for name in ("runs", "history")]
            return Health(
                bytes=0,
                tables=tuple(TableHealth(name, rows, 0, 0) for name, rows in counts),
                outbox_at=time_of_id(min(tables.outbox)) if tables.outbox else None,
            )

    # ------------------------------------------------------------ pruning

    def list_ended(
        self, *, after: HistoryCursor | None, before: datetime, limit: int
    ) -> list[EndedRun]:
        with self._reading() as tables:
            runs = list(tables.history.values())
        found = [
            EndedRun(run.id, run.job, _has_failed(run), run.ended_at, run.result is not None)
            for run in runs
            if run.ended_at is not None and run.ended_at < before
        ]
        found.sort(key=lambda run: (run.ended_at, run.id))
        return [run for run in found if after is None or (run.ended_at, run.id) > after][:limit]

    def delete_runs(self, run_ids: Sequence[RunId]) -> int:
        with self._writing() as tables:
            found = [run_id for run_id in run_ids if run_id in tables.history]
            _delete_runs(tables, found)
            return len(found)

    def clear_results(self, run_ids: Sequence[RunId], *, reason: str) -> int:
        with self._writing() as tables:
            found = [run_id for run_id in run_ids if run_id in tables.history]
            for run_id in found:
                run = tables.history[run_id]
                tables.history[run_id] = replace(run, result=None, reason=reason)
            return len(found)

    def read_rollups(
        self, *, since: datetime, until: datetime, jobs: Sequence[str], limit: int = ROLLUPS_MAX
    ) -> list[Rollup]:
        with self._reading() as tables:
            counted = with_queues(tables.ended.values())
            found = [one for one in counted if since <= one.begins_at < until and one.job in jobs]
            return merge_rollups(found)

    def compact_rollups(self, *, now: datetime, limit: int) -> int:  # it keeps every minute
        return 0

    def prune_keys(self, *, before: datetime, limit: int) -> None:  # all at once
        with self._writing() as tables:
            _prune_keys(tables, before=before)

    def prune(self, *, before: datetime, limit: int, with_definitions: bool = True) -> Pruned:
        with self._writing() as tables:
            runs = _prune_history(tables, before=before, limit=limit)
            if not with_definitions:
                return Pruned(runs, 0, 0)
            for key, definition in list(tables.definitions.items()):
                if definition.seen_at < before:
                    del tables.definitions[key]
            jobs = _prune_jobs(tables, before=before, limit=limit)
            schedules = _prune_schedules(tables, before=before, limit=limit)
            return Pruned(runs, jobs, schedules)


def _prune_history(tables: Tables, *, before: datetime, limit: int) -> int:
    ended = sorted(
        (run.ended_at, run_id)
        for run_id, run in tables.history.items()
        if run.ended_at is not None and run.ended_at < before
    )
    _prune_keys(tables, before=before)
    _delete_runs(tables, [run_id for _, run_id in ended[:limit]])
    return len(ended[:limit])


def _has_failed(run: Run) -> bool:
    return run.status is RunStatus.FAILED_PERMANENT


def _prune_keys(tables: Tables, *, before: datetime) -> None:
    for key, held in list(tables.uniques.items()):
        if held.until is not None and held.until < before:
            del tables.uniques[key]  # its window has passed
    for key, request in list(tables.requests.items()):
        if request.until < before:
            del tables.requests[key]
    for key, rate in list(tables.rates.items()):
        if rate.is_idle(before=before):
            del tables.rates[key]
    for name, event in list(tables.events.items()):
        if event.until < before:
            del tables.events[name]


def _delete_runs(tables: Tables, run_ids: Sequence[RunId]) -> None:
    for run_id in run_ids:
        del tables.history[run_id]
        tables.attempts.pop(run_id, None)
        tables.logs.pop(run_id, None)
        tables.steps.pop(run_id, None)


def _prune_jobs(tables: Tables, *, before: datetime, limit: int) -> int:
    in_use = {(run.tenant, run.job) for run in tables.runs.values()}
    # Programs define jobs without a tenant, so only the row without a tenant is stamped.
    seen = {row.name for row in tables.jobs.values() if not _is_past(row.seen_at, before)}
    gone = [
        name
        for name, row in sorted(tables.jobs.items())
        if row.name not in seen
        and _is_past(row.last_run_at, before)
        and name not in in_use
        and (PauseKind.JOB, row.name) not in tables.pauses
    ]
    for name in gone[:limit]:
        del tables.jobs[name]
    return len(gone[:limit])


def _prune_schedules(tables: Tables, *, before: datetime, limit: int) -> int:
    gone = [
        schedule_id
        for schedule_id, row in sorted(tables.schedules.items())
        if row.spec.origin is ScheduleOrigin.CODE
        and _is_past(row.seen_at, before)
        and not row.is_paused
        and not tables.unfinished_of(row.spec.tenant, row.spec.name)
    ]
    for schedule_id in gone[:limit]:
        delete_schedule(tables, schedule_id)
    return len(gone[:limit])


def _is_past(moment: datetime | None, before: datetime) -> bool:
    return moment is None or moment < before


# ---------------------------------------------------------------- lists


def _is_later(run: Run, since: datetime) -> bool:
    return run.attempt > 0 if run.ended_at is None else run.ended_at >= since


def _is_suspended(run: Run) -> bool:
    is_waiting = run.phase is Phase.WAITING and run.status is RunStatus.PENDING
    return is_waiting and bool(run.links & SUSPENDED)


def _fits(run: Run, where: RunFilter) -> bool:
    return (
        where.tenant in {None, run.tenant}
        and where.job in {None, run.job}
        and where.queue in {None, run.queue}
        and (not where.statuses or run.status in where.statuses)
        and where.schedule in {None, run.schedule}
        and (where.tag is None or where.tag in run.tags)
        and (where.since is None or run.created_at >= where.since)
        and (where.before is None or run.created_at < where.before)
        and (where.ended_since is None or _is_later(run, where.ended_since))
        and where.is_retry in {None, run.retry_of is not None}
        and where.worker in {None, run.worker}
        and not (where.is_suspended and not _is_suspended(run))
    )
