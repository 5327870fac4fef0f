"""The REST API ``/api/v1``: a table of endpoints. ``openapi`` documents what it declares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from tickwork._client.schedule_view import ScheduleView
from tickwork._domain.explain import Explanation
from tickwork._domain.health import Check
from tickwork._domain.identity import RunId
from tickwork._domain.status import Phase
from tickwork._inspect.activity import Activity
from tickwork._inspect.definitions import JobDescription, describe_jobs
from tickwork._inspect.rule_preview import RulePreview, preview_rule
from tickwork._inspect.run_search import FoundRuns
from tickwork._inspect.runs import RunDetails, RunView
from tickwork._inspect.schedules import UpcomingFirings
from tickwork._inspect.status import JobView, QueueView, WorkerView
from tickwork.app import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Caller
from tickwork.dashboard.actions import Actions, CancelResponse, DispatchedRunView
from tickwork.dashboard.fields import InputField
from tickwork.dashboard.problems import ProblemError
from tickwork.stores.contract import AuditEntry, LimitRow, Pause, RunFilter

KEY_MAX: Final = 200


class ApiCall(NamedTuple):
    """One request, read and checked."""

    app: Tickwork
    actions: Actions
    caller: Caller
    path: dict[str, Any]
    query: dict[str, Any]
    body: dict[str, Any]
    key: str  # the idempotency key


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One operation of the API."""

    method: str
    path: str
    name: str
    summary: str
    tag: str
    run: Callable[[ApiCall], Any]
    result: Any
    action: str = ""  # an entry of ROLES; empty: every user may read
    path_fields: tuple[InputField, ...] = ()
    query: tuple[InputField, ...] = ()
    body: tuple[InputField, ...] = ()
    status: int = 200
    has_key: bool = False
    errors: tuple[int, ...] = ()


ENDPOINTS: Final[list[Endpoint]] = []


def endpoint(
    method: str,
    path: str,
    *,
    tag: str,
    result: Any = None,
    names: Sequence[InputField] = (),
    **options: Any,
) -> Callable[[Callable[[ApiCall], Any]], Callable[[ApiCall], Any]]:
    """Add a function to the API. The first line of its docstring is the summary."""

    def declare(function: Callable[[ApiCall], Any]) -> Callable[[ApiCall], Any]:
        summary = (function.__doc__ or "").splitlines()[0]
        ENDPOINTS.append(
            Endpoint(
                method=method,
                path=path,
                name=function.__name__,
                summary=summary,
                tag=tag,
                run=function,
                result=result,
                path_fields=tuple(names),
                **options,
            )
        )
        return function

    return declare


_RUN: Final = (InputField("id", fields.RUN_ID, "The id of the run.", is_required=True),)
NAMED: Final = (InputField("name", fields.NAME, "The name.", is_required=True),)
_CURSOR: Final = InputField("cursor", fields.RUN_ID, "The cursor of the page before.")
_LIMIT: Final = InputField("limit", fields.LIMIT, "Entries on the page. Default: 50.")
TENANT: Final = InputField("tenant", fields.TEXT, "The tenant.")
_UNTIL: Final = InputField("until", fields.INSTANT, "Resume at this time. Default: never.")
_NOTE: Final = InputField("note", fields.TEXT, "A note for others, such as the reason.")
NOT_FOUND: Final = (404,)
CHANGE_ERRORS: Final = (404, 409)

