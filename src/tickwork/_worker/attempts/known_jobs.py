"""The jobs that this process can run: its own, and those that rows name by path or type."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tickwork._define.definition import Definition
from tickwork._define.engine_choice import AUTO
from tickwork._define.registry import Registry
from tickwork._domain.job import JobSpec
from tickwork._domain.runs.lease import LEASE_DEFAULT, Lease
from tickwork._kernel.loggers import get_logger
from tickwork._stores.contract import Store
from tickwork.errors import JobNotFound

_log: Final = get_logger("tickwork.worker")

FUNCTIONS: Final = "thread"
COROUTINES: Final = "async"
"""The engines of jobs that choose none."""


def engine_of(definition: Definition) -> str:
    """Return the name of the engine that makes attempts at a job."""
    if definition.options.engine != AUTO:
        return definition.options.engine
    return COROUTINES if definition.handler.is_async else FUNCTIONS


class KnownJobs:
    """The jobs whose runs a worker may claim. A job that only a row names is looked up once."""

    def __init__(self, *, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._defined: Mapping[str, Definition] = {}
        self._found: dict[str, Definition] = {}
        self._unknown: set[str] = set()
        self._logged: set[str] = set()  # names of jobs that it cannot run
        self._known: dict[str, Definition] = {}
        self._specs: dict[str, JobSpec] = {}
        self._names: dict[str | None, tuple[str, ...]] = {}
        self._lease_by_job: dict[str, timedelta] = {}

    def discover(self, *, is_ready: bool = True) -> None:
        """Find jobs that rows name and this process could run.

        ``is_ready`` False means that no run is ready: then only schedules can name new jobs.
        """
        self._refresh()
        named = set(self._store.scheduled_jobs())
        if is_ready:
            named.update(job for _, job in self._store.ready_pairs())
        for name in named - self._specs.keys() - self._unknown:
            try:
                self._found[name] = self._registry.get(name)
                self._defined = {}
            except JobNotFound:
                self._unknown.add(name)  # a job of another program
            except Exception as error:  # noqa: BLE001  # a module may fail in any way
                self._unknown.add(name)
                self._log_unusable(name, error)

    def _log_unusable(self, name: str, error: Exception) -> None:
        if name not in self._logged:
            self._logged.add(name)
            _log.warning("This process cannot run the job %r that a row names: %s", name, error)

    def learn(self, name: str) -> Definition:
        """Return the definition of a job, and add it to :meth:`names` if it is new.

        Raises:
            JobNotFound: This process does not know it.
            HandlerNotAllowed: It is a path that is not allowed in a stored run.
        """
        self._refresh()
        known = self._known.get(name)
        if known is None:
            known = self._found[name] = self._registry.get(name)
            self._defined = {}
            self._refresh()
        return known

    def find(self, name: str) -> Definition | None:
        """Return the definition of one of :meth:`names`."""
        return self._known.get(name)

    def specs(self) -> Mapping[str, JobSpec]:
        """Return specs by name, former names included."""
        self._refresh()
        return self._specs

    def names(self, engine: str | None = None) -> tuple[str, ...]:
        """Return the names of the jobs of one engine, or of all."""
        self._refresh()
        return self._names.get(engine, ())

    def lease_by_job(self) -> Mapping[str, timedelta]:
        """Return the leases that differ from the default."""
        return self._lease_by_job

    def lease_of(self, job: str) -> timedelta:
        return self._lease_by_job.get(job, LEASE_DEFAULT.length)

    def pace_shortest(self) -> float:
        """Return the seconds between two heartbeats of the shortest lease."""
        return _pace(min([LEASE_DEFAULT.length, *self._lease_by_job.values()]))

    def pace_longest(self) -> float:
        """Return the seconds between two heartbeats of the longest lease."""
        lengths = [spec.lease.length for spec in self._specs.values()]
        return _pace(max(lengths, default=LEASE_DEFAULT.length))

    def crashes_max(self, name: str) -> int:
        """Return how many crashes a run of this job may have.

        There is no limit for a job that this process does not know: a process that knows the job
        records the failure when it claims the run.
        """
        self._refresh()  # a single pass reaps before it claims
        spec = self._specs.get(name)
        return sys.maxsize if spec is None else spec.crashes_max

    def _refresh(self) -> None:
        defined = self._registry.definitions()
        if defined is self._defined:
            return
        self._defined = defined
        self._unknown.clear()
        known = self._known = {**self._found, **defined}
        self._specs = {name: definition.spec for name, definition in known.items()}
        names_by_engine: dict[str | None, list[str]] = {None: list(known)}
        for name, definition in known.items():
            names_by_engine.setdefault(engine_of(definition), []).append(name)
        self._names = {engine: tuple(names) for engine, names in names_by_engine.items()}
        self._lease_by_job = {
            name: spec.lease.length
            for name, spec in self._specs.items()
            if spec.lease != LEASE_DEFAULT
        }


def _pace(length: timedelta) -> float:
    return Lease(length).beat_every.total_seconds()
