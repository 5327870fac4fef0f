"""Runs statements on a caller's psycopg2 connection.

psycopg2 has no parameters on the server, and converts values by typecasters that the caller may
have changed. So values are literals, and rows are returned as the hexadecimal digits of JSON, which
no typecaster and no client encoding changes.
"""

from contextlib import closing
from typing import Any, Final

from tickwork._stores._sql.sessions import is_instance_of
from tickwork._stores._sql.statement import StatementResult
from tickwork._stores.postgres.caller_transaction import SAVEPOINT, TRANSACTION, Batch, Frame
from tickwork._stores.postgres.literals import inline_values, returns_rows, row_of

_SELECT_JSON: Final = "SELECT encode(convert_to(row_to_json(tickwork)::text, 'UTF8'), 'hex') FROM"

# As in libpq.
_IDLE: Final = 0
_IN_ERROR: Final = 3


def is_psycopg2(thing: object) -> bool:
    """Whether it is a connection of psycopg2."""
    return is_instance_of(thing, ("psycopg2.extensions", "connection"))


class Psycopg2Adapter:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open. A closed connection has none."""
        connection = self._connection
        return bool(connection.closed) or connection.get_transaction_status() == _IDLE

    @property
    def has_failed(self) -> bool:
        return bool(self._connection.get_transaction_status() == _IN_ERROR)

    def frame(self) -> Frame:
        """A savepoint, or a transaction: psycopg2 begins one unless it commits by itself."""
        return TRANSACTION if self._connection.autocommit and self.is_idle else SAVEPOINT

    def send(self, batch: Batch) -> list[StatementResult]:
        """Send a batch; return the results that it needs."""
        texts = [inline_values(message) for message in batch.messages]
        first = len(texts) - batch.results_needed
        unsent = texts[:first]
        results: list[StatementResult] = []
        for message, text in zip(batch.messages[first:], texts[first:], strict=True):
            results.append(self._execute([*unsent, text], has_rows=returns_rows(message.text)))
            unsent = []
        if unsent:
            self._execute(unsent)
        return results

    def _execute(self, texts: list[str], *, has_rows: bool = False) -> StatementResult:
        from psycopg2.extensions import UNICODE, cursor, register_type  # noqa: PLC0415  # loaded

        if has_rows:
            texts[-1] = f"{_SELECT_JSON} ({texts[-1]}) AS tickwork"
        with closing(cursor(self._connection)) as own:  # the caller may have another cursor class
            register_type(UNICODE, own)
            own.execute(";\n".join(texts))
            if not has_rows:
                return StatementResult(None, own.rowcount)
            rows = [row_of(bytes.fromhex(digits)) for (digits,) in own.fetchall()]
            return StatementResult(rows, len(rows))
