"""The fluent builder: ``app.schedule("digest", send).weekdays().hours(9)``.

A builder stands for one declaration, and its methods change the declaration: the last call wins,
whether the program keeps the result of a chain or not. For a dispatch a builder is a value: what
``builder.queue("slow").dispatch()`` sets is for that dispatch.
"""

# ruff: noqa: SLF001  # a builder makes the next one, and drafts

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from os import PathLike
from threading import get_ident
from typing import Any, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar
from weakref import ref

from tickwork._calendars.calendars import Calendars
from tickwork._calendars.holiday_dates import read_holidays
from tickwork._define.definition import Declaration
from tickwork._define.option_table import Scope, names_of
from tickwork._define.options import JobOptionMethods, JobOptions, ScheduleOptionMethods
from tickwork._define.registry import Registry, declare
from tickwork._dispatch.dispatch import Dispatcher
from tickwork._dispatch.jobs import Calls, Dispatchable, Draft, Job
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.schedules.contract import Rule
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import Symbols
from tickwork._domain.schedules.timing import Timing
from tickwork._handlers.arguments import check_filter
from tickwork._handlers.direct_call import direct_callable
from tickwork._handlers.handlers import Construct, handler_of, place_of_caller
from tickwork._kernel.clock import SystemClock
from tickwork.errors import DefinitionError, InvalidDuration, InvalidOption

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

    def _name_job(self, error: DefinitionError) -> None:
        error.name_job(self.name, place_of_caller())

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

    def _holidays(
        self, calendar: str | PathLike[str] | None, country: str | None
    ) -> frozenset[date]:
        dates = self._factory.calendars.get(str(calendar), frozenset())
        return dates | read_holidays(None if dates else calendar, country, now=SystemClock().now())

    def rule(self) -> Rule:
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


OF_ONE_RUN: Final = frozenset(names_of(Scope.JOB | Scope.DISPATCH))
"""The options of a builder that a dispatch can have, too. Their fields have the same names."""


class _Step(NamedTuple):
    """An option that was set on the way from one builder to the next."""

    origin: "ref[JobBuilder[Any, Any]]"
    before: JobOptions
    changes: Mapping[str, Any]


class JobBuilder(JobOptionMethods, ScheduleBuilder[P], Dispatchable[P, R], Generic[P, R]):
    """A job and its schedule. Without a time rule, the job is only dispatched.

    ``args``, ``debounce``, ``expires``, ``priority``, ``queue``, ``tags`` and ``unique`` are
    options of a job, and of one dispatch. They return a new builder:

    - Where a dispatch follows, they are for that dispatch: ``builder.args(id=7).dispatch()``
      does not change ``builder``, nor its job.
    - Where none follows, they define the job.
    - After the first dispatch, and in another thread than the one that made the builder, they
      do not define the job any more.

    Every other option always defines the job.
    """

    def __init__(self, factory: "JobFactory", declaration: Declaration, job: Job[P, R]) -> None:
        super().__init__(factory, declaration, job)
        self._thread = get_ident()
        self._steps: tuple[_Step, ...] = ()  # they define the job, unless a dispatch follows
        self._own: Draft[P, R] | None = None  # options that never define the job

    @property
    def _options(self) -> JobOptions:
        options = self._declaration.options
        if self._own is None:
            return options
        own = self._own._options
        return replace(
            options,
            args={**options.args, **own.args},
            tags=own.tags or options.tags,
            explicit=options.explicit | {"tags"} if own.tags else options.explicit,
        )

    def _set(self, option: str, **changes: Any) -> Self:
        if option not in OF_ONE_RUN:
            self._define(option, changes)
            return self
        if self._declaration.is_dispatched or get_ident() != self._thread:
            return self._next(own=self._as_draft()._draft_with(**changes))
        step = _Step(ref(self), self._declaration.options, changes)
        self._define(option, changes)
        return self._next(steps=(*self._steps, step))

    def _define(self, option: str, changes: Mapping[str, Any]) -> None:
        before = self._declaration.options
        self._with_options(replace(before, explicit=before.explicit | {option}, **changes))

    def _next(self, *, steps: tuple[_Step, ...] = (), own: Draft[P, R] | None = None) -> Self:
        builder = type(self)(self._factory, self._declaration, self.job)
        builder._thread, builder._steps, builder._own = self._thread, steps, own
        return builder

    def _with_options(self, options: JobOptions) -> Self:
        target, before = self._declaration.target, self._declaration.options
        if options.engine != before.engine:
            self._factory.registry.check_engine(options.engine)
        filters = (*options.when, *options.skip)
        # A handler that is named by path is imported, and checked, later.
        if filters != (*before.when, *before.skip) and _is_code(target):
            for check in filters:
                check_filter(self.name, check, handler_of(target).parameters)
        return super()._with_options(options)

    @property
    def draft(self) -> Draft[P, R]:
        """A dispatch to which options can be added."""
        self._declaration.is_dispatched = True
        return self._as_draft()

    def _as_draft(self) -> Draft[P, R]:
        changes = self._withdraw() if self._steps else {}
        if changes:
            self._own = (self._own or self.job.draft)._draft_with(**changes)
        return self._own or self.job.draft

    def _withdraw(self) -> Mapping[str, Any]:
        """Return the options that are for a dispatch, and do not define the job any more.

        They follow a builder that the program keeps. If it keeps none but this one, its
        options define the job: ``report = app.schedule("report", make).queue("slow")``.
        """
        steps, self._steps = self._steps, ()
        while steps and steps[0].origin() is None:
            steps = steps[1:]
        if not steps:
            return {}
        changes = {name: value for step in steps for name, value in step.changes.items()}
        before, options = steps[0].before, self._declaration.options
        self._with_options(
            replace(
                options,
                explicit=(options.explicit - changes.keys()) | (before.explicit & changes.keys()),
                **{name: getattr(before, name) for name in changes},
            )
        )
        return changes

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """As :meth:`Job.dispatch`, with the options of this builder."""
        return self.draft.dispatch(*args, **kwargs)

    def dispatch_many(self, calls: Calls, /) -> list[RunHandle[R]]:
        """As :meth:`Job.dispatch_many`, with the options of this builder."""
        return self.draft.dispatch_many(calls)


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
        calendars: Calendars,
        construct: Callable[[], Construct],
    ) -> None:
        self.registry = registry
        self.now = now
        self.timezone = timezone
        self.symbols = symbols
        self.calendars = calendars
        self._dispatcher = dispatcher
        self._construct = construct

    def make_job(self, name: str, handler: Any, options: JobOptions) -> Job[Any, Any]:
        """Declare a job with all its options."""
        declaration = declare(name, handler, options=options)
        try:
            self.registry.define(declaration, is_trial=True)  # raises before anything is declared
        except (InvalidDuration, InvalidOption) as error:
            error.name_job(name, declaration.place)
            raise
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
            calendars=self.calendars,
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
