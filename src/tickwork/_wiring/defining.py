"""How a program describes its jobs: by decorator, by builder, by a file."""

# Of the overloads of a function what comes first decides, as it is meant to.
# mypy: disable-error-code="overload-overlap"

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload

from tickwork._client.builder import Bench, JobBuilder, ScheduleBuilder
from tickwork._client.decorator import JobDecorator
from tickwork._client.jobs import Job
from tickwork._define.direct_call import direct_callable
from tickwork._define.handler_types import (
    OpenClass,
    OpenFunction,
    PlainClass,
    PlainFunction,
    RunClass,
    RunFunction,
)
from tickwork._define.handlers import Construct
from tickwork._define.options import JobKeywords, JobOptions
from tickwork._define.registry import Registry, declare
from tickwork._domain.names import check_name
from tickwork._domain.schedules.pattern import Values
from tickwork._wiring.services import Door
from tickwork.errors import DefinitionError
from tickwork.settings import Settings, note_late_settings

if TYPE_CHECKING:
    from tickwork._define.toml_document import Document

P = ParamSpec("P")
R = TypeVar("R")

CONFIG: Final = "tickwork.toml"


class Defining(ABC):
    """The words with which an application is told what there is to do."""

    settings: Settings
    construct: Construct
    registry: Registry
    symbols: dict[str, Mapping[str, Values]]

    @abstractmethod
    def _now(self) -> datetime:
        """What time it is for the application."""

    @abstractmethod
    def _door_of(self, registry: Registry) -> Door:
        """Where dispatches of the jobs of this registry go."""

    @overload
    def job(self, handler: OpenClass[R], /) -> Job[..., R]: ...
    @overload
    def job(self, handler: RunClass[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: PlainClass[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: OpenFunction[R], /) -> Job[..., R]: ...
    @overload
    def job(self, handler: RunFunction[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, handler: PlainFunction[P, R], /) -> Job[P, R]: ...
    @overload
    def job(self, /, *, name: str = ..., **options: Unpack[JobKeywords]) -> JobDecorator: ...

    def job(self, handler: Any = None, /, *, name: str = "", **options: Any) -> Any:
        """Make a job of a function, or of a class: it stays callable as it was.

        Options are the words of the builder: ``@app.job(queue="emails", retries=5)``. The
        name is the function's own, unless given.
        """
        decorate = JobDecorator(self._make_job, name, options)
        return decorate if handler is None else decorate(handler)

    @overload
    def schedule(self, name: str, handler: Job[P, Any]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: JobBuilder[P]) -> ScheduleBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: OpenClass[Any]) -> JobBuilder[...]: ...
    @overload
    def schedule(self, name: str, handler: RunClass[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: PlainClass[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: OpenFunction[Any]) -> JobBuilder[...]: ...
    @overload
    def schedule(self, name: str, handler: RunFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: PlainFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def schedule(self, name: str, handler: object = None) -> JobBuilder[...]: ...

    def schedule(self, name: str, handler: Any = None) -> Any:
        """Say what shall be done, and when, under a name.

        Given a function, a class or a path, the name is that of a job and of its schedule;
        given a job, that of one more schedule of it. Without a rule it is a job only.
        """
        check_name("name", name, forbidden="=")
        if isinstance(handler, Job):
            entry = declare(name, None, job=handler.name)
            self.registry.add(entry)
            return ScheduleBuilder(self._bench, entry, handler)
        if isinstance(handler, JobBuilder):
            return self.schedule(name, handler.job)
        return self._builder(name, handler)

    @overload
    def adhoc(self, name: str, handler: OpenFunction[Any]) -> JobBuilder[...]: ...
    @overload
    def adhoc(self, name: str, handler: RunFunction[P, Any]) -> JobBuilder[P]: ...
    @overload
    def adhoc(self, name: str, handler: PlainFunction[P, Any]) -> JobBuilder[P]: ...

    def adhoc(self, name: str, handler: Any) -> Any:
        """A job that this process makes up as it goes: no other one can run it.

        Its runs wait for this process; when it ends, they stay pending and visible.
        """
        entry = declare(check_name("name", name, forbidden="="), handler, is_adhoc=True)
        self.registry.replace(entry)
        return JobBuilder(self._bench, entry, self._job(name, handler))

    def remote(self, name: str) -> JobBuilder[...]:
        """A job that another program defines. Its arguments are not checked here.

        What its definition says about queue, priority, limits and uniqueness is not known
        here: say it again, if it says anything.
        """
        check_name("name", name, forbidden="=")
        handler = _handler_elsewhere(name)
        entry = declare(name, handler, is_adhoc=True, is_remote=True)
        remote = Registry(size_max=self.settings.payload_max, redact=self.settings.redact)
        remote.add(entry)
        return JobBuilder(self._bench_of(remote), entry, Job(self._door_of(remote), name, handler))

    def load_config(self, path: str | PathLike[str] | None = None) -> list[str]:
        """Declare the jobs and schedules of a file; return their names.

        Without a path it is the file that the application was made with, or
        ``tickwork.toml``. Handlers are imported here: load when they can be.

        Raises:
            ConfigError: With everything that is wrong with it, each with its line. Nothing of
                it was taken in.
            DuplicateDefinition: It says something else than code, or another file, does.
        """
        document = read_document(path or self.settings.config or CONFIG)
        note_late_settings(document, self.settings)
        return self._declare(document)

    def handler(self, instance: R) -> R:
        """Register a handler for job types: ``supports(job_type)`` and ``handle(run)``."""
        self.registry.add_handler(instance)
        return instance

    # ------------------------------------------------------------ wiring

    @cached_property
    def _door(self) -> Door:
        return self._door_of(self.registry)

    @cached_property
    def _bench(self) -> Bench:
        return self._bench_of(self.registry)

    def _bench_of(self, registry: Registry) -> Bench:
        return Bench(
            registry=registry,
            now=self._now,
            timezone=self.settings.timezone,
            symbols=self.symbols,
        )

    def _make_job(self, name: str, handler: Callable[..., Any], options: JobOptions) -> Any:
        entry = declare(name, handler, options=options)
        self.registry.define(entry)  # a fault shows here, and nothing is kept of it
        self.registry.add_complete(entry)
        return self._job(name, handler)

    def _declare(self, document: "Document") -> list[str]:
        from tickwork._define.config_file import read_declarations  # noqa: PLC0415  # as read_document

        declarations, symbols = read_declarations(
            document,
            registry=self.registry,
            symbols=self.symbols,
            timezone=self.settings.timezone,
        )
        document.raise_problems()
        self.registry.add_all(declarations)
        self.symbols.update(symbols)
        return [each.name for each in declarations]

    def _builder(self, name: str, handler: Any) -> JobBuilder[Any]:
        entry = declare(name, handler)
        self.registry.add(entry)
        return JobBuilder(self._bench, entry, self._job(name, handler))

    def _job(self, name: str, handler: Any) -> Job[Any, Any]:
        if handler is None:  # whoever supports its type is found when it runs
            return Job(self._door, name, _handler_elsewhere(name))
        called = direct_callable(name, handler, lambda: self.construct)
        return Job(self._door, name, called, looks_like=handler)


def _handler_elsewhere(name: str) -> Callable[..., None]:
    """Stands for a handler that this process does not have: it takes any arguments."""

    def handler(**_: Any) -> None:
        raise DefinitionError(
            f"The job {name!r} cannot be called here.",
            why="This process does not have its handler.",
            fix="Dispatch it: whoever has it runs it.",
        )

    return handler


def read_document(path: str | PathLike[str]) -> "Document":
    """A file, as it stands."""
    # Whoever has no file need not load what reads one.
    from tickwork._define.toml_document import Document  # noqa: PLC0415

    return Document.read(path)
