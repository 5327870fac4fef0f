"""The jobs that this process can run: its own, and those that rows name by path or type."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Protocol

from tickwork._define.definition import Definition
from tickwork._define.registry import Registry
from tickwork._domain.job import EngineKind, JobSpec
from tickwork._domain.lease import LEASE_DEFAULT, Lease


class LaneName(Enum):
    """The ways to an engine."""

    THREADS = auto()
    LOOP = auto()
    PROCESSES = auto()


def lane_of(definition: Definition) -> LaneName:
    """Where attempts at a job are made."""
    if definition.options.engine is EngineKind.PROCESS:
        return LaneName.PROCESSES
    return LaneName.LOOP if definition.handler.is_async else LaneName.THREADS


class NamesStore(Protocol):
    """Where names of jobs can be found."""

    def ready_pairs(self) -> list[tuple[str, str]]:
        """The (queue, job) pairs that have ready runs."""
        ...

    def scheduled_jobs(self) -> list[str]:
        """The jobs that schedules name."""
        ...


class KnownJobs:
    """What a worker may take. A job that only a row names is looked up once it is seen."""

    def __init__(self, *, store: NamesStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._defined: Mapping[str, Definition] = {}
        self._found: dict[str, Definition] = {}
        self._strangers: set[str] = set()
        self._known: dict[str, Definition] = {}
        self._specs: dict[str, JobSpec] = {}
        self._names: dict[LaneName | None, tuple[str, ...]] = {}
        self._lease_by_job: dict[str, timedelta] = {}

    def look(self, *, is_ready: bool = True) -> None:
        """Look for jobs that rows name and this process could run.

        ``is_ready`` False says that no run waits for a worker: schedules alone can name any.
        """
        self._refresh()
        named = set(self._store.scheduled_jobs())
        if is_ready:
            named.update(job for _, job in self._store.ready_pairs())
        for name in named - self._specs.keys() - self._strangers:
            definition = self._registry.find(name)
            if definition is None:
                self._strangers.add(name)
            else:
                self._found[name] = definition
                self._defined = {}

    def learn(self, name: str) -> Definition:
        """The definition of a job that is asked for by name.

        Raises:
            JobNotFound: This process does not know it.
            HandlerNotAllowed: It is a path that a row must not name.
        """
        self._refresh()
        known = self._known.get(name)
        if known is None:
            known = self._found[name] = self._registry.get(name)
            self._defined = {}
            self._refresh()
        return known

    def find(self, name: str) -> Definition | None:
        """The definition of a job that :meth:`names` has named."""
        return self._known.get(name)

    def specs(self) -> Mapping[str, JobSpec]:
        """Specs by name, old names included."""
        self._refresh()
        return self._specs

    def names(self, lane: LaneName | None = None) -> tuple[str, ...]:
        """The names of runs to take: of those that one kind of engine makes, or of all."""
        self._refresh()
        return self._names[lane]

    def lease_by_job(self) -> Mapping[str, timedelta]:
        """Leases that differ from the default."""
        return self._lease_by_job

    def lease_of(self, job: str) -> timedelta:
        """How long the leases of this job's runs are."""
        return self._lease_by_job.get(job, LEASE_DEFAULT.length)

    def pace_shortest(self) -> float:
        """Seconds between two beats of the shortest lease that a run of ours may have."""
        return _pace(min([LEASE_DEFAULT.length, *self._lease_by_job.values()]))

    def pace_longest(self) -> float:
        """The same of the longest."""
        lengths = [spec.lease.length for spec in self._specs.values()]
        return _pace(max(lengths, default=LEASE_DEFAULT.length))

    def crashes_max(self, name: str) -> int:
        """How many crashes a run of this job may have.

        Of a job that we do not know any number: whoever knows it gives it up, when it is claimed.
        """
        self._refresh()  # a pass takes back what others left before it looks for work
        spec = self._specs.get(name)
        return sys.maxsize if spec is None else spec.crashes_max

    def _refresh(self) -> None:
        defined = self._registry.definitions()
        if defined is self._defined:
            return
        self._defined = defined
        self._strangers.clear()
        known = self._known = {**self._found, **defined}
        self._specs = {name: definition.spec for name, definition in known.items()}
        self._names = {
            None: tuple(known),
            **{
                lane: tuple(name for name, each in known.items() if lane_of(each) is lane)
                for lane in LaneName
            },
        }
        self._lease_by_job = {
            name: spec.lease.length
            for name, spec in self._specs.items()
            if spec.lease != LEASE_DEFAULT
        }


def _pace(length: timedelta) -> float:
    return Lease(length).beat_every.total_seconds()
