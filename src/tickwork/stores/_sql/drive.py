"""Runs an operation on a connection: sends each statement, feeds the rows back."""

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from tickwork.stores._sql.statement import Operation, Rows, Statement

T = TypeVar("T")


class Connection(Protocol):
    """What an operation needs of a connection."""

    def transaction(self) -> AbstractContextManager[None]: ...

    def execute(self, statement: Statement) -> Rows: ...


def drive(operation: Operation[T], connection: Connection) -> T:
    """Run an operation in one transaction of its own."""
    with connection.transaction():
        return drive_within(operation, connection)


def drive_within(operation: Operation[T], connection: Connection) -> T:
    """Run an operation inside a transaction that the caller ends."""
    try:
        statement = next(operation)
        # Ends: an operation yields a bounded number of statements.
        while True:
            statement = operation.send(connection.execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result
