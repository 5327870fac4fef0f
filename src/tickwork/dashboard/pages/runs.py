"""Runs: the list, its errors and export, actions on all that match, one run, and a dispatch."""

import json
import re
import secrets
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._domain.runs.status import RunStatus
from tickwork._inspect.definitions import describe_jobs
from tickwork._inspect.run_search import RunList, RunMatches
from tickwork._inspect.runs import RunView
from tickwork._kernel.json_form import as_json
from tickwork._masks.text import MASK
from tickwork._stores.contract import CountPrecision, RunCount, RunFilter
from tickwork.dashboard import fields
from tickwork.dashboard.api import run_filter, run_search
from tickwork.dashboard.bulk import RUNS_MAX
from tickwork.dashboard.pages.parameters import as_text, list_parameters
from tickwork.dashboard.pages.renderer import PAGE_SIZE, PageRenderer
from tickwork.dashboard.pages.request_values import base_of, parse_or_404, run_id_of
from tickwork.dashboard.pages.run_export import stream_export
from tickwork.dashboard.pages.run_query import is_search, read_run_query, run_query_values
from tickwork.dashboard.pages.saved_views import STANDARD_VIEWS, read_views
from tickwork.dashboard.presentation import draw_timeline, read_progress
from tickwork.errors import AmbiguousRun, RunNotFound, ScheduleNotFound

TAB_COUNT_MAX: Final = 1_000
"""The most runs of a status that its tab counts."""

TAB_SCAN_MAX: Final = 5_000
"""The most rows that the count of a tab reads: there are seven on each page."""

SUGGESTIONS_MAX: Final = 200
SUGGESTIONS_SECONDS: Final = 30.0
EXPORT_PAGE: Final = 500
DISPATCH_OPTIONS: Final = ("delay", "queue", "priority", "tenant", "target", "tags")
ERRORS_SINCE: Final = timedelta(hours=1)
_ID_PREFIX: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f-]*", re.IGNORECASE)


