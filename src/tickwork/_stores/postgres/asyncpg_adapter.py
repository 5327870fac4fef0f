"""Runs statements on a caller's asyncpg connection.

asyncpg prepares every statement with parameters, and converts values by codecs that the caller may
have changed for any type. So our statements have no parameters: values are ASCII literals, which
do not depend on settings. Several statements are sent at once. Rows are returned as JSON by COPY,
which uses no codec, record class or statement cache.
"""

from typing import Any, Final

from tickwork._stores._sql.sessions import is_instance_of
from tickwork._stores._sql.statement import Rows, StatementResult
from tickwork._stores.postgres.caller_transaction import (
    SAVEPOINT,
    TRANSACTION,
    Batch,
    Frame,
)
from tickwork._stores.postgres.literals import inline_values, returns_rows, row_of


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
        texts = [inline_values(message) for message in batch.messages]
        first = len(texts) - batch.results_needed
        unsent = texts[:first]
        results: list[StatementResult] = []
        for message, text in zip(batch.messages[first:], texts[first:], strict=True):
            if returns_rows(message.text):
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
            f"SELECT row_to_json(tickwork) FROM ({text}) AS tickwork",  # noqa: S608  # our query
            output=receive,
            format="text",
            encoding="UTF8",
        )
        # The backslash is the only character of JSON that COPY escapes.
        lines = b"".join(chunks).replace(b"\\\\", b"\\").splitlines()
        return [row_of(line) for line in lines]
