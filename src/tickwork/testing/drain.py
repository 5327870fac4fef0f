"""Execute everything that is due, in the thread of the test."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, overload

from tickwork._domain.runs.outcome import OutcomeKind
from tickwork._domain.runs.status import RunStatus
from tickwork._domain.runs.transitions import Transition
from tickwork._payload.codec import decode
from tickwork._stores.contract import PendingWork
from tickwork._worker.pass_pool import NextDue
from tickwork._worker.single_pass import is_attempt
from tickwork.app.tickwork import Tickwork
from tickwork.errors import InvalidOption, StillDue

LIMIT: Final = 10_000
"""The most runs without a move of the clock. More are taken for an endless loop."""

BATCH: Final = 100
_SHOWN_MAX: Final = 20


class AttemptResult(NamedTuple):
    """One attempt at one run, and its outcome.

    ``status`` is the status of the run after the attempt, and ``due_at`` the time of the next
    attempt; None if the run has finished.
    """

    job: str
    run_id: str
    attempt: int
    outcome: OutcomeKind
    status: RunStatus
    at: datetime
    due_at: datetime | None
    schedule: str | None
    nominal_at: datetime | None
    tenant: str
    result: Any
    error: str
    traceback: str

    def __repr__(self) -> str:
        error = f": {self.error}" if self.error else ""
        return (
            f"<{self.job}, attempt {self.attempt} at {self.at.isoformat()}, {self.outcome}{error}>"
        )


class DrainResult(Sequence[AttemptResult]):
    """The attempts that were made, in order, failed ones included."""

    def __init__(self, app: Tickwork, transitions: Sequence[Transition] = ()) -> None:
        self._app = app
        self._transitions = transitions

    @cached_property
    def _attempts(self) -> tuple[AttemptResult, ...]:
        return tuple(
            _build_result(self._app, transition)
            for transition in self._transitions
            if is_attempt(transition) and transition.outcome is not OutcomeKind.SUSPENDED
        )

    @cached_property
    def deferred(self) -> tuple[AttemptResult, ...]:
        """Runs that a filter skipped or postponed."""
        return tuple(
            _build_result(self._app, transition)
            for transition in self._transitions
            if not is_attempt(transition)
        )

    @cached_property
    def suspended(self) -> tuple[AttemptResult, ...]:
        """The suspensions: a run slept or waited. They do not count as attempts."""
        return tuple(
            _build_result(self._app, transition)
            for transition in self._transitions
            if transition.outcome is OutcomeKind.SUSPENDED
        )

    @property
    def failures(self) -> tuple[AttemptResult, ...]:
        """The failed attempts."""
        return tuple(each for each in self._attempts if each.outcome is OutcomeKind.FAILED)

    def __repr__(self) -> str:
        shown = [f"  {attempt!r}" for attempt in self._attempts[:_SHOWN_MAX]]
        more = len(self) - len(shown)
        tail = [f"  and {more} more"] if more > 0 else []
        count = f"{len(self)} attempt{'' if len(self) == 1 else 's'}"
        return "\n".join([f"<{count}, {len(self.failures)} failed>", *shown, *tail])

    def __len__(self) -> int:
        return len(self._attempts)

    @overload
    def __getitem__(self, index: int) -> AttemptResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AttemptResult, ...]: ...

    def __getitem__(self, index: int | slice) -> AttemptResult | tuple[AttemptResult, ...]:
        return self._attempts[index]

    def __iter__(self) -> Iterator[AttemptResult]:
        return iter(self._attempts)

    def of(self, job: Any) -> tuple[AttemptResult, ...]:
        """The attempts at runs of this job."""
        name = name_of(job)
        return tuple(attempt for attempt in self._attempts if attempt.job == name)


def drain(app: Tickwork, *, limit: int = LIMIT) -> DrainResult:
    """Execute everything that is due; return the attempts that were made.

    Schedules are fired and runs are claimed, executed and recorded as in a worker, in this
    thread. The clock does not move, so runs that are due later stay pending. A failed attempt
    raises nothing; it is part of the result:

    >>> from tickwork import testing
    >>> with testing.app() as app:
    ...     greet = app.schedule("greet", lambda name: f"Hello {name}")
    ...     run = greet.dispatch(name="Ann")
    ...     testing.drain(app)[0].result
    'Hello Ann'

    Raises:
        StillDue: Runs were still due after ``limit`` runs.
    """
    with Passes(app, limit) as passes:
        return DrainResult(app, passes.run_until_idle()[0])


class Passes(AbstractContextManager["Passes"]):
    """Makes passes until nothing is due. A pass fires schedules, and executes some due runs."""

    def __init__(self, app: Tickwork, limit: int) -> None:
        if limit < 1:
            raise InvalidOption("limit", limit, "must be at least 1")
        self._passes = app._services.passes
        self._limit = limit
        self._seen: PendingWork | None = None  # at the end of the last pass
        self._capturing = self._passes.context.log_capture.capturing()

    def __enter__(self) -> Self:
        self._capturing.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._capturing.__exit__(None, None, None)

    def run_until_idle(self, *, until: datetime | None = None) -> tuple[list[Transition], NextDue]:
        """Make passes until nothing is due; return the transitions, and what is due next.

        It ends early when a handler has moved the clock past ``until``.
        """
        done: list[Transition] = []
        left = self._limit
        # It ends at the limit: a pass that executes no run, but changes something, counts as one.
        while left > 0:
            result = self._passes.make_pass(min(BATCH, left), pending=self._seen)
            done += result.transitions
            left -= max(len(result.transitions), 1)
            next_due = self._passes.find_next_due(is_stuck=result.is_idle)
            self._seen = next_due.pending
            if result.is_idle or not next_due.is_due:
                return done, next_due
            if until is not None and self._passes.context.clock.now() > until:
                return done, next_due
        last = done[-_SHOWN_MAX:]
        raise StillDue(limit=self._limit, jobs=(transition.claim.job for transition in last))


def name_of(job: Any) -> str:
    """The name of a job that is given as an object or by name."""
    name = job if isinstance(job, str) else getattr(job, "name", None)
    if not isinstance(name, str):
        raise InvalidOption(
            "job", job, "must be a job or the name of one", fix="Pass what @app.job returned."
        )
    return name


def _build_result(app: Tickwork, transition: Transition) -> AttemptResult:
    claim = transition.claim
    definition = app.registry.find(claim.job)
    read = decode if definition is None else definition.payload.decode_result
    return AttemptResult(
        job=claim.job,
        run_id=claim.run_id,
        attempt=claim.attempt,
        outcome=transition.outcome,
        status=transition.to_status,
        at=transition.ended_at,
        due_at=transition.due_at,
        schedule=claim.schedule,
        nominal_at=claim.nominal_at,
        tenant=claim.tenant,
        result=None if transition.result is None else read(transition.result),
        error=transition.reason if transition.outcome is not OutcomeKind.SUCCEEDED else "",
        traceback=transition.traceback,
    )
