"""The ASGI application: routes, headers, and the way from a request to an endpoint."""

import json
import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwork._control.schedule_view import ScheduleView
from tickwork._dispatch.callbacks import PATH as CALLBACK_PATH
from tickwork._kernel.json_form import as_json
from tickwork.app.tickwork import Tickwork
from tickwork.dashboard import fields
from tickwork.dashboard.access import Identify, Tokens
from tickwork.dashboard.actions import Act, Actions
from tickwork.dashboard.acts import ALL_ACTS
from tickwork.dashboard.api import ENDPOINTS
from tickwork.dashboard.authentication import Authenticator
from tickwork.dashboard.bulk import BulkActions
from tickwork.dashboard.callbacks import CallbackPages
from tickwork.dashboard.context import DashboardContext, read_body_bytes
from tickwork.dashboard.endpoints import Endpoint
from tickwork.dashboard.etags import etag_of
from tickwork.dashboard.forms import Forms
from tickwork.dashboard.openapi import PREFIX, build_document
from tickwork.dashboard.pages import Pages
from tickwork.dashboard.pages.request_values import BASE, base_of, local_path
from tickwork.dashboard.problems import TITLES, ProblemError, problem_of
from tickwork.dashboard.request_limit import RequestLimit
from tickwork.dashboard.schedule_forms import ScheduleForms
from tickwork.dashboard.stream import ChangeDetector, StreamLimits, open_stream
from tickwork.errors import TickworkError

ALL_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

log: Final = logging.getLogger("tickwork.dashboard")


class SecurityHeaders:
    """Adds the same headers to every response, and notes where the dashboard is mounted.

    A request for the place itself, without a slash at its end, is sent to its first page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Mounts below this application extend the root path.
        scope[BASE] = scope.get("root_path", "")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        app = self._app
        if scope["type"] == "http" and scope["path"] == scope[BASE]:
            app = RedirectResponse(f"{scope[BASE]}/", status_code=307)
        await app(scope, receive, send_with_headers)


class StaticFolder(StaticFiles):
    """The files of the pages. A browser keeps them, and asks whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        found = super().file_response(*args, **kwargs)
        found.headers["cache-control"] = "no-cache"
        return found


def build_site(
    app: Tickwork,
    *,
    tokens: Tokens,
    identify: Identify | None,
    secret: str,
    login_url: str,
    is_read_only: bool,
    read_timeout: timedelta,
    streams_max: int,
    streams_per_client: int,
    requests_per_minute: int,
) -> Starlette:
    context = DashboardContext(
        app,
        make_authenticator=partial(
            Authenticator, tokens, identify, secret=secret, login_url=login_url
        ),
        actions=Actions(app, is_read_only=is_read_only),
        read_timeout=read_timeout,
        request_limit=RequestLimit(requests_per_minute),
    )
    limits = StreamLimits(server_max=streams_max, client_max=streams_per_client)
    pages = Pages(context, BulkActions(context.actions))
    built = Starlette(
        routes=[
            Mount(PREFIX, Router(_api_routes(context), redirect_slashes=False)),
            Mount("/static", StaticFolder(directory=Path(__file__).parent / "static")),
            *_page_routes(context, pages, limits),
        ],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={
            ProblemError: _show_problem,
            TickworkError: _show_error,
            HTTPException: _show_http_error,
            500: _show_crash,
        },
    )
    built.router.redirect_slashes = False  # it leads to the host that the request names
    built.state.pages = pages
    built.state.streams = limits
    return built


# ---------------------------------------------------------------- pages


def _page_routes(context: DashboardContext, pages: Pages, limits: StreamLimits) -> list[Route]:
    forms = Forms(pages)
    edits = ScheduleForms(pages, forms)
    callbacks = CallbackPages(context, pages)
    reads: dict[str, Callable[..., Any]] = {
        "/": pages.overview,
        "/events": partial(open_stream, context, ChangeDetector(context), limits),
        "/login": forms.show_login,
        f"{CALLBACK_PATH}{{token}}": callbacks.show,  # for people without an account
        "/runs": pages.runs,
        "/runs/bulk": pages.bulk_preview,
        "/runs/errors": pages.errors,
        "/runs/export.csv": pages.export,
        "/runs/export.json": pages.export,
        "/runs/{id}": pages.run,
        "/bulk/{id}": pages.bulk_action,
        "/dispatch": pages.dispatch,
        "/schedules": pages.schedules,
        "/schedules/preview": pages.preview,
        "/schedules/{name:path}": pages.schedule,
        "/new-schedule": edits.show_new,
        "/edit-schedule": edits.show_edit,
        "/time": pages.time,
        "/queues": pages.queues,
        "/queues/{name:path}": pages.queue,
        "/jobs/{name:path}": pages.job,
        "/waits": pages.waits,
        "/workers": pages.workers,
        "/alerts": pages.alerts,
        "/audit": pages.audit,
        "/audit/changes": pages.changes,
    }
    acts: dict[str, Callable[..., Any]] = {
        **{
            (each.form.path or each.path).replace("{name}", "{name:path}"): partial(
                forms.take, each
            )
            for each in ALL_ACTS
            if each.form is not None
        },
        "/login": forms.log_in,
        f"{CALLBACK_PATH}{{token}}": callbacks.answer,
        "/logout": forms.log_out,
        "/dispatch": forms.dispatch,
        "/zone": forms.choose_zone,
        "/views": forms.change_views,
        "/runs/bulk": forms.bulk,
        "/bulk/{id}/stop": forms.stop_bulk,
        "/new-schedule": edits.create,
        "/edit-schedule": edits.change,
        "/schedules/{name:path}/backfill": forms.backfill,
    }
    by_path: dict[str, dict[str, Callable[..., Any]]] = {}
    for method, handlers in (("POST", acts), ("GET", reads)):
        for path, handle in handlers.items():
            by_path.setdefault(path, {})[method] = handle
    return [
        Route(path, partial(_handle, handlers), methods=list(handlers))
        for path, handlers in by_path.items()
    ]


