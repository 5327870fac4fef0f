"""Open waits as people see them: who waits for what, since when, until when."""

from dataclasses import dataclass
from datetime import datetime

from tickwork._domain.identity import RunId
from tickwork._domain.runs.stored_events import FOREVER
from tickwork._stores.contract import OpenWait, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitView:
    """A run that waits for an event."""

    run: RunId
    job: str
    queue: str
    tenant: str
    event: str
    key: str
    is_signal: bool  # the key is the id of the run
    since: datetime
    until: datetime | None  # null: for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitList:
    """One page of open waits, the oldest run first."""

    waits: list[WaitView]
    cursor: RunId | None  # of the next page; null: this is the last one


def list_waits(store: Store, *, cursor: RunId | None, limit: int) -> WaitList:
    page = store.list_waits(after=cursor, limit=limit)
    return WaitList(waits=[_view(each) for each in page.waits], cursor=page.cursor)


def _view(wait: OpenWait) -> WaitView:
    return WaitView(
        run=wait.run_id,
        job=wait.job,
        queue=wait.queue,
        tenant=wait.tenant,
        event=wait.event,
        key=wait.key,
        is_signal=wait.key == wait.run_id,
        since=wait.since,
        until=None if wait.until >= FOREVER else wait.until,
    )
