"""A caller's own connection to PostgreSQL, plain or async, as the store needs one.

With psycopg everything goes out in a pipeline: with it one verb takes few round trips, and it does
not matter whether the caller is in one. Values go out as the texts that they are, and what comes
back is read as it came over the wire, so that no row factory, loader or dumper of the caller's
has a part in it. Nothing is prepared, and no setting is changed for longer than the verb.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from tickwork._domain.run import NewRun
from tickwork.stores._sql.caller_connection import SqlAsyncRuns, type_name
from tickwork.stores._sql.operations import enqueue
from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.sessions import (
    async_driver_connection,
    driver_connection,
    is_async_session,
    is_session,
)
from tickwork.stores._sql.statement import Operation, Row, Rows, StatementResult
from tickwork.stores.contract import Enqueued
from tickwork.stores.postgres.asyncpg_adapter import AsyncpgAdapter, is_asyncpg
from tickwork.stores.postgres.caller_transaction import (
    SAVEPOINT,
    TRANSACTION,
    Batch,
    BatchExchange,
    Frame,
    require_read_committed,
    run_operation,
    wrong_connection,
)
from tickwork.stores.postgres.values import Message

T = TypeVar("T")

_SET_ENCODING: Final = b"SELECT set_config('client_encoding', $1, true)"
_UTF8: Final = b"UTF8"
_READER_BY_TYPE: Final[Mapping[int, Callable[[bytes], Any]]] = {
    16: b"t".__eq__,  # boolean
    20: int,  # bigint
    21: int,  # smallint
    23: int,  # integer
}
"""By the number that a type has on every server. All others are text for us."""
_PLACE: Final = re.compile(rb"\$(\d+)")


class PostgresCallerConnection:
    """A caller's plain connection. What the caller has open on it is the caller's to end."""

    def __init__(self, lent: object, *, url: str) -> None:
        self._lent = lent
        self._url = url
        self._connection()

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction, as a whole or not at all."""
        connection = self._connection()
        with connection.pipeline() as pipeline:
            said = run_operation(begin, _PsycopgAdapter(connection), url=self._url)
            try:
                batch = next(said)
                # It ends: there is a bounded number of tries, each of a bounded operation.
                while True:
                    try:
                        results = self._send(connection, batch.messages, pipeline)
                    except BaseException as error:  # noqa: BLE001  # it comes out again
                        batch = said.throw(error)
                    else:
                        batch = said.send(_answers(batch, results))
            except StopIteration as end:
                result: T = end.value
                return result

    def _connection(self) -> psycopg.Connection[Any]:
        """Asked for each time: a session has another one after each of its transactions."""
        found = driver_connection(self._lent)
        if isinstance(found, psycopg.Connection):
            return found
        is_async = isinstance(found, psycopg.AsyncConnection) or is_asyncpg(found)
        door = "using_async()" if is_async or is_async_session(found) else ""
        raise wrong_connection(type_name(self._lent, found), self._url, door=door)

    def _send(
        self,
        connection: psycopg.Connection[Any],
        messages: list[Message],
        pipeline: psycopg.Pipeline,
    ) -> list[PGresult]:
        cursors = []
        try:
            for message in messages:
                cursor = psycopg.Cursor(connection, row_factory=tuple_row)
                _register_dumpers(cursor.adapters)
                cursor.execute(*_as_query(message), prepare=False, binary=False)
                cursors.append(cursor)
            pipeline.sync()
        except BaseException:
            # What came after the error is answered too, before anything else can be sent.
            with suppress(psycopg.Error):
                pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


