"""The forms of the pages: each checks the CSRF token, acts, and redirects to a page."""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork.dashboard import fields
from tickwork.dashboard.access import SESSION_SECONDS, Caller
from tickwork.dashboard.actions import Act, Actions
from tickwork.dashboard.acts.runs import dispatch_run
from tickwork.dashboard.acts.schedules import backfill_schedule
from tickwork.dashboard.authentication import check_same_origin, cookie_name
from tickwork.dashboard.bulk import find_act
from tickwork.dashboard.context import read_body_bytes
from tickwork.dashboard.display_zone import CHOICE_COOKIE, CHOICE_SECONDS, ZoneChoice
from tickwork.dashboard.fields import InputField
from tickwork.dashboard.pages import Pages
from tickwork.dashboard.pages.request_values import (
    FLASH_COOKIE,
    base_of,
    name_of,
    parse_or_404,
    tenant_of,
)
from tickwork.dashboard.pages.runs import DISPATCH_OPTIONS
from tickwork.dashboard.pages.saved_views import (
    VIEWS_COOKIE,
    VIEWS_SECONDS,
    add_view,
    read_views,
    remove_view,
)
from tickwork.dashboard.presentation import path_part, runs_are
from tickwork.dashboard.problems import ProblemError, problem_of
from tickwork.errors import TickworkError

FLASH_SECONDS: Final = 30
FIELDS_MAX: Final = 2_000


class Form:
    """The values of one form, and the caller who sent it."""

    def __init__(self, values: list[tuple[str, str]], caller: Caller) -> None:
        self._values = values
        self.caller = caller

    def get(self, name: str) -> str:
        """A value; empty if it is missing."""
        text = next((value for key, value in self._values if key == name), "")
        if name not in {"next", "csrf"}:
            fields.TEXT.parse(text, True)
        return text

    def read(self, field: InputField) -> Any:
        return field.kind.parse(self.get(field.name), True)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._values if key == name]

    def items(self) -> list[tuple[str, str]]:
        return self._values


