"""Which job a schedule is of: by name, by path, or as a program holds it."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from tickwork._client.builder import ScheduleBuilder
from tickwork._client.jobs import Job
from tickwork._define.definition import Definition
from tickwork._define.options import NO_OPTIONS, JobOptions
from tickwork._define.registry import Registry
from tickwork._domain.names import check_name
from tickwork.errors import DefinitionError, HandlerNotAllowed, InvalidOption, JobNotFound


class Named(Protocol):
    """A job, or what builds one."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


JobRef: TypeAlias = str | Named
"""A job's name, the path of its handler, the job itself, or ``app.remote(name)``."""


class FoundJob(NamedTuple):
    """The job of a schedule, and what is known about it here.

    ``definition`` is None when another program defines it: its arguments are not checked.
    ``options`` are what was said about such a job here, for want of its definition.
    """

    name: str
    definition: Definition | None = None
    options: JobOptions = NO_OPTIONS

    def check(self, args: Mapping[str, Any]) -> None:
        """See that the handler takes these arguments.

        Raises:
            ArgumentError: It does not.
        """
        if self.definition is not None:
            given = {**self.definition.defaults, **args}
            self.definition.parameters.check(self.name, given)


def find_job(job: JobRef, registry: Registry) -> FoundJob:
    """Find a job. Where no job is defined at all, every name is taken for another program's.

    Raises:
        JobNotFound: This process knows jobs, and none of that name; the close one is named.
        HandlerNotAllowed: It is a path outside of ``handler_paths``.
        DefinitionError: It is a job that ends with this process.
    """
    if isinstance(job, Enum):
        job = job.value  # programs that keep their job types in one
    if isinstance(job, ScheduleBuilder):
        job = job.job
    if isinstance(job, Job):
        definition = job.definition
    elif isinstance(job, str):
        check_name("job", job, forbidden="=")
        try:
            definition = registry.get(job)
        except (JobNotFound, HandlerNotAllowed):
            if not registry.is_empty:
                raise
            return FoundJob(job)
    else:
        raise InvalidOption(
            "job", job, "must be a job or the name of one", fix="Define it with @app.job."
        )
    if definition.is_remote:
        return FoundJob(definition.name, options=definition.options)
    if definition.is_adhoc:
        raise DefinitionError(
            f"The job {definition.name!r} is ad hoc, and can have no schedule.",
            why="Only this process knows it, and a schedule outlives the process.",
            fix="Define it in code: @app.job.",
        )
    return FoundJob(definition.name, definition)