class PostgresAsyncRuns(SqlAsyncRuns):
    """A caller's async connection: the same, with ``await`` where the wire is touched."""

    def __init__(self, lent: object, *, url: str, query: Queries) -> None:
        super().__init__(query)
        self._lent = lent
        self._url = url
        if not is_async_session(lent):
            self._check(lent)

    async def enqueue(self, runs: Sequence[NewRun], *, is_repeat: bool = False) -> list[Enqueued]:
        if not is_repeat:
            return await super().enqueue(runs)
        return await self._write(
            lambda: require_read_committed(
                enqueue.enqueue(self._query, runs, is_repeat=True), url=self._url
            )
        )

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._check(await async_driver_connection(self._lent))
        if not isinstance(connection, psycopg.AsyncConnection):
            adapter = AsyncpgAdapter(connection)
            return await _run_async(run_operation(begin, adapter, url=self._url), adapter.send)
        async with connection.pipeline() as pipeline:

            async def send(batch: Batch) -> list[StatementResult]:
                return _answers(batch, await self._send(connection, batch.messages, pipeline))

            return await _run_async(
                run_operation(begin, _PsycopgAdapter(connection), url=self._url), send
            )

    def _check(self, found: object) -> Any:
        if isinstance(found, psycopg.AsyncConnection) or is_asyncpg(found):
            return found
        is_plain = isinstance(found, psycopg.Connection) or is_session(found)
        raise wrong_connection(
            type_name(self._lent, found), self._url, door="using()" if is_plain else ""
        )

    async def _send(
        self,
        connection: psycopg.AsyncConnection[Any],
        messages: list[Message],
        pipeline: psycopg.AsyncPipeline,
    ) -> list[PGresult]:
        cursors = []
        try:
            for message in messages:
                cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                _register_dumpers(cursor.adapters)
                await cursor.execute(*_as_query(message), prepare=False, binary=False)
                cursors.append(cursor)
            await pipeline.sync()
        except BaseException:
            # What came after the error is answered too, before anything else can be sent.
            with suppress(psycopg.Error):
                await pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


async def _run_async(
    said: BatchExchange[T], send: Callable[[Batch], Awaitable[list[StatementResult]]]
) -> T:
    try:
        batch = next(said)
        # It ends: there is a bounded number of tries, each of a bounded operation.
        while True:
            try:
                answers = await send(batch)
            except BaseException as error:  # noqa: BLE001  # it comes out again
                batch = said.throw(error)
            else:
                batch = said.send(answers)
    except StopIteration as end:
        result: T = end.value
        return result


class _PsycopgAdapter:
    """What psycopg knows of a connection by itself."""

    def __init__(
        self, connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
    ) -> None:
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        return self._status == pq.TransactionStatus.IDLE

    @property
    def has_failed(self) -> bool:
        return self._status == pq.TransactionStatus.INERROR

    @property
    def _status(self) -> int:
        return self._connection.pgconn.transaction_status

    def frame(self) -> Frame:
        """A savepoint in what is open, or a transaction where nothing is, or can be."""
        # Where nothing is open yet, psycopg begins a transaction with the first statement.
        frame = TRANSACTION if self._connection.autocommit and self.is_idle else SAVEPOINT
        encoding = self._connection.pgconn.parameter_status(b"client_encoding")
        if encoding is None or encoding == _UTF8:
            return frame
        return frame._replace(
            opening=[*frame.opening, Message(_SET_ENCODING, [_UTF8])],
            closing=[Message(_SET_ENCODING, [encoding]), *frame.closing],
        )


# ---------------------------------------------------------------- out and in


class _Verbatim(Dumper):
    """A text that is ready to be sent, whose type the server knows from its place."""

    def dump(self, obj: bytes) -> bytes:
        return obj


def _register_dumpers(adapters: AdaptersMap) -> None:
    adapters.register_dumper(bytes, _Verbatim)
    adapters.register_dumper(type(None), _Verbatim)


def _as_query(message: Message) -> tuple[bytes, Mapping[str, bytes | None] | None]:
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


def _answers(batch: Batch, results: Sequence[PGresult]) -> list[StatementResult]:
    return [_answer(result) for result in results[len(results) - batch.asked :]]


def _answer(result: PGresult) -> StatementResult:
    has_rows = result.status == pq.ExecStatus.TUPLES_OK
    return StatementResult(_read(result) if has_rows else None, result.command_tuples or 0)


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
