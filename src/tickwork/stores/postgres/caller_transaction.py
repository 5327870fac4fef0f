"""An operation in a caller's transaction, without a colour and without a driver.

As operations have no colour, neither has the transaction around them: whoever carries the
messages has one. A verb is a savepoint in what is open, or a transaction where nothing is.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tickwork.errors import StoreBusy, WrongConnection
from tickwork.stores._sql.caller_connection import TRIES_MAX
from tickwork.stores._sql.sessions import SESSIONS
from tickwork.stores._sql.statement import (
    Operation,
    Rows,
    Statement,
    StatementResult,
    WriteConflict,
)
from tickwork.stores.postgres.values import Message, messages

T = TypeVar("T")

TAKES: Final = (
    "a psycopg.Connection, a psycopg.AsyncConnection or an asyncpg.Connection to its database, or"
    f" {SESSIONS}"
)

_WHERE: Final = Message(b"SELECT current_database(), current_setting('search_path')")
_ISOLATION: Final = Statement("isolation", ("SELECT current_setting('transaction_isolation')",), {})
_UNIQUE_VIOLATION: Final = "23505"
_FAILED_BEFORE: Final = "25P02"
_NO_TABLE: Final = "42P01"


class Batch(NamedTuple):
    """Messages to be sent, and of how many at the end the answers are read."""

    messages: list[Message]
    asked: int = 0


class Frame(NamedTuple):
    """What stands before and after an operation, and instead of the latter when it failed."""

    opening: list[Message]
    closing: list[Message]
    undoing: list[Message]


SAVEPOINT: Final = Frame(
    [Message(b"SAVEPOINT tickwork")],
    [Message(b"RELEASE SAVEPOINT tickwork")],
    [Message(b"ROLLBACK TO SAVEPOINT tickwork"), Message(b"RELEASE SAVEPOINT tickwork")],
)
TRANSACTION: Final = Frame([Message(b"BEGIN")], [Message(b"COMMIT")], [Message(b"ROLLBACK")])

BatchExchange: TypeAlias = Generator[Batch, Sequence[StatementResult], T]
"""Yields batches, is sent the answers that were asked for, and returns a domain value.

An error of a message is thrown in where its batch was yielded.
"""


class DriverAdapter(Protocol):
    """What is to be known of a connection while an operation happens on it."""

    def frame(self) -> Frame:
        """What makes a whole of an operation, as things stand now."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether one is that can only be rolled back, as far as is known."""
        ...


def run_operation(
    begin: Callable[[], Operation[T]], adapter: DriverAdapter, *, url: str
) -> BatchExchange[T]:
    """An operation, begun anew while others get in its way, as a whole or not at all."""
    frame = adapter.frame()
    conflicts = 0
    # It ends: conflicts are counted.
    while True:
        try:
            return (yield from _attempt(begin(), frame, adapter))
        except Exception as error:
            if _state(error) == _NO_TABLE:
                raise (yield from _missing_tables(url)) from error
            # A key that was taken while we did not see it yet: we will, the next time.
            if not isinstance(error, WriteConflict) and _state(error) != _UNIQUE_VIOLATION:
                raise
            conflicts += 1
            if conflicts == TRIES_MAX:
                if isinstance(error, WriteConflict):
                    raise StoreBusy(url, waited=timedelta(0)) from error
                raise


def require_read_committed(operation: Operation[T], *, url: str) -> Operation[T]:
    """An operation that has to see what others have committed up to now.

    Raises:
        WrongConnection: Its transaction sees only what was there when it began.
    """
    [[level]] = yield _ISOLATION
    if not level.startswith("read "):
        raise WrongConnection(
            url,
            f"Its transaction is {level}, and sees nothing that was committed since it began: it"
            " cannot tell whether the first try of a repeat has landed.",
            takes="a connection whose transaction is READ COMMITTED",
        )
    return (yield from operation)


def wrong_connection(kind: str, url: str, *, door: str = "") -> WrongConnection:
    """Say what cannot be used, and what can."""
    reason = f"It is a {kind}" + (f", and {door} is for those." if door else ".")
    return WrongConnection(url, reason, takes=TAKES)


def _attempt(operation: Operation[T], frame: Frame, adapter: DriverAdapter) -> BatchExchange[T]:
    batches = _batches(operation, frame)
    batch = next(batches)  # what fails here has sent nothing yet
    # In a transaction that has failed no savepoint can be made: one of that name is not ours.
    may_undo = not adapter.has_failed
    try:
        # It ends with the operation.
        while True:
            batch = batches.send((yield batch))
    except StopIteration as end:
        result: T = end.value
        return result
    except GeneratorExit:
        raise
    except BaseException as error:
        # A COMMIT that was refused has left nothing to undo.
        if may_undo and not adapter.is_idle and _state(error) != _FAILED_BEFORE:
            with suppress(Exception):
                yield Batch(frame.undoing)
        raise


def _batches(operation: Operation[T], frame: Frame) -> BatchExchange[T]:
    """What an operation says, in its frame: with each question all that was said before it."""
    unsent = [*frame.opening]
    try:
        statement = next(operation)
        # An operation ends: it yields a bounded number of statements.
        while True:
            sent = messages(statement)
            unsent += sent
            rows: Rows = ()
            if statement.needs_result:
                answers = yield Batch(unsent, len(sent))
                unsent = []
                rows = _result_rows(statement, answers)
            statement = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
    yield Batch([*unsent, *frame.closing])
    return result


def _result_rows(statement: Statement, answers: Sequence[StatementResult]) -> Rows:
    last = answers[-1]
    if last.rows is not None:
        return last.rows
    return [((last if statement.many is None else answers[0]).changed,)]


def _missing_tables(url: str) -> BatchExchange[WrongConnection]:
    [answer] = yield Batch([_WHERE], 1)
    assert answer.rows is not None, answer
    [[database, search_path]] = answer.rows
    return WrongConnection(
        url,
        f"It finds no such tables in the database {database!r} by its search_path: {search_path}.",
        takes=f"{TAKES}, with the schema of its tables on the search_path",
    )


def _state(error: BaseException) -> object:
    """The code by which both drivers know what the server has refused."""
    return getattr(error, "sqlstate", None)
