"""Tells waiting workers that there is something to do, where a database can tell."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tickwork.stores._sql.queries import Queries
from tickwork.stores._sql.statement import Operation

SOON: Final = timedelta(seconds=2)
"""A run that is due later than this is found by a worker's own look, in time."""

ANY_QUEUE: Final = ""


def notify_queues(query: Queries, queues: Iterable[str]) -> Operation[None]:
    """Wake whoever waits, when this transaction commits."""
    if "notify" in query:
        names = sorted(set(queues))
        if names:
            yield query.command("notify", queues=names)


def notify_all(query: Queries) -> Operation[None]:
    """Wake everybody, for something that changes seldom.

    So it is worth a row, where a database cannot tell anybody anything.
    """
    if "count_change" in query:
        yield query.command("count_change")
    else:
        yield from notify_queues(query, [ANY_QUEUE])


def is_soon(due_at: datetime, *, now: datetime) -> bool:
    """Whether somebody may be asleep when it is due, and must be told."""
    return due_at - now <= SOON
