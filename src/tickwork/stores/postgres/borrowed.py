"""A caller's own psycopg connection, plain or async, as the store needs one.

Everything goes out in a pipeline: with it one verb takes few round trips, and it does not
matter whether the caller is in one. Values go out as the texts that they are, and what comes
back is read as it came over the wire, so that no row factory, loader or dumper of the caller's
has a part in it. Nothing is prepared, and no setting is changed for longer than the verb.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.errors import UndefinedTable, UniqueViolation
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import tuple_row

from tickwork.errors import StoreBusy, WrongConnection
from tickwork.stores._sql.borrowed import TRIES, SqlAsyncRuns, kind_of
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.statement import Operation, Overtaken, Row, Rows, Statement
from tickwork.stores.postgres.values import Message, messages

T = TypeVar("T")

TAKES: Final = "a psycopg.Connection or a psycopg.AsyncConnection to its database"

Exchange: TypeAlias = Generator[list[Message], list[PGresult], T]
"""Yields batches of messages, is sent the answers to each, and returns a domain value.

As operations have no colour, neither has the transaction around them: whoever carries the
messages has one. An error of a message is thrown in where its batch was yielded.
"""

_BEGIN: Final = Message(b"BEGIN")
_COMMIT: Final = Message(b"COMMIT")
_ROLLBACK: Final = Message(b"ROLLBACK")
_SAVEPOINT: Final = Message(b"SAVEPOINT tickwork")
_RELEASE: Final = Message(b"RELEASE SAVEPOINT tickwork")
_ROLLBACK_TO: Final = Message(b"ROLLBACK TO SAVEPOINT tickwork")
_SPEAK: Final = b"SELECT set_config('client_encoding', $1, true)"
_WHERE: Final = Message(b"SELECT current_database(), current_setting('search_path')")

_UTF8: Final = b"UTF8"
_READER_BY_TYPE: Final[Mapping[int, Callable[[bytes], Any]]] = {
    16: b"t".__eq__,  # boolean
    20: int,  # bigint
    21: int,  # smallint
    23: int,  # integer
}
"""By the number that a type has on every server. All others are text for us."""
_PLACE: Final = re.compile(rb"\$(\d+)")


class BorrowedConnection:
    """A caller's plain connection. What the caller has open on it is the caller's to end."""

    def __init__(self, connection: object, *, url: str) -> None:
        if not isinstance(connection, psycopg.Connection):
            is_async = isinstance(connection, psycopg.AsyncConnection)
            raise _refused(connection, url, door="using_async()" if is_async else "")
        self._connection: psycopg.Connection[Any] = connection
        self._url = url

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction, as a whole or not at all."""
        connection = self._connection
        with connection.pipeline() as pipeline:
            exchange = _exchange(begin, connection, url=self._url)
            try:
                batch = next(exchange)
                # It ends: there is a bounded number of tries, each of a bounded operation.
                while True:
                    try:
                        results = self._send(batch, pipeline)
                    except BaseException as error:  # noqa: BLE001  # it comes out again
                        batch = exchange.throw(error)
                    else:
                        batch = exchange.send(results)
            except StopIteration as end:
                result: T = end.value
                return result

    def _send(self, batch: list[Message], pipeline: psycopg.Pipeline) -> list[PGresult]:
        cursors = []
        try:
            for message in batch:
                cursor = psycopg.Cursor(self._connection, row_factory=tuple_row)
                _speak_plainly(cursor.adapters)
                cursor.execute(*_asked(message), prepare=False, binary=False)
                cursors.append(cursor)
            pipeline.sync()
        except BaseException:
            # What came after the error is answered too, before anything else can be sent.
            with suppress(psycopg.Error):
                pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


class AsyncBorrowedRuns(SqlAsyncRuns):
    """A caller's async connection: the same, with ``await`` where the wire is touched."""

    def __init__(self, connection: object, *, url: str, query: Queries) -> None:
        if not isinstance(connection, psycopg.AsyncConnection):
            is_plain = isinstance(connection, psycopg.Connection)
            raise _refused(connection, url, door="using()" if is_plain else "")
        super().__init__(query)
        self._connection: psycopg.AsyncConnection[Any] = connection
        self._url = url

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._connection
        async with connection.pipeline() as pipeline:
            exchange = _exchange(begin, connection, url=self._url)
            try:
                batch = next(exchange)
                # It ends: there is a bounded number of tries, each of a bounded operation.
                while True:
                    try:
                        results = await self._send(batch, pipeline)
                    except BaseException as error:  # noqa: BLE001  # it comes out again
                        batch = exchange.throw(error)
                    else:
                        batch = exchange.send(results)
            except StopIteration as end:
                result: T = end.value
                return result

    async def _send(self, batch: list[Message], pipeline: psycopg.AsyncPipeline) -> list[PGresult]:
        cursors = []
        try:
            for message in batch:
                cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
                _speak_plainly(cursor.adapters)
                await cursor.execute(*_asked(message), prepare=False, binary=False)
                cursors.append(cursor)
            await pipeline.sync()
        except BaseException:
            # What came after the error is answered too, before anything else can be sent.
            with suppress(psycopg.Error):
                await pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


# ---------------------------------------------------------------- without a colour


