"""How a statement becomes texts, and what is made of their answers."""

from typing import NamedTuple, Protocol

from tickwork.stores._sql.statement import Rows, Statement
from tickwork.stores.mysql.values import template


class Answer(NamedTuple):
    """What one text gave: rows, or else how many it changed."""

    rows: Rows | None
    changed: int


class Line(Protocol):
    """What a statement is run on."""

    @property
    def packet_max(self) -> int:
        """How long one text should be at most."""
        ...

    def say(self, text: str) -> None:
        """Send a text, at the latest with the next that is asked."""
        ...

    def ask(self) -> Answer:
        """What the last text gave."""
        ...


def run_statement(statement: Statement, line: Line) -> Rows:
    """Run a statement, inside the transaction that is open."""
    answer = _answer(statement, line)
    if answer is None:
        return ()
    return [(answer.changed,)] if answer.rows is None else answer.rows


def _answer(statement: Statement, line: Line) -> Answer | None:
    answer: Answer | None = None
    for place, part in enumerate(statement.parts):
        made = template(part)
        found: Rows = ()
        if made.needs_found:
            found = line.ask().rows or ()
            if not found:
                answer = Answer([] if part.startswith("SELECT") else None, 0)
                continue
        texts = made.texts(statement, found)
        rows = statement.many or ()
        if place == 0 and len(rows) > 1 and len(texts[0]) > line.packet_max:
            return _in_halves(statement, rows, line)
        for text in texts:
            line.say(text)
        answer = None
    if not statement.is_asked:
        return None
    return line.ask() if answer is None else answer


def _in_halves(statement: Statement, rows: Rows, line: Line) -> Answer:
    """A batch that is too long for one packet, as two. Of a batch only numbers are asked."""
    middle = len(rows) // 2
    changed = 0
    for half in (rows[:middle], rows[middle:]):
        answer = _answer(statement._replace(many=half), line)
        if answer is not None:
            changed += answer.changed if answer.rows is None else answer.rows[0][0]
    return Answer(None, changed)
