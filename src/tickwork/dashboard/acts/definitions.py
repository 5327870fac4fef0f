"""Creates, changes and removes schedules of the database; those of code are changed in code."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeAlias, TypedDict, Unpack

from tickwork._control.schedule_definition import ScheduleDefinition, ScheduleOptions
from tickwork._control.schedule_view import ScheduleView
from tickwork._define.option_table import OF_SCHEDULES, UNSETTABLE, Kind, Option
from tickwork._domain.job import ScheduleOrigin
from tickwork._inspect.schedule_details import ScheduleDetails, show_option
from tickwork._masks.secret_mask import contains_mask, mask_args
from tickwork._masks.text import MASK
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Role
from tickwork.dashboard.actions import ActCall, ActForm, act
from tickwork.dashboard.acts.runs import refuse_masks
from tickwork.dashboard.etags import check_if_match
from tickwork.dashboard.presentation import runs_are
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import TickworkError

REMOVALS_READ: Final = 200
"""The newest removals of schedules of a name that are read: other tenants may have the same."""

JobName: TypeAlias = Annotated[fields.Name, "The name of the job."]
RuleText: TypeAlias = Annotated[
    str,
    fields.RULE,
    "When it fires: cron (30 2 * * *), a symbol, a pattern (hours=9-17 minutes=0), or a chain as "
    "in code (daily().hours(2), once('2026-12-24T18:00+01:00')). Or the object that the API "
    "returns for a rule without such a text.",
]


_KINDS: Final = {
    Kind.ARGUMENTS: fields.OBJECT,
    Kind.TEXT: fields.NAME,
    Kind.LENGTH: fields.DURATION,
    Kind.INSTANT: fields.INSTANT,
    Kind.NAMES: fields.TAGS,
}
_NUMBERS: Final = {"priority": fields.PRIORITY, "max_firings": fields.FIRINGS}


def _annotate(option: Option) -> Any:
    """The type of a field in requests, as the endpoints read it."""
    if option.choices:
        kind = fields.choice_of(option.choices)
    else:
        kind = _NUMBERS.get(option.name) or _KINDS[option.kind]
    return Annotated[Any, kind, option.help]


if TYPE_CHECKING:

    class ScheduleFields(ScheduleOptions, total=False):
        """The options of a new schedule."""

        timezone: str

    class ChangeFields(ScheduleFields, total=False):
        """What a change may have."""

        job: str
        rule: str

else:
    _OPTIONS: Final = {
        "timezone": Annotated[
            fields.Name, "The time zone of the rule. Default: the application's."
        ],
        **{option.name: _annotate(option) for option in OF_SCHEDULES},
    }
    ScheduleFields = TypedDict("ScheduleFields", _OPTIONS, total=False)
    ChangeFields = TypedDict(
        "ChangeFields", {**_OPTIONS, "job": JobName, "rule": RuleText}, total=False
    )


@act("schedule.create", Role.ADMIN, "POST /schedules", status=201)
def create_schedule(
    call: ActCall,
    name: Annotated[fields.Name, "Its name."],
    *,
    tenant: Annotated[fields.Text, "The tenant that owns it."] = "",
    job: JobName,
    rule: RuleText,
    **options: Unpack[ScheduleFields],
) -> ScheduleView:
    """Create a schedule in the database. An equal one that exists is left as it is."""
    given: dict[str, Any] = {"job": job, "rule": rule, **options}
    args = given.get("args", {})
    refuse_masks(call.app, job, args)
    values = {**given, "args": _rebuild(call.app, job, args)}
    definition = ScheduleDefinition(name=name, tenant=tenant, **values)
    audited = call.with_detail(tenant=tenant, after=_show(call.app, job, given))
    return audited.perform(call.app.schedules.create, definition)


@act("schedule.change", Role.ADMIN, "PATCH /schedules/{name}")
def change_schedule(
    call: ActCall,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    if_match: fields.IfMatch = "",
    revision: Annotated[
        int | None, fields.REVISION, "Refuse the change if this is not the newest one."
    ] = None,
    unset: Annotated[
        Sequence[str],
        fields.names_of(UNSETTABLE),
        "Options that get their default, or the job's, again.",
    ] = (),
    **options: Unpack[ChangeFields],
) -> ScheduleView:
    """Change some options of a schedule that is not defined in code. Others stay as they are."""
    app = call.app
    details = app.inspect.schedule_details(name, tenant=tenant)
    if details.origin is ScheduleOrigin.CODE:
        _refuse_code(name)
    check_if_match(app.schedules.get(name, tenant=tenant), if_match)
    if revision not in {None, details.revision}:
        raise ProblemError(
            409,
            f"The schedule {name} was changed meanwhile: this is revision {details.revision}.",
            code="revision",
            fix="Load it again, and repeat the change.",
        )
    changes: dict[str, Any] = {**options, **dict.fromkeys(unset)}
    if "timezone" in changes and "rule" not in changes and isinstance(details.rule, str):
        changes["rule"] = details.rule  # a rule is read in its time zone
    job = changes.get("job", details.job)
    stored = None
    with suppress(TickworkError):  # a change may replace arguments that cannot be read
        stored = app.inspect.schedule_args(name, tenant=tenant)
    shown = _show(app, job, changes, also=stored)
    if "args" in changes:
        changes["args"] = _merge_args(app, details, job, changes["args"])
    before = {key: value for key, value in asdict(details).items() if key in shown}
    before = {key: show_option(value) for key, value in before.items()}
    if all(before.get(key) == value for key, value in shown.items()) and "args" not in changes:
        return app.schedules.get(name, tenant=tenant)
    audited = call.with_detail(tenant=tenant, before=before, after=shown)
    return audited.perform(app.schedules.update, name, tenant=tenant, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveResponse:
    """The result of the removal of a schedule."""

    name: str
    runs: int  # unfinished runs of the schedule that were canceled


def _show_removal(done: RemoveResponse) -> tuple[str, str]:
    return f"The schedule {done.name} is removed; {runs_are(done.runs)} canceled.", "/schedules"


@act(
    "schedule.remove",
    Role.ADMIN,
    "DELETE /schedules/{name}",
    form=ActForm(_show_removal, "/schedules/{name}/remove"),
)
def remove_schedule(
    call: ActCall,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    if_match: fields.IfMatch = "",
) -> RemoveResponse:
    """Remove a schedule that is not defined in code, and cancel its unfinished runs."""
    details = call.app.inspect.schedule_details(name, tenant=tenant)
    if details.origin is ScheduleOrigin.CODE and not details.is_retired:
        _refuse_code(name)
    check_if_match(call.app.schedules.get(name, tenant=tenant), if_match)
    before = {key: show_option(value) for key, value in asdict(details).items()}
    audited = call.with_detail(tenant=tenant, before=before)
    runs = audited.perform(call.app.schedules.unregister, tenant, name)
    return RemoveResponse(name=name, runs=runs)


@act(
    "schedule.restore",
    Role.ADMIN,
    "POST /schedules/{name}/restore",
    status=201,
    form=ActForm(lambda done: f"The schedule {done.name} is there again."),
)
def restore_schedule(
    call: ActCall, name: fields.Named, *, tenant: fields.Tenant = ""
) -> ScheduleView:
    """Create a removed schedule again, as it was. Its canceled runs stay canceled."""
    options = find_removed(call.app, name, tenant=tenant)
    if options is None:
        raise ProblemError(404, f"The audit log has no removal of the schedule {name}.")
    if contains_mask(options.get("args", {})):
        raise ProblemError(
            409,
            f"The schedule {name} had secret arguments, and they are not kept.",
            code="secret",
            fix="Create it again, and enter them.",
        )
    known = {each.name for each in create_schedule.fields_in("body")}
    given = {key: value for key, value in options.items() if key in known and value is not None}
    values = fields.read_body(create_schedule.fields_in("body"), json.dumps(given).encode())
    values["args"] = _rebuild(call.app, values["job"], values.get("args", {}))
    definition = ScheduleDefinition(**values | {"name": name, "tenant": tenant})
    audited = call.with_detail(tenant=tenant, after=given)
    return audited.perform(call.app.schedules.create, definition)


def find_removed(app: Tickwork, name: str, *, tenant: str) -> dict[str, Any] | None:
    """The options of a schedule when it was last removed here; None if it was not."""
    subject, action = f"schedule/{name}", "schedule.remove"
    for entry in app.audit.list(subject=subject, action=action, limit=REMOVALS_READ):
        detail = json.loads(entry.detail)
        if detail.get("tenant", "") == tenant:
            found: dict[str, Any] = detail["before"]
            return found
    return None


def _refuse_code(name: str) -> NoReturn:
    raise ProblemError(
        409,
        f"The schedule {name} is defined in code.",
        code="defined-in-code",
        fix="Change it in code. It can be paused, resumed and run here.",
    )


def _rebuild(app: Tickwork, job: str, args: Mapping[str, Any]) -> dict[str, Any]:
    definition = app.registry.find(job)
    return dict(args) if definition is None else definition.payload.rebuild(args)


def _merge_args(
    app: Tickwork, details: ScheduleDetails, job: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a change: a masked one stays as it is stored."""
    kept = {
        name
        for name, value in given.items()
        if value == MASK or (contains_mask(value) and value == details.args.get(name))
    }
    rest = {name: value for name, value in given.items() if name not in kept}
    refuse_masks(app, job, rest)
    built = _rebuild(app, job, rest)
    if kept:
        stored = app.inspect.schedule_args(details.name, tenant=details.tenant)
        built |= {name: stored[name] for name in kept if name in stored}
    return built


def _show(
    app: Tickwork, job: str, given: Mapping[str, Any], *, also: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Options for the audit log: texts, and secrets masked."""
    shown = {key: show_option(value) for key, value in given.items()}
    if shown.get("rule", "").startswith("{"):
        with suppress(ValueError, RecursionError):  # no JSON: the change will fail
            shown["rule"] = json.loads(shown["rule"])
    if isinstance(shown.get("args"), dict):
        shown["args"] = mask_args(shown["args"], app.inspect.secrets_of(job), also=also)
    return shown
