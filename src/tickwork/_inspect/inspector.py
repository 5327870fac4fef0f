"""``app.inspect``: answers questions about the state of one database."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from tickwork._control.catalog import Catalog
from tickwork._define.registry import Registry
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.error_groups import group_of_error
from tickwork._domain.explain import Explanation
from tickwork._domain.health import Check
from tickwork._domain.identity import RunId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.runs.run import Run
from tickwork._domain.runs.status import Phase
from tickwork._domain.runs.steps import Step
from tickwork._domain.schedules.zones import Zone
from tickwork._inspect.activity import Activity, read_activity
from tickwork._inspect.agenda import (
    ENTRIES_MAX,
    LATEST,
    Agenda,
    ComingRuns,
    build_agenda,
    merge_coming,
)
from tickwork._inspect.alerts import AlertFinder, AlertReport, EndedAlerts, OpenAlert
from tickwork._inspect.arrivals import read_arrivals
from tickwork._inspect.backlogs import read_oldest, read_pauses
from tickwork._inspect.deploys import Changes, Deploy, list_changes, list_deploys
from tickwork._inspect.error_groups import ErrorGroups, group_errors
from tickwork._inspect.explain import Explainer
from tickwork._inspect.limits import LimitView, view_limits
from tickwork._inspect.outcomes import (
    OutcomeDays,
    PastFirings,
    count_days,
    last_outcomes,
    past_firings,
)
from tickwork._inspect.queues import (
    PauseView,
    QueueDetails,
    is_limit_of,
    is_pause_of,
    view_pause,
    view_queue,
)
from tickwork._inspect.run_search import (
    COUNTED_MAX,
    SCAN_MAX,
    RunList,
    RunMatches,
    RunOrder,
    RunSearch,
    find_matches,
    list_newest,
    list_runs,
    parse_argument,
)
from tickwork._inspect.runs import (
    DispatchedRunView,
    RunDetails,
    RunPresenter,
    RunView,
    SubRunView,
    find_run_id,
)
from tickwork._inspect.schedule_details import ScheduleDetails, view_details
from tickwork._inspect.statistics import (
    JobStatistics,
    QueueStatistics,
    StatisticsHistory,
    read_history,
    read_job_statistics,
    read_queue_statistics,
)
from tickwork._inspect.status import (
    QueueStatus,
    Status,
    WorkerView,
    no_runs,
    read_queues,
    read_status,
    view_queues,
    view_worker,
)
from tickwork._inspect.upcoming_firings import (
    ActiveSchedule,
    UpcomingFirings,
    active_schedules,
    read_schedule_rows,
    upcoming_firings,
)
from tickwork._inspect.waits import WaitList, list_waits
from tickwork._kernel.clock import Clock
from tickwork._payload.codec import decode
from tickwork._stores.contract import (
    LimitRow,
    Pause,
    PauseKind,
    RunCount,
    RunFilter,
    ScheduleOutcome,
    Store,
)
from tickwork.errors import RunNotFound, ScheduleNotFound

PAUSES_READ: Final = 20
"""The newest entries of the audit log in which the user is found who paused something."""


FIRINGS_READ: Final = 50
"""The most firings that are read to find schedules that are late."""


class Inspector:
    """Reads the state of one database, together with what this program defines."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        registry: Registry,
        catalog: Catalog,
        redact: tuple[str, ...],
        retire_after: timedelta,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._catalog = catalog
        self._presenter = RunPresenter(registry, redact)
        self._retire_after = retire_after
        self._alerts = AlertFinder(
            store=store,
            clock=clock,
            read_status=partial(self.status, cap=COUNTED_MAX),
            read_due=lambda now: self.upcoming(limit=FIRINGS_READ, until=now),
        )
        self._explainer = Explainer(
            store=store, clock=clock, registry=registry, retire_after=retire_after
        )

    def status(self, *, cap: int = 10_000) -> Status:
        """Read jobs, unfinished runs, schedules, workers and pauses.

        At most ``cap`` runs of each phase are counted.
        """
        now = self._clock.now()
        return read_status(
            self._store,
            self._registry,
            self._catalog,
            now=now,
            seen_after=now - self._retire_after,
            cap=cap,
        )

    def find_alerts(self, checks: Sequence[Check]) -> list[OpenAlert]:
        """Find what needs a person now, the worst first, with the results of the health checks.

        What begins and what ends is added to the history of alerts.
        """
        return self._alerts.find(checks)

    def ended_alerts(self, *, cursor: str | None = None, limit: int = 50) -> EndedAlerts:
        """Read one page of the alerts that ended, the last end first."""
        return self._alerts.list_ended(cursor=cursor, limit=limit)

    def alerts(
        self, checks: Sequence[Check], *, cursor: str | None = None, limit: int = 50
    ) -> AlertReport:
        """Find what needs a person now, and read one page of what ended before."""
        found = self.find_alerts(checks)
        page = self.ended_alerts(cursor=cursor, limit=limit)
        return AlertReport(alerts=found, ended=page.ended, cursor=page.cursor)

    def queues(self) -> QueueStatus:
        """Read the queues, the age of the oldest run in each, and the number of workers."""
        return read_queues(self._store, now=self._clock.now())

    def activity(self, *, ready: int | None = None) -> Activity:
        """Measure how fast runs arrive and finish: each minute of the last hour.

        ``ready`` is the number of ready runs, if it was counted before.
        """
        if ready is None:
            ready = self._store.count_runs().by_phase.get(Phase.READY, 0)
        return read_activity(self._store, now=self._clock.now(), ready=ready)

    def job_statistics(self, jobs: Sequence[str] | None = None) -> list[JobStatistics]:
        """Read how many attempts ended in the last 24 hours, and how long they took.

        ``jobs`` are names; all jobs that the program defines unless given, at most 200.
        """
        names = sorted(self._registry.job_names()) if jobs is None else jobs
        return read_job_statistics(self._store, names, now=self._clock.now())

    def queue_statistics(self) -> list[QueueStatistics]:
        """Read how many attempts of each queue ended in the last hour."""
        return read_queue_statistics(self._store, now=self._clock.now())

    def job_history(self, job: str, *, days: int = 1) -> StatisticsHistory:
        """Read the runtimes and waits of a job over time, beside those of a week before."""
        return read_history(self._store, job=job, now=self._clock.now(), days=days)

    def queue_history(self, queue: str, *, days: int = 1) -> StatisticsHistory:
        """Read the runtimes and waits in a queue over time, beside those of a week before."""
        return read_history(self._store, queue=queue, now=self._clock.now(), days=days)

    def queue_details(self, names: Sequence[str] | None = None) -> list[QueueDetails]:
        """Read how far behind queues are: those with runs or pauses, or these.

        With the age of the oldest run, what arrives and ends in a minute, when the queue will be
        empty, its workers, and who paused it.
        """
        now = self._clock.now()
        pauses = read_pauses(self._store, now)
        counts = view_queues(self._store.count_runs(), pauses)
        if names is not None:
            by_name = {each.name: each for each in counts}
            counts = [by_name.get(name) or no_runs(name) for name in dict.fromkeys(names)]
        oldest = read_oldest(self._store, now=now, is_paused_too=True)
        arrivals = read_arrivals(self._store, now=now)
        statistics = {each.name: each for each in self.queue_statistics()}
        workers = self.workers()
        views = [self._view_pause(pause) for pause in pauses]
        limits = self.limits()
        pairs = {
            *self._store.ready_pairs(),
            *((each.spec.queue, each.name) for each in self._registry.definitions().values()),
        }
        return [
            view_queue(
                each,
                oldest_due_at=oldest.get(each.name),
                arrivals=arrivals,
                statistics=statistics.get(each.name),
                pauses=[view for view in views if is_pause_of(view, each.name, pairs)],
                limits=[one for one in limits if is_limit_of(one.name, each.name, pairs)],
                workers=workers,
            )
            for each in counts
        ]

    def knows_queue(self, name: str) -> bool:
        """Whether a program, a worker, a run or a pause names this queue."""
        known = self._registry.queues | {
            each.spec.queue for each in self._registry.definitions().values()
        }
        return (
            name in known
            or name in self._store.count_runs(cap=1).by_queue
            or any(name in (row.queues or ()) for row in self._store.list_workers())
            or any(each.name == name for each in self.queue_statistics())
            or any(
                (each.kind, each.name) == (PauseKind.QUEUE, name)
                for each in self._store.list_pauses()
            )
            or any(
                row.name.partition(":")[2] == name and "queue" in row.name.partition(":")[0]
                for row in self._store.list_limits()
            )
        )

    def deploys(self) -> list[Deploy]:
        """List when workers of new versions of the application have started, newest first."""
        return list_deploys(self._store)

    def changes(self, *, since: datetime | None = None) -> Changes:
        """List what people and programs changed: since the newest deploy, or since an instant."""
        return list_changes(self._store, since=since, now=self._clock.now())

    def pauses(self) -> list[PauseView]:
        """The queues and jobs that are paused now, by whom and why."""
        return [self._view_pause(each) for each in read_pauses(self._store, self._clock.now())]

    def _view_pause(self, pause: Pause) -> PauseView:
        subject = f"{pause.kind.value}/{pause.name}"
        return view_pause(pause, self._store.list_audit(subject=subject, limit=PAUSES_READ))

    def fingerprint(self) -> str:
        """A short text that changes when runs are added, start or end, or when someone acts.

        It is cheap to read.
        """
        newest = self._store.list_runs(RunFilter(), limit=1).runs
        counts = self._store.count_runs(cap=1_000).by_phase
        shown = [f"{run.id} {run.status} {run.attempt}" for run in newest]
        workers = self._store.list_workers()
        running = sum(worker.running for worker in workers)
        # Pauses are also made where nothing is audited; other acts have an entry.
        shown += [f"{each.kind} {each.name} {each.paused_at}" for each in self._store.list_pauses()]
        shown += [entry.id for entry in self._store.list_audit(limit=1)]
        return " ".join([*shown, *map(str, counts.values()), str(len(workers)), str(running)])

    def list_runs(  # the parameters of a page
        self,
        where: RunFilter,
        *,
        text: str = "",
        args: Sequence[str] = (),
        error: str = "",
        longer: timedelta | None = None,
        order: RunOrder = RunOrder.NEWEST,
        cursor: str | None = None,
        limit: int = 50,
        has_total: bool = False,
    ) -> RunList:
        """List one page of runs, newest first.

        With ``text``, those that contain it in their id, job, target, arguments or error; with
        ``args``, those whose arguments have these values: ``customer=42``, or
        ``address.city=Bern``; with ``error``, those whose error has this text, whatever the
        numbers and names in it are; with ``longer``, those that took at least that long. Secrets
        are not searched. A page reads a bounded number of runs, and states how far it has
        searched; another ``order`` is that of the runs it has read. It has fewer than ``limit``
        if their arguments and results are large; its cursor is that of the next page.

        Raises:
            InvalidOption: One of ``args`` has no name or no equals sign.
        """
        return list_runs(
            self._store,
            self._presenter,
            where,
            search=_search_for(text, args, error=error, longer=longer, order=order),
            cursor=cursor,
            limit=limit,
            has_total=has_total,
        )

    def find_matches(
        self,
        where: RunFilter,
        *,
        text: str = "",
        args: Sequence[str] = (),
        error: str = "",
        longer: timedelta | None = None,
        limit: int,
    ) -> RunMatches:
        """Find the ids of the runs that a search of :meth:`list_runs` finds."""
        search = _search_for(text, args, error=error, longer=longer)
        return find_matches(self._store, self._presenter, where, search=search, limit=limit)

    def list_newest(self, *, limit: int) -> list[RunView]:
        """List the newest runs, without arguments, results and progress."""
        return list_newest(self._store, self._presenter, limit=limit)

    def count_runs(
        self, where: RunFilter, *, cap: int = COUNTED_MAX, scan_max: int = SCAN_MAX
    ) -> RunCount:
        """Count the runs that match: exactly if they are few, else up to a limit.

        At most ``scan_max`` rows of each table are read.
        """
        return self._store.count_matches(where, cap=cap, scan_max=scan_max)

    def error_groups(self, where: RunFilter) -> ErrorGroups:
        """Group the failed runs that match by their error."""
        # With a backlog, a run that fails now was created long ago.
        failed = replace(where, since=None, ended_since=where.since)
        return group_errors(self._store, self._presenter, failed)

    def limits(self) -> list[LimitView]:
        """List concurrency and rate limits, and the runs that hold their slots."""
        return view_limits(self._store, self._store.list_limits(), now=self._clock.now())

    def view_dispatched(self, handle: RunHandle[Any]) -> DispatchedRunView:
        """A run that was dispatched or retried."""
        return DispatchedRunView(
            is_new=handle.is_new, is_replaced=handle.is_replaced, run=self.view(handle.read())
        )

    def view_limit(self, row: LimitRow) -> LimitView:
        """A limit with the runs that hold its slots."""
        [view] = view_limits(self._store, [row], now=self._clock.now())
        return view

    def workers(self) -> list[WorkerView]:
        """List worker processes, the latest heartbeat first."""
        now = self._clock.now()
        return [view_worker(row, now) for row in self._store.list_workers()]

    def upcoming(
        self,
        *,
        limit: int,
        until: datetime | None = None,
        schedule: str | None = None,
        job: str | None = None,
    ) -> UpcomingFirings:
        """List the next firings, in order: of all schedules, of one, or of those of one job."""
        now = self._clock.now()
        seen_after = now - self._retire_after
        rows = list(read_schedule_rows(self._store))
        active = [
            each
            for each in active_schedules(rows, self._catalog, now=now, seen_after=seen_after)
            if schedule in {None, each.spec.name} and job in {None, each.spec.job}
        ]
        return upcoming_firings(
            rows, active, now=now, seen_after=seen_after, limit=limit, until=until
        )

    def agenda(
        self, *, until: datetime, since: datetime | None = None, limit: int = ENTRIES_MAX
    ) -> Agenda:
        """List what is due in a span of time: firings, delayed runs and retries, in order."""
        now = self._clock.now()
        begin = max(since or now, now)
        rows = list(read_schedule_rows(self._store))
        seen_after = now - self._retire_after
        active = active_schedules(rows, self._catalog, now=now, seen_after=seen_after)
        upcoming = upcoming_firings(
            rows,
            active,
            now=now,
            seen_after=seen_after,
            since=begin,
            limit=limit + 1,
            until=until,
        )
        runs = self._store.list_waiting(since=begin, until=until, limit=limit + 1)
        return build_agenda(upcoming.firings, runs, since=begin, until=until, limit=limit)

    def coming(
        self,
        *,
        limit: int,
        until: datetime | None = None,
        schedule: str | None = None,
        job: str | None = None,
    ) -> ComingRuns:
        """List what runs next, in order: firings, delayed runs and retries, ``limit`` in all.

        Of all schedules and jobs, of one schedule, or of one job.
        """
        upcoming = self.upcoming(limit=limit, until=until, schedule=schedule, job=job)
        runs = self._store.list_waiting(
            since=upcoming.now,
            until=LATEST if until is None else until,
            limit=limit,
            job=job,
            schedule=schedule,
        )
        return merge_coming(upcoming, runs, limit=limit)

    def last_outcomes(
        self, names: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], list[ScheduleOutcome]]:
        """Read the last 30 runs of each (tenant, schedule), the oldest first."""
        return last_outcomes(self._store, names)

    def outcome_days(
        self, name: str, *, tenant: str = "", days: int = 182, zone: str | None = None
    ) -> OutcomeDays:
        """Count the outcomes of the instants of a schedule on each day, in its own time zone.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        spec = self._find_schedule(name, tenant).spec
        chosen = Zone.named(zone or spec.zone).info
        now = self._clock.now().astimezone(chosen)
        first = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
        return count_days(self._store, (tenant, name), since=first.astimezone(UTC), zone=chosen)

    def past_firings(
        self, names: Sequence[tuple[str, str]], *, since: datetime, before: datetime
    ) -> PastFirings:
        """Read the runs of each (tenant, schedule) whose instants are in a span of time."""
        return past_firings(self._store, names, since=since, before=before)

    def active_schedules(self) -> list[ActiveSchedule]:
        """List the schedules that will fire: in the database, or only in code so far."""
        now = self._clock.now()
        rows = read_schedule_rows(self._store)
        return active_schedules(rows, self._catalog, now=now, seen_after=now - self._retire_after)

    def find(self, prefix: str) -> RunId:
        """Find the run whose id begins with ``prefix``.

        Raises:
            RunNotFound: No run has such an id.
            AmbiguousRun: Several runs have one.
        """
        return find_run_id(self._store, prefix)

    def details(self, run_id: RunId) -> RunDetails:
        """Read a run with its attempts, its steps and its log; if it is unfinished, explain why.

        Raises:
            RunNotFound: There is no such run.
        """
        record = self._store.run_record(run_id)
        if record is None:
            raise RunNotFound(run_id)
        causes = () if record.run.is_finished else self._explainer.explain_run(run_id).causes
        retries = self._store.find_retries(run_id) if record.run.is_finished else []
        return self._presenter.view_record(
            record,
            causes,
            retries,
            now=self._clock.now(),
            children=self._list_children(record.steps),
            callers=self._store.find_callers(run_id),
        )

    def _list_children(self, steps: Sequence[Step]) -> list[SubRunView]:
        called = [(step.ref, step.name) for step in steps if step.ref is not None]
        if not called:
            return []
        found = {run.id: run for run in self._store.get_runs([run_id for run_id, _ in called])}
        return [
            SubRunView(
                id=run_id,
                step=name,
                job=found[run_id].job if run_id in found else "",
                status=found[run_id].status if run_id in found else None,
            )
            for run_id, name in called
        ]

    def waits(self, *, cursor: RunId | None = None, limit: int = 50) -> WaitList:
        """List the runs that wait for events, the oldest run first."""
        return list_waits(self._store, cursor=cursor, limit=limit)

    def view(self, run: Run) -> RunView:
        """Decode a run for people: arguments by name, with secrets masked."""
        return self._presenter.view(run)

    def secrets_of(self, job: str) -> frozenset[str]:
        """The names of the arguments of a job that are never shown."""
        return self._presenter.secrets_of(job)

    def schedule_details(self, name: str, *, tenant: str = "") -> ScheduleDetails:
        """Read the definition of a schedule, with secret arguments masked.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        row = self._find_schedule(name, tenant)
        return view_details(row, self._presenter, seen_after=self._clock.now() - self._retire_after)

    def schedule_args(self, name: str, *, tenant: str = "") -> Mapping[str, Any]:
        """Decode the arguments of a schedule, secrets included.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        spec = self._find_schedule(name, tenant).spec
        definition = self._registry.definitions().get(spec.job)
        args: Mapping[str, Any]
        args = decode(spec.args) if definition is None else definition.payload.decode(spec.args)
        return args

    def _find_schedule(self, name: str, tenant: str) -> ScheduleRow:
        row = self._store.get_schedule(tenant, name)
        if row is None:
            raise ScheduleNotFound(name, tenant=tenant)
        return row

    def explain_job(self, name: str) -> Explanation:
        """Explain why a job has not run, also when a schedule has its name.

        Raises:
            JobNotFound: Nothing is known of it.
        """
        return self._explainer.explain_job(name)

    def explain_schedule(self, name: str, *, tenant: str = "") -> Explanation:
        """Explain why a schedule has not fired, also when a job has its name.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        return self._explainer.explain_schedule(self._find_schedule(name, tenant))

    def explain(self, what: str, *, tenant: str = "") -> Explanation:
        """Explain why a job, a schedule or a run has not run.

        Raises:
            JobNotFound: Nothing has that name.
            RunNotFound: ``what`` looks like an id, and no run has it.
            AmbiguousRun: The ids of several runs begin with ``what``.
        """
        return self._explainer.explain(what, tenant=tenant)


def _search_for(
    text: str,
    args: Sequence[str],
    *,
    error: str,
    longer: timedelta | None,
    order: RunOrder = RunOrder.NEWEST,
) -> RunSearch:
    return RunSearch(
        text,
        tuple(map(parse_argument, args)),
        error=group_of_error(error).casefold(),
        longer=longer,
        order=order,
    )
