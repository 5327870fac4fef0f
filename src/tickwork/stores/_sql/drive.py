"""The two loops that run an operation: one for plain connections, one for async ones."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeVar

from tickwork.stores._sql.statement import Operation, Rows, Statement

T = TypeVar("T")


class Connection(Protocol):
    """What an operation needs of a connection."""

    def transaction(self) -> AbstractContextManager[None]:
        """One transaction: committed at the end, rolled back on an error."""
        ...

    def execute(self, statement: Statement) -> Rows:
        """Run one statement and return its rows."""
        ...


class AsyncConnection(Protocol):
    """The same, for a caller's async connection."""

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """One transaction: committed at the end, rolled back on an error."""
        ...

    async def execute(self, statement: Statement) -> Rows:
        """Run one statement and return its rows."""
        ...


def drive(operation: Operation[T], connection: Connection) -> T:
    """Run an operation in one transaction of its own."""
    with connection.transaction():
        return drive_within(operation, connection)


def drive_within(operation: Operation[T], connection: Connection) -> T:
    """Run an operation inside a transaction that somebody else ends."""
    try:
        statement = next(operation)
        # An operation ends: it yields a bounded number of statements.
        while True:
            statement = operation.send(connection.execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(operation: Operation[T], connection: AsyncConnection) -> T:
    """Run an operation in one transaction of its own, on an async connection."""
    async with connection.transaction():
        return await drive_async_within(operation, connection)


async def drive_async_within(operation: Operation[T], connection: AsyncConnection) -> T:
    """Run an operation inside a transaction that somebody else ends, on an async connection."""
    try:
        statement = next(operation)
        # An operation ends: it yields a bounded number of statements.
        while True:
            statement = operation.send(await connection.execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result
