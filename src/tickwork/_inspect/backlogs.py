"""How long the oldest run of each queue has waited, and what is paused."""

from datetime import datetime
from typing import Final

from tickwork._stores.contract import Pause, PauseKind, Store

PAIRS_MAX: Final = 1_000
"""The most pairs of queue and job in which the oldest run is searched."""


def read_pauses(store: Store, now: datetime) -> list[Pause]:
    """The pauses in force. The table can still hold pauses whose time is over."""
    return [row for row in store.list_pauses() if row.until is None or row.until > now]


def read_oldest(store: Store, *, now: datetime, is_paused_too: bool = False) -> dict[str, datetime]:
    """The due time of the ready run of each queue that has waited longest.

    Runs of paused queues and jobs do not count, unless wanted.
    """
    paused = {(pause.kind, pause.name) for pause in read_pauses(store, now)}
    pairs = [
        (queue, job)
        for queue, job in store.ready_pairs()[:PAIRS_MAX]
        if is_paused_too or not ({(PauseKind.QUEUE, queue), (PauseKind.JOB, job)} & paused)
    ]
    oldest: dict[str, datetime] = {}
    for (queue, _), due_at in store.oldest_ready(pairs).items():
        oldest[queue] = min(due_at, oldest.get(queue, due_at))
    return oldest
