"""The fluent builder: ``app.schedule("digest", send).weekdays().hours(9)``.

A chain is one thing under one name, so the builder changes what it stands for and returns
itself: whatever was said last in the chain is what the application knows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, overload

from tickwork._client.jobs import AsyncConnection, Draft, Job, PlainConnection
from tickwork._client.runs import RunHandle
from tickwork._define.definition import Declaration
from tickwork._define.options import JobOptionMethods, JobOptions, Length, ScheduleOptionMethods
from tickwork._define.registry import Registry
from tickwork._domain.schedules.contract import Schedule
from tickwork._domain.schedules.frequencies import Frequencies
from tickwork._domain.schedules.pattern import Values
from tickwork._domain.schedules.timing import Timing
from tickwork._kernel.instants import When

if TYPE_CHECKING:
    from tickwork._client.asynchronous import AsyncDispatch
    from tickwork._client.borrowing import AsyncDraft

P = ParamSpec("P")


class Bench:
    """What builders share: where their entries go, and what the application has settled."""

    def __init__(
        self,
        *,
        registry: Registry,
        now: Callable[[], datetime],
        timezone: str,
        symbols: Mapping[str, Mapping[str, Values]],
    ) -> None:
        self.registry = registry
        self.now = now
        self.timezone = timezone
        self.symbols = symbols


class ScheduleBuilder(ScheduleOptionMethods, Frequencies, Generic[P]):
    """One more schedule of a job: when, with which arguments, and how it is timed."""

    def __init__(self, bench: Bench, entry: Declaration, job: Job[P, Any]) -> None:
        self._bench = bench
        self._entry = entry
        self.job = job

    def __repr__(self) -> str:
        return f"<schedule {self._entry.name}>"

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self._entry.name

    # ------------------------------------------------------------ saying

    @property
    def _options(self) -> JobOptions:
        return self._entry.options

    def _with_options(self, options: JobOptions) -> Self:
        self._entry.options = options
        self._bench.registry.mark_changed()
        return self

    @property
    def _timing(self) -> Timing:
        return self._entry.timing

    def _timed(self, timing: Timing) -> Self:
        self._entry.timing = timing
        self._bench.registry.mark_changed()
        return self

    @property
    def _symbols(self) -> Mapping[str, Mapping[str, Values]]:
        return self._bench.symbols

    # ------------------------------------------------------------ looking

    def rule(self) -> Schedule:
        """The rule that was said. An interval without a beginning counts from now."""
        return self._entry.timing.rule(
            key=self._entry.name, tz=self._bench.timezone, anchor=self._bench.now()
        )

    def preview(self, count: int = 10, *, after: datetime | None = None) -> Sequence[datetime]:
        """The next instants at which it would fire."""
        return self.rule().preview(count, after=after or self._bench.now())

    def describe(self) -> str:
        """When it fires, in plain English."""
        return self.rule().describe()


class JobBuilder(JobOptionMethods, ScheduleBuilder[P]):
    """A job, and when it is due. Without a rule it is a job that is only dispatched."""

    # ------------------------------------------------------------ dispatching

    @property
    def aio(self) -> "AsyncDispatch[P]":
        """Dispatch for coroutines: ``await builder.aio.dispatch(...)``."""
        return self.job.aio

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle:
        """Add a run with these arguments of the handler.

        Raises:
            ArgumentError: They do not fit the handler. Nothing was stored.
            PayloadError: They cannot be stored.
        """
        return self.job.dispatch(*args, **kwargs)

    def dispatch_many(self, calls: Iterable[Mapping[str, Any]]) -> list[RunHandle]:
        """Add a run for each of these sets of arguments, in one transaction."""
        return self.job.dispatch_many(calls)

    def at(self, when: When) -> Draft[P]:
        """A dispatch that is due at this instant."""
        return self.job.at(when)

    def delay(self, length: Length) -> Draft[P]:
        """A dispatch that is due that long from now."""
        return self.job.delay(length)

    def tenant(self, tenant: str) -> Draft[P]:
        """A dispatch on behalf of this tenant."""
        return self.job.tenant(tenant)

    @overload
    def using(self, connection: AsyncConnection) -> "AsyncDraft[P]": ...
    @overload
    def using(self, connection: PlainConnection) -> Draft[P]: ...

    def using(self, connection: Any) -> "Draft[P] | AsyncDraft[P]":
        """A dispatch in the transaction of this connection of yours.

        Given an async connection, ``dispatch`` is to be awaited.
        """
        draft: Draft[P] | AsyncDraft[P] = self.job.using(connection)
        return draft
