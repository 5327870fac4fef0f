"""What users may change: an act is declared once, and its signature is its endpoint and its form.

A change is checked, audited, and then done.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from tickwork._kernel.json_form import as_json
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.access import Caller, Role, User
from tickwork.dashboard.endpoints import Endpoint
from tickwork.dashboard.problems import ProblemError

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")

log: Final = logging.getLogger("tickwork.dashboard")


class ActCall(NamedTuple):
    """One use of an act: by whom, on what, and what the audit log has about it."""

    app: Tickwork
    caller: Caller
    action: str
    subject: str
    detail: Mapping[str, Any]
    is_part: bool = False  # of a bulk action, which has an entry of its own

    def with_detail(self, **detail: Any) -> "ActCall":
        """The same with another detail for the audit log, instead of the values of the request."""
        return self._replace(detail=detail)

    def perform(self, change: Callable[Q, T], *args: Q.args, **options: Q.kwargs) -> T:
        """Audit the act, and then change something."""
        if self.is_part:
            return change(*args, **options)
        facts = {
            name: value for name, value in self.detail.items() if value is not None and value != ""
        }
        return self.app.audit.perform(
            self.action,
            self.subject,
            lambda: change(*args, **options),
            actor=self.caller.user.name,
            source=self.caller.address,
            detail=as_json(facts),
        )


class ActForm(NamedTuple):
    """The form of an act on the pages."""

    done: Callable[[Any], str | tuple[str, str]]
    """The message about a result, and the page that shows it, if it is not the one of the form."""

    path: str = ""
    """Where the form is sent. Default: the path of the act."""

    read: Callable[[Callable[[str], str], datetime], dict[str, Any]] | None = None
    """Reads the values that the form has in another way than the endpoint."""


@dataclass(frozen=True, kw_only=True)
class Act(Endpoint, Generic[P, T]):
    """A function that changes something, and who may use it."""

    function: Callable[Concatenate[ActCall, P], T]
    action: str
    role: Role
    subject: str
    form: ActForm | None = None


ACTS: Final[dict[str, Act[..., Any]]] = {}


def act(
    action: str,
    role: Role,
    route: str,
    *,
    subject: str = "",
    status: int = 200,
    form: ActForm | None = None,
    either: tuple[str, ...] = (),
    is_either_required: bool = False,
) -> Callable[[Callable[Concatenate[ActCall, P], T]], Act[P, T]]:
    """Declare an act: its name in the audit log, the role that it needs, method and path.

    The subject of its entry in the audit log is its first parameter, after the part of the name
    before the dot, or after another ``subject``; the detail has the other parameters. The
    function calls ``perform`` exactly once, with the function that makes the change.
    """
    method, path = route.split()

    def declare(function: Callable[Concatenate[ActCall, P], T]) -> Act[P, T]:
        declared = Act(
            method=method,
            path=path,
            function=function,
            tag=path.split("/")[1],
            status=status,
            errors=(404, 409),
            action=action,
            role=role,
            subject=subject or action.partition(".")[0],
            form=form,
            either=either,
            is_either_required=is_either_required,
        )
        ACTS[action] = declared
        return declared

    return declare


class Actions:
    """Carries out the acts of users."""

    def __init__(self, app: Tickwork, *, is_read_only: bool) -> None:
        self.app = app
        self.is_read_only = is_read_only

    def may(self, user: User, action: str) -> bool:
        """Whether a user may take an action here."""
        return not self.is_read_only and user.may(ACTS[action].role)

    def take(self, caller: Caller, act: Act[P, T], /, *args: P.args, **values: P.kwargs) -> T:
        """Carry out an act for a caller, with the values of its parameters.

        Raises:
            ProblemError: The caller may not do this, or the state does not allow it.
        """
        self.check(caller, act)
        return act.function(self._call(caller, act, args, values), *args, **values)

    def take_part(self, caller: Caller, act: Act[P, T], /, *args: P.args, **values: P.kwargs) -> T:
        """Carry out an act as a part of a bulk action, which was checked and audited as a whole."""
        call = self._call(caller, act, args, values)._replace(is_part=True)
        return act.function(call, *args, **values)

    def _call(
        self, caller: Caller, act: Act[..., Any], args: tuple[Any, ...], values: dict[str, Any]
    ) -> ActCall:
        _, first, *_ = inspect.signature(act.function).parameters
        subject = args[0] if args else values[first]
        detail = {name: value for name, value in values.items() if name != first}
        return ActCall(self.app, caller, act.action, f"{act.subject}/{subject}", detail)

    def check(self, caller: Caller, act: Act[..., Any]) -> None:
        """Check that the caller may use an act.

        Raises:
            ProblemError: The role of the user does not suffice, or the dashboard is read-only.
        """
        if self.is_read_only:
            raise ProblemError(403, "This dashboard is read-only.", code="read-only")
        if not caller.user.may(act.role):
            needed = act.role.name.lower()
            log.warning("%s may not do %s: it needs %s.", caller.user.name, act.action, needed)
            raise ProblemError(
                403,
                f"{act.action} needs the role {needed}; you are {caller.user.role.name.lower()}.",
                code="role",
            )