async def _handle(handlers: dict[str, Callable[..., Any]], request: Request) -> Response:
    """Handle a page and its form, which have one path, so that a 405 names both methods."""
    found: Response = await handlers["POST" if request.method == "POST" else "GET"](request)
    return found


# ---------------------------------------------------------------- API


def _api_routes(context: DashboardContext) -> list[Route]:
    by_path: dict[str, list[Endpoint]] = {}
    for each in ENDPOINTS:
        by_path.setdefault(each.path, []).append(each)
    # A name may contain a slash, so `/schedules/{name}` matches longer paths, too: they come first.
    paths = sorted(by_path, key=lambda path: -path.count("/"))
    return [
        Route("/openapi.json", partial(_show_document, context)),
        *(
            Route(
                path.replace("{name}", "{name:path}"),
                partial(_answer, context, {each.method: each for each in by_path[path]}),
                methods=ALL_METHODS,  # otherwise, another path may match one of its other methods
            )
            for path in paths
        ),
    ]


async def _show_document(context: DashboardContext, request: Request) -> Response:
    await context.authenticator.authenticate(request)
    return _as_response(build_document(server=base_of(request)))


async def _answer(
    context: DashboardContext, endpoints: dict[str, Endpoint], request: Request
) -> Response:
    """Check a request, run its endpoint in a thread, and return its result."""
    caller = await context.authenticator.authenticate(request)
    method = "GET" if request.method == "HEAD" else request.method
    if method not in endpoints:
        allowed = {*endpoints, *({"HEAD"} if "GET" in endpoints else ())}
        raise ProblemError(
            405, "The method is not allowed here.", headers={"Allow": ", ".join(sorted(allowed))}
        )
    found = endpoints[method]
    context.count_request(caller)
    if method in UNSAFE:
        token = request.headers.get("x-csrf-token", "")
        context.authenticator.check_csrf(request, caller, token=token)
    body = await read_body_bytes(request)
    if body.strip():
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProblemError(415, "The body must be JSON.", fix="Send it as application/json.")
    if isinstance(found, Act):  # before the values are read: others need not learn what is valid
        context.actions.check(caller, found)
    path = {each.name: request.path_params[each.name] for each in found.fields_in("path")}
    parts = fields.read_query(found.fields_in("path"), path.items(), is_form=False).values()
    values = {
        **_read_headers(found, request),
        **fields.read_query(
            found.fields_in("query"), request.query_params.multi_items(), is_form=False
        ),
        **fields.read_body(found.fields_in("body"), body),
    }
    if isinstance(found, Act):
        act = found
        done = await context.write(
            lambda: as_json(context.actions.take(caller, act, *parts, **values))
        )
    else:
        done = await context.read(lambda: as_json(found.function(context.app, *parts, **values)))
    if found.result is None:
        return Response(status_code=found.status)
    is_repeated = found.has_key and not done["is_new"]
    response = _as_response(done, 200 if is_repeated else found.status)
    if found.result is ScheduleView:
        created_at = datetime.fromisoformat(done["created_at"])
        response.headers["ETag"] = etag_of(done["revision"], created_at)
    return response


def _read_headers(found: Endpoint, request: Request) -> dict[str, str]:
    """The idempotency key of a request, and its condition, if the endpoint takes them."""
    values = {}
    for each in found.fields_in("header"):
        if each.name in request.headers:
            try:
                values[each.parameter] = each.kind.parse(request.headers[each.name], True)
            except ValueError as error:
                raise ProblemError(
                    422, f"{each.name} must have {error}.", field=each.name
                ) from None
    return values


def _as_response(value: Any, status: int = 200) -> Response:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(_without_nan(value), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _without_nan(value: Any) -> Any:
    """The value with text in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return value


# ---------------------------------------------------------------- errors


async def _show_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError), error
    path = local_path(request)
    if not path.startswith(PREFIX) and "text/html" in request.headers.get("accept", ""):
        return await _show_error_page(request, error, path)
    return Response(
        # In ASCII: texts of a request may not be valid Unicode.
        json.dumps(error.as_dict(), separators=(",", ":")),
        error.status,
        headers=error.headers,
        media_type="application/problem+json",
    )


async def _show_error_page(request: Request, error: ProblemError, path: str) -> Response:
    pages: Pages = request.app.state.pages
    authenticator = pages.context.authenticator
    login_url = authenticator.login_url
    if error.status == 401 and (authenticator.tokens or login_url):
        query = f"?{request.url.query}" if request.url.query and request.method == "GET" else ""
        target = quote(path + query) if request.method == "GET" else "/"
        base = base_of(request)
        if login_url:
            return RedirectResponse(f"{login_url}?next={quote(base)}{target}", 303)
        return RedirectResponse(f"{base}/login?next={target}", 303)
    return await pages.show_error(request, error, heading=TITLES[error.status])


async def _show_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TickworkError), error
    problem = problem_of(error)
    if problem.status == 503:
        log.error("A request failed: %s", error)
    return await _show_problem(request, problem)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    status = error.status_code if error.status_code in TITLES else 400
    detail = {404: "There is no such page.", 405: "The method is not allowed here."}
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
    problem = ProblemError(status, detail.get(status, error.detail), headers=headers)
    return await _show_problem(request, problem)


async def _show_crash(request: Request, error: Exception) -> Response:  # noqa: ARG001
    # Starlette raises the exception again, so the server logs it.
    return await _show_problem(request, ProblemError(500, "The log of the server has the details."))
