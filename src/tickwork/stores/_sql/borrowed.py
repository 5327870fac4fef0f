"""What the dialects share where a verb happens on a caller's own connection."""

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

TRIES: Final = 5
"""How often a verb is begun that others keep overtaking.

Nobody sleeps in between: whoever overtook it has committed, and is seen the next time.
"""


class SqlAsyncRuns(ABC):
    """The verbs of :class:`~tickwork.stores.contract.AsyncRuns`; a dialect adds the connection."""

    def __init__(self, query: Queries) -> None:
        self._query = query

    @abstractmethod
    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction."""

    async def enqueue(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        if not runs:
            return []
        return await self._write(lambda: enqueue.enqueue(self._query, runs, is_repeat=is_repeat))

    async def complete(self, claim: Claim, *, now: datetime, result: str | None = None) -> bool:
        return await self._write(
            lambda: record.complete(self._query, claim, now=now, result=result)
        )


def kind_of(thing: object, found: object = None) -> str:
    """What a thing is, for a message; and what was found underneath.

    >>> kind_of("jobs.db"), kind_of(NotImplemented), kind_of("jobs.db", 1)
    ('str', 'NotImplementedType', 'str over a int')
    """
    if found is not None and found is not thing:
        return f"{kind_of(thing)} over a {kind_of(found)}"
    kind = type(thing)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