def _exchange(
    begin: Callable[[], Operation[T]],
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    *,
    url: str,
) -> Exchange[T]:
    """An operation, begun anew while others get in its way, as a whole or not at all."""
    frame = _frame(connection)
    conflicts = 0
    # It ends: conflicts are counted.
    while True:
        try:
            return (yield from _attempt(begin(), frame, connection.pgconn))
        except (Overtaken, UniqueViolation) as error:
            # A key that was taken while we did not see it yet: we will, the next time.
            conflicts += 1
            if conflicts == TRIES:
                if isinstance(error, Overtaken):
                    raise StoreBusy(url, waited=timedelta(0)) from error
                raise
        except UndefinedTable as error:
            raise (yield from _led_astray(url)) from error


class _Frame(NamedTuple):
    """What stands before and after an operation, and instead of the latter when it failed."""

    opening: list[Message]
    closing: list[Message]
    undoing: list[Message]


def _frame(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> _Frame:
    """A savepoint in what is open, or a transaction where nothing is, or can be."""
    pgconn = connection.pgconn
    # Where nothing is open yet, psycopg begins a transaction with the first statement.
    frame = _Frame([_SAVEPOINT], [_RELEASE], [_ROLLBACK_TO, _RELEASE])
    if connection.autocommit and pgconn.transaction_status == pq.TransactionStatus.IDLE:
        frame = _Frame([_BEGIN], [_COMMIT], [_ROLLBACK])
    encoding = pgconn.parameter_status(b"client_encoding")
    if encoding is None or encoding == _UTF8:
        return frame
    return frame._replace(
        opening=[*frame.opening, Message(_SPEAK, [_UTF8])],
        closing=[Message(_SPEAK, [encoding]), *frame.closing],
    )


def _attempt(operation: Operation[T], frame: _Frame, pgconn: PGconn) -> Exchange[T]:
    batches = _batches(operation, frame)
    batch = next(batches)  # what fails here has sent nothing yet
    # In a transaction that has failed no savepoint can be made: one of that name is not ours.
    may_undo = pgconn.transaction_status != pq.TransactionStatus.INERROR
    try:
        # It ends with the operation.
        while True:
            batch = batches.send((yield batch))
    except StopIteration as end:
        result: T = end.value
        return result
    except GeneratorExit:
        raise
    except BaseException:
        # A COMMIT that was refused has left nothing to undo.
        if may_undo and pgconn.transaction_status != pq.TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                yield frame.undoing
        raise


def _batches(operation: Operation[T], frame: _Frame) -> Exchange[T]:
    """What an operation says, in its frame: with each question all that was said before it."""
    unsent = [*frame.opening]
    try:
        statement = next(operation)
        # An operation ends: it yields a bounded number of statements.
        while True:
            sent = messages(statement)
            unsent += sent
            rows: Rows = ()
            if statement.is_asked:
                results = yield unsent
                unsent = []
                rows = _answer(statement, results[-len(sent) :])
            statement = operation.send(rows)
    except StopIteration as end:
        result: T = end.value
    yield [*unsent, *frame.closing]
    return result


def _refused(connection: object, url: str, *, door: str) -> WrongConnection:
    reason = f"It is a {kind_of(connection)}" + (f", and {door} is for those." if door else ".")
    return WrongConnection(url, reason, takes=TAKES)


def _led_astray(url: str) -> Exchange[WrongConnection]:
    [result] = yield [_WHERE]
    [[database, search_path]] = _read(result)
    return WrongConnection(
        url,
        f"It finds no such tables in the database {database!r} by its search_path: {search_path}.",
        takes=f"{TAKES}, with the schema of its tables on the search_path",
    )


# ---------------------------------------------------------------- out and in


class _Verbatim(Dumper):
    """A text that is ready to be sent, whose type the server knows from its place."""

    def dump(self, obj: bytes) -> bytes:
        return obj


def _speak_plainly(adapters: AdaptersMap) -> None:
    adapters.register_dumper(bytes, _Verbatim)
    adapters.register_dumper(type(None), _Verbatim)


def _asked(message: Message) -> tuple[bytes, Mapping[str, bytes | None] | None]:
    """A message as cursors take it."""
    text, values = message
    if values is None:
        return text, None
    return _pyformat(text), {str(place): value for place, value in enumerate(values, 1)}


@lru_cache(maxsize=512)
def _pyformat(text: bytes) -> bytes:
    """From ``$1`` to ``%(1)s``: cursors that take the former are not in every psycopg yet."""
    return _PLACE.sub(rb"%(\1)s", text.replace(b"%", b"%%"))


def _result(cursor: psycopg.Cursor[Row] | psycopg.AsyncCursor[Row]) -> PGresult:
    assert cursor.pgresult is not None, cursor
    return cursor.pgresult


def _answer(statement: Statement, results: Sequence[PGresult]) -> Rows:
    last = results[-1]
    if last.status == pq.ExecStatus.TUPLES_OK:
        return _read(last)
    changed = last if statement.many is None else results[0]
    return [(changed.command_tuples or 0,)]


def _read(result: PGresult) -> Rows:
    readers = [
        _READER_BY_TYPE.get(result.ftype(column), bytes.decode) for column in range(result.nfields)
    ]
    return [
        tuple(
            None if (value := result.get_value(row, column)) is None else read(value)
            for column, read in enumerate(readers)
        )
        for row in range(result.ntuples)
    ]
