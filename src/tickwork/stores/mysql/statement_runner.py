"""How a statement becomes texts, and what is made of their answers."""

from typing import Protocol

from tickwork.stores._sql.statement import Rows, Statement, StatementResult
from tickwork.stores.mysql.values import template


class TextChannel(Protocol):
    """What a statement is run on."""

    @property
    def packet_max(self) -> int:
        """How long one text should be at most."""
        ...

    def send(self, text: str) -> None:
        """Send a text, at the latest with the next that is asked."""
        ...

    def fetch(self) -> StatementResult:
        """What the last text gave."""
        ...


def run_statement(statement: Statement, channel: TextChannel) -> Rows:
    """Run a statement, inside the transaction that is open."""
    answer = _answer(statement, channel)
    if answer is None:
        return ()
    return [(answer.changed,)] if answer.rows is None else answer.rows


def _answer(statement: Statement, channel: TextChannel) -> StatementResult | None:
    answer: StatementResult | None = None
    for place, part in enumerate(statement.parts):
        made = template(part)
        found: Rows = ()
        if made.needs_found:
            found = channel.fetch().rows or ()
            if not found:
                answer = StatementResult([] if part.startswith("SELECT") else None, 0)
                continue
        texts = made.texts(statement, found)
        rows = statement.many or ()
        if place == 0 and len(rows) > 1 and len(texts[0]) > channel.packet_max:
            return _in_halves(statement, rows, channel)
        for text in texts:
            channel.send(text)
        answer = None
    if not statement.needs_result:
        return None
    return channel.fetch() if answer is None else answer


def _in_halves(statement: Statement, rows: Rows, channel: TextChannel) -> StatementResult:
    """A batch that is too long for one packet, as two. Of a batch only numbers are asked."""
    middle = len(rows) // 2
    changed = 0
    for half in (rows[:middle], rows[middle:]):
        answer = _answer(statement._replace(many=half), channel)
        if answer is not None:
            changed += answer.changed if answer.rows is None else answer.rows[0][0]
    return StatementResult(None, changed)