class Forms:
    """Carries out the forms that users submit."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context

    @property
    def _actions(self) -> Actions:
        return self._context.actions

    async def read(self, request: Request) -> Form:
        caller = await self._context.authenticator.authenticate(request)
        values = await _read_form(request)
        token = next((value for name, value in values if name == "csrf"), "")
        # A form always contains the token. Only requests of the API send it as a header.
        self._context.authenticator.check_csrf_token(caller, token)
        check_same_origin(request)
        return Form(values, caller)

    async def act(self, request: Request, act: Callable[[Form], tuple[str, str] | str]) -> Response:
        """Act, and redirect to the page with a message.

        ``act`` returns the message, and the page if it is not the one of the form.
        """
        form = await self.read(request)
        target = form.get("next")
        try:
            done = await self._context.write(lambda: act(form))
        except ValueError as error:
            if isinstance(error, TickworkError):
                return self.redirect(request, target, problem_of(error).detail, tone="bad")
            return self.redirect(request, target, f"A value must be {error}.", tone="bad")
        except ProblemError as error:
            if error.status == 403:
                raise
            return self.redirect(request, target, error.detail, tone="bad")
        except TickworkError as error:
            return self.redirect(request, target, problem_of(error).detail, tone="bad")
        self._pages.alert_book.forget()
        text, target = done if isinstance(done, tuple) else (done, target)
        return self.redirect(request, target, text)

    def redirect(self, request: Request, target: str, text: str, *, tone: str = "good") -> Response:
        base = base_of(request)
        found = RedirectResponse(f"{base}{safe_target(target)}", 303)
        found.set_cookie(
            FLASH_COOKIE,
            f"{tone}|{quote(text[:300])}",
            max_age=FLASH_SECONDS,
            path=base or "/",
            httponly=True,
            samesite="strict",
        )
        return found

    # ------------------------------------------------------------ sessions

    async def show_login(self, request: Request) -> Response:
        target = safe_target(request.query_params.get("next", "/"))
        secret = request.query_params.get("token", "")
        if secret:
            return self._sign_in(request, secret, target, is_link=True)
        return self._show_login(request, target)

    async def log_in(self, request: Request) -> Response:
        check_same_origin(request)
        values = dict(await _read_form(request))
        target = safe_target(values.get("next", "/"))
        return self._sign_in(request, values.get("token", ""), target)

    def _sign_in(
        self, request: Request, secret: str, target: str, *, is_link: bool = False
    ) -> Response:
        authenticator = self._context.authenticator
        try:
            token = authenticator.log_in(request, secret.strip(), is_link=is_link)
        except ProblemError as error:
            found = self._show_login(request, target, code=error.status, error=error.detail)
            found.headers.update(error.headers)
            return found
        base = base_of(request)
        answer = RedirectResponse(f"{base}{target}", 303)
        answer.set_cookie(
            cookie_name(request),
            authenticator.start_session(token),
            max_age=SESSION_SECONDS,
            path=base or "/",
            httponly=True,
            # Links in chat and mail open a page. Forms of other sites come without the cookie.
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return answer

    def _show_login(
        self, request: Request, target: str, *, code: int = 200, error: str = ""
    ) -> Response:
        has_link = self._context.authenticator.tokens.has_link
        return self._pages.render(
            "login.html", request, code=code, error=error, next=target, has_link=has_link
        )

    async def log_out(self, request: Request) -> Response:
        form = await self.read(request)
        await self._context.authenticator.end_session(form.caller)
        base = base_of(request)
        answer = RedirectResponse(f"{base}/login", 303)
        answer.delete_cookie(cookie_name(request), path=base or "/")
        return answer

    # ------------------------------------------------------------ choices of a browser

    async def choose_zone(self, request: Request) -> Response:
        """Keep the time zone in which this browser shows times."""
        form = await self.read(request)
        try:
            choice = ZoneChoice(form.get("zone"))
        except ValueError:
            raise ProblemError(
                422, "zone must be browser, utc or schedule.", field="zone"
            ) from None
        answer = RedirectResponse(f"{base_of(request)}{safe_target(form.get('next'))}", 303)
        return _with_cookie(request, answer, CHOICE_COOKIE, choice.value, CHOICE_SECONDS)

    async def change_views(self, request: Request) -> Response:
        """Save a view of the page *Runs* in this browser, or remove one."""
        form = await self.read(request)
        target, name, views = form.get("next"), form.get("name"), read_views(request)
        try:
            is_removal = form.get("action") == "remove"
            text = (
                remove_view(views, name) if is_removal else add_view(views, name, form.get("query"))
            )
        except ProblemError as error:
            return self.redirect(request, target, error.detail, tone="bad")
        answer = self.redirect(request, target, "The views are changed.")
        return _with_cookie(request, answer, VIEWS_COOKIE, text, VIEWS_SECONDS)

    # ------------------------------------------------------------ acts

    async def take(self, act: Act[..., Any], request: Request) -> Response:
        """Carry out an act that has a form."""
        return await self.act(request, self._read_act(act, request))

    def _read_act(
        self, act: Act[..., Any], request: Request
    ) -> Callable[[Form], tuple[str, str] | str]:
        """Read what the URL of a form has. Returns a function that reads the rest, and acts."""
        shown = act.form
        assert shown is not None, act.action
        parts = [
            parse_or_404(each.kind, request.path_params[each.name])
            for each in act.fields_in("path")
            if each.name in request.path_params
        ]
        query = {
            each.name: parse_or_404(each.kind, request.query_params.get(each.name, ""))
            for each in act.fields_in("query")
        }

        def take(form: Form) -> tuple[str, str] | str:
            self._actions.check(form.caller, act)
            now = self._context.app.clock.now()
            known = {} if shown.read is None else shown.read(form.get, now)
            values = dict(query)
            path = [*parts] or [form.read(each) for each in act.fields_in("path")]
            for each in act.fields_in("body"):
                if each.name in known:
                    values[each.name] = known[each.name]
                elif each.is_required or form.get(each.name):
                    values[each.name] = form.read(each)
            return shown.done(self._actions.take(form.caller, act, *path, **values))

        return take

    async def bulk(self, request: Request) -> Response:
        def act(form: Form) -> tuple[str, str]:
            self._actions.check(form.caller, find_act(form.get("action")))
            if form.get("is_filter"):
                ids = self._pages.matching_ids(request)
            else:
                ids = [RunId(fields.RUN_ID.parse(each, True)) for each in form.all("id")]
            if not ids:
                raise ProblemError(422, "No run was selected.")
            bulk = self._pages.bulk.start(form.caller, form.get("action"), ids)
            return f"{runs_are(bulk.total)} being changed.", f"/bulk/{bulk.id}"

        return await self.act(request, act)

    async def stop_bulk(self, request: Request) -> Response:
        def act(form: Form) -> str:
            self._pages.bulk.stop(form.caller, request.path_params["id"])
            return "The bulk action is stopped."

        return await self.act(request, act)

    async def dispatch(self, request: Request) -> Response:
        form = await self.read(request)
        self._actions.check(form.caller, dispatch_run)
        values = dict(form.items())
        try:
            made = await self._context.write(lambda: self._dispatch(form))
        except (TickworkError, ProblemError) as error:
            if isinstance(error, ProblemError) and error.status == 403:
                raise
            problem = error if isinstance(error, ProblemError) else problem_of(error)
            return await self._pages.dispatch(
                request, given=values, error=f"{problem.detail} {problem.fix}"
            )
        return self.redirect(request, f"/runs/{made.run.id}", "The run is dispatched.")

    def _dispatch(self, form: Form) -> Any:
        definition = self._context.app.registry.get(form.get("job"))
        args = read_arguments(form, definition)
        given: dict[str, Any] = {"job": form.get("job"), "args": args}
        for name in DISPATCH_OPTIONS:
            if form.get(name):
                given[name] = form.get(name)
        tags = [tag.strip() for tag in form.get("tags").split(",")]
        given |= {"tags": [tag for tag in tags if tag]} if any(tags) else {}
        if "priority" in given:
            given["priority"] = _json_or_text(given["priority"])
        body = json.dumps(given).encode()
        read = fields.read_body(dispatch_run.fields_in("body"), body)
        # A second click on the button sends the same key.
        return self._actions.take(form.caller, dispatch_run, **read, key=form.get("key"))

    # ------------------------------------------------------------ schedules

    async def backfill(self, request: Request) -> Response:
        """Carry out a backfill, or only count the firings."""
        name, tenant = name_of(request), tenant_of(request)
        take = self._read_act(backfill_schedule, request)

        def count(form: Form) -> tuple[str, str] | str:
            if not form.get("dry"):
                return take(form)
            self._actions.check(form.caller, backfill_schedule)
            now = self._context.app.clock.now()
            length = form.get("length")
            since = now - fields.DURATION.parse(length, True)
            total = self._context.app.schedules.count_between(name, since, now, tenant=tenant)
            text = f"Firings in that time: {total:,}. A backfill skips those that have a run."
            query = {"length": length} | ({"tenant": tenant} if tenant else {})
            return text, f"/schedules/{path_part(name)}?{urlencode(query)}"

        return await self.act(request, count)


def read_arguments(form: Form, definition: Definition) -> dict[str, Any]:
    """The arguments of a handler that a form has: as JSON, where the parameter is not text."""
    parameters = definition.parameters.signature.parameters
    found: dict[str, Any] = {}
    for key, text in form.items():
        name = key.removeprefix("arg:")
        if key == name or text == "" or name not in parameters:
            continue
        is_text = parameters[name].annotation in {str, "str"} or name in definition.secrets
        found[name] = text if is_text else _json_or_text(text)
    return found


def _with_cookie(
    request: Request, answer: Response, name: str, value: str, seconds: int
) -> Response:
    path = base_of(request) or "/"
    secure = request.url.scheme == "https"
    answer.set_cookie(
        name, value, max_age=seconds, path=path, httponly=True, samesite="lax", secure=secure
    )
    return answer


def safe_target(target: str) -> str:
    """A path of this site, never a URL of another one."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\"))
    has_controls = any(ord(letter) < 32 for letter in target)
    return target if is_local and not has_controls else "/"


async def _read_form(request: Request) -> list[tuple[str, str]]:
    body = await read_body_bytes(request)
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise ProblemError(400, "The form cannot be read.") from None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
