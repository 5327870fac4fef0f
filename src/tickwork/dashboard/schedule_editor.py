"""Creates, changes and removes schedules, and lists what was changed: from pages and the API."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, NoReturn

from tickwork._client.schedule_definition import ScheduleDefinition
from tickwork._client.schedule_view import ScheduleView
from tickwork._define.secret_mask import MASK, mask_args
from tickwork._domain.job import ScheduleOrigin
from tickwork._inspect.schedule_details import ScheduleDetails, show_option
from tickwork.app import Tickwork
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.problems import ProblemError

ENTRIES_MAX: Final = 200
"""The newest entries of the audit log in which the revisions of a schedule are searched."""

CREATE: Final = "schedule.create"
CHANGE: Final = "schedule.change"
REMOVE: Final = "schedule.remove"
UNSETTABLE: Final = (
    *("queue", "priority", "expires", "overlap", "misfire", "grace", "jitter", "expect_within"),
    *("until", "max_firings", "target"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRevision:
    """One change of a schedule through the dashboard or the API."""

    at: datetime
    actor: str
    source: str
    action: str
    before: dict[str, Any]  # the options that changed, as they were
    after: dict[str, Any]


class ScheduleEditor:
    """Changes schedules that are defined in the database; those of code are changed in code."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    @property
    def _app(self) -> Tickwork:
        return self._actions.app

    def create(self, caller: Caller, given: Mapping[str, Any]) -> ScheduleView:
        """Create a schedule; an equal one that exists is left as it is."""
        self._actions.check(caller, CREATE)
        args = given.get("args", {})
        self._refuse_masks(args)
        options = {**given, "args": self._rebuild(given["job"], args)}
        definition = ScheduleDefinition(**options)
        detail = {"tenant": given.get("tenant"), "after": self._show(given["job"], given)}
        return self._actions.act(
            caller,
            CREATE,
            f"schedule/{given['name']}",
            lambda: self._app.schedules.create(definition),
            detail,
        )

    def change(
        self,
        caller: Caller,
        name: str,
        given: Mapping[str, Any],
        *,
        tenant: str = "",
    ) -> ScheduleView:
        """Change some options. An entry of the audit log has them before and after."""
        self._actions.check(caller, CHANGE)
        details = self._find(name, tenant)
        if details.origin is ScheduleOrigin.CODE:
            _refuse_code(name)
        changes = dict(given)
        revision = changes.pop("revision", details.revision)
        if revision != details.revision:
            raise ProblemError(
                409,
                f"The schedule {name} was changed meanwhile: this is revision {details.revision}.",
                code="revision",
                fix="Load it again, and repeat the change.",
            )
        changes |= dict.fromkeys(changes.pop("unset", ()))
        if "timezone" in changes and "rule" not in changes and not details.rule.startswith("{"):
            changes["rule"] = details.rule  # a rule is read in its time zone
        job = changes.get("job", details.job)
        shown = self._show(job, changes)
        options = {**changes}
        if "args" in changes:
            options["args"] = self._merge_args(details, job, changes["args"])
        before = {key: value for key, value in asdict(details).items() if key in shown}
        before = {key: show_option(value) for key, value in before.items()}
        if all(before.get(key) == value for key, value in shown.items()) and "args" not in changes:
            return self._app.schedules.get(name, tenant=tenant)
        return self._actions.act(
            caller,
            CHANGE,
            f"schedule/{name}",
            lambda: self._app.schedules.update(name, tenant=tenant, **options),
            {"tenant": tenant, "before": before, "after": shown},
        )

    def remove(self, caller: Caller, name: str, *, tenant: str = "") -> int:
        """Remove a schedule, cancel its pending runs, and return how many there were."""
        self._actions.check(caller, REMOVE)
        details = self._find(name, tenant)
        if details.origin is ScheduleOrigin.CODE and not details.is_retired:
            _refuse_code(name)
        before = {key: show_option(value) for key, value in asdict(details).items()}
        return self._actions.act(
            caller,
            REMOVE,
            f"schedule/{name}",
            lambda: self._app.schedules.unregister(tenant, name),
            {"tenant": tenant, "before": before},
        )

    def list_revisions(self, name: str, *, tenant: str = "") -> list[ScheduleRevision]:
        """List what the audit log has about the options of a schedule, newest first."""
        found, failed = [], set[tuple[str, str]]()
        for entry in self._app.audit.list(subject=f"schedule/{name}", limit=ENTRIES_MAX):
            key = (entry.actor, entry.action.removesuffix(".failed"))
            detail = json.loads(entry.detail)
            if entry.action.endswith(".failed"):
                failed.add(key)  # the next older entry of this actor had no effect
            elif key in failed:
                failed.discard(key)
            elif entry.action in {CREATE, CHANGE, REMOVE} and detail.get("tenant", "") == tenant:
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

    # ------------------------------------------------------------ arguments

    def _find(self, name: str, tenant: str) -> ScheduleDetails:
        return self._app.inspect.schedule_details(name, tenant=tenant)

    def _rebuild(self, job: str, args: Mapping[str, Any]) -> dict[str, Any]:
        definition = self._app.registry.find(job)
        return dict(args) if definition is None else definition.payload.rebuild(args)

    def _merge_args(
        self, details: ScheduleDetails, job: str, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Arguments of a change: a masked one stays as it is stored."""
        kept = [name for name, value in given.items() if value == MASK]
        rest = {name: value for name, value in given.items() if name not in kept}
        self._refuse_masks(rest)
        built = self._rebuild(job, rest)
        if kept:
            stored = self._app.inspect.schedule_args(details.name, tenant=details.tenant)
            built |= {name: stored[name] for name in kept if name in stored}
        return built

    def _refuse_masks(self, value: Any) -> None:
        if _contains_mask(value):
            raise ProblemError(
                422, f"{MASK} stands for a secret, and is not a value.", field="args"
            )

    def _show(self, job: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options for the audit log: texts, and secrets masked."""
        secrets = self._app.inspect.secrets_of(job)
        shown = {key: show_option(value) for key, value in given.items()}
        if isinstance(shown.get("args"), dict):
            shown["args"] = mask_args(shown["args"], secrets)
        for key in ("name", "tenant"):
            shown.pop(key, None)
        return shown


def _refuse_code(name: str) -> NoReturn:
    raise ProblemError(
        409,
        f"The schedule {name} is defined in code.",
        code="defined-in-code",
        fix="Change it in code. It can be paused, resumed and run here.",
    )


def _contains_mask(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_contains_mask, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_contains_mask, value))
    return bool(value == MASK)
