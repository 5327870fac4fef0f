"""What the REST API ``/api/v1`` reads. What it changes is in ``acts``."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, TypedDict, Unpack

from tickwork._control.schedule_view import ScheduleView
from tickwork._domain.explain import Explanation
from tickwork._domain.health import Check
from tickwork._domain.identity import RunId, WorkerId
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.activity import Activity
from tickwork._inspect.agenda import Agenda
from tickwork._inspect.alerts import AlertReport
from tickwork._inspect.audit_entries import AuditEntryView, view_entries
from tickwork._inspect.definitions import JobDescription, describe_jobs
from tickwork._inspect.deploys import Changes, Deploy
from tickwork._inspect.limits import LimitView
from tickwork._inspect.outcomes import OutcomeDays
from tickwork._inspect.queues import PauseView, QueueDetails
from tickwork._inspect.rule_preview import RulePreview, preview_rule
from tickwork._inspect.run_search import RunList, RunOrder
from tickwork._inspect.runs import RunDetails
from tickwork._inspect.schedule_details import ScheduleDetails
from tickwork._inspect.statistics import JobStatistics, QueueStatistics, StatisticsHistory
from tickwork._inspect.status import JobView, QueueView, Status, WorkerView
from tickwork._inspect.upcoming_firings import UpcomingFirings
from tickwork._inspect.waits import WaitList
from tickwork._stores.contract import RunFilter, ScheduleOutcome
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.acts import ALL_ACTS
from tickwork.dashboard.acts.runs import RunKey
from tickwork.dashboard.endpoints import READS, Endpoint, read
from tickwork.dashboard.problems import ProblemError
from tickwork.dashboard.schedule_revisions import ScheduleRevision, list_revisions

Cursor: TypeAlias = Annotated[RunId, fields.RUN_ID, "The cursor of the page before."]
Limit: TypeAlias = Annotated[int, fields.LIMIT, "Entries on the page. Default: 50."]

# ---------------------------------------------------------------- overview


@read("/overview")
def get_overview(app: Tickwork) -> Status:
    """Read jobs, unfinished runs, schedules, workers and pauses, as `tickwork status` does."""
    return app.inspect.status()


@read("/activity", tag="overview")
def get_activity(app: Tickwork) -> Activity:
    """Measure how fast runs arrive and finish: each minute of the last hour."""
    return app.inspect.activity()


@read("/statistics/jobs", tag="overview")
def list_job_statistics(app: Tickwork) -> list[JobStatistics]:
    """Read how many attempts of each job ended in the last 24 hours, and how long they took."""
    return app.inspect.job_statistics()


@read("/statistics/queues", tag="overview")
def list_queue_statistics(app: Tickwork) -> list[QueueStatistics]:
    """Read how many attempts of each queue ended in the last hour, and how long they took."""
    return app.inspect.queue_statistics()


Days: TypeAlias = Annotated[int, fields.HISTORY, "How many days. Default: 1."]


@read("/statistics/jobs/{name}", tag="overview")
def get_job_history(app: Tickwork, name: fields.Named, *, days: Days = 1) -> StatisticsHistory:
    """Read the runtimes and waits of a job by the hour or day, beside those of a week before."""
    return app.inspect.job_history(name, days=days)


@read("/statistics/queues/{name}", tag="overview")
def get_queue_history(app: Tickwork, name: fields.Named, *, days: Days = 1) -> StatisticsHistory:
    """Read the runtimes and waits in a queue by the hour or day, beside those of a week before."""
    return app.inspect.queue_history(name, days=days)


@read("/agenda", tag="overview")
def get_agenda(
    app: Tickwork,
    *,
    until: Annotated[fields.Instant, "The end of the span of time."],
    since: Annotated[fields.Instant | None, "Its begin. Default: now."] = None,
    limit: Limit = 50,
) -> Agenda:
    """List what is due in a span of time: firings, delayed runs and retries, in order."""
    return app.inspect.agenda(since=since, until=until, limit=limit)


@read("/checks", tag="overview")
def list_checks(app: Tickwork) -> list[Check]:
    """Run the health checks: connection, tables, clock, workers, leases, backlog."""
    return app.check_health()


@read("/alerts", tag="alerts")
def list_alerts(
    app: Tickwork,
    *,
    cursor: Annotated[
        str | None, fields.ALERT_CURSOR, "The cursor of the page before, of ended alerts."
    ] = None,
    limit: Annotated[int, fields.LIMIT, "Ended alerts on the page. Default: 50."] = 50,
) -> AlertReport:
    """List what needs a person now, and the alerts that ended, the last end first."""
    return app.inspect.alerts(app.check_health(), cursor=cursor, limit=limit)


# ---------------------------------------------------------------- runs


class RunFilterFields(TypedDict, total=False):
    """Which runs."""

    job: Annotated[fields.Name, "Only runs of this job."]
    queue: Annotated[fields.Name, "Only runs in this queue."]
    status: Annotated[list[RunStatus], fields.STATUSES, "Only runs with this status. Repeatable."]
    schedule: Annotated[fields.Name, "Only runs of this schedule."]
    tag: Annotated[fields.Name, "Only runs with this tag."]
    tenant: Annotated[fields.Text, "Only runs of this tenant."]
    worker: Annotated[WorkerId, fields.RUN_ID, "Only runs that this worker executes, or did last."]
    since: Annotated[fields.Instant, "Only runs created at or after this time."]
    before: Annotated[fields.Instant, "Only runs created before this time."]
    waiting: Annotated[bool, fields.BOOLEAN, "Only runs that sleep, or that wait for an event."]


class RunSearchFields(RunFilterFields, total=False):
    """Which runs, also by what they contain."""

    text: Annotated[
        fields.Text,
        "Only runs that contain this text in their id, job, target, arguments or error. "
        "The newest 5,000 runs that match the other filters are searched.",
    ]
    arg: Annotated[
        list[str],
        fields.ARGUMENTS,
        "Only runs with this argument: customer=42, or address.city=Bern for a part of one. "
        "Repeatable. Secrets are not searched. The same runs are searched as for a text.",
    ]
    error: Annotated[
        fields.Text,
        "Only runs whose error contains this text, with # in place of numbers and quoted values.",
    ]
    longer: Annotated[fields.Duration, "Only runs whose last attempt took at least this long."]
    sort: Annotated[
        RunOrder,
        fields.choice_of(RunOrder),
        "The order. Others than newest are those of the newest 5,000 runs that match.",
    ]
    cursor: Cursor


class RunPageFields(RunSearchFields, total=False):
    """One page of runs."""

    limit: Limit
    count: Annotated[bool, fields.BOOLEAN, "Count the runs that match, at most 10,000."]


RUN_FILTERS: Final = fields.fields_of(RunFilterFields)
RUN_QUERY: Final = fields.fields_of(RunSearchFields)


def run_search(query: Mapping[str, Any]) -> dict[str, Any]:
    """The search that the parameters of a URL mean, for ``inspect.list_runs``."""
    return {
        "text": query.get("text", ""),
        "args": query.get("arg", ()),
        "error": query.get("error", ""),
        "longer": query.get("longer"),
        "order": RunOrder(query.get("sort", RunOrder.NEWEST)),
        "cursor": query.get("cursor"),
    }


def run_filter(query: Mapping[str, Any]) -> RunFilter:
    """The filter that the parameters of a URL mean."""
    given = {each.name: query[each.name] for each in RUN_FILTERS if each.name in query}
    return RunFilter(
        statuses=frozenset(given.pop("status", ())),
        is_suspended=given.pop("waiting", False),
        **given,
    )


@read("/runs")
def list_runs(app: Tickwork, **query: Unpack[RunPageFields]) -> RunList:
    """List runs, newest first. A page may end early; its cursor then continues the search."""
    return app.inspect.list_runs(
        run_filter(query),
        **run_search(query),
        limit=query.get("limit", 50),
        has_total=query.get("count", False),
    )


@read("/runs/{id}")
def get_run(app: Tickwork, run_id: RunKey) -> RunDetails:
    """Read a run with its attempts and its log; if it is unfinished, the reasons why."""
    return app.inspect.details(run_id)


@read("/waits")
def list_open_waits(app: Tickwork, *, cursor: Cursor | None = None, limit: Limit = 50) -> WaitList:
    """List the runs that wait for events, the oldest run first."""
    return app.inspect.waits(cursor=cursor, limit=limit)


# ---------------------------------------------------------------- jobs


@read("/jobs")
def list_jobs(app: Tickwork) -> list[JobView]:
    """List the jobs that this program defines or that the database knows."""
    return app.inspect.status().jobs


@read("/jobs/{name}")
def get_job(app: Tickwork, name: fields.Named) -> JobDescription:
    """Describe a job that this program defines: options, signature, schedules."""
    [found] = describe_jobs(
        app.registry, job=name, timezone=app.settings.timezone, now=app.clock.now()
    )
    return found


# ---------------------------------------------------------------- schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """One page of schedules, by tenant and name."""

    schedules: list[ScheduleView]
    cursor: str | None  # of the next page; null: this is the last one


@read("/schedules")
def list_schedules(
    app: Tickwork,
    *,
    tenant: fields.Tenant | None = None,
    cursor: Annotated[str | None, fields.CURSOR, "The cursor of the page before."] = None,
    limit: Limit = 50,
) -> SchedulePage:
    """List schedules, by tenant and name."""
    after = None
    if cursor is not None:
        owner, _, name = cursor.partition("|")
        after = owner, name
    found = app.schedules.page(tenant=tenant, after=after, limit=limit)
    following = f"{found[-1].tenant}|{found[-1].name}" if len(found) == limit else None
    return SchedulePage(schedules=found, cursor=following)


@read("/schedules/{name}")
def get_schedule(app: Tickwork, name: fields.Named, *, tenant: fields.Tenant = "") -> ScheduleView:
    """Read a schedule."""
    return app.schedules.get(name, tenant=tenant)


@read("/schedules/{name}/firings")
def list_schedule_firings(
    app: Tickwork,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    count: Annotated[int, fields.COUNT, "Number of firings. Default: 10."] = 10,
) -> list[datetime]:
    """List the next firings of a schedule; if it is paused, those after a resume."""
    return app.schedules.preview(name, count, tenant=tenant)


@read("/schedules/{name}/outcomes")
def list_schedule_outcomes(
    app: Tickwork, name: fields.Named, *, tenant: fields.Tenant = ""
) -> list[ScheduleOutcome]:
    """List the last 30 runs of a schedule, the oldest first."""
    app.schedules.get(name, tenant=tenant)
    return app.inspect.last_outcomes([(tenant, name)])[tenant, name]


@read("/schedules/{name}/days")
def get_schedule_days(
    app: Tickwork,
    name: fields.Named,
    *,
    tenant: fields.Tenant = "",
    days: Annotated[int, fields.HISTORY, "How many days. Default: 182."] = 182,
    timezone: Annotated[
        fields.Name | None, "The time zone of the days. Default: the schedule's."
    ] = None,
) -> OutcomeDays:
    """Count the outcomes of the instants of a schedule on each day."""
    return app.inspect.outcome_days(name, tenant=tenant, days=days, zone=timezone)


@read("/schedules/{name}/definition")
def get_schedule_definition(
    app: Tickwork, name: fields.Named, *, tenant: fields.Tenant = ""
) -> ScheduleDetails:
    """Read the options of a schedule, as a change takes them."""
    return app.inspect.schedule_details(name, tenant=tenant)


@read("/schedules/{name}/revisions")
def list_schedule_revisions(
    app: Tickwork, name: fields.Named, *, tenant: fields.Tenant = ""
) -> list[ScheduleRevision]:
    """List who changed which options through the dashboard or the API, newest first."""
    return list_revisions(app, name, tenant=tenant)


@read("/firings", tag="schedules")
def list_firings(
    app: Tickwork,
    *,
    schedule: Annotated[fields.Name | None, "Only firings of this schedule."] = None,
    job: Annotated[fields.Name | None, "Only firings of this job."] = None,
    until: Annotated[fields.Instant | None, "Only firings until this time."] = None,
    limit: Limit = 50,
) -> UpcomingFirings:
    """List the next firings of all schedules, in order."""
    return app.inspect.upcoming(limit=limit, until=until, schedule=schedule, job=job)


@read("/preview", tag="schedules")
def preview_expression(
    app: Tickwork,
    *,
    rule: Annotated[fields.Name, "Cron, a symbol, a pattern or a chain."],
    timezone: Annotated[fields.Name, "The time zone of the rule. Default: UTC."] = "UTC",
    count: Annotated[int, fields.COUNT, "Number of instants. Default: 10."] = 10,
) -> RulePreview:
    """Explain a rule, and list its next instants and the effects of clock changes."""
    return preview_rule(
        rule,
        zone=timezone,
        count=count,
        start=app.clock.now(),
        symbols=app.symbols,
        calendars=app.calendars,
    )


# ---------------------------------------------------------------- queues, limits, workers


@read("/queues")
def list_queues(app: Tickwork) -> list[QueueView]:
    """List queues with unfinished runs, and paused ones."""
    return app.inspect.status().queues


@read("/queues/{name}")
def get_queue(app: Tickwork, name: fields.Named) -> QueueDetails:
    """Read how far behind a queue is, when it will be empty, and what serves it or holds it up."""
    if not app.inspect.knows_queue(name):
        raise ProblemError(404, f"Nothing is known of a queue {name!r}.")
    [found] = app.inspect.queue_details([name])
    return found


@read("/pauses", tag="queues")
def list_pauses(app: Tickwork) -> list[PauseView]:
    """List the queues and jobs that are paused, by whom and why."""
    return app.inspect.pauses()


@read("/limits")
def list_limits(app: Tickwork) -> list[LimitView]:
    """List all concurrency and rate limits, and the runs that hold their slots."""
    return app.inspect.limits()


@read("/workers")
def list_workers(app: Tickwork) -> list[WorkerView]:
    """List worker processes, the latest heartbeat first."""
    return app.inspect.workers()


# ---------------------------------------------------------------- explanations and audit


@read("/explanations", tag="overview", errors=(404, 409))
def explain(
    app: Tickwork,
    *,
    what: Annotated[fields.Name, "A job, a schedule, or an id of a run."],
    tenant: fields.Tenant = "",
) -> Explanation:
    """Explain why a job, a schedule or a run has not run."""
    return app.explain(what, tenant=tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """One page of the audit log, newest first."""

    entries: list[AuditEntryView]
    cursor: str | None  # of the next page; null: this is the last one


@read("/deploys", tag="audit")
def list_deploys(app: Tickwork) -> list[Deploy]:
    """List when workers of new versions of the application have started, newest first."""
    return app.inspect.deploys()


@read("/changes", tag="audit")
def list_changes(
    app: Tickwork,
    *,
    since: Annotated[fields.Instant | None, "Since when. Default: the newest deploy."] = None,
) -> Changes:
    """List what people and programs changed since the newest deploy, newest first."""
    return app.inspect.changes(since=since)


@read("/audit")
def list_audit(
    app: Tickwork,
    *,
    subject: Annotated[fields.Name | None, "Only entries about this subject: queue/emails."] = None,
    action: Annotated[fields.Name | None, "Only entries of this action: run.cancel."] = None,
    cursor: Cursor | None = None,
    limit: Limit = 50,
) -> AuditPage:
    """List who did what: on pages, in the API, with commands, in the admin, and by new code."""
    found = app.audit.list(subject=subject, action=action, before=cursor, limit=limit)
    return AuditPage(
        entries=view_entries(found), cursor=found[-1].id if len(found) == limit else None
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (*READS, *ALL_ACTS)
