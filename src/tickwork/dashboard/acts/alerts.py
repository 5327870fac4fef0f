"""Mutes of alerts: the audit log keeps them, so all dashboards of a database have the same."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tickwork._kernel.durations import parse_duration
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.acts.pauses import Note, Until


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMute:
    """An alert that is not counted for a time."""

    name: str
    until: datetime | None  # null: until it is unmuted
    note: str
    actor: str


def _read_mute(get: Callable[[str], str], now: datetime) -> dict[str, Any]:
    length = get("length")
    if not length:
        return {}
    return {"until": now + max(parse_duration(length), timedelta(seconds=1))}


@act(
    "alert.mute",
    Role.OPERATOR,
    "POST /alerts/{name}/mute",
    form=ActForm(lambda _: "The alert is muted.", read=_read_mute),
)
def mute_alert(
    call: ActCall, name: fields.Named, *, note: Note = "", until: Until | None = None
) -> AlertMute:
    """Mute an alert: pages do not count it. Alerts that workers send are not changed."""
    muted = AlertMute(name=name, until=until, note=note, actor=call.caller.user.name)
    return call.perform(lambda: muted)


@act(
    "alert.unmute",
    Role.OPERATOR,
    "POST /alerts/{name}/unmute",
    form=ActForm(lambda _: "The alert is counted again."),
)
def unmute_alert(call: ActCall, name: fields.Named) -> AlertMute:
    """Count an alert again."""
    now = call.app.clock.now()
    muted = AlertMute(name=name, until=now, note="", actor=call.caller.user.name)
    return call.perform(lambda: muted)


def read_mute(app: Tickwork, name: str, *, now: datetime) -> AlertMute | None:
    """The mute of an alert that is in force; None if there is none."""
    newest = next(
        (
            each
            for each in app.audit.list(subject=f"alert/{name}", limit=5)
            if each.action in {"alert.mute", "alert.unmute"}
        ),
        None,
    )
    if newest is None or newest.action == "alert.unmute":
        return None
    detail = json.loads(newest.detail)
    until = datetime.fromisoformat(detail["until"]) if "until" in detail else None
    if until is not None and until <= now:
        return None
    return AlertMute(name=name, until=until, note=detail.get("note", ""), actor=newest.actor)
