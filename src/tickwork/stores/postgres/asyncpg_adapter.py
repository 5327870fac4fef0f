"""Runs statements on a caller's asyncpg connection.

asyncpg prepares every statement with parameters, and converts values by codecs that the caller may
have changed for any type. So our statements have no parameters: values are ASCII literals, which
do not depend on settings. Several statements are sent at once. Rows are returned as JSON by COPY,
which uses no codec, record class or statement cache.
"""

import json
import re
from typing import Any, Final

from tickwork.stores._sql.sessions import is_instance_of
from tickwork.stores._sql.statement import Row, Rows, StatementResult
from tickwork.stores.postgres.caller_transaction import (
    SAVEPOINT,
    TRANSACTION,
    Batch,
    Frame,
)
from tickwork.stores.postgres.values import Message

_PLACE: Final = re.compile(r"\$(\d+)")


def is_asyncpg(thing: object) -> bool:
    """Whether it is a connection of asyncpg, or one of its pool."""
    return is_instance_of(thing, ("asyncpg", "Connection"), ("asyncpg.pool", "PoolConnectionProxy"))


class AsyncpgAdapter:
    has_failed: Final = False  # asyncpg does not report it; the server rejects the next statement

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open. A closed connection has none."""
        connection = self._connection
        return connection.is_closed() or not connection.is_in_transaction()

    def frame(self) -> Frame:
        """A savepoint, or a transaction: without one, asyncpg commits each statement."""
        return TRANSACTION if self.is_idle else SAVEPOINT

    async def send(self, batch: Batch) -> list[StatementResult]:
        """Send a batch; return the results that it needs."""
        texts = [_inline_values(message) for message in batch.messages]
        first = len(texts) - batch.results_needed
        unsent = texts[:first]
        results: list[StatementResult] = []
        for text in texts[first:]:
            if text.startswith("SELECT"):
                await self._execute(unsent)
                rows = await self._fetch(text)
                results.append(StatementResult(rows, len(rows)))
            else:
                status = await self._execute([*unsent, text])
                results.append(StatementResult(None, int(status.rpartition(" ")[2])))
            unsent = []
        await self._execute(unsent)
        return results

    async def _execute(self, texts: list[str]) -> str:
        return await self._connection.execute(";\n".join(texts)) if texts else ""

    async def _fetch(self, text: str) -> Rows:
        chunks: list[bytes] = []

        async def receive(data: bytes) -> None:
            chunks.append(data)

        await self._connection.copy_from_query(
            f"SELECT row_to_json(result) FROM ({text}) AS result",  # noqa: S608  # our own query
            output=receive,
            format="text",
            encoding="UTF8",
        )
        return [_row(line) for line in b"".join(chunks).splitlines()]


def _row(line: bytes) -> Row:
    # The backslash is the only character of JSON that COPY escapes.
    return tuple(json.loads(line.replace(b"\\\\", b"\\")).values())


def _inline_values(message: Message) -> str:
    r"""A statement with its values as literals.

    >>> print(_inline_values(Message(b"SELECT $1, $2, $2", [b'it\'s "\\"', None])))
    SELECT E'it''s \"\\\"', NULL, NULL
    >>> print(_inline_values(Message("SELECT $1".encode(), ["\n€😀".encode()])))
    SELECT E'\n\u20ac\ud83d\ude00'
    """
    text, values = message
    written = ["NULL" if value is None else _literal(value) for value in values or ()]
    return _PLACE.sub(lambda place: written[int(place[1]) - 1], text.decode())


def _literal(value: bytes) -> str:
    """An escape string: JSON escapes are valid in it, only the quotes differ."""
    return "E'" + json.dumps(value.decode())[1:-1].replace("'", "''") + "'"
