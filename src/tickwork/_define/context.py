"""What a handler may ask for: its run, and ways to speak about it."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol

from tickwork._domain.identity import RunId
from tickwork._domain.run import Claim
from tickwork._kernel.codec import SIZE_MAX, decode, encode
from tickwork.errors import LeaseLost

LOGGER: Final = "tickwork.run"

_UNSAID: Final = object()


class Desk(Protocol):
    """What a context needs of whoever makes the attempt."""

    def save(
        self, claim: Claim, *, progress: str | None = None, checkpoint: str | None = None
    ) -> bool:
        """Keep it with the run; False when the claim was lost."""
        ...

    def complete(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """Finish the run inside the transaction of this connection; False when it was lost."""
        ...

    async def complete_async(self, claim: Claim, connection: object, *, result: str | None) -> bool:
        """The same for an async connection."""
        ...

    def has_landed(self, claim: Claim) -> bool:
        """Whether the run was completed under this claim, for everybody to see."""
        ...

    def shall_stop(self, claim: Claim) -> bool:
        """Whether this attempt shall stop, for whatever reason."""
        ...

    def is_canceled(self, claim: Claim) -> bool:
        """Whether somebody asked that this run be stopped: it gets no other attempt."""
        ...


class RunContext:
    """One attempt at one run, for the handler, filter or hook that asks for it.

    A parameter with this annotation gets it; it is not an argument of the job::

        def report(account_id: int, ctx: RunContext) -> None:
            ctx.progress(0.5, note="half way")

    ``nominal_at`` is the instant of the schedule that this run stands for, None for a run
    that was dispatched.
    """

    # Made for every attempt, so it takes no more than it must: the claim knows the rest.
    __slots__ = ("_claim", "_completed", "_desk", "args", "deadline", "has_seen_cancel")

    def __init__(
        self,
        claim: Claim,
        *,
        desk: Desk,
        args: Mapping[str, Any],
        deadline: datetime | None = None,
    ) -> None:
        self._claim = claim
        self._desk = desk
        self._completed: tuple[Any] | None = None  # with what
        self.args: Mapping[str, Any] = args
        self.deadline: datetime | None = deadline
        self.has_seen_cancel: bool = False

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
        """The queue in which the run waited."""
        return self._claim.queue

    @property
    def tenant(self) -> str:
        """The tenant on whose behalf it runs; empty when there is none."""
        return self._claim.tenant

    @property
    def schedule(self) -> str | None:
        """The schedule that fired it; None for a run that was dispatched."""
        return self._claim.schedule

    @property
    def nominal_at(self) -> datetime | None:
        """The instant of the schedule for which it stands."""
        return self._claim.nominal_at

    @property
    def target(self) -> str | None:
        """What it is about: an id of yours."""
        return self._claim.target

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claim.attempt

    @property
    def token(self) -> int:
        """The number of the claim under which it is made: it grows with every claim of the run.

        Hand it to whatever you write to: a write with a lower token than the last one comes
        from an attempt that was taken over.
        """
        return self._claim.token

    @property
    def attempts_max(self) -> int:
        """How many attempts the run has."""
        return self._claim.attempts_max

    @property
    def log(self) -> logging.Logger:
        """A logger. Records of any other are kept with the run just the same."""
        return logging.getLogger(LOGGER)

    @property
    def is_completed(self) -> bool:
        """Whether :meth:`complete` was called: the caller's transaction has the last word."""
        return self._completed is not None

    @property
    def output(self) -> Any:
        """What :meth:`complete` was given."""
        return None if self._completed is None else self._completed[0]

    def is_canceled(self) -> bool:
        """Whether somebody asked that this run be stopped. A long handler looks now and then.

        A handler that returns after this was True has stopped: its run is canceled.
        """
        self.has_seen_cancel = self.has_seen_cancel or self._desk.shall_stop(self._claim)
        return self.has_seen_cancel

    def progress(self, share: float, *, note: str = "") -> None:
        """Show how far it is: ``share`` from 0 to 1, and a few words.

        Raises:
            LeaseLost: Another worker has the run by now. Stop working on it.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"progress({share}) is not between 0 and 1.")
        self._save(progress=encode({"share": share, "note": note}))

    def checkpoint(self, value: Any = _UNSAID) -> Any:
        """Keep a value for the next attempt; without one, return what was kept last.

        Raises:
            LeaseLost: Another worker has the run by now. Stop working on it.
        """
        if value is not _UNSAID:
            kept = encode(value, size_max=SIZE_MAX)
            self._save(checkpoint=kept)
            self._claim = self._claim._replace(checkpoint=kept)
        kept_before = self._claim.checkpoint
        return None if kept_before is None else decode(kept_before)

    def complete(self, *, connection: object, result: Any = None) -> None:
        """Finish this run in a transaction of your own: your writes and it, or neither.

        Commit before the handler returns. When it returns and the run is still there, you
        have rolled back, and the attempt failed. Once it is committed the run is completed,
        whatever the handler does or raises afterwards.

        Raises:
            LeaseLost: Another worker has the run by now, or has finished it. Roll back.
            WrongConnection: It leads to another database.
        """
        stored = None if result is None else encode(result)
        if not self._desk.complete(self._claim, connection, result=stored):
            raise LeaseLost(self.run_id, token=self._claim.token)
        self._completed = (result,)

    async def complete_async(self, *, connection: object, result: Any = None) -> None:
        """The same in a transaction of an async connection."""
        stored = None if result is None else encode(result)
        if not await self._desk.complete_async(self._claim, connection, result=stored):
            raise LeaseLost(self.run_id, token=self._claim.token)
        self._completed = (result,)

    def note_completed(self) -> None:
        """Note that another process, which made this attempt, has called :meth:`complete`."""
        self._completed = (None,)

    def look_again(self) -> bool:
        """Look whether what :meth:`complete` did was committed. For engines."""
        return self._desk.has_landed(self._claim)

    def _save(self, *, progress: str | None = None, checkpoint: str | None = None) -> None:
        if not self._desk.save(self._claim, progress=progress, checkpoint=checkpoint):
            raise LeaseLost(self.run_id, token=self._claim.token)


CURRENT: Final[ContextVar[RunContext | None]] = ContextVar("tickwork_run", default=None)
"""The attempt that this thread or task is making."""


def current_run() -> RunContext | None:
    """The attempt that is being made here, for code that is called by a handler."""
    return CURRENT.get()
