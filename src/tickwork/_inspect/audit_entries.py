"""Entries of the audit log, with their detail as values."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tickwork._stores.contract import AuditEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntryView:
    """One action of a person or a program."""

    id: str
    at: datetime
    actor: str
    source: str
    action: str
    subject: str
    detail: dict[str, Any]


def view_entries(entries: Iterable[AuditEntry]) -> list[AuditEntryView]:
    return [
        AuditEntryView(
            id=each.id,
            at=each.at,
            actor=each.actor,
            source=each.source,
            action=each.action,
            subject=each.subject,
            detail=_read_detail(each.detail),
        )
        for each in entries
    ]


def _read_detail(text: str) -> dict[str, Any]:
    try:
        detail = json.loads(text)
    except ValueError:  # another program has edited the row
        detail = text
    return detail if isinstance(detail, dict) else {"text": detail}
