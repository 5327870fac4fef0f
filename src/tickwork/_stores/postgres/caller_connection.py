"""Runs operations on a caller's own connection to PostgreSQL, plain or async.

With psycopg, statements are sent in a pipeline: an operation takes few round trips, and the caller
may be in a pipeline already. Values are sent as text and results are read as received, so that the
caller's row factories, loaders and dumpers are not used. Nothing is prepared, and settings are
restored after the operation.
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

from tickwork._domain.runs.run import NewRun
from tickwork._stores._sql.caller_connection import SqlAsyncRuns, type_name
from tickwork._stores._sql.operations import inserts
from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.sessions import (
    async_driver_connection,
    driver_connection,
    is_async_session,
    is_session,
    reporting_errors,
)
from tickwork._stores._sql.statement import Operation, Row, Rows, StatementResult
from tickwork._stores.contract import AddedRun
from tickwork._stores.postgres.asyncpg_adapter import AsyncpgAdapter, is_asyncpg
from tickwork._stores.postgres.caller_transaction import (
    SAVEPOINT,
    TRANSACTION,
    Batch,
    BatchExchange,
    Frame,
    require_read_committed,
    run_operation,
    wrong_connection,
)
from tickwork._stores.postgres.psycopg2_adapter import Psycopg2Adapter, is_psycopg2
from tickwork._stores.postgres.values import Message

T = TypeVar("T")

_SET_ENCODING: Final = b"SELECT set_config('client_encoding', $1, true)"
_UTF8: Final = b"UTF8"
_READER_BY_TYPE: Final[Mapping[int, Callable[[bytes], Any]]] = {
    16: b"t".__eq__,  # boolean
    20: int,  # bigint
    21: int,  # smallint
    23: int,  # integer
}
"""By the OID of a type, which is the same on every server. Other types are read as text."""
_PLACE: Final = re.compile(rb"\$(\d+)")


class PostgresCallerConnection:
    """A caller's plain connection. Only the caller ends an open transaction."""

    def __init__(self, connection: object, *, url: str) -> None:
        self._caller_connection = connection
        self._url = url
        self._connection()

    def run(self, begin: Callable[[], Operation[T]]) -> T:
        """Run an operation in the caller's transaction; a failed one is rolled back."""
        with reporting_errors(self._caller_connection):
            return self._run(begin)

    def _run(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._connection()
        if is_psycopg2(connection):
            older = Psycopg2Adapter(connection)
            return _run(run_operation(begin, older, url=self._url), older.send)
        with connection.pipeline() as pipeline:

            def send(batch: Batch) -> list[StatementResult]:
                return _results(batch, self._send(connection, batch.messages, pipeline))

            return _run(run_operation(begin, _PsycopgAdapter(connection), url=self._url), send)

    def _connection(self) -> Any:
        """The driver's connection. A session may have another one in each transaction."""
        inner = driver_connection(self._caller_connection)
        if isinstance(inner, psycopg.Connection) or is_psycopg2(inner):
            return inner
        is_async = isinstance(inner, psycopg.AsyncConnection) or is_asyncpg(inner)
        method = "using_async()" if is_async or is_async_session(inner) else ""
        raise wrong_connection(type_name(self._caller_connection, inner), self._url, method=method)

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
            # Read the answers to the statements after the error, so that the pipeline can go on.
            with suppress(psycopg.Error):
                pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


class PostgresAsyncRuns(SqlAsyncRuns):
    """Store operations on a caller's async connection."""

    def __init__(self, connection: object, *, url: str, query: Queries) -> None:
        super().__init__(query)
        self._caller_connection = connection
        self._url = url
        if not is_async_session(connection):
            self._check(connection)

    async def add_runs(
        self, runs: Sequence[NewRun], *, may_be_stored: bool = False
    ) -> list[AddedRun]:
        if not may_be_stored:
            return await super().add_runs(runs)
        return await self._write(
            lambda: require_read_committed(
                inserts.add_runs(self._query, runs, may_be_stored=True), url=self._url
            )
        )

    async def _write(self, begin: Callable[[], Operation[T]]) -> T:
        connection = self._check(await async_driver_connection(self._caller_connection))
        if not isinstance(connection, psycopg.AsyncConnection):
            adapter = AsyncpgAdapter(connection)
            return await _run_async(run_operation(begin, adapter, url=self._url), adapter.send)
        async with connection.pipeline() as pipeline:

            async def send(batch: Batch) -> list[StatementResult]:
                return _results(batch, await self._send(connection, batch.messages, pipeline))

            return await _run_async(
                run_operation(begin, _PsycopgAdapter(connection), url=self._url), send
            )

    def _check(self, inner: object) -> Any:
        if isinstance(inner, psycopg.AsyncConnection) or is_asyncpg(inner):
            return inner
        is_plain = isinstance(inner, psycopg.Connection) or is_session(inner)
        raise wrong_connection(
            type_name(self._caller_connection, inner),
            self._url,
            method="using()" if is_plain else "",
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
            # Read the answers to the statements after the error, so that the pipeline can go on.
            with suppress(psycopg.Error):
                await pipeline.sync()
            raise
        return [_result(cursor) for cursor in cursors]


def _run(batches: BatchExchange[T], send: Callable[[Batch], list[StatementResult]]) -> T:
    try:
        batch = next(batches)
        # Ends: the number of tries is bounded.
        while True:
            try:
                results = send(batch)
            except BaseException as error:  # noqa: BLE001  # the generator raises it again
                batch = batches.throw(error)
            else:
                batch = batches.send(results)
    except StopIteration as end:
        result: T = end.value
        return result


async def _run_async(
    batches: BatchExchange[T], send: Callable[[Batch], Awaitable[list[StatementResult]]]
) -> T:
    try:
        batch = next(batches)
        # Ends: the number of tries is bounded.
        while True:
            try:
                results = await send(batch)
            except BaseException as error:  # noqa: BLE001  # the generator raises it again
                batch = batches.throw(error)
            else:
                batch = batches.send(results)
    except StopIteration as end:
        result: T = end.value
        return result


class _PsycopgAdapter:
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
        """A savepoint in the open transaction, or else a transaction of its own."""
        # Without autocommit, psycopg begins a transaction with the first statement.
        frame = TRANSACTION if self._connection.autocommit and self.is_idle else SAVEPOINT
        encoding = self._connection.pgconn.parameter_status(b"client_encoding")
        if encoding is None or encoding == _UTF8:
            return frame
        return frame._replace(
            opening=[*frame.opening, Message(_SET_ENCODING, [_UTF8])],
            closing=[Message(_SET_ENCODING, [encoding]), *frame.closing],
        )


# ---------------------------------------------------------------- values and results


class _Verbatim(Dumper):
    """Sends a text unchanged, without a type: the server infers it."""

    def dump(self, obj: bytes) -> bytes:
        return obj


def _register_dumpers(adapters: AdaptersMap) -> None:
    adapters.register_dumper(bytes, _Verbatim)
    adapters.register_dumper(type(None), _Verbatim)


def _as_query(message: Message) -> tuple[bytes, Mapping[str, bytes | None] | None]:
    """A message as arguments of ``Cursor.execute``."""
    text, values = message
    if values is None:
        return text, None
    return _pyformat(text), {str(place): value for place, value in enumerate(values, 1)}


@lru_cache(maxsize=512)
def _pyformat(text: bytes) -> bytes:
    """From ``$1`` to ``%(1)s``: not every psycopg has cursors for the former."""
    return _PLACE.sub(rb"%(\1)s", text.replace(b"%", b"%%"))


def _result(cursor: psycopg.Cursor[Row] | psycopg.AsyncCursor[Row]) -> PGresult:
    assert cursor.pgresult is not None, cursor
    return cursor.pgresult


def _results(batch: Batch, results: Sequence[PGresult]) -> list[StatementResult]:
    return [_result_of(result) for result in results[len(results) - batch.results_needed :]]


def _result_of(result: PGresult) -> StatementResult:
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