# ---------------------------------------------------------------- overview


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of the database in numbers."""

    now: datetime
    runs: dict[str, int]  # unfinished runs by phase
    cap: int  # counts of runs stop here
    jobs: int
    schedules: int
    workers: int  # that send heartbeats
    silent_workers: int
    activity: Activity


@endpoint("GET", "/overview", tag="overview", result=Overview)
def get_overview(call: ApiCall) -> Overview:
    """Count unfinished runs and workers, and measure rates and delays."""
    status = call.app.inspect.status()
    return Overview(
        now=status.now,
        runs=dict(status.runs),
        cap=status.cap,
        jobs=len(status.jobs),
        schedules=len(status.schedules),
        workers=sum(not worker.is_silent for worker in status.workers),
        silent_workers=sum(worker.is_silent for worker in status.workers),
        activity=call.app.inspect.activity(ready=status.runs[Phase.READY]),
    )


@endpoint("GET", "/checks", tag="overview", result=list[Check])
def list_checks(call: ApiCall) -> list[Check]:
    """Run the health checks: connection, tables, clock, workers, leases, backlog."""
    return call.app.check_health()


# ---------------------------------------------------------------- runs

RUN_FILTERS: Final = (
    InputField("job", fields.NAME, "Only runs of this job."),
    InputField("queue", fields.NAME, "Only runs in this queue."),
    InputField("status", fields.STATUSES, "Only runs with this status. Repeatable."),
    InputField("schedule", fields.NAME, "Only runs of this schedule."),
    InputField("tag", fields.NAME, "Only runs with this tag."),
    InputField("tenant", fields.TEXT, "Only runs of this tenant."),
    InputField("since", fields.INSTANT, "Only runs created at or after this time."),
    InputField("before", fields.INSTANT, "Only runs created before this time."),
)


RUN_SEARCH: Final = (
    InputField(
        "text",
        fields.TEXT,
        "Only runs that contain this text in their id, job, target, arguments or error. "
        "The newest 5,000 runs that match the other filters are searched.",
    ),
    InputField(
        "arg",
        fields.ARGUMENTS,
        "Only runs with this argument: customer=42, or address.city=Bern for a part of one. "
        "Repeatable. Secrets are not searched. The same runs are searched as for a text.",
    ),
)


def run_filter(query: dict[str, Any]) -> RunFilter:
    """The filter that the parameters of a URL mean."""
    given = {each.name: query[each.name] for each in RUN_FILTERS if each.name in query}
    return RunFilter(statuses=frozenset(given.pop("status", ())), **given)


@endpoint(
    "GET",
    "/runs",
    tag="runs",
    result=FoundRuns,
    query=(
        *RUN_FILTERS,
        *RUN_SEARCH,
        _CURSOR,
        _LIMIT,
        InputField("count", fields.BOOLEAN, "Count the runs that match, at most 10,000."),
    ),
)
def list_runs(call: ApiCall) -> FoundRuns:
    """List runs, newest first. A page may end early; its cursor then continues the search."""
    return call.app.inspect.list_runs(
        run_filter(call.query),
        text=call.query.get("text", ""),
        args=call.query.get("arg", ()),
        cursor=call.query.get("cursor"),
        limit=call.query.get("limit", 50),
        has_total=call.query.get("count", False),
    )


DISPATCH_FIELDS: Final = (
    InputField("job", fields.NAME, "The name of the job.", is_required=True),
    InputField("args", fields.OBJECT, "The arguments of the handler, by name."),
    InputField("delay", fields.DURATION, "Run after this delay."),
    InputField("at", fields.INSTANT, "Run at this time."),
    InputField("queue", fields.NAME, "Queue, instead of the job's."),
    InputField("priority", fields.PRIORITY, "Priority: lower numbers run first."),
    InputField("unique", fields.NAME, "Add no run if an unfinished one has this key."),
    InputField("expires", fields.DURATION, "Skip the run if it starts later than this."),
    InputField("tags", fields.TAGS, "Tags, besides those of the job."),
    InputField("tenant", fields.TEXT, "The tenant of the run."),
    InputField("target", fields.NAME, "The object in your application that the run is about."),
)


@endpoint(
    "POST",
    "/runs",
    tag="runs",
    result=DispatchedRunView,
    action="run.dispatch",
    body=DISPATCH_FIELDS,
    status=201,
    has_key=True,
    errors=CHANGE_ERRORS,
)
def dispatch_run(call: ApiCall) -> DispatchedRunView:
    """Dispatch a run. With an idempotency key, a repeated request adds no second run."""
    if "delay" in call.body and "at" in call.body:
        raise ProblemError(422, "Give delay or at, not both.", field="at")
    return call.actions.dispatch(call.caller, call.body, key=call.key)


@endpoint("GET", "/runs/{id}", tag="runs", result=RunDetails, names=_RUN, errors=NOT_FOUND)
def get_run(call: ApiCall) -> RunDetails:
    """Read a run with its attempts and its log; if it is unfinished, the reasons why."""
    return call.app.inspect.details(RunId(call.path["id"]))


@endpoint(
    "DELETE",
    "/runs/{id}",
    tag="runs",
    action="run.delete",
    names=_RUN,
    status=204,
    errors=CHANGE_ERRORS,
)
def delete_run(call: ApiCall) -> None:
    """Delete a finished run with its attempts and its log."""
    call.actions.delete(call.caller, RunId(call.path["id"]))


@endpoint(
    "POST",
    "/runs/{id}/cancel",
    tag="runs",
    result=CancelResponse,
    action="run.cancel",
    names=_RUN,
    body=(InputField("reason", fields.TEXT, "The reason, stored with the run."),),
    errors=CHANGE_ERRORS,
)
def cancel_run(call: ApiCall) -> CancelResponse:
    """Cancel a waiting run, or request that its worker stops it."""
    return call.actions.cancel(
        call.caller, RunId(call.path["id"]), reason=call.body.get("reason", "")
    )


@endpoint(
    "POST",
    "/runs/{id}/retry",
    tag="runs",
    result=DispatchedRunView,
    action="run.retry",
    names=_RUN,
    status=201,
    errors=CHANGE_ERRORS,
)
def retry_run(call: ApiCall) -> DispatchedRunView:
    """Run a finished run again, as a new run."""
    return call.actions.retry(call.caller, RunId(call.path["id"]))


@endpoint(
    "POST",
    "/runs/{id}/reschedule",
    tag="runs",
    result=RunView,
    action="run.reschedule",
    names=_RUN,
    body=(
        InputField("at", fields.INSTANT, "The new time."),
        InputField("delay", fields.DURATION, "Or a length of time from now."),
    ),
    errors=CHANGE_ERRORS,
)
def reschedule_run(call: ApiCall) -> RunView:
    """Change when a run is due, if no worker has claimed it."""
    if ("at" in call.body) == ("delay" in call.body):
        raise ProblemError(422, "Give at or delay.", field="at")
    due_at = call.body["at"] if "at" in call.body else call.body["delay"]
    return call.actions.reschedule(call.caller, RunId(call.path["id"]), due_at)


# ---------------------------------------------------------------- jobs


@endpoint("GET", "/jobs", tag="jobs", result=list[JobView])
def list_jobs(call: ApiCall) -> list[JobView]:
    """List the jobs that this program defines or that the database knows."""
    return call.app.inspect.status().jobs


@endpoint("GET", "/jobs/{name}", tag="jobs", result=JobDescription, names=NAMED, errors=NOT_FOUND)
def get_job(call: ApiCall) -> JobDescription:
    """Describe a job that this program defines: options, signature, schedules."""
    app = call.app
    [found] = describe_jobs(
        app.registry,
        job=call.path["name"],
        timezone=app.settings.timezone,
        now=app.clock.now(),
    )
    return found


def _pause(kind: str) -> Callable[[ApiCall], Pause]:
    def pause(call: ApiCall) -> Pause:
        return call.actions.pause(
            call.caller,
            kind,
            call.path["name"],
            note=call.body.get("note", ""),
            until=call.body.get("until"),
        )

    pause.__name__ = f"pause_{kind}"
    pause.__doc__ = f"Pause a {kind}: its runs wait; those that have started go on."
    return pause


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeResponse:
    """The result of a resume."""

    name: str
    was_paused: bool


def _resume(kind: str) -> Callable[[ApiCall], ResumeResponse]:
    def resume(call: ApiCall) -> ResumeResponse:
        name = call.path["name"]
        return ResumeResponse(name=name, was_paused=call.actions.resume(call.caller, kind, name))

    resume.__name__ = f"resume_{kind}"
    resume.__doc__ = f"Resume a {kind}."
    return resume


for _kind in ("job", "queue"):
    endpoint(
        "POST",
        f"/{_kind}s/{{name}}/pause",
        tag=f"{_kind}s",
        result=Pause,
        action=f"{_kind}.pause",
        names=NAMED,
        body=(_NOTE, _UNTIL),
        errors=CHANGE_ERRORS,
    )(_pause(_kind))
    endpoint(
        "POST",
        f"/{_kind}s/{{name}}/resume",
        tag=f"{_kind}s",
        result=ResumeResponse,
        action=f"{_kind}.resume",
        names=NAMED,
        errors=CHANGE_ERRORS,
    )(_resume(_kind))

# ---------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """One page of schedules, by tenant and name."""

    schedules: list[ScheduleView]
    cursor: str | None  # of the next page; null: this is the last one


@endpoint(
    "GET",
    "/schedules",
    tag="schedules",
    result=SchedulePage,
    query=(
        TENANT,
        InputField("cursor", fields.TEXT, "The cursor of the page before."),
        _LIMIT,
    ),
)
def list_schedules(call: ApiCall) -> SchedulePage:
    """List schedules, by tenant and name."""
    return list_schedules_page(
        call.app,
        tenant=call.query.get("tenant"),
        cursor=call.query.get("cursor"),
        limit=call.query.get("limit", 50),
    )


def list_schedules_page(
    app: Tickwork, *, tenant: str | None, cursor: str | None, limit: int
) -> SchedulePage:
    after = None if cursor is None else _read_cursor(cursor)
    found = app.schedules.page(tenant=tenant, after=after, limit=limit)
    following = f"{found[-1].tenant}|{found[-1].name}" if len(found) == limit else None
    return SchedulePage(schedules=found, cursor=following)


def _read_cursor(text: str) -> tuple[str, str]:
    tenant, bar, name = text.partition("|")
    if not bar:
        raise ProblemError(422, "cursor must be the cursor of a page.", field="cursor")
    return tenant, name


@endpoint(
    "GET",
    "/schedules/{name}",
    tag="schedules",
    result=ScheduleView,
    names=NAMED,
    query=(TENANT,),
    errors=NOT_FOUND,
)
def get_schedule(call: ApiCall) -> ScheduleView:
    """Read a schedule."""
    return call.app.schedules.get(call.path["name"], tenant=call.query.get("tenant", ""))


@endpoint(
    "GET",
    "/schedules/{name}/firings",
    tag="schedules",
    result=list[datetime],
    names=NAMED,
    query=(TENANT, InputField("count", fields.COUNT, "Number of firings. Default: 10.")),
    errors=NOT_FOUND,
)
def list_schedule_firings(call: ApiCall) -> list[datetime]:
    """List the next firings of a schedule; if it is paused, those after a resume."""
    return call.app.schedules.preview(
        call.path["name"], call.query.get("count", 10), tenant=call.query.get("tenant", "")
    )


@endpoint(
    "POST",
    "/schedules/{name}/pause",
    tag="schedules",
    result=ScheduleView,
    action="schedule.pause",
    names=NAMED,
    query=(TENANT,),
    body=(_NOTE, _UNTIL),
    errors=CHANGE_ERRORS,
)
def pause_schedule(call: ApiCall) -> ScheduleView:
    """Pause a schedule: it does not fire; runs that exist go on."""
    return call.actions.pause_schedule(
        call.caller,
        call.path["name"],
        tenant=call.query.get("tenant", ""),
        note=call.body.get("note", ""),
        until=call.body.get("until"),
    )


@endpoint(
    "POST",
    "/schedules/{name}/resume",
    tag="schedules",
    result=ScheduleView,
    action="schedule.resume",
    names=NAMED,
    query=(TENANT,),
    errors=CHANGE_ERRORS,
)
def resume_schedule(call: ApiCall) -> ScheduleView:
    """Resume a schedule at its next instant."""
    return call.actions.resume_schedule(
        call.caller, call.path["name"], tenant=call.query.get("tenant", "")
    )


@endpoint(
    "POST",
    "/schedules/{name}/run",
    tag="schedules",
    result=DispatchedRunView,
    action="schedule.run",
    names=NAMED,
    query=(TENANT,),
    status=201,
    errors=CHANGE_ERRORS,
)
def run_schedule(call: ApiCall) -> DispatchedRunView:
    """Add a run of a schedule now. Its next firing stays the same."""
    return call.actions.run_schedule(
        call.caller, call.path["name"], tenant=call.query.get("tenant", "")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillResponse:
    """The runs that a backfill has added."""

    runs: list[str]


@endpoint(
    "POST",
    "/schedules/{name}/backfill",
    tag="schedules",
    result=BackfillResponse,
    action="schedule.backfill",
    names=NAMED,
    query=(TENANT,),
    body=(
        InputField("since", fields.INSTANT, "The first instant.", is_required=True),
        InputField("until", fields.INSTANT, "The last instant.", is_required=True),
    ),
    errors=CHANGE_ERRORS,
)
def backfill_schedule(call: ApiCall) -> BackfillResponse:
    """Add a run for each past instant without one, at most 1,000."""
    runs = call.actions.backfill(
        call.caller,
        call.path["name"],
        since=call.body["since"],
        until=call.body["until"],
        tenant=call.query.get("tenant", ""),
    )
    return BackfillResponse(runs=runs)


@endpoint(
    "GET",
    "/firings",
    tag="schedules",
    result=UpcomingFirings,
    query=(
        InputField("schedule", fields.NAME, "Only firings of this schedule."),
        InputField("job", fields.NAME, "Only firings of this job."),
        InputField("until", fields.INSTANT, "Only firings until this time."),
        _LIMIT,
    ),
)
def list_firings(call: ApiCall) -> UpcomingFirings:
    """List the next firings of all schedules, in order."""
    given = {"limit": 50, **call.query}
    return call.app.inspect.upcoming(**given)


@endpoint(
    "GET",
    "/preview",
    tag="schedules",
    result=RulePreview,
    query=(
        InputField("rule", fields.NAME, "Cron, a symbol, a pattern or a chain.", is_required=True),
        InputField("timezone", fields.NAME, "The time zone of the rule. Default: UTC."),
        InputField("count", fields.COUNT, "Number of instants. Default: 10."),
    ),
)
def preview_expression(call: ApiCall) -> RulePreview:
    """Explain a rule, and list its next instants and the effects of clock changes."""
    return preview_rule(
        call.query["rule"],
        zone=call.query.get("timezone", "UTC"),
        count=call.query.get("count", 10),
        start=call.app.clock.now(),
        symbols=call.app.symbols,
    )


# ---------------------------------------------------------------- queues, limits, workers


@endpoint("GET", "/queues", tag="queues", result=list[QueueView])
def list_queues(call: ApiCall) -> list[QueueView]:
    """List queues with unfinished runs, and paused ones."""
    return call.app.inspect.status().queues


@endpoint("GET", "/pauses", tag="queues", result=list[Pause])
def list_pauses(call: ApiCall) -> list[Pause]:
    """List the queues and jobs that are paused."""
    return call.app.pauses()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """A limit: in code, an override, and the one in force."""

    name: str
    slots: int  # in code; 0: no limit
    override: int | None
    in_force: int


def view_limit(row: LimitRow) -> LimitView:
    return LimitView(name=row.name, slots=row.slots, override=row.override, in_force=row.in_force)


@endpoint("GET", "/limits", tag="limits", result=list[LimitView])
def list_limits(call: ApiCall) -> list[LimitView]:
    """List all concurrency and rate limits."""
    return list(map(view_limit, call.app.limits.list()))


@endpoint(
    "PUT",
    "/limits/{name}",
    tag="limits",
    result=LimitView,
    action="limit.change",
    names=NAMED,
    body=(InputField("slots", fields.SLOTS, "Runs at a time; 0: no limit.", is_required=True),),
    errors=CHANGE_ERRORS,
)
def change_limit(call: ApiCall) -> LimitView:
    """Override a limit, from the next claim on."""
    return view_limit(call.actions.change_limit(call.caller, call.path["name"], call.body["slots"]))


@endpoint(
    "DELETE",
    "/limits/{name}",
    tag="limits",
    result=LimitView,
    action="limit.reset",
    names=NAMED,
    errors=CHANGE_ERRORS,
)
def reset_limit(call: ApiCall) -> LimitView:
    """Remove the override of a limit: the one in code applies again."""
    return view_limit(call.actions.reset_limit(call.caller, call.path["name"]))


@endpoint("GET", "/workers", tag="workers", result=list[WorkerView])
def list_workers(call: ApiCall) -> list[WorkerView]:
    """List worker processes, the latest heartbeat first."""
    return call.app.inspect.workers()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResponse:
    """The worker that will drain."""

    id: str
    host: str
    pid: int


@endpoint(
    "POST",
    "/workers/{id}/drain",
    tag="workers",
    result=DrainResponse,
    action="worker.drain",
    names=(InputField("id", fields.RUN_ID, "The id of the worker.", is_required=True),),
    errors=CHANGE_ERRORS,
)
def drain_worker(call: ApiCall) -> DrainResponse:
    """Ask a worker to claim no more runs, to finish those it has, and to exit."""
    row = call.actions.drain(call.caller, call.path["id"])
    return DrainResponse(id=row.id, host=row.host, pid=row.pid)


# ---------------------------------------------------------------- explanations and audit


@endpoint(
    "GET",
    "/explanations",
    tag="overview",
    result=Explanation,
    query=(
        InputField("what", fields.NAME, "A job, a schedule, or an id of a run.", is_required=True),
        TENANT,
    ),
    errors=CHANGE_ERRORS,
)
def explain(call: ApiCall) -> Explanation:
    """Explain why a job, a schedule or a run has not run."""
    return call.app.explain(call.query["what"], tenant=call.query.get("tenant", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page of the audit log, newest first."""

    entries: list[AuditEntry]
    cursor: str | None  # of the next page; null: this is the last one


@endpoint(
    "GET",
    "/audit",
    tag="audit",
    result=AuditPage,
    query=(
        InputField("subject", fields.NAME, "Only entries about this subject: queue/emails."),
        _CURSOR,
        _LIMIT,
    ),
)
def list_audit(call: ApiCall) -> AuditPage:
    """List the actions that were taken through the dashboard and the API."""
    limit = call.query.get("limit", 50)
    found = call.app.audit.list(
        subject=call.query.get("subject"), before=call.query.get("cursor"), limit=limit
    )
    return AuditPage(entries=found, cursor=found[-1].id if len(found) == limit else None)


def read_call(
    found: Endpoint, call: ApiCall, *, items: Sequence[tuple[str, str]], body: bytes
) -> ApiCall:
    """Read the parameters and the body of a request.

    Raises:
        ProblemError: A value is not valid.
    """
    path = {each.name: call.path[each.name] for each in found.path_fields}
    return call._replace(
        path=fields.read_query(found.path_fields, path.items()),
        query=fields.read_query(found.query, items),
        body=fields.read_body(found.body, body),
    )
