"""When new versions of the application were deployed, and what was changed since."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tickwork._inspect.audit_entries import AuditEntryView, view_entries
from tickwork._kernel.ids import first_id
from tickwork._stores.contract import AuditEntry, Store
from tickwork._worker.services.deploys import SUBJECT

DEPLOYS_MAX: Final = 50
CHANGES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """The start of the first worker of a version."""

    at: datetime
    version: str
    before: str  # the version that ran until then; empty if unknown
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What people and programs did since an instant, newest first."""

    since: datetime
    deploy: Deploy | None  # the one that the changes follow
    entries: list[AuditEntryView]
    has_more: bool


def list_deploys(store: Store) -> list[Deploy]:
    """The deploys that the audit log has, newest first."""
    deploys: list[Deploy] = []
    for entry in store.list_audit(subject=SUBJECT, limit=DEPLOYS_MAX):
        deploy = _deploy_of(entry)
        # Two workers of a version that started at once have made two marks: the older one counts.
        if deploy is not None and deploys and deploys[-1].version == deploy.version:
            deploys.pop()
        if deploy is not None:
            deploys.append(deploy)
    return deploys


def list_changes(store: Store, *, since: datetime | None, now: datetime) -> Changes:
    """The entries of the audit log since an instant; since the newest deploy unless given."""
    deploys = list_deploys(store)
    deploy = deploys[0] if deploys and since is None else None
    begin = since or (now if deploy is None else deploy.at)
    entries = store.list_audit(limit=CHANGES_MAX + 1)
    recent = [each for each in entries if each.id >= first_id(begin) and each.subject != SUBJECT]
    return Changes(
        since=begin,
        deploy=deploy,
        entries=view_entries(recent[:CHANGES_MAX]),
        has_more=len(recent) > CHANGES_MAX,
    )


def _deploy_of(entry: AuditEntry) -> Deploy | None:
    try:
        detail = json.loads(entry.detail)
        return Deploy(
            at=entry.at,
            version=str(detail["version"]),
            before=str(detail.get("before", "")),
            host=entry.source,
        )
    except (ValueError, LookupError, AttributeError, TypeError):
        return None
