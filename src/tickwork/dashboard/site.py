"""The ASGI application: routes, headers, and the way from a request to an endpoint."""

import json
import logging
import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwork._kernel.json_form import as_json
from tickwork.app import Tickwork
from tickwork.dashboard.access import AccessToken, Identify
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.api import KEY_MAX, ApiCall, Endpoint, read_call
from tickwork.dashboard.authentication import LOCAL_ONLY, Authenticator
from tickwork.dashboard.bulk import BulkActions
from tickwork.dashboard.context import DashboardContext, read_body_bytes
from tickwork.dashboard.forms import Forms
from tickwork.dashboard.openapi import PREFIX, build_document
from tickwork.dashboard.pages import BASE, Pages, base_of, local_path
from tickwork.dashboard.problems import TITLES, ProblemError, problem_of
from tickwork.dashboard.schedule_api import ALL_ENDPOINTS
from tickwork.dashboard.schedule_forms import ScheduleForms
from tickwork.dashboard.stream import ChangeDetector, StreamLimits, open_stream
from tickwork.errors import TickworkError

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
    """Adds the same headers to every response, and notes where the dashboard is mounted."""

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

        await self._app(scope, receive, send_with_headers)


class StaticFolder(StaticFiles):
    """The files of the pages. A browser keeps them, and asks whether they have changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        found = super().file_response(*args, **kwargs)
        found.headers["cache-control"] = "no-cache"
        return found


def build_site(
    app: Tickwork,
    *,
    tokens: tuple[AccessToken, ...],
    identify: Identify | None,
    secret: str,
    login_url: str,
    is_read_only: bool,
    read_timeout: timedelta,
    streams_max: int,
    streams_per_client: int,
) -> Starlette:
    authenticator = Authenticator(tokens, identify, secret=secret, login_url=login_url)
    context = DashboardContext(
        app,
        authenticator=authenticator,
        actions=Actions(app, is_read_only=is_read_only),
        read_timeout=read_timeout,
    )
    limits = StreamLimits(server_max=streams_max, client_max=streams_per_client)
    if authenticator.is_local_only:
        log.warning(LOCAL_ONLY)
    pages = Pages(context, BulkActions(context.actions))
    built = Starlette(
        routes=[
            Mount(PREFIX, routes=_api_routes(context)),
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
    built.state.pages = pages
    built.state.streams = limits
    return built


# ---------------------------------------------------------------- pages


def _page_routes(context: DashboardContext, pages: Pages, limits: StreamLimits) -> list[Route]:
    forms = Forms(pages)
    edits = ScheduleForms(pages, forms)
    reads: dict[str, Callable[..., Any]] = {
        "/": pages.overview,
        "/events": partial(open_stream, context, ChangeDetector(context), limits),
        "/login": forms.show_login,
        "/runs": pages.runs,
        "/runs/bulk": pages.bulk_preview,
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
        "/workers": pages.workers,
        "/alerts": pages.alerts,
        "/audit": pages.audit,
    }
    acts: dict[str, Callable[..., Any]] = {
        "/login": forms.log_in,
        "/logout": forms.log_out,
        "/dispatch": forms.dispatch,
        "/runs/bulk": forms.bulk,
        "/runs/{id}/cancel": forms.cancel,
        "/runs/{id}/retry": forms.retry,
        "/runs/{id}/delete": forms.delete,
        "/runs/{id}/snooze": forms.snooze,
        "/bulk/{id}/stop": forms.stop_bulk,
        "/workers/{id}/drain": forms.drain,
        "/limits/change": forms.change_limit,
        "/limits/reset": forms.reset_limit,
        "/new-schedule": edits.create,
        "/edit-schedule": edits.change,
        "/schedules/{name:path}/remove": edits.remove,
        "/schedules/{name:path}/pause": forms.pause_schedule,
        "/schedules/{name:path}/resume": forms.resume_schedule,
        "/schedules/{name:path}/run": forms.run_schedule,
        "/schedules/{name:path}/backfill": forms.backfill,
        "/queues/{name:path}/pause": partial(forms.pause, "queue"),
        "/queues/{name:path}/resume": partial(forms.resume, "queue"),
        "/jobs/{name:path}/pause": partial(forms.pause, "job"),
        "/jobs/{name:path}/resume": partial(forms.resume, "job"),
    }
    return [
        *(Route(path, act, methods=["POST"]) for path, act in acts.items()),
        *(Route(path, read, methods=["GET"]) for path, read in reads.items()),
    ]


# ---------------------------------------------------------------- API


def _api_routes(context: DashboardContext) -> list[Route]:
    by_path: dict[str, list[Endpoint]] = {}
    for each in ALL_ENDPOINTS:
        by_path.setdefault(each.path, []).append(each)
    # A name may contain a slash, so `/schedules/{name}` matches longer paths, too: they come first.
    paths = sorted(by_path, key=lambda path: -path.count("/"))
    return [
        Route("/openapi.json", partial(_show_document, context)),
        *(
            Route(
                path.replace("{name}", "{name:path}"),
                partial(_answer, context, {each.method: each for each in by_path[path]}),
                methods=[each.method for each in by_path[path]],
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
    found = endpoints[method]
    if method in UNSAFE:
        token = request.headers.get("x-csrf-token", "")
        context.authenticator.check_csrf(request, caller, token=token)
    body = await read_body_bytes(request)
    if body.strip():
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProblemError(415, "The body must be JSON.", fix="Send it as application/json.")
    raw = ApiCall(
        app=context.app,
        actions=context.actions,
        caller=caller,
        path=dict(request.path_params),
        query={},
        body={},
        key=_idempotency_key(request) if found.has_key else "",
    )
    if found.action:  # before the values are checked: others need not learn what is valid
        context.actions.check(raw.caller, found.action)
    call = read_call(found, raw, items=request.query_params.multi_items(), body=body)
    run = context.write if found.action else context.read
    result = await run(lambda: as_json(found.run(call)))
    status = found.status
    if found.has_key and not result["is_new"]:
        status = 200
    if found.result is None:
        return Response(status_code=status)
    return _as_response(result, status)


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if "idempotency-key" not in request.headers:
        return ""
    if not key or len(key) > KEY_MAX or not (key.isascii() and key.isprintable()) or " " in key:
        raise ProblemError(
            422,
            f"Idempotency-Key must have 1 to {KEY_MAX} visible ASCII characters.",
            field="Idempotency-Key",
        )
    return key


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
        return _show_error_page(request, error, path)
    return JSONResponse(
        error.as_dict(),
        error.status,
        headers=error.headers,
        media_type="application/problem+json",
    )


def _show_error_page(request: Request, error: ProblemError, path: str) -> Response:
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
    return pages.render(
        "error.html", request, code=error.status, problem=error, heading=TITLES[error.status]
    )


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
    problem = ProblemError(status, detail.get(status, error.detail), headers=error.headers)
    return await _show_problem(request, problem)


async def _show_crash(request: Request, error: Exception) -> Response:  # noqa: ARG001
    # Starlette raises the exception again, so the server logs it.
    return await _show_problem(request, ProblemError(500, "The log of the server has the details."))
