"""What the dialects share for work on the caller's own connection."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from tickwork._domain.runs.run import Claim, NewRun
from tickwork._domain.runs.steps import Step
from tickwork._domain.runs.stored_events import NewEvent
from tickwork._stores._sql.operations import flows, inserts, record
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation
from tickwork._stores.contract import AddedRun

T = TypeVar("T")

TRIES_MAX: Final = 5
"""How often an operation is tried that conflicts with other transactions.

There is no pause between tries: the other transaction has committed, and the next try sees it.
"""


class SqlAsyncRuns(ABC):
    """Implements :class:`~tickwork._stores.contract.AsyncRuns`; a dialect adds the connection."""

    def __init__(self, query: Queries) -> None:
        self._query = query

    @abstractmethod
    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction."""

    async def add_runs(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[AddedRun]:
        if not runs:
            return []
        return await self._write(
            lambda: inserts.add_runs(self._query, runs, may_be_stored=may_be_stored)
        )

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return await self._write(
            lambda: record.complete(self._query, claim, now=now, result=result)
        )

    async def emit(self, event: NewEvent) -> bool:
        return await self._write(lambda: flows.emit(self._query, event))

    async def save_steps(self, claim: Claim, steps: Sequence[Step]) -> bool:
        return await self._write(lambda: flows.save_steps(self._query, claim, steps))


def type_name(thing: object, inner: object = None) -> str:
    """The type of an object for an error message, and of the driver's connection in it.

    >>> type_name("jobs.db"), type_name(NotImplemented), type_name("jobs.db", 1)
    ('str', 'NotImplementedType', 'str over a int')
    """
    if inner is not None and inner is not thing:
        return f"{type_name(thing)} over a {type_name(inner)}"
    kind = type(thing)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