class RunPages(PageRenderer):
    """The pages about runs."""

    _suggestions: tuple[float, dict[str, list[Any]]] | None = None  # when they were read

    async def runs(self, request: Request) -> Response:
        given = self._read_query(request)
        text = given.get("text", "").strip()
        if _ID_PREFIX.fullmatch(text):
            found_id = await self._find_pasted(request, text)
            if found_id is not None:
                return RedirectResponse(f"{base_of(request)}/runs/{found_id}", 303)

        def read() -> dict[str, Any]:
            found = self.app.inspect.list_runs(
                run_filter(given),
                **run_search(given),
                limit=PAGE_SIZE,
                has_total=not is_search(given),  # the count of a search reads 5,000 runs
            )
            return {
                "found": found,
                "counts": {} if is_search(given) else self._count_tabs(given),
                "suggestions": self._suggest(),
                "statuses": [status.value for status in RunStatus],
                "views": read_views(request),
                "standard_views": STANDARD_VIEWS,
                **run_query_values(request),
            }

        return await self.show(request, "runs", read, title="Runs")

    async def _find_pasted(self, request: Request, text: str) -> RunId | None:
        """The run whose id someone has pasted into the search, whatever the other filters are."""
        await self.context.authenticator.authenticate(request)

        def read() -> RunId | None:
            with suppress(RunNotFound, AmbiguousRun):
                return self.app.inspect.find(text)
            return None

        return await self.context.read(read)

    def _count_tabs(self, given: Mapping[str, Any]) -> dict[str, RunCount]:
        """How many runs of each status match the other filters."""
        rest = {name: value for name, value in given.items() if name != "status"}
        return {
            status.value: self.app.inspect.count_runs(
                run_filter({**rest, "status": [status]}),
                cap=TAB_COUNT_MAX,
                scan_max=TAB_SCAN_MAX,
            )
            for status in RunStatus
        }

    def _suggest(self) -> dict[str, list[Any]]:
        """Values for the filters, at most half a minute old."""
        now = time.monotonic()
        if self._suggestions is None or now - self._suggestions[0] >= SUGGESTIONS_SECONDS:
            self._suggestions = (now, self._read_suggestions())
        return self._suggestions[1]

    def _read_suggestions(self) -> dict[str, list[Any]]:
        inspect = self.app.inspect
        options = [each.options for each in self.app.registry.definitions().values()]
        schedules = self.app.schedules.page(limit=SUGGESTIONS_MAX)
        recent = self.app.clock.now() - timedelta(days=1)
        status = inspect.status(cap=TAB_COUNT_MAX)
        found: dict[str, list[Any]] = {
            "job": [each.name for each in status.jobs],
            "queue": [
                *(each.name for each in status.queues),
                *(each.queue for each in status.jobs),
            ],
            "schedule": [each.name for each in schedules],
            "tenant": [*(each.tenant for each in schedules), *(job.tenant for job in status.jobs)],
            "tag": [tag for each in options for tag in each.tags or ()],
        }
        suggested = {
            name: sorted({each for each in values if each})[:SUGGESTIONS_MAX]
            for name, values in found.items()
        }
        groups = inspect.error_groups(RunFilter(since=recent)).groups[:30]
        return {
            **suggested,
            "error": [each.text for each in groups],
            "worker": [(each.id, f"{each.host} pid {each.pid}") for each in inspect.workers()],
        }

    async def errors(self, request: Request) -> Response:
        """Failed runs, grouped by their error: those of the last hour unless a time is given."""
        given = self._read_query(request)
        given.setdefault("since", self.app.clock.now() - ERRORS_SINCE)

        def read() -> dict[str, Any]:
            values = run_query_values(request)
            values["query"]["since"] = values["query"]["since"] or "1h"
            return {
                "errors": self.app.inspect.error_groups(run_filter(given)),
                "lengths": ("1h", "6h", "24h", "7d"),
                **values,
            }

        return await self.show(request, "runs", read, title="Errors", template="errors.html")

    async def export(self, request: Request) -> Response:
        """All runs that match, as CSV or JSON."""
        await self.context.authenticator.authenticate(request)
        given = self._read_query(request)

        async def read_page(cursor: str | None) -> RunList:
            search = run_search(given) | ({} if cursor is None else {"cursor": cursor})
            return await self.context.read(
                lambda: self.app.inspect.list_runs(run_filter(given), **search, limit=EXPORT_PAGE)
            )

        kind = "json" if request.url.path.endswith(".json") else "csv"
        return await stream_export(read_page, kind=kind)

    def _read_query(self, request: Request) -> dict[str, Any]:
        return read_run_query(request, now=self.app.clock.now(), zone=self.zone_of(request))

    async def bulk_preview(self, request: Request) -> Response:
        given = self._read_query(request)

        def read() -> dict[str, Any]:
            shown = [each for each in given.items() if each[0] not in {"cursor", "sort"}]
            found = self._search_matching(given) if is_search(given) else None
            if found is None:
                total = self.app.inspect.count_runs(run_filter(given))
            else:  # an action finds the same runs
                total = RunCount(len(found.ids), CountPrecision.EXACT)
            return {
                "bulk": None,
                "total": total,
                "found": found,
                "cap": RUNS_MAX,
                "filters": [
                    (name, ", ".join(value) if isinstance(value, list) else value)
                    for name, value in shown
                ],
                **run_query_values(request),
            }

        return await self.show(
            request, "runs", read, title="Act on all that match", template="bulk.html"
        )

    async def bulk_action(self, request: Request) -> Response:
        def read() -> dict[str, Any]:
            return {"bulk": self.bulk.get(request.path_params["id"])}

        return await self.show(request, "runs", read, title="Bulk action", template="bulk.html")

    def matching_ids(self, request: Request) -> list[RunId]:
        """The ids of the newest runs that match, the oldest of them first: at most RUNS_MAX."""
        given = self._read_query(request)
        if not is_search(given):
            return self.app.runs.find_ids(run_filter(dict(given)), limit=RUNS_MAX)
        return self._search_matching(given).ids[::-1]

    def _search_matching(self, given: Mapping[str, Any]) -> RunMatches:
        return self.app.inspect.find_matches(
            run_filter(dict(given)),
            text=given.get("text", ""),
            args=given.get("arg", ()),
            error=given.get("error", ""),
            longer=given.get("longer"),
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
                "steps": found.steps,
                "log": found.log,
                "retries": found.retries,
                "children": found.children,
                "callers": found.callers,
                "causes": found.causes,
                "progress": None if run.progress is None else read_progress(run.progress),
                "command": shlex.join(words),
                "timeline": draw_timeline(run, found.attempts, now=self.app.clock.now()),
                "history": self.app.audit.list(subject=f"run/{run.id}", limit=10),
                "schedule_zone": self._zone_of_schedule(run),
            }

        return await self.show(request, "runs", read, title="Run", template="run.html")

    def _zone_of_schedule(self, run: RunView) -> str:
        if run.schedule is not None:
            with suppress(ScheduleNotFound):
                return self.app.schedules.get(run.schedule, tenant=run.tenant).zone
        return ""

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
            masked: set[str] = set()
            if query.get("run"):
                chosen = RunId(parse_or_404(fields.RUN_ID, query["run"]))
                run = self.app.inspect.details(chosen).run
                name = run.job
                # A masked secret is left empty: the mask itself must not be dispatched.
                shown = {key: as_text(each) for key, each in run.args.items()}
                kept.update({f"arg:{key}": text for key, text in shown.items() if MASK not in text})
                masked = {key for key, text in shown.items() if MASK in text}
                for key, value in _options_of(run, self.app.registry.find(run.job)).items():
                    kept.setdefault(key, value)
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
                "parameters": list_parameters(definition, kept, masked=masked),
                "run": query.get("run", ""),
                "given": {key: kept.get(key, "") for key in DISPATCH_OPTIONS},
            }

        return await self.show(request, "runs", read, title="Dispatch", template="dispatch.html")


def _options_of(run: RunView, definition: Definition | None) -> dict[str, str]:
    """The options of a run, as the form of a dispatch has them: those of its job are left out."""
    own = () if definition is None else definition.spec.tags
    return {
        "queue": run.queue,
        "priority": str(run.priority),
        "tenant": run.tenant,
        "target": run.target or "",
        "tags": ", ".join(tag for tag in run.tags if tag not in own),
    }
