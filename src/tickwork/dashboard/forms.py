"""The forms of the pages: each checks the CSRF token, acts, and redirects to a page."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tickwork._define.definition import Definition
from tickwork._domain.identity import RunId
from tickwork._kernel.durations import parse_duration
from tickwork._kernel.plurals import count_of
from tickwork.dashboard import fields
from tickwork.dashboard.access import SESSION_SECONDS, Caller
from tickwork.dashboard.actions import Actions
from tickwork.dashboard.api import DISPATCH_FIELDS
from tickwork.dashboard.authentication import COOKIE, check_same_origin
from tickwork.dashboard.context import read_body_bytes
from tickwork.dashboard.pages import (
    FLASH_COOKIE,
    RUN_QUERY,
    Pages,
    base_of,
    name_of,
    run_id_of,
    tenant_of,
)
from tickwork.dashboard.presentation import path_part
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

    async def log_in(self, request: Request) -> Response:
        check_same_origin(request)
        values = dict(await _read_form(request))
        target = values.get("next", "/")
        try:
            user = self._context.authenticator.log_in(request, values.get("token", ""))
        except ProblemError as error:
            found = self._pages.render(
                "login.html", request, code=error.status, error=error.detail, next=target
            )
            found.headers.update(error.headers)
            return found
        base = base_of(request)
        answer = RedirectResponse(f"{base}{safe_target(target)}", 303)
        answer.set_cookie(
            COOKIE,
            self._context.authenticator.start_session(user),
            max_age=SESSION_SECONDS,
            path=base or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def show_login(self, request: Request) -> Response:
        target = request.query_params.get("next", "/")
        return self._pages.render("login.html", request, error="", next=safe_target(target))

    async def log_out(self, request: Request) -> Response:
        await self.read(request)
        base = base_of(request)
        answer = RedirectResponse(f"{base}/login", 303)
        answer.delete_cookie(COOKIE, path=base or "/")
        return answer

    # ------------------------------------------------------------ runs

    async def cancel(self, request: Request) -> Response:
        run_id = _run_id(request)

        def act(form: Form) -> str:
            done = self._actions.cancel(form.caller, run_id, reason=form.get("reason"))
            return "The run is canceled." if done.is_canceled else "The run had finished."

        return await self.act(request, act)

    async def retry(self, request: Request) -> Response:
        run_id = _run_id(request)

        def act(form: Form) -> tuple[str, str]:
            made = self._actions.retry(form.caller, run_id)
            return "This run repeats the finished one.", f"/runs/{made.run.id}"

        return await self.act(request, act)

    async def delete(self, request: Request) -> Response:
        run_id = _run_id(request)

        def act(form: Form) -> tuple[str, str]:
            self._actions.delete(form.caller, run_id)
            return "The run is deleted.", "/runs"

        return await self.act(request, act)

    async def snooze(self, request: Request) -> Response:
        run_id = _run_id(request)

        def act(form: Form) -> str:
            delay = fields.DURATION.parse(form.get("delay"), True)
            self._actions.reschedule(form.caller, run_id, delay)
            return "The run is rescheduled."

        return await self.act(request, act)

    async def bulk(self, request: Request) -> Response:
        given = fields.read_query(RUN_QUERY, request.query_params.multi_items())

        def act(form: Form) -> tuple[str, str]:
            if form.get("is_filter"):
                ids = self._pages.matching_ids(given)
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
        for name in ("delay", "queue", "priority"):
            if form.get(name):
                given[name] = form.get(name)
        if "priority" in given:
            given["priority"] = _json_or_text(given["priority"])
        body = json.dumps(given).encode()
        read = fields.read_body(DISPATCH_FIELDS, body)
        # A second click on the button sends the same key.
        return self._actions.dispatch(form.caller, read, key=form.get("key"))

    # ------------------------------------------------------------ queues, jobs, limits

    async def pause(self, kind: str, request: Request) -> Response:
        name = name_of(request)

        def act(form: Form) -> str:
            self._actions.pause(form.caller, kind, name, note=form.get("note"))
            return f"The {kind} {name} is paused."

        return await self.act(request, act)

    async def resume(self, kind: str, request: Request) -> Response:
        name = name_of(request)

        def act(form: Form) -> str:
            self._actions.resume(form.caller, kind, name)
            return f"The {kind} {name} is resumed."

        return await self.act(request, act)

    async def drain(self, request: Request) -> Response:
        worker = run_id_of(request)

        def act(form: Form) -> str:
            row = self._actions.drain(form.caller, worker)
            return f"The worker {row.host}:{row.pid} drains now."

        return await self.act(request, act)

    async def change_limit(self, request: Request) -> Response:
        def act(form: Form) -> str:
            slots = fields.SLOTS.parse(form.get("slots"), True)
            row = self._actions.change_limit(form.caller, form.get("name"), slots)
            return f"The limit {row.name} is {row.in_force or 'off'} now."

        return await self.act(request, act)

    async def reset_limit(self, request: Request) -> Response:
        def act(form: Form) -> str:
            row = self._actions.reset_limit(form.caller, form.get("name"))
            return f"The limit {row.name} is {row.in_force} again, as in code."

        return await self.act(request, act)

    # ------------------------------------------------------------ schedules

    async def pause_schedule(self, request: Request) -> Response:
        name, tenant = _schedule(request)

        def act(form: Form) -> str:
            until = self._later(form.get("length"))
            self._actions.pause_schedule(
                form.caller, name, tenant=tenant, note=form.get("note"), until=until
            )
            return f"The schedule {name} is paused."

        return await self.act(request, act)

    async def resume_schedule(self, request: Request) -> Response:
        name, tenant = _schedule(request)

        def act(form: Form) -> str:
            self._actions.resume_schedule(form.caller, name, tenant=tenant)
            return f"The schedule {name} is resumed."

        return await self.act(request, act)

    async def run_schedule(self, request: Request) -> Response:
        name, tenant = _schedule(request)

        def act(form: Form) -> tuple[str, str]:
            made = self._actions.run_schedule(form.caller, name, tenant=tenant)
            text = (
                "The run is added."
                if made.is_new
                else "No run is added: the schedule allows one run at a time."
            )
            return text, f"/runs/{made.run.id}"

        return await self.act(request, act)

    async def backfill(self, request: Request) -> Response:
        name, tenant = _schedule(request)

        def act(form: Form) -> str | tuple[str, str]:
            now = self._context.app.clock.now()
            length = form.get("length")
            since = now - fields.DURATION.parse(length, True)
            if form.get("dry"):
                self._actions.check(form.caller, "schedule.backfill")
                total = self._context.app.schedules.count_between(name, since, now, tenant=tenant)
                text = f"Firings in that time: {total:,}. A backfill skips those that have a run."
                query = {"length": length} | ({"tenant": tenant} if tenant else {})
                return text, f"/schedules/{path_part(name)}?{urlencode(query)}"
            runs = self._actions.backfill(form.caller, name, since=since, until=now, tenant=tenant)
            return f"{runs_are(len(runs))} added."

        return await self.act(request, act)

    def _later(self, length: str) -> datetime | None:
        if not length:
            return None
        return self._context.app.clock.now() + max(parse_duration(length), timedelta(seconds=1))


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


def runs_are(count: int) -> str:
    return f"{count_of(count, 'run')} {'is' if count == 1 else 'are'}"


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


def _run_id(request: Request) -> RunId:
    return run_id_of(request)


def _schedule(request: Request) -> tuple[str, str]:
    return name_of(request), tenant_of(request)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
