"""The page of a signed link, with which someone without an account answers a wait."""

from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tickwork._domain.identity import RunId
from tickwork.dashboard.authentication import address_of
from tickwork.dashboard.context import DashboardContext, read_body_bytes
from tickwork.dashboard.fields import parse_json
from tickwork.dashboard.pages import Pages
from tickwork.dashboard.problems import ProblemError
from tickwork.errors import CallbackRefused

ACTION: Final = "run.callback"
"""Its name in the audit log."""

ACTOR: Final = "callback link"
STATUS: Final = {"invalid": 404, "expired": 410, "ended": 410, "used": 409}
FORM: Final = "application/x-www-form-urlencoded"
HEADERS: Final = {"Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow"}
"""The URL is a secret: other sites must not see it, and search engines must not keep it."""

FIELDS_MAX: Final = 10


class CallbackPages:
    """Answers links. A GET changes nothing, because programs of mail open links to check them."""

    def __init__(self, context: DashboardContext, pages: Pages) -> None:
        self._context = context
        self._pages = pages

    async def show(self, request: Request) -> Response:
        """Ask for the answer, with a button for each."""
        self._context.count_address(address_of(request))
        app, token = self._context.app, request.path_params["token"]
        try:
            link, run = await self._context.read(lambda: app.callbacks.read(token))
        except CallbackRefused as error:
            raise _problem_of(error) from None
        shown = self._pages.render(
            "callback.html",
            request,
            job=run.job,
            event=link.event,
            answers=link.answers,
            until=link.until,
            is_read_only=self._context.actions.is_read_only,
            is_done=False,
        )
        shown.headers.update(HEADERS)
        return shown

    async def answer(self, request: Request) -> Response:
        """Take the answer: JSON of a program, or the button of the page."""
        self._context.count_address(address_of(request))
        if self._context.actions.is_read_only:
            raise ProblemError(403, "This dashboard is read-only.", code="read-only")
        app, token = self._context.app, request.path_params["token"]
        body = await read_body_bytes(request)
        is_form = _kind_of(request) == FORM
        data = _read_form(body) if is_form else _read_json(request, body)

        def act() -> tuple[RunId, str, str]:
            link, run = app.callbacks.read(token)  # a link that is refused leaves no entry
            app.audit.perform(
                ACTION,
                f"run/{run.id}",
                lambda: app.callbacks.answer(token, data),
                actor=ACTOR,
                source=address_of(request),
                detail={"event": link.event},
            )
            return run.id, run.job, link.event

        try:
            run_id, job, event = await self._context.write(act)
        except CallbackRefused as error:
            raise _problem_of(error) from None
        if not is_form:
            return JSONResponse({"run": run_id, "event": event}, headers=HEADERS)
        shown = self._pages.render("callback.html", request, job=job, event=event, is_done=True)
        shown.headers.update(HEADERS)
        return shown


def _problem_of(error: CallbackRefused) -> ProblemError:
    detail = f"{error.what} {error.why}"
    return ProblemError(
        STATUS[error.reason], detail, code=error.code, fix=error.fix, headers=HEADERS
    )


def _kind_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _read_json(request: Request, body: bytes) -> Any:
    if not body.strip():
        return None
    if _kind_of(request) != "application/json":
        raise ProblemError(415, "The body must be JSON.", fix="Send it as application/json.")
    return parse_json(body)


def _read_form(body: bytes) -> str | None:
    try:
        values = dict(parse_qsl(body.decode(), max_num_fields=FIELDS_MAX))
    except ValueError:
        raise ProblemError(400, "The form cannot be read.") from None
    return values.get("answer")
