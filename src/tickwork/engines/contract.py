"""The interface of engines: what a worker needs of an engine, and what it offers to one.

An engine is a place where handlers are called: a thread, an event loop, a child process, a broker.
To add one, write a module with a class that has the methods of :class:`Engine`, and register it
under a name in the composition root. Jobs choose it with ``engine="name"``.
"""

from collections.abc import Callable, Sequence, Sized
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from tickwork._define.context import RunContext
from tickwork._define.definition import Definition
from tickwork._define.handlers import Construct
from tickwork._domain.identity import RunId
from tickwork._domain.outcome import Outcome
from tickwork._domain.run import Claim
from tickwork._kernel.clock import Clock
from tickwork.engines.durations import DurationEstimate
from tickwork.engines.wire import AppLocation, LogMessage


class RunningAttempt(NamedTuple):
    """A claim that passed every check: its handler is to be called now."""

    claim: Claim
    definition: Definition
    ctx: RunContext
    timeout: timedelta | None
    ends_at: float | None  # when the timeout passes, by the monotonic clock
    started_at: datetime
    begun_at: float  # time.perf_counter()
    held: Any  # the worker's record of the claim; engines do not read it


class EngineHost(Protocol):
    """The worker, as an engine sees it. Every method may be called from any thread."""

    @property
    def outbox(self) -> Sized:
        """The outcomes that are not written yet."""
        ...

    def begin(self, claim: Claim, *, is_timed: bool = True) -> RunningAttempt | None:
        """Check whether an attempt may start; None when the claim needs no attempt any more.

        ``is_timed`` False means that the engine itself ends attempts that exceed their timeout,
        so that the worker need not watch for handlers that ignore it.
        """
        ...

    def end(self, attempt: RunningAttempt, outcome: Outcome) -> None:
        """Report the outcome of an attempt. Only the first report about a claim counts."""
        ...

    def fail(self, claim: Claim, error: BaseException) -> None:
        """Report that the engine itself could not make the attempt."""
        ...

    def outcome_of_stop(self, attempt: RunningAttempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that was ended from outside: canceled, or interrupted.

        If the worker did neither, the handler itself raised ``error``, and the attempt has failed.
        """
        ...

    def is_settled(self, attempt: RunningAttempt) -> bool:
        """Whether an outcome was reported already, so that the engine need not wait for another.

        The worker gives up attempts that ignore their timeout.
        """
        ...

    def notify(self) -> None:
        """Tell the worker that outcomes can be written, or that the engine has free slots."""
        ...


class EngineSetup(NamedTuple):
    """What the composition root gives to the factory of an engine."""

    host: EngineHost
    clock: Clock
    slots: int
    construct: Callable[[], Construct]  # creates instances of handler classes
    app_location: Callable[[], AppLocation]  # where other processes find the application
    add_log_line: Callable[[RunId, LogMessage], None]


class Engine(Protocol):
    """Where attempts happen.

    Each claim that was submitted ends in exactly one of three ways: the engine calls
    ``host.begin`` and reports an outcome, :meth:`take_back` returns it, or it is still in
    :meth:`unfinished`.
    """

    durations: DurationEstimate
    """How long attempts took lately. While it is empty, the worker claims nothing in advance."""

    def start(self) -> None:
        """Get ready to accept claims."""
        ...

    @property
    def slots(self) -> int:
        """How many attempts can run at the same time."""
        ...

    @property
    def waiting(self) -> int:
        """How many claims were submitted and have not started."""
        ...

    @property
    def running(self) -> int:
        """How many attempts are running."""
        ...

    def submit(self, claims: Sequence[Claim]) -> None:
        """Accept claims. They start in this order, as soon as slots are free."""
        ...

    def take_back(self) -> list[Claim]:
        """Remove and return the claims that have not started."""
        ...

    def rebalance(self) -> None:
        """Called about ten times a second: start claims that are stuck behind a slow attempt."""
        ...

    def cancel(self, claim: Claim) -> None:
        """Request the end of one attempt. Does nothing where an attempt cannot be ended.

        Claims that have not started are left alone: ``host.begin`` rejects them later.
        """
        ...

    def interrupt(self) -> list[Claim]:
        """Start nothing more, and end what can be ended; return the attempts that cannot be.

        Returns at once. Attempts that were ended report their outcomes a moment later.
        """
        ...

    def unfinished(self) -> list[Claim]:
        """Return the claims whose attempts are running."""
        ...

    def stop(self) -> None:
        """Release threads and processes."""
        ...


EngineFactory = Callable[[EngineSetup], Engine]
