"""Sends a statement as SQL texts, and returns its rows."""

from typing import Protocol

from tickwork._stores._sql.statement import Rows, Statement, StatementResult
from tickwork._stores.mysql.values import template


class TextChannel(Protocol):
    """A connection that takes SQL texts."""

    @property
    def packet_max(self) -> int:
        """The maximal length of a text."""

    def send(self, text: str) -> None:
        """Send a text, at the latest with the next :meth:`fetch`."""

    def fetch(self) -> StatementResult:
        """The result of the last text."""


def run_statement(statement: Statement, channel: TextChannel) -> Rows:
    """Run a statement in the open transaction."""
    result = _run(statement, channel)
    if result is None:
        return ()
    return [(result.changed,)] if result.rows is None else result.rows


def _run(statement: Statement, channel: TextChannel) -> StatementResult | None:
    result: StatementResult | None = None
    for place, part in enumerate(statement.parts):
        made = template(part)
        rows_read: Rows = ()
        if made.needs_found:
            rows_read = channel.fetch().rows or ()
            if not rows_read:
                result = StatementResult([] if part.startswith("SELECT") else None, 0)
                continue
        texts = made.texts(statement, rows_read)
        rows = statement.many or ()
        if place == 0 and len(rows) > 1 and len(texts[0]) > channel.packet_max:
            return _in_halves(statement, rows, channel)
        for text in texts:
            channel.send(text)
        result = None
    if not statement.needs_result:
        return None
    return channel.fetch() if result is None else result


def _in_halves(statement: Statement, rows: Rows, channel: TextChannel) -> StatementResult:
    """Run a batch that is too long for one packet as two. A batch returns only row counts."""
    middle = len(rows) // 2
    changed = 0
    for half in (rows[:middle], rows[middle:]):
        result = _run(statement._replace(many=half), channel)
        if result is not None:
            changed += result.changed if result.rows is None else result.rows[0][0]
    return StatementResult(None, changed)
