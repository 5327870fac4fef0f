"""Notifies idle workers of new work, where the database supports it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tickwork._stores._sql.queries import Queries
from tickwork._stores._sql.statement import Operation

SOON: Final = timedelta(seconds=2)
"""A worker polls in time for runs that are due later than this."""

ANY_QUEUE: Final = ""


def notify_queues(query: Queries, queues: Iterable[str]) -> Operation[None]:
    """Notify the workers of these queues when this transaction commits."""
    if query.optional.notify:
        names = sorted(set(queues))
        if names:
            yield query.command("notify", queues=names)


def notify_all(query: Queries) -> Operation[None]:
    """Notify all workers of a rare change, such as a new schedule.

    MySQL has no notifications: there it increments a counter, which listeners poll. Runs do not
    need that, because listeners poll the newest id as well.
    """
    if query.optional.count_change:
        yield query.command("count_change")
    else:
        yield from notify_queues(query, [ANY_QUEUE])


def is_soon(due_at: datetime, *, now: datetime) -> bool:
    """Whether idle workers must be notified, because they may not poll in time."""
    return due_at - now <= SOON
