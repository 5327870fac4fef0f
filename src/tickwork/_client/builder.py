"""The fluent builder: ``app.schedule("digest", send).weekdays().hours(9)``.

A builder stands for one declaration. Each method changes the declaration and returns the same
builder, so the last call in a chain wins.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, ParamSpec, Self, TypeVar

from tickwork._client.dispatch import Dispatcher
from tickwork._client.jobs import Calls, Dispatchable, Draft, Job
from tickwork._client.runs import RunHandle
from tickwork._define.arguments import check_filter
from tickwork._define.definition import Declaration
from tickwork._define.direct_call import direct_callable
from tickwork._define.handlers import Construct, handler_of
from tickwork._define.options import JobOptionMethods, JobOptions, ScheduleOptionMethods
from tickwork._define.registry import Registry, declare
from tickwork._domain.schedules.contract import PreviewClock, Schedule
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import Symbols
from tickwork._domain.schedules.timing import Timing
from tickwork._kernel.clock import SystemClock
from tickwork.errors import DefinitionError

PreviewClock.now = SystemClock().now

P = ParamSpec("P")
R = TypeVar("R")


class ScheduleBuilder(ScheduleOptionMethods, Frequencies, Generic[P]):
    """A schedule of a job: when it fires, with which arguments and options."""

    def __init__(self, factory: "JobFactory", declaration: Declaration, job: Job[P, Any]) -> None:
        self._factory = factory
        self._declaration = declaration
        self.job = job

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self._declaration.name

    @property
    def _options(self) -> JobOptions:
        return self._declaration.options

    def _with_options(self, options: JobOptions) -> Self:
        self._declaration.options = options
        self._factory.registry.mark_changed()
        return self

    @property
    def _timing(self) -> Timing:
        return self._declaration.timing

    def _with_timing(self, timing: Timing) -> Self:
        self._declaration.timing = timing
        self._factory.registry.mark_changed()
        return self

    @property
    def _symbols(self) -> Symbols:
        return self._factory.symbols

    def rule(self) -> Schedule:
        """The time rule. An interval without a start counts from now."""
        return self._declaration.timing.rule(
            key=self.name, tz=self._factory.timezone, anchor=self._factory.now()
        )

    def preview(self, count: int = 10, *, after: datetime | None = None) -> Sequence[datetime]:
        """The next instants at which it would fire."""
        return self.rule().preview(count, after=after or self._factory.now())

    def describe(self) -> str:
        """When it fires, in plain English."""
        return self.rule().describe()


class JobBuilder(JobOptionMethods, ScheduleBuilder[P], Dispatchable[P, R], Generic[P, R]):
    """A job and its schedule. Without a time rule, the job is only dispatched."""

    def _with_options(self, options: JobOptions) -> Self:
        target, before = self._declaration.target, self._declaration.options
        filters = (*options.when, *options.skip)
        # A handler that is named by path is imported, and checked, later.
        if filters != (*before.when, *before.skip) and _is_code(target):
            for check in filters:
                check_filter(self.name, check, handler_of(target).parameters)
        return super()._with_options(options)

    @property
    def draft(self) -> Draft[P, R]:
        """A dispatch to which options can be added."""
        return self.job.draft

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """As :meth:`Job.dispatch`."""
        return self.job.dispatch(*args, **kwargs)

    def dispatch_many(self, calls: Calls, /) -> list[RunHandle[R]]:
        """As :meth:`Job.dispatch_many`."""
        return self.job.dispatch_many(calls)


class JobFactory:
    """Makes jobs and builders, and declares them in a registry."""

    def __init__(
        self,
        *,
        registry: Registry,
        dispatcher: Dispatcher,
        now: Callable[[], datetime],
        timezone: str,
        symbols: Symbols,
        construct: Callable[[], Construct],
    ) -> None:
        self.registry = registry
        self.now = now
        self.timezone = timezone
        self.symbols = symbols
        self._dispatcher = dispatcher
        self._construct = construct

    def make_job(self, name: str, handler: Any, options: JobOptions) -> Job[Any, Any]:
        """Declare a job with all its options."""
        declaration = declare(name, handler, options=options)
        self.registry.define(declaration, is_trial=True)  # raises before anything is declared
        self.registry.add_complete(declaration)
        return self._job(name, handler)

    def make_builder(self, name: str, handler: Any) -> JobBuilder[Any, Any]:
        """Declare a job whose options follow."""
        if _is_code(handler):
            handler_of(handler)  # raises before anything is declared
        declaration = declare(name, handler, options=self.registry.defaults)
        self.registry.add(declaration)
        return JobBuilder(self, declaration, self._job(name, handler))

    def add_schedule(self, name: str, job: Job[P, Any]) -> ScheduleBuilder[P]:
        """Declare one more schedule of a job."""
        declaration = declare(name, None, job=job.name)
        self.registry.add(declaration)
        return ScheduleBuilder(self, declaration, job)

    def make_adhoc(self, name: str, handler: Any) -> JobBuilder[Any, Any]:
        """Declare a job that only this process has."""
        if _is_code(handler):
            handler_of(handler)
        declaration = declare(name, handler, is_adhoc=True, options=self.registry.defaults)
        self.registry.replace(declaration)
        return JobBuilder(self, declaration, self._job(name, handler))

    def make_remote(self, name: str, registry: Registry) -> JobBuilder[Any, Any]:
        """Declare a job of another program, in a registry of its own."""
        handler = _missing_handler(name)
        declaration = declare(name, handler, is_adhoc=True, is_remote=True)
        registry.add(declaration)
        dispatcher = Dispatcher(self._dispatcher.services, registry)
        factory = JobFactory(
            registry=registry,
            dispatcher=dispatcher,
            now=self.now,
            timezone=self.timezone,
            symbols=self.symbols,
            construct=self._construct,
        )
        return JobBuilder(factory, declaration, Job(dispatcher, name, handler))

    def _job(self, name: str, handler: Any) -> Job[Any, Any]:
        if handler is None:  # the handler for this job type is looked up when a run starts
            return Job(self._dispatcher, name, _missing_handler(name))
        called = direct_callable(name, handler, self._construct)
        return Job(self._dispatcher, name, called, wrapped=handler)


def _is_code(target: object) -> bool:
    """Whether the target is code, and neither a path nor left to a registered handler."""
    return target is not None and not isinstance(target, str)


def _missing_handler(name: str) -> Callable[..., None]:
    """Stands for a handler that this process does not have: it takes any arguments."""

    def handler(**_: Any) -> None:
        raise DefinitionError(
            f"The job {name!r} cannot be called here.",
            why="This process does not have its handler.",
            fix="Dispatch it: a worker that has the handler runs it.",
        )

    return handler
