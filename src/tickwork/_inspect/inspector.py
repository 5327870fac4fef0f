"""``app.inspect``: answers questions about the state of one database."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tickwork._client.catalog import Catalog
from tickwork._define.registry import Registry
from tickwork._domain.explain import Explanation
from tickwork._domain.identity import RunId
from tickwork._domain.job import ScheduleRow
from tickwork._domain.run import Run
from tickwork._domain.status import Phase
from tickwork._inspect.activity import Activity, read_activity
from tickwork._inspect.explain import Explainer
from tickwork._inspect.run_search import (
    COUNTED_MAX,
    SCAN_MAX,
    FoundRuns,
    RunSearch,
    list_runs,
    parse_argument,
)
from tickwork._inspect.runs import RunDetails, RunView, find_run_id, read_args, view_run
from tickwork._inspect.schedule_details import ScheduleDetails, view_details
from tickwork._inspect.schedules import (
    ActiveSchedule,
    UpcomingFirings,
    active_schedules,
    read_schedule_rows,
    upcoming_firings,
)
from tickwork._inspect.status import (
    QueueStatus,
    Status,
    WorkerView,
    read_queues,
    read_status,
    view_worker,
)
from tickwork._kernel.clock import Clock
from tickwork._kernel.codec import decode
from tickwork.errors import RunNotFound, ScheduleNotFound
from tickwork.stores.contract import RunCount, RunFilter, Store


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
        self._redact = frozenset(redact)
        self._retire_after = retire_after
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

    def queues(self) -> QueueStatus:
        """Read the queues, the age of the oldest run in each, and the number of workers."""
        return read_queues(self._store, now=self._clock.now())

    def activity(self, *, ready: int | None = None) -> Activity:
        """Measure how fast runs arrive and finish, on the newest ones.

        ``ready`` is the number of ready runs, if it was counted before.
        """
        if ready is None:
            ready = self._store.count_runs().by_phase.get(Phase.READY, 0)
        return read_activity(self._store, now=self._clock.now(), ready=ready)

    def fingerprint(self) -> str:
        """A short text that changes when runs are added, start or end. It is cheap to read."""
        newest = self._store.list_runs(RunFilter(), limit=1).runs
        counts = self._store.count_runs(cap=1_000).by_phase
        shown = [f"{run.id} {run.status} {run.attempt}" for run in newest]
        workers = self._store.list_workers()
        running = sum(worker.running for worker in workers)
        return " ".join([*shown, *map(str, counts.values()), str(len(workers)), str(running)])

    def list_runs(  # the parameters of a page
        self,
        where: RunFilter,
        *,
        text: str = "",
        args: Sequence[str] = (),
        cursor: str | None = None,
        limit: int = 50,
        has_total: bool = False,
    ) -> FoundRuns:
        """List one page of runs, newest first.

        With ``text``, those that contain it in their id, job, target, arguments or error; with
        ``args``, those whose arguments have these values: ``customer=42``, or
        ``address.city=Bern``. Secrets are not searched. A page reads a bounded number of runs, and
        states how far it has searched.

        Raises:
            InvalidOption: One of ``args`` has no name or no equals sign.
        """
        return list_runs(
            self._store,
            self.view,
            self._read_args,
            where,
            search=RunSearch(text, list(map(parse_argument, args))),
            cursor=cursor,
            limit=limit,
            has_total=has_total,
        )

    def count_runs(self, where: RunFilter) -> RunCount:
        """Count the runs that match: exactly if they are few, else up to a limit."""
        return self._store.count_matches(where, cap=COUNTED_MAX, scan_max=SCAN_MAX)

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
        """Read a run with its attempts and its log; if it is unfinished, explain why.

        Raises:
            RunNotFound: There is no such run.
        """
        found = self._store.run_record(run_id)
        if found is None:
            raise RunNotFound(run_id)
        causes = () if found.run.is_finished else self._explainer.explain_run(run_id).causes
        return RunDetails(
            run=self.view(found.run),
            attempts=found.attempts,
            log=found.log,
            causes=list(causes),
        )

    def view(self, run: Run) -> RunView:
        """Decode a run for people: arguments by name, with secrets masked."""
        return view_run(run, secrets=self.secrets_of(run.job))

    def secrets_of(self, job: str) -> frozenset[str]:
        """The names of the arguments of a job that are never shown."""
        definition = self._registry.definitions().get(job)
        return self._redact if definition is None else definition.secrets | self._redact

    def schedule_details(self, name: str, *, tenant: str = "") -> ScheduleDetails:
        """Read the definition of a schedule, with secret arguments masked.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        row = self._find_schedule(name, tenant)
        return view_details(
            row,
            secrets=self.secrets_of(row.spec.job),
            seen_after=self._clock.now() - self._retire_after,
        )

    def schedule_args(self, name: str, *, tenant: str = "") -> Mapping[str, Any]:
        """Decode the arguments of a schedule, secrets included.

        Raises:
            ScheduleNotFound: There is no such schedule.
        """
        spec = self._find_schedule(name, tenant).spec
        definition = self._registry.definitions().get(spec.job)
        found: Mapping[str, Any]
        found = decode(spec.args) if definition is None else definition.payload.decode(spec.args)
        return found

    def _find_schedule(self, name: str, tenant: str) -> ScheduleRow:
        row = self._store.get_schedule(tenant, name)
        if row is None:
            raise ScheduleNotFound(name, tenant=tenant)
        return row

    def _read_args(self, job: str, text: str) -> dict[str, Any]:
        return read_args(text, secrets=self.secrets_of(job))

    def explain(self, what: str, *, tenant: str = "") -> Explanation:
        """Explain why a job, a schedule or a run has not run.

        Raises:
            JobNotFound: Nothing has that name.
            RunNotFound: ``what`` looks like an id, and no run has it.
            AmbiguousRun: The ids of several runs begin with ``what``.
        """
        return self._explainer.explain(what, tenant=tenant)
