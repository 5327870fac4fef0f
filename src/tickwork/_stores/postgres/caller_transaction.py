"""Runs an operation in a caller's transaction, for sync and async drivers alike.

The generators here yield batches of messages; the driver's adapter sends them and returns the
results. An operation is a savepoint in the open transaction, or a transaction of its own.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tickwork._stores._sql.caller_connection import TRIES_MAX
from tickwork._stores._sql.migrate import SCHEMA_VERSION
from tickwork._stores._sql.sessions import SESSIONS
from tickwork._stores._sql.statement import (
    Operation,
    Rows,
    Statement,
    StatementResult,
    WriteConflict,
)
from tickwork._stores.postgres.values import Message, messages
from tickwork.errors import OutcomeUnknown, SchemaDamaged, StoreBusy, WrongConnection

T = TypeVar("T")

TAKES: Final = (
    "a psycopg.Connection, a psycopg.AsyncConnection, an asyncpg.Connection or a connection of"
    f" psycopg2 to its database, or {SESSIONS}"
)

_CURRENT_DATABASE: Final = Message(b"SELECT current_database(), current_setting('search_path')")
_ISOLATION: Final = Statement("isolation", ("SELECT current_setting('transaction_isolation')",), {})
_UNIQUE_VIOLATION: Final = "23505"
_FAILED_BEFORE: Final = "25P02"
_NO_TABLE: Final = "42P01"
_NO_COLUMN: Final = "42703"


class Batch(NamedTuple):
    """Messages to be sent. The results of the last ``results_needed`` of them are returned.

    With ``commits``, the last message is COMMIT.
    """

    messages: list[Message]
    results_needed: int = 0
    commits: bool = False


class Frame(NamedTuple):
    """The messages before and after an operation, and those after a failed one."""

    opening: list[Message]
    closing: list[Message]
    undoing: list[Message]
    commits: bool = False


SAVEPOINT: Final = Frame(
    [Message(b"SAVEPOINT tickwork")],
    [Message(b"RELEASE SAVEPOINT tickwork")],
    [Message(b"ROLLBACK TO SAVEPOINT tickwork"), Message(b"RELEASE SAVEPOINT tickwork")],
)
TRANSACTION: Final = Frame(
    [Message(b"BEGIN")], [Message(b"COMMIT")], [Message(b"ROLLBACK")], commits=True
)

BatchExchange: TypeAlias = Generator[Batch, Sequence[StatementResult], T]
"""Yields batches, receives their results, and returns a domain value.

An error of a message is thrown into the generator where it yielded the batch.
"""


class DriverAdapter(Protocol):
    """The state of a connection while an operation runs on it."""

    def frame(self) -> Frame:
        """A savepoint or a transaction, depending on the state of the connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""

    @property
    def has_failed(self) -> bool:
        """Whether the open transaction can only be rolled back, as far as the driver knows."""


def run_operation(
    begin: Callable[[], Operation[T]], adapter: DriverAdapter, *, url: str
) -> BatchExchange[T]:
    """Run an operation; again after a conflict. A failed one is rolled back."""
    frame = adapter.frame()
    conflicts = 0
    # Ends: conflicts are counted.
    while True:
        try:
            return (yield from _attempt(begin(), frame, adapter, url=url))
        except Exception as error:
            if _state(error) == _NO_TABLE:
                raise (yield from _missing_tables(url)) from error
            if _state(error) == _NO_COLUMN:
                reason = str(error)
                raise SchemaDamaged(url, version=SCHEMA_VERSION, reason=reason) from error
            # Another transaction took the key; the next try sees it.
            if not isinstance(error, WriteConflict) and _state(error) != _UNIQUE_VIOLATION:
                raise
            conflicts += 1
            if conflicts == TRIES_MAX:
                if isinstance(error, WriteConflict):
                    raise StoreBusy(url, waited=timedelta(0)) from error
                raise


def require_read_committed(operation: Operation[T], *, url: str) -> Operation[T]:
    """Run an operation that must see what other transactions have committed.

    Raises:
        WrongConnection: The transaction has a snapshot from its start.
    """
    [[level]] = yield _ISOLATION
    if not level.startswith("read "):
        raise WrongConnection(
            url,
            f"Its transaction is {level}, and sees nothing that was committed since it began: it"
            " cannot tell whether an earlier call was committed.",
            takes="a connection whose transaction is READ COMMITTED",
        )
    return (yield from operation)


def wrong_connection(kind: str, url: str, *, method: str = "") -> WrongConnection:
    reason = f"It is a {kind}" + (f"; pass it to {method}." if method else ".")
    return WrongConnection(url, reason, takes=TAKES)


def _attempt(
    operation: Operation[T], frame: Frame, adapter: DriverAdapter, *, url: str
) -> BatchExchange[T]:
    batches = _batches(operation, frame)
    batch = next(batches)  # an error here: nothing was sent yet
    # In a failed transaction no savepoint can be created: one with our name is not ours.
    may_undo = not adapter.has_failed
    try:
        while True:
            batch = batches.send((yield batch))
    except StopIteration as end:
        result: T = end.value
        return result
    except GeneratorExit:
        raise
    except BaseException as error:
        # After a rejected COMMIT there is nothing to undo.
        if may_undo and not adapter.is_idle and _state(error) != _FAILED_BEFORE:
            with suppress(Exception):
                yield Batch(frame.undoing)
        if batch.commits and isinstance(error, Exception) and _is_lost(error):
            raise OutcomeUnknown(url, str(error)) from error
        raise


def _batches(operation: Operation[T], frame: Frame) -> BatchExchange[T]:
    """The batches of an operation. Each ends with a statement whose result is read."""
    unsent = [*frame.opening]
    try:
        statement = next(operation)
        # Ends: an operation yields a bounded number of statements.
        while True:
            sent = messages(statement)
            unsent += sent
            rows: Rows = ()
            if statement.needs_result:
                results = yield Batch(unsent, len(sent))
                unsent = []
                rows = _result_rows(statement, results)
            statement = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
    yield Batch([*unsent, *frame.closing], commits=frame.commits)
    return result


def _result_rows(statement: Statement, results: Sequence[StatementResult]) -> Rows:
    last = results[-1]
    if last.rows is not None:
        return last.rows
    return [((last if statement.many is None else results[0]).changed,)]


def _missing_tables(url: str) -> BatchExchange[WrongConnection]:
    [answer] = yield Batch([_CURRENT_DATABASE], 1)
    assert answer.rows is not None, answer
    [[database, search_path]] = answer.rows
    return WrongConnection(
        url,
        f"It finds no tickwork tables in the database {database!r}, search_path: {search_path}.",
        takes=f"{TAKES}, with the schema of its tables on the search_path",
    )


def _is_lost(error: Exception) -> bool:
    """Whether the connection broke, or the server ended it: no answer to COMMIT arrived."""
    state = _state(error)
    return not isinstance(state, str) or state.startswith(("08", "57P"))


def _state(error: BaseException) -> object:
    """The SQLSTATE of an error, which all drivers provide; psycopg2 calls it pgcode."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
