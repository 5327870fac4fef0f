"""What the dialects share for work on the caller's own connection."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from tickwork._domain.run import Claim, NewRun
from tickwork.stores._sql.operations import enqueue, record
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.statement import Operation
from tickwork.stores.contract import Enqueued

T = TypeVar("T")

TRIES_MAX: Final = 5
"""How often an operation is tried that conflicts with other transactions.

There is no pause between tries: the other transaction has committed, and the next try sees it.
"""


class SqlAsyncRuns(ABC):
    """Implements :class:`~tickwork.stores.contract.AsyncRuns`; a dialect adds the connection."""

    def __init__(self, query: Queries) -> None:
        self._query = query

    @abstractmethod
    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction."""

    async def enqueue(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[Enqueued]:
        if not runs:
            return []
        return await self._write(
            lambda: enqueue.enqueue(self._query, runs, may_be_stored=may_be_stored)
        )

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return await self._write(
            lambda: record.complete(self._query, claim, now=now, result=result)
        )


def type_name(thing: object, found: object = None) -> str:
    """The type of an object for an error message, and of the driver's connection in it.

    >>> type_name("jobs.db"), type_name(NotImplemented), type_name("jobs.db", 1)
    ('str', 'NotImplementedType', 'str over a int')
    """
    if found is not None and found is not thing:
        return f"{type_name(thing)} over a {type_name(found)}"
    kind = type(thing)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
