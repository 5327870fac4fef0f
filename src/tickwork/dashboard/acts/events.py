"""What users may do with events: emit them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act


def read_data(get: Callable[[str], str], _: datetime) -> dict[str, Any]:
    """The data that a form has, as JSON."""
    text = get("data").strip()
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("a JSON object") from None
    return {"data": fields.OBJECT.parse(value, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitResponse:
    """The result of an emit."""

    event: str
    key: str
    is_new: bool  # false: an event of this name and key was stored before, which stays


@act(
    "event.emit",
    Role.OPERATOR,
    "POST /emitted-events",
    form=ActForm(
        lambda done: "The event is stored." if done.is_new else "The event was stored before.",
        "/waits/emit",
        read_data,
    ),
)
def emit_event(
    call: ActCall,
    event: Annotated[fields.Text, "The name of the event, as in ctx.wait_for."],
    *,
    key: Annotated[fields.Text, "Its key: what the event is about."],
    data: Annotated[dict[str, Any] | None, fields.OBJECT, "Its data."] = None,
    tenant: Annotated[fields.Text, "The tenant whose runs wait."] = "",
) -> EmitResponse:
    """Store an event, and wake the runs that wait for it."""
    # The data may be secret: the audit log has the name and the key.
    named = call.with_detail(key=key, tenant=tenant)
    emitted = named.perform(call.app.emit, event, key=key, data=data, tenant=tenant)
    return EmitResponse(event=event, key=key, is_new=emitted.is_new)
