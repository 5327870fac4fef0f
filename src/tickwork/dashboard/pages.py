"""The pages: each reads through ``app.inspect``, and renders one template."""

import csv
import io
import json
import secrets
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tickwork._define.definition import Definition
from tickwork._define.secret_mask import MASK
from tickwork._domain.health import Level
from tickwork._domain.identity import RunId
from tickwork._domain.limits import limit_of
from tickwork._domain.rates import is_rate
from tickwork._domain.schedules.changes import effects
from tickwork._domain.status import Phase, RunStatus
from tickwork._inspect.definitions import describe_jobs
from tickwork._inspect.rule_preview import preview_rule
from tickwork._inspect.run_search import FoundRuns
from tickwork._inspect.runs import RunView
from tickwork._inspect.schedules import ActiveSchedule
from tickwork._inspect.simulation import Collision, Simulation, simulate
from tickwork._kernel.json_form import as_json
from tickwork._kernel.plurals import count_of
from tickwork._kernel.version import VERSION
from tickwork.app import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Caller
from tickwork.dashboard.api import (
    RUN_FILTERS,
    RUN_SEARCH,
    SchedulePage,
    list_schedules_page,
    run_filter,
)
from tickwork.dashboard.bulk import RUNS_MAX, BulkActions
from tickwork.dashboard.calendar_view import VIEWS, build_calendar, count_firings, read_date
from tickwork.dashboard.context import DashboardContext
from tickwork.dashboard.fields import FieldKind, InputField
from tickwork.dashboard.presentation import (
    FILTERS,
    draw_gantt,
    draw_timeline,
    path_part,
    read_progress,
)
from tickwork.dashboard.problems import ProblemError
from tickwork.dashboard.schedule_editor import ScheduleEditor
from tickwork.errors import TickworkError
from tickwork.stores.contract import CountPrecision, RunCount, RunFilter

T = TypeVar("T")

NAV: Final = (  # page, path, label, keyboard key
    ("overview", "/", "Overview", "o"),
    ("runs", "/runs", "Runs", "r"),
    ("schedules", "/schedules", "Schedules", "s"),
    ("time", "/time", "Time", "t"),
    ("queues", "/queues", "Queues", "q"),
    ("workers", "/workers", "Workers", "w"),
    ("alerts", "/alerts", "Alerts", "a"),
    ("audit", "/audit", "Audit", "l"),
)
PAGE_SIZE: Final = 40
EXPORT_MAX: Final = 10_000
OUTCOMES_SHOWN: Final = 12
COUNTED_MAX: Final = 2_500
"""The most unfinished runs of each phase that a page counts: SQLite looks up each of them."""

RECENT_RUNS_MAX: Final = 1_000
SCHEDULES_MAX: Final = 300
"""The most schedules whose coming firings are counted for the page *Time*."""

COLLISIONS_MAX: Final = 2_000
LOAD_CACHE_TIME: Final = timedelta(minutes=1)
"""How long the load of the next 24 hours is shown before it is computed again."""

COLLISIONS_SHOWN: Final = 15
REVISIONS_SHOWN: Final = 10
FLASH_COOKIE: Final = "tickwork_flash"
BASE: Final = "tickwork_base"  # the key of the mount path in the scope of a request
RUN_QUERY: Final = (
    *RUN_FILTERS,
    *RUN_SEARCH,
    InputField("cursor", fields.RUN_ID, "Cursor."),
)


class Flash(NamedTuple):
    """One message, shown on the next page."""

    tone: str
    text: str


class Alert(NamedTuple):
    """Something that needs a person."""

    tone: str
    kind: str
    text: str
    fix: str = ""
    link: str = ""


