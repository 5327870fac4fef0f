"""A caller's asyncpg connection.

asyncpg prepares whatever has values, and turns them into Python's by codecs that a caller may have
changed, for any type. So nothing of ours has values: they stand in the statement, as literals of
plain ASCII that every setting reads alike; several statements go out at once; and rows come back
as JSON by COPY, which no codec, record class or statement cache has a part in.
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
    """Whether it is a connection of asyncpg, be it one of a pool's."""
    return is_instance_of(thing, ("asyncpg", "Connection"), ("asyncpg.pool", "PoolConnectionProxy"))


class AsyncpgAdapter:
    """Carries messages by asyncpg."""

    has_failed: Final = False  # it does not say so beforehand; the server will

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open; on one that was lost there is none."""
        connection = self._connection
        return connection.is_closed() or not connection.is_in_transaction()

    def frame(self) -> Frame:
        """A savepoint in what is open. Where nothing is, asyncpg commits each statement."""
        return TRANSACTION if self.is_idle else SAVEPOINT

    async def send(self, batch: Batch) -> list[StatementResult]:
        """Send a batch; return the answers that were asked for."""
        texts = [_written_out(message) for message in batch.messages]
        asked = len(texts) - batch.asked
        unsent = texts[:asked]
        answers: list[StatementResult] = []
        for text in texts[asked:]:
            if text.startswith("SELECT"):
                await self._tell(unsent)
                rows = await self._ask(text)
                answers.append(StatementResult(rows, len(rows)))
            else:
                status = await self._tell([*unsent, text])
                answers.append(StatementResult(None, int(status.rpartition(" ")[2])))
            unsent = []
        await self._tell(unsent)
        return answers

    async def _tell(self, texts: list[str]) -> str:
        return await self._connection.execute(";\n".join(texts)) if texts else ""

    async def _ask(self, text: str) -> Rows:
        heard: list[bytes] = []

        async def hear(data: bytes) -> None:
            heard.append(data)

        await self._connection.copy_from_query(
            f"SELECT row_to_json(asked) FROM ({text}) AS asked",  # noqa: S608  # our own query
            output=hear,
            format="text",
            encoding="UTF8",
        )
        return [_row(line) for line in b"".join(heard).splitlines()]


def _row(line: bytes) -> Row:
    # JSON has no character that COPY would escape, but for the backslash.
    return tuple(json.loads(line.replace(b"\\\\", b"\\")).values())


def _written_out(message: Message) -> str:
    r"""A statement with its values in it.

    >>> print(_written_out(Message(b"SELECT $1, $2, $2", [b'it\'s "\\"', None])))
    SELECT E'it''s \"\\\"', NULL, NULL
    >>> print(_written_out(Message("SELECT $1".encode(), ["\n€😀".encode()])))
    SELECT E'\n\u20ac\ud83d\ude00'
    """
    text, values = message
    written = ["NULL" if value is None else _literal(value) for value in values or ()]
    return _PLACE.sub(lambda place: written[int(place[1]) - 1], text.decode())


def _literal(value: bytes) -> str:
    """What JSON writes for a text, PostgreSQL reads as the same, but for the quotes around it."""
    return "E'" + json.dumps(value.decode())[1:-1].replace("'", "''") + "'"
