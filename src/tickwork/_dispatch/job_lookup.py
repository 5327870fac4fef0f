"""Finds the job of a schedule: by its name, by a path, or as an object."""

from collections.abc import Callable, Mapping
from enum import Enum
from inspect import isroutine
from typing import Any, NamedTuple, Protocol, TypeAlias

from tickwork._define.definition import Definition
from tickwork._define.options import NO_OPTIONS, JobOptions
from tickwork._define.registry import Registry
from tickwork._dispatch.builder import ScheduleBuilder
from tickwork._dispatch.jobs import Job
from tickwork._domain.names import check_name
from tickwork.errors import DefinitionError, HandlerNotAllowed, InvalidOption, JobNotFound


class Named(Protocol):
    """Anything with a ``name``: a job or a builder."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


JobRef: TypeAlias = str | Named | Callable[..., Any]
"""A job's name, the job itself, the path or class of its handler, a function of the
application's package, or ``app.remote(name)``."""


class FoundJob(NamedTuple):
    """The job of a schedule.

    ``definition`` is None if another program defines the job: its arguments are not checked.
    ``options`` are those of ``app.remote()`` for such a job.
    """

    name: str
    definition: Definition | None = None
    options: JobOptions = NO_OPTIONS

    def check(self, args: Mapping[str, Any], *, schedule: str = "") -> None:
        """Check that the handler takes these arguments.

        Raises:
            ArgumentError: It does not.
        """
        if self.definition is not None:
            arguments = {**self.definition.defaults, **args}
            self.definition.parameters.check(self.name, arguments, schedule=schedule)


def find_job(job: JobRef, registry: Registry) -> FoundJob:
    """Find a job. A process that defines no jobs takes any name for a job of another program.

    Raises:
        JobNotFound: This process has jobs, but none of that name; a similar one is suggested.
        HandlerNotAllowed: The path or class is not allowed: see ``handler_paths``.
        DefinitionError: It is an ad hoc job, which ends with this process, or a function that
            other processes could not find.
    """
    if isinstance(job, Enum):
        job = job.value  # some programs keep their job types in an Enum
    if isinstance(job, ScheduleBuilder):
        job = job.job
    if isinstance(job, Job):
        definition = job.definition
    elif isinstance(job, type):
        definition = registry.get_by_class(job)
    elif isroutine(job):
        definition = registry.get_or_add_function(job)
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
            "job", type(job), "must be a job or the name of one", fix="Define it with @app.job."
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
