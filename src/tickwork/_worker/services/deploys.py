"""Marks of deploys: when the first worker of a version of the application has started."""

import json
from datetime import datetime
from typing import Final

from tickwork._kernel.ids import new_id
from tickwork._kernel.loggers import get_logger
from tickwork._stores.contract import AuditEntry, Store
from tickwork.errors import StoreError

SUBJECT: Final = "application"
"""The subject of marks in the audit log."""

ACTION: Final = "deploy"

_log: Final = get_logger("tickwork.worker")


def note_deploy(store: Store, version: str, *, host: str, now: datetime) -> None:
    """Add a mark to the audit log, unless the newest one has this version.

    Two workers that start at the same moment may both add one.
    """
    if not version:
        return
    try:
        newest = store.list_audit(subject=SUBJECT, limit=1)
        before = json.loads(newest[0].detail).get("version", "") if newest else ""
        if before != version:
            detail = json.dumps({"version": version, "before": before})
            entry = AuditEntry(new_id(now), now, "worker", host, ACTION, SUBJECT, detail)
            store.add_audit(entry)
    except (StoreError, ValueError, AttributeError) as error:
        _log.warning("The start of version %s is not in the audit log: %s", version, error)
