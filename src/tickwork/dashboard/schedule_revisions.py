"""What the audit log has about the options of a schedule."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tickwork._stores.contract import AuditEntry
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.acts.definitions import (
    change_schedule,
    create_schedule,
    remove_schedule,
    restore_schedule,
)
from tickwork.errors import ScheduleNotFound

PAGE: Final = 200
PAGES_MAX: Final = 10
"""The newest entries about a schedule in which its revisions are searched, with those of other
tenants, pauses and resumes."""

REMOVED_TIME: Final = timedelta(days=7)
"""How long the page of schedules offers to restore one that was removed."""

_ACTIONS: Final = {
    each.action for each in (create_schedule, change_schedule, remove_schedule, restore_schedule)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRevision:
    """One change of a schedule through the dashboard or the API."""

    at: datetime
    actor: str
    source: str
    action: str
    before: dict[str, Any]  # the options that changed, as they were
    after: dict[str, Any]


def list_revisions(app: Tickwork, name: str, *, tenant: str = "") -> list[ScheduleRevision]:
    """List who changed which options of a schedule, newest first."""
    found, failed = [], set[tuple[str, str]]()
    for entry in _read_entries(app, f"schedule/{name}"):
        key = (entry.actor, entry.action.removesuffix(".failed"))
        detail = json.loads(entry.detail)
        if entry.action.endswith(".failed"):
            failed.add(key)  # the next older entry of this actor had no effect
        elif key in failed:
            failed.discard(key)
        elif entry.action in _ACTIONS and detail.get("tenant", "") == tenant:
            found.append(
                ScheduleRevision(
                    at=entry.at,
                    actor=entry.actor,
                    source=entry.source,
                    action=entry.action,
                    before=detail.get("before", {}),
                    after=detail.get("after", {}),
                )
            )
    return found


def _read_entries(app: Tickwork, subject: str) -> Iterator[AuditEntry]:
    """The entries about a subject, newest first, as far as they are read."""
    before = None
    for _ in range(PAGES_MAX):
        page = app.audit.list(subject=subject, before=before, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        before = page[-1].id


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSchedule:
    """A schedule that was removed, and that can be restored."""

    name: str
    tenant: str
    at: datetime
    actor: str


def list_removed(app: Tickwork) -> list[RemovedSchedule]:
    """List the schedules that were removed lately and do not exist now, newest first."""
    since = app.clock.now() - REMOVED_TIME
    found: dict[tuple[str, str], RemovedSchedule] = {}
    for entry in app.audit.list(action=remove_schedule.action, limit=PAGE):
        if entry.at < since:
            break
        name = entry.subject.removeprefix("schedule/")
        tenant = json.loads(entry.detail).get("tenant", "")
        found.setdefault(
            (tenant, name),
            RemovedSchedule(name=name, tenant=tenant, at=entry.at, actor=entry.actor),
        )
    return [each for each in found.values() if not _exists(app, each)]


def _exists(app: Tickwork, removed: RemovedSchedule) -> bool:
    try:
        app.schedules.get(removed.name, tenant=removed.tenant)
    except ScheduleNotFound:
        return False
    return True