class Pages:
    """Reads the values of each page, and renders its template."""

    def __init__(self, context: DashboardContext, bulk: BulkActions) -> None:
        self.context = context
        self.bulk = bulk
        self._load_cache: tuple[list[Any], datetime, Any] | None = None  # key, time, load
        self._templates = Environment(
            loader=PackageLoader("tickwork.dashboard"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)

    @property
    def app(self) -> Tickwork:
        return self.context.app

    # ------------------------------------------------------------ rendering

    def render(
        self, name: str, request: Request, *, code: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a template with these values only, without those of :meth:`common_values`."""
        values.setdefault("base", base_of(request))
        text = self._templates.get_template(name).render(**values)
        # Rows that someone edited can have text that is not valid Unicode.
        return HTMLResponse(text.encode(errors="replace"), code)

    async def show(
        self,
        request: Request,
        page: str,
        read: Callable[[], dict[str, Any]],
        *,
        title: str,
        template: str = "",
    ) -> Response:
        """Read the values of a page in a thread, and render it."""
        caller = await self.context.authenticator.authenticate(request)
        values = await self.context.read(read)
        flash = _read_flash(request)
        found = self.render(
            template or f"{page}.html",
            request,
            page=page,
            title=values.pop("title", title),
            flash=flash,
            **self.common_values(request, caller),
            **values,
        )
        if flash is not None:
            found.delete_cookie(FLASH_COOKIE, path=base_of(request) or "/")
        return found

    def common_values(self, request: Request, caller: Caller) -> dict[str, Any]:
        """The values that every page has."""
        query = f"?{request.url.query}" if request.url.query else ""
        return {
            "nav": NAV,
            "user": caller.user,
            "has_session": caller.method == "session",
            "csrf": self.context.authenticator.tokens.csrf_token_of(caller.user),
            "is_read_only": self.context.actions.is_read_only,
            "may": lambda action: self.context.actions.may(caller.user, action),
            "version": VERSION,
            "now": self.app.clock.now(),
            "here": local_path(request) + query,
        }

    # ------------------------------------------------------------ overview, workers, audit

    async def overview(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            inspect = self.app.inspect
            status = inspect.status(cap=COUNTED_MAX)
            activity = inspect.activity(ready=status.runs[Phase.READY])
            alive = [worker for worker in status.workers if not worker.is_silent]
            failed = RunFilter(statuses=frozenset({RunStatus.FAILED_PERMANENT}))
            points = activity.minutes
            return {
                "status": status,
                "activity": activity,
                "alive": len(alive),
                "silent": len(status.workers) - len(alive),
                "slots": sum(worker.slots for worker in alive),
                "slots_used": sum(worker.running for worker in alive),
                "firings": _order_by_next_firing(inspect.active_schedules(), now=status.now)[:6],
                "checks": [
                    check
                    for check in self.context.checks()
                    if check.level is not Level.OK or check.name in {"connection", "schema"}
                ],
                "failures": inspect.list_runs(failed, limit=5).runs,
                "chart": json.dumps(
                    [
                        [int(each.at.timestamp()) for each in points],
                        [each.created for each in points],
                        [each.completed for each in points],
                        [each.failed for each in points],
                    ]
                ),
            }

        return await self.show(request, "overview", read, title="Overview")

    async def workers(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            inspect = self.app.inspect
            newest = inspect.list_runs(RunFilter(), limit=200).runs
            return {
                "workers": inspect.workers(),
                "gantt": draw_gantt(newest, now=self.app.clock.now()),
            }

        return await self.show(request, "workers", read, title="Workers")

    async def audit(self, request: Request) -> Response:
        given = fields.read_query(
            (
                InputField("subject", fields.NAME, "Subject."),
                InputField("cursor", fields.RUN_ID, "Cursor."),
            ),
            request.query_params.multi_items(),
        )

        def read() -> dict[str, Any]:
            entries = self.app.audit.list(
                subject=given.get("subject"), before=given.get("cursor"), limit=PAGE_SIZE
            )
            return {
                "entries": entries,
                "subject": given.get("subject", ""),
                "cursor": entries[-1].id if len(entries) == PAGE_SIZE else None,
            }

        return await self.show(request, "audit", read, title="Audit log")

    async def alerts(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            return {"alerts": self._find_alerts()}

        return await self.show(request, "alerts", read, title="Alerts")

    def _find_alerts(self) -> list[Alert]:
        now = self.app.clock.now()
        found = [
            Alert(check.level.value, check.name, check.text, check.fix)
            for check in self.context.checks()
            if check.level is not Level.OK and check.name != "jobs"  # each job has its own alert
        ]
        status = self.app.inspect.status(cap=COUNTED_MAX)
        for job in status.jobs:
            if job.failures >= 3:
                text = f"{job.name} failed {job.failures} times in a row: {job.last_error[:200]}"
                link = f"/runs?{urlencode({'job': job.name, 'status': 'failed_permanent'})}"
                found.append(Alert("bad", "failing", text, "Read the newest failure.", link))
        for each in self.app.inspect.upcoming(limit=50).firings:
            if each.at < now - timedelta(seconds=15):
                text = f"{each.schedule} should have fired at {each.at:%Y-%m-%d %H:%M:%S}."
                link = f"/schedules/{path_part(each.schedule)}"
                found.append(
                    Alert("bad", "missed", text, "Start a worker that knows its job.", link)
                )
        for pause in status.pauses:
            text = f"The {pause.kind.value} {pause.name} is paused. {pause.note}"
            found.append(Alert("warn", "paused", text, "Resume it when it may go on.", "/queues"))
        return sorted(found, key=lambda alert: alert.tone)

    # ------------------------------------------------------------ runs

    async def runs(self, request: Request) -> Response:
        given = fields.read_query(RUN_QUERY, request.query_params.multi_items())

        def read() -> dict[str, Any]:
            found = self.app.inspect.list_runs(
                run_filter(given),
                text=given.get("text", ""),
                args=given.get("arg", ()),
                cursor=given.get("cursor"),
                limit=PAGE_SIZE,
                has_total=True,
            )
            return {
                "found": found,
                "jobs": sorted(self.app.registry.job_names()),
                "statuses": [status.value for status in RunStatus],
                **_run_query(request, given),
            }

        return await self.show(request, "runs", read, title="Runs")

    async def export(self, request: Request) -> Response:
        """The newest runs that match, at most ten thousand, as CSV or JSON."""
        await self.context.authenticator.authenticate(request)
        given = fields.read_query(RUN_QUERY, request.query_params.multi_items())

        def read() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            cursor = given.get("cursor")
            limit = EXPORT_MAX if _is_search(given) else 500  # one search is one page
            while len(rows) < EXPORT_MAX:
                page = self.app.inspect.list_runs(
                    run_filter(given),
                    text=given.get("text", ""),
                    args=given.get("arg", ()),
                    cursor=cursor,
                    limit=limit,
                )
                rows += [as_json(run) for run in page.runs]
                cursor = page.cursor
                if cursor is None or page.searched_since is not None:
                    break
            return rows[:EXPORT_MAX]

        rows = await self.context.read(read)
        if request.url.path.endswith(".json"):
            text, kind, name = json.dumps(rows), "application/json", "runs.json"
        else:
            text, kind, name = _as_csv(rows), "text/csv; charset=utf-8", "runs.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type=kind, headers=headers)

    async def bulk_preview(self, request: Request) -> Response:
        given = fields.read_query(RUN_QUERY, request.query_params.multi_items())

        def read() -> dict[str, Any]:
            shown = [(name, value) for name, value in given.items() if name != "cursor"]
            found = self._search_matching(given) if _is_search(given) else None
            if found is None:
                total = self.app.inspect.count_runs(run_filter(given))
            else:  # an action finds the same runs
                total = RunCount(len(found.runs), CountPrecision.EXACT)
            return {
                "bulk": None,
                "total": total,
                "found": found,
                "cap": RUNS_MAX,
                "filters": [
                    (name, ", ".join(value) if isinstance(value, list) else value)
                    for name, value in shown
                ],
                **_run_query(request, given),
            }

        return await self.show(
            request, "runs", read, title="Act on all that match", template="bulk.html"
        )

    async def bulk_action(self, request: Request) -> Response:
        bulk = self.bulk.get(request.path_params["id"])
        return await self.show(
            request, "runs", lambda: {"bulk": bulk}, title="Bulk action", template="bulk.html"
        )

    def matching_ids(self, given: Mapping[str, Any]) -> list[RunId]:
        """The ids of the newest runs that match, the oldest of them first: at most RUNS_MAX."""
        if not _is_search(given):
            return self.app.runs.find_ids(run_filter(dict(given)), limit=RUNS_MAX)
        return [run.id for run in reversed(self._search_matching(given).runs)]

    def _search_matching(self, given: Mapping[str, Any]) -> FoundRuns:
        return self.app.inspect.list_runs(
            run_filter(dict(given)),
            text=given.get("text", ""),
            args=given.get("arg", ()),
            limit=RUNS_MAX,
        )

    async def run(self, request: Request) -> Response:
        run_id = run_id_of(request)

        def read() -> dict[str, Any]:
            found = self.app.inspect.details(run_id)
            run = found.run
            words = ["tickwork", "dispatch", run.job]
            if run.args:
                words.append(json.dumps(as_json(run.args)))
            return {
                "title": run.job,
                "run": run,
                "attempts": found.attempts,
                "log": found.log,
                "causes": found.causes,
                "progress": None if run.progress is None else read_progress(run.progress),
                "command": shlex.join(words),
                "timeline": draw_timeline(run, found.attempts, now=self.app.clock.now()),
            }

        return await self.show(request, "runs", read, title="Run", template="run.html")

    async def dispatch(
        self,
        request: Request,
        *,
        given: Mapping[str, str] | None = None,
        error: str = "",
    ) -> Response:
        """The form of a dispatch, made from the signature of the handler."""
        query, kept = request.query_params, dict(given or {})

        def read() -> dict[str, Any]:
            name = kept.get("job") or query.get("job")
            if query.get("run"):
                chosen = RunId(_parse_or_404(fields.RUN_ID, query["run"]))
                run = self.app.inspect.details(chosen).run
                name = run.job
                # A masked secret is left empty: the mask itself must not be dispatched.
                shown = {key: as_text(each) for key, each in run.args.items()}
                kept.update({f"arg:{key}": text for key, text in shown.items() if MASK not in text})
                kept.setdefault("queue", run.queue)
            jobs = describe_jobs(
                self.app.registry,
                job=name,
                timezone=self.app.settings.timezone,
                now=self.app.clock.now(),
            )
            if name is None:
                return {"job": None, "jobs": jobs}
            definition = self.app.registry.get(name)
            return {
                "title": f"Dispatch {name}",
                "job": jobs[0],
                "error": error,
                "key": secrets.token_urlsafe(12),
                "parameters": list_parameters(definition, kept),
                "given": {key: kept.get(key, "") for key in ("delay", "queue", "priority")},
            }

        return await self.show(request, "runs", read, title="Dispatch", template="dispatch.html")

    # ------------------------------------------------------------ schedules

    async def schedules(self, request: Request) -> Response:
        cursor = request.query_params.get("cursor")

        def read() -> dict[str, Any]:
            page: SchedulePage = list_schedules_page(
                self.app, tenant=None, cursor=cursor, limit=PAGE_SIZE
            )
            newest = self.app.inspect.list_runs(RunFilter(), limit=RECENT_RUNS_MAX).runs
            outcomes: dict[tuple[str, str | None], list[RunView]] = {}
            for run in newest:
                outcomes.setdefault((run.tenant, run.schedule), []).append(run)
            # The newest outcomes of each schedule, the oldest first.
            rows = [
                (each, outcomes.get((each.tenant, each.name), [])[OUTCOMES_SHOWN - 1 :: -1])
                for each in page.schedules
            ]
            return {"rows": rows, "cursor": page.cursor}

        return await self.show(request, "schedules", read, title="Schedules")

    async def schedule(self, request: Request) -> Response:
        name, tenant = name_of(request), tenant_of(request)

        def read() -> dict[str, Any]:
            found = self.app.schedules.get(name, tenant=tenant)
            now = self.app.clock.now()
            notes: list[str] = []
            for each in self.app.inspect.active_schedules():
                if (each.spec.tenant, each.spec.name) == (tenant, name):
                    changes = effects(each.rule, after=now, until=now + timedelta(days=400))
                    notes = [change.text for change in changes]
            return {
                "title": name,
                "schedule": found,
                "length": request.query_params.get("length", "")[: fields.TEXT_MAX],
                "next": self.app.schedules.preview(name, 5, tenant=tenant),
                "notes": notes,
                # With its job, the database finds them by an index.
                "runs": self.app.inspect.list_runs(
                    RunFilter(tenant=tenant, schedule=name, job=found.job), limit=25
                ).runs,
                "history": self.app.audit.list(subject=f"schedule/{name}", limit=5),
                "details": self.app.inspect.schedule_details(name, tenant=tenant),
                "revisions": ScheduleEditor(self.context.actions).list_revisions(
                    name, tenant=tenant
                )[:REVISIONS_SHOWN],
            }

        return await self.show(
            request, "schedules", read, title="Schedule", template="schedule.html"
        )

    async def preview(self, request: Request) -> Response:
        """The preview of a rule, as a part of a page."""
        await self.context.authenticator.authenticate(request)
        rule = request.query_params.get("rule", "")[: fields.TEXT_MAX]
        zone = request.query_params.get("timezone", "")[: fields.TEXT_MAX] or "UTC"
        now = self.app.clock.now()

        def read() -> dict[str, Any]:
            if not rule.strip():
                return {"error": "", "found": None}
            try:
                found = preview_rule(rule, zone=zone, count=5, start=now, symbols=self.app.symbols)
            except TickworkError as error:
                return {"error": f"{error.what} {error.fix}", "found": None}
            return {"error": "", "found": found}

        return self.render("preview.html", request, now=now, **await self.context.read(read))

    async def time(self, request: Request) -> Response:
        now = self.app.clock.now()
        date = read_date(request.query_params.get("date", ""), now)
        view = request.query_params.get("view", "month")
        if view not in VIEWS:
            raise ProblemError(422, "view must be month, week or day.", field="view")

        def read() -> dict[str, Any]:
            return self._read_time(view, date, now)

        return await self.show(request, "time", read, title="Time")

    def _read_time(self, view: str, date: datetime, now: datetime) -> dict[str, Any]:
        active = self.app.inspect.active_schedules()[:SCHEDULES_MAX]
        runs = self.app.inspect.list_runs(RunFilter(), limit=RECENT_RUNS_MAX).runs
        load, cells = self._read_load(active, now)
        most = max(cells.values(), default=0)
        heat = [
            {
                "label": f"{hour:02}:00",
                "y": hour * 15,
                "cells": [
                    {
                        "level": _heat_level(cells[hour, part], most),
                        "text": f"{hour:02}:{part * 5:02}: {count_of(cells[hour, part], 'firing')}",
                    }
                    for part in range(12)
                ],
            }
            for hour in range(24)
        ]
        busiest = load.busiest_minute
        return {
            "calendar": build_calendar(view, date, schedules=active, runs=runs, now=now),
            "views": VIEWS,
            "heat": heat,
            "busiest": "none"
            if busiest is None
            else f"{busiest:%H:%M} with {load.busiest_minute_firings}",
            "collisions": _group_collisions(load.collisions),
        }

    def _read_load(
        self, active: Sequence[ActiveSchedule], now: datetime
    ) -> tuple[Simulation, Counter[tuple[int, int]]]:
        """The firings of the next 24 hours: a simulation, and counts by hour and five minutes.

        They are computed once a minute: hundreds of schedules take half a second.
        """
        key = [(each.spec.tenant, each.spec.name, each.spec.rule) for each in active]
        cached = self._load_cache
        if cached is None or cached[0] != key or now - cached[1] >= LOAD_CACHE_TIME:
            cached = self._load_cache = (key, now, _compute_load(active, now))
        return cached[2]

    # ------------------------------------------------------------ queues

    async def queues(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            status = self.app.inspect.status(cap=COUNTED_MAX)
            return {
                "queues": status.queues,
                "jobs": status.jobs,
                "notes": {(each.kind.value, each.name): each.note for each in status.pauses},
                "limits": [self._view_limit(row) for row in self.app.limits.list()],
            }

        return await self.show(request, "queues", read, title="Queues and limits")

    def _view_limit(self, row: Any) -> dict[str, Any]:
        found = {"name": row.name, "slots": row.slots, "override": row.override}
        found |= {"in_force": row.in_force, "taken": None, "holders": []}
        if not is_rate(row.name) and limit_of(row.name) == row.name:
            held = self.app.limits.holders(row.name)
            found |= {"taken": held.taken, "holders": held.runs}
        return found


# ---------------------------------------------------------------- requests


def _is_search(given: Mapping[str, Any]) -> bool:
    """Whether runs must be read to find those that match."""
    return bool(given.get("text") or given.get("arg"))


def base_of(request: Request) -> str:
    """The path under which the dashboard is mounted."""
    return str(request.scope.get(BASE, "")).rstrip("/")


def local_path(request: Request) -> str:
    """The path of a page below the mount."""
    base = base_of(request)
    return request.url.path.removeprefix(base) or "/"


def run_id_of(request: Request) -> RunId:
    """The run that a path names."""
    return RunId(_parse_or_404(fields.RUN_ID, request.path_params["id"]))


def name_of(request: Request) -> str:
    """The queue, job or schedule that a path names."""
    return _parse_or_404(fields.NAME, request.path_params["name"])


def tenant_of(request: Request) -> str:
    return _parse_or_404(fields.TEXT, request.query_params.get("tenant", ""))


def _parse_or_404(kind: FieldKind, text: str) -> str:
    try:
        return str(kind.parse(text, True))
    except ValueError:
        raise ProblemError(404, "There is no such page.") from None


def _read_flash(request: Request) -> Flash | None:
    tone, separator, text = request.cookies.get(FLASH_COOKIE, "").partition("|")
    if not separator or tone not in {"good", "bad"}:
        return None
    return Flash(tone, unquote(text))


def _run_query(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of a page of runs, and links that change one of them."""
    values: dict[str, Any] = {each.name: "" for each in RUN_QUERY}
    values |= {"status": [status.value for status in given.get("status", ())]}
    values |= {"arg": given.get("arg", [])}
    for name in ("job", "queue", "schedule", "tag", "tenant", "text", "cursor"):
        values[name] = given.get(name, "")
    for name in ("since", "before"):
        values[name] = given[name].isoformat() if name in given else ""

    def link(**changes: Any) -> str:
        # A cursor is valid only for the filters that it was made with.
        wanted = {**values, "cursor": "", **changes}
        return f"{base_of(request)}/runs{_query_text(wanted)}"

    return {
        "query": values,
        "link": link,
        "query_text": _query_text({**values, "cursor": ""}),
        "is_filtered": any(value for name, value in values.items() if name != "cursor"),
    }


def _query_text(values: Mapping[str, Any]) -> str:
    pairs = [
        (name, each)
        for name, value in values.items()
        for each in (value if isinstance(value, list | tuple) else [value])
        if each
    ]
    return f"?{urlencode(pairs, errors='replace')}" if pairs else ""


def _as_csv(rows: list[dict[str, Any]]) -> str:
    target = io.StringIO()
    names = list(rows[0]) if rows else ["id"]
    writer = csv.writer(target)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_cell(row[name]) for name in names])
    return target.getvalue()


