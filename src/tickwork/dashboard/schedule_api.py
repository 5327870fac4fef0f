"""The endpoints of the REST API that create, change and remove schedules."""

from dataclasses import dataclass
from typing import Final

from tickwork._client.schedule_view import ScheduleView
from tickwork._domain.job import Misfire, Overlap
from tickwork._inspect.schedule_details import ScheduleDetails
from tickwork.dashboard import fields
from tickwork.dashboard.api import (
    CHANGE_ERRORS,
    ENDPOINTS,
    NAMED,
    NOT_FOUND,
    TENANT,
    ApiCall,
    endpoint,
)
from tickwork.dashboard.fields import InputField
from tickwork.dashboard.schedule_editor import (
    UNSETTABLE,
    ScheduleEditor,
    ScheduleRevision,
)

RULE: Final = InputField(
    "rule",
    fields.NAME,
    "When it fires: cron (30 2 * * *), a symbol, a pattern (hours=9-17 minutes=0), or a chain as "
    "in code (daily().hours(2), once('2026-12-24T18:00+01:00')).",
)
OPTIONS: Final = (
    InputField("timezone", fields.NAME, "The time zone of the rule. Default: the application's."),
    InputField("args", fields.OBJECT, "The arguments of the handler, by name."),
    InputField("queue", fields.NAME, "Queue, instead of the job's."),
    InputField("priority", fields.PRIORITY, "Priority: lower numbers run first."),
    InputField("expires", fields.DURATION, "Skip a run that starts later than this."),
    InputField("overlap", fields.choice_of(Overlap), "If the last run has not finished."),
    InputField("misfire", fields.choice_of(Misfire), "If no worker ran at the time."),
    InputField("grace", fields.DURATION, "Later than this, a firing counts as missed."),
    InputField("jitter", fields.DURATION, "Delay each run by a random time up to this."),
    InputField("expect_within", fields.DURATION, "Alert if a firing has not completed by then."),
    InputField("until", fields.INSTANT, "The last time at which it may fire."),
    InputField("max_firings", fields.FIRINGS, "How often it fires at most."),
    InputField("target", fields.NAME, "The object in your application that the runs are about."),
    InputField("tags", fields.TAGS, "Tags of its runs."),
)
CREATE_FIELDS: Final = (
    InputField("name", fields.NAME, "Its name.", is_required=True),
    InputField("tenant", fields.TEXT, "The tenant that owns it."),
    InputField("job", fields.NAME, "The name of the job.", is_required=True),
    RULE._replace(is_required=True),
    *OPTIONS,
)
CHANGE_FIELDS: Final = (
    InputField("revision", fields.REVISION, "Refuse the change if this is not the newest one."),
    InputField("job", fields.NAME, "The name of the job."),
    RULE,
    *OPTIONS,
    InputField(
        "unset", fields.names_of(UNSETTABLE), "Options that get their default, or the job's, again."
    ),
)


@endpoint(
    "POST",
    "/schedules",
    tag="schedules",
    result=ScheduleView,
    action="schedule.create",
    body=CREATE_FIELDS,
    status=201,
    errors=CHANGE_ERRORS,
)
def create_schedule(call: ApiCall) -> ScheduleView:
    """Create a schedule in the database. An equal one that exists is left as it is."""
    return ScheduleEditor(call.actions).create(call.caller, call.body)


@endpoint(
    "PATCH",
    "/schedules/{name}",
    tag="schedules",
    result=ScheduleView,
    action="schedule.change",
    names=NAMED,
    query=(TENANT,),
    body=CHANGE_FIELDS,
    errors=CHANGE_ERRORS,
)
def change_schedule(call: ApiCall) -> ScheduleView:
    """Change some options of a schedule that is not defined in code. Others stay as they are."""
    return ScheduleEditor(call.actions).change(
        call.caller, call.path["name"], call.body, tenant=call.query.get("tenant", "")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveResponse:
    """The result of the removal of a schedule."""

    name: str
    runs: int  # unfinished runs of the schedule that were canceled


@endpoint(
    "DELETE",
    "/schedules/{name}",
    tag="schedules",
    result=RemoveResponse,
    action="schedule.remove",
    names=NAMED,
    query=(TENANT,),
    errors=CHANGE_ERRORS,
)
def remove_schedule(call: ApiCall) -> RemoveResponse:
    """Remove a schedule that is not defined in code, and cancel its unfinished runs."""
    name = call.path["name"]
    runs = ScheduleEditor(call.actions).remove(
        call.caller, name, tenant=call.query.get("tenant", "")
    )
    return RemoveResponse(name=name, runs=runs)


@endpoint(
    "GET",
    "/schedules/{name}/definition",
    tag="schedules",
    result=ScheduleDetails,
    names=NAMED,
    query=(TENANT,),
    errors=NOT_FOUND,
)
def get_schedule_definition(call: ApiCall) -> ScheduleDetails:
    """Read the options of a schedule, as a change takes them."""
    return call.app.inspect.schedule_details(call.path["name"], tenant=call.query.get("tenant", ""))


@endpoint(
    "GET",
    "/schedules/{name}/revisions",
    tag="schedules",
    result=list[ScheduleRevision],
    names=NAMED,
    query=(TENANT,),
    errors=NOT_FOUND,  # a name such as ".." is the path of another resource
)
def list_schedule_revisions(call: ApiCall) -> list[ScheduleRevision]:
    """List who changed which options through the dashboard or the API, newest first."""
    return ScheduleEditor(call.actions).list_revisions(
        call.path["name"], tenant=call.query.get("tenant", "")
    )


ALL_ENDPOINTS: Final = tuple(ENDPOINTS)
"""The endpoints of ``api``, and those of this module."""
