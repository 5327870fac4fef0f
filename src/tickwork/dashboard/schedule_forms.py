"""The pages that create and edit schedules, with a preview of the firings while a user types."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tickwork._define.option_table import OF_SCHEDULES, UNSETTABLE
from tickwork._domain.job import ScheduleOrigin
from tickwork._inspect.definitions import describe_jobs
from tickwork._inspect.schedule_details import ScheduleDetails, show_option
from tickwork._kernel.json_form import as_json
from tickwork._masks.secret_mask import contains_mask
from tickwork._masks.text import MASK
from tickwork.dashboard import fields
from tickwork.dashboard.actions import Act
from tickwork.dashboard.acts.definitions import change_schedule, create_schedule
from tickwork.dashboard.forms import Form, Forms, read_arguments
from tickwork.dashboard.pages import Pages
from tickwork.dashboard.pages.parameters import as_text, list_parameters
from tickwork.dashboard.presentation import path_part
from tickwork.dashboard.problems import ProblemError, problem_of
from tickwork.errors import TickworkError

CHOICES: Final = tuple(option for option in OF_SCHEDULES if option.choices)
OPTIONS: Final = tuple(option for option in OF_SCHEDULES if option.label and not option.choices)
TEXTS: Final = ("rule", "timezone", *(option.name for option in (*CHOICES, *OPTIONS)))


class ScheduleForms:
    """Shows the forms of schedules, and carries them out."""

    def __init__(self, pages: Pages, forms: Forms) -> None:
        self._pages = pages
        self._forms = forms
        self._actions = pages.context.actions

    # ------------------------------------------------------------ new

    async def show_new(
        self, request: Request, *, given: Mapping[str, str] | None = None, error: str = ""
    ) -> Response:
        app = self._pages.app
        kept = dict(given or {})
        job = kept.get("job") or request.query_params.get("job")

        def read() -> dict[str, Any]:
            found = self._describe(job)
            if job is None:
                return {"jobs": found, "job": None}
            values = {"overlap": "", "misfire": "", "timezone": app.settings.timezone, **kept}
            return {
                **self._frame(values, error),
                "job": found[0],
                "schedule_name": kept.get("name", ""),
                "tenant": kept.get("tenant", ""),
                "parameters": list_parameters(app.registry.get(job), kept),
                "details": None,
            }

        return await self._show(request, read, title="New schedule")

    async def create(self, request: Request) -> Response:
        form = await self._forms.read(request)
        self._actions.check(form.caller, create_schedule)

        def create() -> str:
            texts = {name: form.get(name) for name in (*TEXTS, "name", "tenant", "job")}
            given = _read_texts(create_schedule, texts)
            definition = self._pages.app.registry.get(given["job"])
            given["args"] = read_arguments(form, definition)
            self._actions.take(form.caller, create_schedule, **given)
            return _page_of(given["name"], given.get("tenant", ""))

        try:
            target = await self._pages.context.write(create)
        except (TickworkError, ProblemError, ValueError) as error:
            text = _explain(error)
            return await self.show_new(request, given=dict(form.items()), error=text)
        return self._forms.redirect(request, target, "The schedule is created.")

    # ------------------------------------------------------------ edit

    async def show_edit(
        self, request: Request, *, given: Mapping[str, str] | None = None, error: str = ""
    ) -> Response:
        kept = dict(given or request.query_params)
        name = _text(kept, "name", fields.NAME)
        tenant = _text(kept, "tenant", fields.TEXT)

        def read() -> dict[str, Any]:
            app = self._pages.app
            details = app.inspect.schedule_details(name, tenant=tenant)
            if details.origin is ScheduleOrigin.CODE:
                raise ProblemError(
                    409, f"The schedule {name} is defined in code.", fix="Change it in code."
                )
            values = {**_texts_of(details), **(given or {})}
            definition = app.registry.find(details.job)
            parameters = []
            if definition is not None:
                parameters = list_parameters(definition, values)
            for each in parameters:  # a secret that is left empty stays as it is
                is_masked = contains_mask(details.args.get(each["name"]))
                each["is_secret"] = each["is_secret"] or is_masked
                each["is_required"] = each["is_required"] and not each["is_secret"]
            return {
                **self._frame(values, error),
                "title": f"Edit {name}",
                "job": self._describe(details.job)[0] if definition is not None else details.job,
                "schedule_name": name,
                "tenant": tenant,
                "parameters": parameters,
                "details": details,
                "revision": values.get("revision", details.revision),
            }

        return await self._show(request, read, title="Edit")

    async def change(self, request: Request) -> Response:
        form = await self._forms.read(request)
        self._actions.check(form.caller, change_schedule)
        name, tenant = form.get("name"), form.get("tenant")

        def change() -> str:
            details = self._pages.app.inspect.schedule_details(name, tenant=tenant)
            given = self._find_changes(form, details)
            self._actions.take(form.caller, change_schedule, name, tenant=tenant, **given)
            return _page_of(name, tenant)

        try:
            target = await self._pages.context.write(change)
        except (TickworkError, ProblemError, ValueError) as error:
            text = _explain(error)
            return await self.show_edit(request, given=dict(form.items()), error=text)
        return self._forms.redirect(request, target, "The schedule is changed.")

    # ------------------------------------------------------------ values

    def _find_changes(self, form: Form, details: ScheduleDetails) -> dict[str, Any]:
        """The options that the form has in another way than the schedule."""
        before = _texts_of(details)
        texts = {each: form.get(each) for each in TEXTS if form.get(each) != before.get(each, "")}
        given = _read_texts(change_schedule, texts)
        given["unset"] = [each for each in texts if not texts[each] and each in UNSETTABLE]
        if not form.get("rule"):
            raise ProblemError(422, "A schedule needs a rule.", field="rule")
        if texts.get("tags") == "":
            given["tags"] = []
        definition = self._pages.app.registry.find(details.job)
        if definition is not None:
            args = read_arguments(form, definition)
            for each, value in details.args.items():
                if contains_mask(value):
                    args.setdefault(each, value)  # it stays as it is stored
            if as_json(args) != as_json(details.args):
                given["args"] = args
        if form.get("revision"):
            given["revision"] = fields.REVISION.parse(form.get("revision"), True)
        return given

    def _frame(self, values: Mapping[str, str], error: str) -> dict[str, Any]:
        return {
            "error": error,
            "values": {each: values.get(each, "") for each in TEXTS},
            "choices": CHOICES,
            "options": OPTIONS,
            "revision": "",
        }

    def _describe(self, job: str | None) -> Any:
        app = self._pages.app
        return describe_jobs(
            app.registry, job=job, timezone=app.settings.timezone, now=app.clock.now()
        )

    async def _show(self, request: Request, read: Any, *, title: str) -> Response:
        return await self._pages.show(
            request, "schedules", read, title=title, template="schedule_form.html"
        )


def _texts_of(details: ScheduleDetails) -> dict[str, str]:
    """The options of a schedule as the fields of the form have them."""
    found = {name: show_option(getattr(details, name, None)) for name in TEXTS}
    found["tags"] = ", ".join(details.tags)
    texts = {name: "" if value is None else as_text(value) for name, value in found.items()}
    args = {f"arg:{name}": as_text(value) for name, value in details.args.items()}
    return {**texts, **{name: "" if MASK in text else text for name, text in args.items()}}


def _read_texts(act: Act[..., Any], texts: Mapping[str, str]) -> dict[str, Any]:
    wanted = [field for field in act.fields_in("body") if field.name in texts]
    items = [(name, text) for name, text in texts.items() if name != "tags"]
    tags = (text.strip() for text in texts.get("tags", "").split(","))
    return fields.read_query(wanted, [*items, *(("tags", text) for text in tags if text)])


def _page_of(name: str, tenant: str) -> str:
    tail = f"?tenant={path_part(tenant)}" if tenant else ""
    return f"/schedules/{path_part(name)}{tail}"


def _explain(error: Exception) -> str:
    """The text of an error beside the form; an action that is not allowed stays an error."""
    if isinstance(error, ProblemError):
        if error.status in {403, 404}:
            raise error
        return f"{error.detail} {error.fix}".strip()
    if isinstance(error, TickworkError):
        problem = problem_of(error)
        return f"{problem.detail} {problem.fix}".strip()
    return f"A value must be {error}."


def _text(values: Mapping[str, str], name: str, kind: fields.FieldKind) -> str:
    try:
        return str(kind.parse(values.get(name, ""), True))
    except ValueError:
        raise ProblemError(404, "There is no such page.") from None
