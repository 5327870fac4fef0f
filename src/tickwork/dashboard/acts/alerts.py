"""Mutes of alerts: the audit log keeps them, so all dashboards of a database have the same."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tickwork._inspect.alerts import AlertMute
from tickwork._kernel.durations import parse_duration
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.acts.pauses import Note, Until


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
