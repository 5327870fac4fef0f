"""Renders the template of a page."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tickwork._kernel.version import VERSION
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard.access import Caller
from tickwork.dashboard.advice import advise
from tickwork.dashboard.alert_book import AlertBook, link_of
from tickwork.dashboard.bulk import BulkActions
from tickwork.dashboard.context import DashboardContext
from tickwork.dashboard.display_zone import DisplayZone, ZoneChoice, read_display_zone
from tickwork.dashboard.pages.request_values import FLASH_COOKIE, base_of, local_path, read_flash
from tickwork.dashboard.presentation import FILTERS
from tickwork.dashboard.problems import ProblemError

NAV: Final = (  # page, path, label, keyboard key
    ("overview", "/", "Overview", "o"),
    ("runs", "/runs", "Runs", "r"),
    ("schedules", "/schedules", "Schedules", "s"),
    ("time", "/time", "Time", "t"),
    ("queues", "/queues", "Queues", "q"),
    ("waits", "/waits", "Waits", "e"),
    ("workers", "/workers", "Workers", "w"),
    ("alerts", "/alerts", "Alerts", "a"),
    ("audit", "/audit", "Audit", "l"),
)
PAGE_SIZE: Final = 40


class PageRenderer:
    """Reads the values of a page, and renders its template."""

    def __init__(self, context: DashboardContext, bulk: BulkActions) -> None:
        self.context = context
        self.bulk = bulk
        self.alert_book = AlertBook(context.app, context.checks)
        self._templates = Environment(
            loader=PackageLoader("tickwork.dashboard"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS, advise=advise, link_of=link_of)

    @property
    def app(self) -> Tickwork:
        return self.context.app

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

        def read_all() -> dict[str, Any]:
            return {"alert_count": self.alert_book.count(), **read()}

        values = await self.context.read(read_all)
        flash = read_flash(request)
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

    async def show_error(
        self, request: Request, problem: ProblemError, *, heading: str
    ) -> HTMLResponse:
        """Show an error inside the frame of the pages; without it, if there is no user."""
        caller = None
        if problem.status not in {401, 429}:  # the token would be counted as wrong twice
            with suppress(Exception):  # without a database, for instance
                caller = await self.context.authenticator.authenticate(request)
        if caller is None:
            return self.render(
                "error_bare.html", request, code=problem.status, problem=problem, heading=heading
            )
        return self.render(
            "error.html",
            request,
            code=problem.status,
            page="",
            title=heading,
            flash=None,
            problem=problem,
            alert_count=self.alert_book.last_count(),
            **self.common_values(request, caller),
        )

    def zone_of(self, request: Request) -> DisplayZone:
        """The time zone in which this browser shows times."""
        return read_display_zone(request, default=self.app.settings.timezone)

    def common_values(self, request: Request, caller: Caller) -> dict[str, Any]:
        """The values that every page has."""
        query = f"?{request.url.query}" if request.url.query else ""
        return {
            "nav": NAV,
            "user": caller.user,
            "has_session": caller.method == "session",
            "csrf": self.context.authenticator.tokens.csrf_token_of(caller),
            "is_read_only": self.context.actions.is_read_only,
            "may": lambda action: self.context.actions.may(caller.user, action),
            "version": VERSION,
            "now": self.app.clock.now(),
            "zone": self.zone_of(request),
            "zone_choices": list(ZoneChoice),
            "here": local_path(request) + query,
        }
