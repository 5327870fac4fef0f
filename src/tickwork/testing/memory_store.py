"""The store of applications in memory: it accepts every connection."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.stored_events import NewEvent
from tickwork._stores.contract import AddedRun, AsyncRuns
from tickwork._stores.sqlite.memory import MemoryStore


class AnyConnectionStore(MemoryStore):
    """A store in memory that adds and completes runs at once, whatever connection is given.

    The connection is not used, so it may be a stand-in, and its rollback undoes nothing here.
    """

    def using(self, connection: object) -> Self:  # noqa: ARG002  # of the contract
        """Return this store."""
        return self

    def using_async(self, connection: object) -> AsyncRuns:  # noqa: ARG002  # of the contract
        """The methods of this store for coroutines."""
        return _AsyncMemoryRuns(self)


class _AsyncMemoryRuns:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def add_runs(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[AddedRun]:
        return self._store.add_runs(runs, may_be_stored=may_be_stored)

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return self._store.complete(claim, now=now, result=result)

    async def emit(self, event: NewEvent) -> bool:
        return self._store.emit(event)

    async def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        return self._store.save_steps(claim, steps)
