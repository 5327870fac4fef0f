"""Overrides of limits."""

from typing import Annotated, Final

from tickwork._inspect.limits import LimitView
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.problems import ProblemError

LISTED_MAX: Final = 20


@act(
    "limit.change",
    Role.ADMIN,
    "PUT /limits/{name}",
    form=ActForm(
        lambda done: f"The limit {done.name} is {done.in_force or 'off'} now.", "/limits/change"
    ),
)
def change_limit(
    call: ActCall,
    name: fields.Named,
    *,
    slots: Annotated[int, fields.SLOTS, "Runs at a time; 0: no limit."],
) -> LimitView:
    """Override a limit, from the next claim on."""
    _check_known(call.app, name)
    return call.app.inspect.view_limit(call.perform(call.app.limits.change, name, slots))


@act(
    "limit.reset",
    Role.ADMIN,
    "DELETE /limits/{name}",
    form=ActForm(
        lambda done: f"The limit {done.name} is {done.in_force} again, as in code.", "/limits/reset"
    ),
)
def reset_limit(call: ActCall, name: fields.Named) -> LimitView:
    """Remove the override of a limit: the one in code applies again."""
    _check_known(call.app, name)
    return call.app.inspect.view_limit(call.perform(call.app.limits.reset, name))


def _check_known(app: Tickwork, name: str) -> None:
    known = [row.name for row in app.limits.list()]
    if name not in known:
        fix = f"The limits are: {', '.join(known[:LISTED_MAX]) or 'none'}."
        raise ProblemError(404, f"There is no limit {name!r}.", code="unknown-limit", fix=fix)