def _csv_cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    # A spreadsheet would execute a cell that begins like a formula.
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(as_json(value))


def list_parameters(definition: Definition, kept: Mapping[str, str]) -> list[dict[str, Any]]:
    """The fields of a form: one for each parameter of the handler."""
    found = []
    for name, each in definition.parameters.signature.parameters.items():
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            continue
        is_secret = name in definition.secrets
        annotation = "" if each.annotation is each.empty else _type_name(each.annotation)
        found.append(
            {
                "name": name,
                "annotation": annotation,
                "is_required": each.default is each.empty and name not in definition.options.args,
                "default": "" if each.default is each.empty or is_secret else repr(each.default),
                "value": "" if is_secret else kept.get(f"arg:{name}", ""),
                "is_secret": is_secret,
                "is_choice": annotation == "bool",
            }
        )
    return found


def _type_name(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _order_by_next_firing(
    schedules: Sequence[ActiveSchedule], *, now: datetime
) -> list[tuple[ActiveSchedule, bool]]:
    """The schedules in order of their next firing; with each, whether it is overdue."""
    due = [(each.next_due_at, each) for each in schedules if each.next_due_at is not None]
    due.sort(key=lambda pair: (pair[0], pair[1].spec.tenant, pair[1].spec.name))
    return [(each, each.overdue is not None and at <= now) for at, each in due]


def _compute_load(
    active: Sequence[ActiveSchedule], now: datetime
) -> tuple[Simulation, Counter[tuple[int, int]]]:
    load = simulate(
        active,
        begin=now,
        days=1,
        zone="UTC",
        collisions_max=COLLISIONS_MAX,
        progress=lambda *_: None,
    )
    cells: Counter[tuple[int, int]] = Counter()
    five_minutes = timedelta(minutes=5)
    start = now.replace(minute=now.minute // 5 * 5, second=0, microsecond=0) + five_minutes
    for part in range(24 * 12):
        begin = start + part * five_minutes
        end = begin + five_minutes - timedelta(microseconds=1)
        cells[begin.hour, begin.minute // 5] = sum(
            count_firings(each, begin, end) for each in active
        )
    return load, cells


def _group_collisions(collisions: Sequence[Collision]) -> list[dict[str, Any]]:
    """Collisions of the same schedules as one, the largest group first."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for each in sorted(collisions, key=lambda each: each.at):
        names = tuple(sorted(each.schedules))
        group = found.setdefault(
            names,
            {"names": names, "more": each.count - len(names), "at": each.at, "times": 0},
        )
        group["times"] += 1
    by_size = sorted(found.values(), key=lambda group: (-len(group["names"]), group["at"]))
    return by_size[:COLLISIONS_SHOWN]


def _heat_level(count: int, most: int) -> int:
    return 0 if not count else 1 + min(int(count / most * 4), 3)
