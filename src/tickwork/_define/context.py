"""``RunContext``: what a handler, filter or hook can know and do about its run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, overload

from tickwork._domain.identity import RunId
from tickwork._domain.outcome import shorten
from tickwork._domain.run import Claim, NewRun
from tickwork._domain.status import RunStatus
from tickwork._kernel.codec import SIZE_MAX, decode, encode
from tickwork.errors import InvalidTransition, LeaseLost

LOGGER: Final = "tickwork.run"
LINE_MAX: Final = 2_000
"""Characters of a log line that is stored."""

MakeMask: TypeAlias = Callable[[Mapping[str, Any]], Callable[[str], str]]
"""Makes a function that masks the secrets among these arguments."""

_NOT_GIVEN: Final = object()


P = ParamSpec("P")


class CanDispatch(Protocol[P]):
    """A job, a builder or a draft."""

    def dispatch(self, *args: P.args, **kwargs: P.kwargs) -> object:
        """Add a run with these arguments of the handler."""
        ...


class AttemptStore(Protocol):
    """What the context of an attempt stores and reads."""

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Store it with the run; False if the claim was lost."""
        ...

    def complete(
        self,
        claim: Claim,
        connection: object,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool:
        """Complete the run in the caller's transaction; False if the claim was lost."""
        ...

    async def complete_async(
        self,
        claim: Claim,
        connection: object,
        *,
        result: str | None,
        follow_ups: Sequence[NewRun] = (),
    ) -> bool: ...

    def plan_run(
        self, job: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> NewRun | None:
        """Make a run of a job, or of a draft, without adding it; None if there is no attempt."""
        ...

    def is_committed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, and that was committed."""
        ...

    def should_stop(self, claim: Claim) -> bool:
        """Whether this attempt should stop, for any reason."""
        ...

    def keep_line(self, claim: Claim, *, level: str, logger: str, message: str) -> None:
        """Store a log line with the run, some time later."""
        ...

    def is_canceled(self, claim: Claim) -> bool:
        """Whether a cancel of this run was requested: it gets no further attempt."""
        ...


class RunContext:
    """One attempt at one run, for a handler, filter or hook.

    A parameter with this annotation receives it. It is not an argument of the job::

        def report(account_id: int, ctx: RunContext) -> None:
            ctx.progress(0.5, note="half way")
    """

    # Created for every attempt, so it has few attributes: the claim has the rest.
    __slots__ = (
        "_claim",
        "_completed",
        "_encode",
        "_make_mask",
        "_mask",
        "_store",
        "args",
        "deadline",
        "follow_ups",
        "has_seen_cancel",
    )

    def __init__(
        self,
        claim: Claim,
        store: AttemptStore,
        args: Mapping[str, Any],
        deadline: datetime | None = None,
        encode: Callable[[Any], str] = encode,
    ) -> None:
        self._claim = claim
        self._encode = encode  # of a result
        self._store = store
        self._completed: tuple[Any] | None = None  # the result
        self._make_mask: MakeMask | None = None
        self._mask: Callable[[str], str] | None = None
        self.args: Mapping[str, Any] = args
        self.deadline: datetime | None = deadline
        self.has_seen_cancel: bool = False
        self.follow_ups: tuple[NewRun, ...] = ()  # see then()

    def __repr__(self) -> str:
        return f"RunContext({self.job!r}, run {self.run_id}, attempt {self.attempt})"

    @property
    def run_id(self) -> RunId:
        """The id of the run."""
        return self._claim.run_id

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._claim.job

    @property
    def queue(self) -> str:
        """The queue of the run."""
        return self._claim.queue

    @property
    def tenant(self) -> str:
        """The tenant of the run; empty if there is none."""
        return self._claim.tenant

    @property
    def schedule(self) -> str | None:
        """The schedule that fired the run; None for a run that was dispatched."""
        return self._claim.schedule

    @property
    def nominal_at(self) -> datetime | None:
        """The instant at which its schedule was due; None for a run that was dispatched."""
        return self._claim.nominal_at

    @property
    def target(self) -> str | None:
        """The ``target`` that was given at dispatch: an id of your own."""
        return self._claim.target

    @property
    def trace(self) -> str | None:
        """What the tracer of the application stored with the run at its dispatch."""
        return self._claim.trace

    @property
    def attempt(self) -> int:
        """The number of this attempt, starting at 1."""
        return self._claim.attempt

    @property
    def token(self) -> int:
        """The fencing token of this attempt. It grows with every claim of the run.

        Pass it to systems that you write to. They can reject a write whose token is lower than
        the last one: it comes from an attempt that another worker has taken over.
        """
        return self._claim.token

    @property
    def attempts_max(self) -> int:
        """The number of attempts that the run may have."""
        return self._claim.attempts_max

    @property
    def log(self) -> logging.Logger:
        """A logger. Records of other loggers are stored with the run, too."""
        return logging.getLogger(LOGGER)

    @property
    def is_completed(self) -> bool:
        """Whether :meth:`complete` was called. The commit of that transaction decides."""
        return self._completed is not None

    @property
    def is_changed(self) -> bool:
        """Whether the handler did something about its run that its outcome depends on."""
        return self.has_seen_cancel or bool(self.follow_ups) or self._completed is not None

    @property
    def output(self) -> Any:
        """The result that was passed to :meth:`complete`."""
        return None if self._completed is None else self._completed[0]

    def is_canceled(self) -> bool:
        """Whether the handler should stop. A long handler calls this from time to time.

        It is True if the run was canceled, the timeout has passed, the worker stops, or the lease
        could not be extended. When the handler then returns or raises, the run is canceled, has
        failed this attempt, or starts again without costing an attempt.

        """
        self.has_seen_cancel = self.has_seen_cancel or self._store.should_stop(self._claim)
        return self.has_seen_cancel

    def progress(self, share: float, *, note: str = "") -> None:
        """Store the progress: ``share`` from 0 to 1, and a short note.

        Raises:
            LeaseLost: Another worker has taken over the run. Stop working on it.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"progress must be between 0 and 1, got {share}.")
        self._save(progress=encode({"share": share, "note": self.mask(note)}))

    def checkpoint(self, value: Any = _NOT_GIVEN) -> Any:
        """Store a value for the next attempt; without an argument, return the last one.

        Raises:
            LeaseLost: Another worker has taken over the run. Stop working on it.
        """
        if value is not _NOT_GIVEN:
            kept = encode(value, size_max=SIZE_MAX)
            self._save(checkpoint=kept)
            self._claim = self._claim._replace(checkpoint=kept)
        kept_before = self._claim.checkpoint
        return None if kept_before is None else decode(kept_before)

    @overload
    def then(self, job: str, /, *args: Any, **kwargs: Any) -> None: ...
    @overload
    def then(self, job: "CanDispatch[P]", /, *args: P.args, **kwargs: P.kwargs) -> None: ...

    def then(self, job: Any, /, *args: Any, **kwargs: Any) -> None:
        """Dispatch a run together with the success of this attempt, in the same transaction.

        If the attempt fails, is canceled or is taken over by another worker, no run is added.
        Options come with the job: ``ctx.then(send_email.delay("5m"), to="ann")``.

        Raises:
            ArgumentError: The arguments do not fit the handler of that job.
            JobNotFound: There is no such job.
            InvalidTransition: :meth:`complete` was called before.
        """
        if self.is_completed:
            raise InvalidTransition(
                self.run_id, source=RunStatus.COMPLETED, target=RunStatus.COMPLETED
            )
        run = self._store.plan_run(job, args, kwargs)
        if run is not None:
            self.follow_ups = (*self.follow_ups, run)

    def complete(self, *, connection: object, result: Any = None) -> None:
        """Complete this run in your own transaction: it commits with your writes, or not at all.

        Commit before the handler returns. If the transaction was rolled back, the attempt
        fails. After the commit the run is completed, even if the handler raises. Runs that
        :meth:`then` dispatched before are added in the same transaction.

        Raises:
            LeaseLost: Another worker has taken over or finished the run. Roll back.
            WrongConnection: The connection belongs to another database.
        """
        stored = None if result is None else self._encode(result)
        is_done = self._store.complete(
            self._claim, connection, result=stored, follow_ups=self.follow_ups
        )
        self._note_completed(result, is_done=is_done)

    async def complete_async(self, *, connection: object, result: Any = None) -> None:
        """Complete this run in a transaction of an async connection."""
        stored = None if result is None else self._encode(result)
        is_done = await self._store.complete_async(
            self._claim, connection, result=stored, follow_ups=self.follow_ups
        )
        self._note_completed(result, is_done=is_done)

    def _note_completed(self, result: Any, *, is_done: bool) -> None:
        if not is_done:
            raise LeaseLost(self.run_id, token=self._claim.token)
        self._completed, self.follow_ups = (result,), ()

    def keep_line(self, level: str, logger: str, message: str) -> None:
        """Store a log line with the run. Records of all loggers are stored so."""
        message = shorten(self.mask(message), LINE_MAX)
        self._store.keep_line(self._claim, level=level, logger=logger, message=message)

    def mask_with(self, make: MakeMask) -> None:
        """Mask texts of this attempt. For engines: the mask is made when it is first needed."""
        self._make_mask = make

    def mask(self, text: str) -> str:
        """Replace the values of secret arguments in a text by ``***``."""
        if self._make_mask is None:
            return text
        if self._mask is None:
            self._mask = self._make_mask(self.args)
        return self._mask(text)

    def note_completed(self) -> None:
        """Note that :meth:`complete` was called in the process that runs this attempt."""
        self._completed = (None,)

    def is_committed(self) -> bool:
        """Read whether the transaction of :meth:`complete` was committed. For engines."""
        return self._store.is_committed(self._claim)

    def _save(self, *, progress: str | None = None, checkpoint: str | None = None) -> None:
        if not self._store.save(self._claim, progress=progress, checkpoint=checkpoint):
            raise LeaseLost(self.run_id, token=self._claim.token)


CURRENT: Final[ContextVar[RunContext | None]] = ContextVar("tickwork_run", default=None)
"""The attempt that this thread or task runs."""


def current_run() -> RunContext | None:
    """Return the context of the current attempt, for code that a handler calls."""
    return CURRENT.get()
