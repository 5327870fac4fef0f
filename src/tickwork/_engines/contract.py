"""The interface of engines: what a worker needs of an engine, and what it offers to one.

An engine is a place where handlers are called: a thread, an event loop, a child process, a broker.
To add one, write a class that has the methods of :class:`Engine`, and register it under a name:
``Tickwork(engines={"name": MyEngine})``. Jobs choose it with ``engine="name"``.
"""

from collections.abc import Awaitable, Callable, Sequence, Sized
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.runs.outcome import Crashed, Interrupted, Outcome
from tickwork._domain.runs.run import Claim
from tickwork._engines.attempt import AttemptEnd
from tickwork._engines.durations import DurationEstimate
from tickwork._engines.wire import AppLocation, LogMessage
from tickwork._handlers.context import RunContext
from tickwork._handlers.handlers import Construct
from tickwork._kernel.clock import Clock

OUTCOME_LOST: Final = Crashed("Its outcome was lost.")
"""The outcome of an attempt when even reporting its outcome has failed."""


class RunningAttempt(NamedTuple):
    """A claim that passed every check: its handler is to be called now."""

    claim: Claim
    definition: Definition
    ctx: RunContext
    timeout: timedelta | None
    ends_at: float | None  # when the timeout passes, by the monotonic clock
    started_at: datetime
    held: Any  # the worker's record of the claim; engines do not read it


SimpleAttempt: TypeAlias = Callable[[Claim, datetime], datetime | None]
"""Makes an attempt that starts at an instant; returns when it ended.

It does in one step what :meth:`EngineHost.begin`, the call and :meth:`EngineHost.end` do for most
runs. None means that nothing was done: the attempt has to be made with those.
"""


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

    def simple_attempt_of(
        self, job: str, wait: Callable[[Awaitable[Any]], Any]
    ) -> SimpleAttempt | None:
        """Return a function that makes attempts of this job in one step; None if they need more.

        For a few attempts in a row: it does not notice that the job is defined anew. ``wait``
        runs an awaitable that the handler returns to its end.
        """
        ...

    def decide(self, attempt: RunningAttempt, end: AttemptEnd) -> AttemptEnd:
        """Return how the attempt is recorded: as it ended, or as the worker decided meanwhile.

        Hooks are called with that, before :meth:`end`. From here on a cancel comes too late.
        """
        ...

    def end(self, attempt: RunningAttempt, outcome: Outcome) -> None:
        """Report the outcome of an attempt. Only the first report about a claim counts."""
        ...

    def fail(self, claim: Claim, error: BaseException) -> None:
        """Report that the engine itself could not make the attempt."""
        ...

    def give_back(self, claim: Claim, outcome: Interrupted | Crashed) -> None:
        """Report that the engine will not start this claim, or cannot finish its attempt.

        Interrupted costs the run nothing. Crashed counts as a crash: use it for an attempt that
        may itself have broken the engine, so that a run cannot do that for ever.
        """
        ...

    def outcome_of_stop(self, attempt: RunningAttempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that was ended from outside: canceled, or interrupted.

        If the worker did neither, the handler itself raised ``error``, and the attempt has failed.
        """
        ...

    def is_settled(self, attempt: RunningAttempt) -> bool:
        """Whether an outcome was reported already, so that the engine need not wait for another.

        The worker itself records attempts that ignore their timeout as failed.
        """
        ...

    def notify(self) -> None:
        """Tell the worker that outcomes can be written, or that the engine has free slots."""
        ...


class HandoverView(NamedTuple):
    """What became of claims that were handed over."""

    gone: list[Claim]  # another process accepted them, or they have ended
    durations: list[tuple[str, float]]  # of those that have ended: the job, and its seconds


class Handovers(Protocol):
    """What a remote engine needs of the worker. Only the thread of the engine calls it.

    A claim that is handed over stays with the worker, which extends its lease, until a process of
    the engine accepts it. From then on that process extends the lease and writes the outcome.
    """

    def hand_over(self, claims: Sequence[Claim], *, engine: str) -> list[Claim]:
        """Store the intent to submit these claims; return those that may be submitted.

        Raises:
            StoreError: Nothing was stored. No claim may be submitted.
        """
        ...

    def poll(self, claims: Sequence[Claim]) -> HandoverView:
        """Read what became of these claims. The worker cancels those that were canceled.

        Raises:
            StoreError: The database did not answer.
        """
        ...

    def release(self, claims: Sequence[Claim]) -> None:
        """Hold these claims no longer: they belong to other processes."""
        ...


class EngineSetup(NamedTuple):
    """What the composition root gives to the factory of an engine."""

    host: EngineHost
    clock: Clock
    slots: int
    construct: Callable[[], Construct]  # creates instances of handler classes
    app_location: Callable[[], AppLocation]  # where other processes find the application
    add_log_line: Callable[[RunId, LogMessage], None]
    loop: Any = None  # the caller's event loop; None: an engine that needs one makes its own
    handovers: Handovers | None = None  # for remote engines
    options: Any = None  # what the application has configured for this engine


class EngineHealth(NamedTuple):
    """Whether an engine can start attempts, and finish those that are running.

    If it is not alive, the claims that it still has are those that :meth:`Engine.take_back` and
    :meth:`Engine.unfinished` return.
    """

    is_alive: bool = True
    reason: str = ""  # why it is not alive
    restarts: int = 0  # how often a thread or the event loop failed, and the engine went on
    silent_seconds: float = 0.0  # how long its event loop has not answered; 0: it answers


@runtime_checkable
class HealthReporter(Protocol):
    """An engine that can tell whether it works. The method is optional for an engine."""

    def health(self) -> EngineHealth:
        """Return the health, at once. Any thread may call this, about ten times a second."""
        ...


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
        """Accept all of these claims. They start in this order, as soon as slots are free.

        Raises:
            EngineBroken: The engine has accepted none of them, and starts none.
        """
        ...

    def make_quick_attempts(self) -> bool:
        """Make quick attempts in the calling thread, for a moment; False if none was made.

        The threads of the pumps call this. It saves the hand-over to another thread, which takes
        longer than a quick attempt itself. An engine may always return False.
        """
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


def health_of(engine: Engine) -> EngineHealth:
    """Return the health of an engine. One that does not report it counts as alive."""
    return engine.health() if isinstance(engine, HealthReporter) else EngineHealth()


EngineFactory = Callable[[EngineSetup], Engine]
