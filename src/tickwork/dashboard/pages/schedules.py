"""Schedules: the list, one schedule, and the preview of a rule."""

from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tickwork._domain.schedules.changes import effects
from tickwork._inspect.rule_preview import preview_rule
from tickwork._stores.contract import RunFilter
from tickwork.dashboard import fields
from tickwork.dashboard.api import list_schedules
from tickwork.dashboard.pages.renderer import PAGE_SIZE, PageRenderer
from tickwork.dashboard.pages.request_values import name_of, parse_or_404, tenant_of
from tickwork.dashboard.schedule_revisions import list_removed, list_revisions
from tickwork.dashboard.statistics_chart import draw_days
from tickwork.errors import TickworkError

REVISIONS_SHOWN: Final = 10


class SchedulePages(PageRenderer):
    """The pages about schedules."""

    async def schedules(self, request: Request) -> Response:
        text = request.query_params.get("cursor")
        cursor = None if text is None else parse_or_404(fields.CURSOR, text)

        def read() -> dict[str, Any]:
            page = list_schedules(self.app, cursor=cursor, limit=PAGE_SIZE)
            names = [(each.tenant, each.name) for each in page.schedules]
            outcomes = self.app.inspect.last_outcomes(names)
            rows = [(each, outcomes[each.tenant, each.name]) for each in page.schedules]
            return {
                "rows": rows,
                "cursor": page.cursor,
                "removed": list_removed(self.app) if cursor is None else [],
            }

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
                "runs": self.app.inspect.list_runs(
                    RunFilter(tenant=tenant, schedule=name), limit=25
                ).runs,
                "outcomes": self.app.inspect.last_outcomes([(tenant, name)])[tenant, name],
                "grid": draw_days(self.app.inspect.outcome_days(name, tenant=tenant)),
                "explanation": self.app.inspect.explain_schedule(name, tenant=tenant),
                "history": self.app.audit.list(subject=f"schedule/{name}", limit=5),
                "details": self.app.inspect.schedule_details(name, tenant=tenant),
                "revisions": list_revisions(self.app, name, tenant=tenant)[:REVISIONS_SHOWN],
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
                found = preview_rule(
                    rule,
                    zone=zone,
                    count=5,
                    start=now,
                    symbols=self.app.symbols,
                    calendars=self.app.calendars,
                )
            except TickworkError as error:
                return {"error": f"{error.what} {error.fix}", "found": None}
            return {"error": "", "found": found}

        return self.render("preview.html", request, now=now, **await self.context.read(read))
