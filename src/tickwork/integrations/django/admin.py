"""Admin pages for runs and schedules, with actions. Schedules can be created and edited.

Actions and edits need the permission to change runs or schedules. What code defines cannot be
edited.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join

from tickwork._control.audit import subject_of
from tickwork._domain.job import ScheduleOrigin
from tickwork.errors import TickworkError
from tickwork.integrations.django.application import app, database_alias
from tickwork.integrations.django.fields import TickworkIdField
from tickwork.integrations.django.models import STATUSES, RunEntry, ScheduleEntry
from tickwork.integrations.django.schedule_form import ScheduleForm, list_firings

ROWS_MAX: Final = 10_000
"""How many rows the pages of a list reach. Filters find the others."""
_PERMISSION: Final = ["operate"]

T = TypeVar("T")


class CappedPaginator(Paginator):
    """Counts rows up to a limit: to count millions takes longer than to show a page."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most ``ROWS_MAX``."""
        # Without an order: the database need not sort what it counts.
        return int(self.object_list.order_by()[:ROWS_MAX].count())


class StatusFilter(admin.SimpleListFilter):
    """Filters runs by status. Django's own filter would read all rows to list the values."""

    title = "status"
    parameter_name = "status"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        """All statuses."""
        return STATUSES

    def queryset(self, _: HttpRequest, rows: QuerySet) -> QuerySet:
        """The runs with this status."""
        return rows.filter(status=self.value()) if self.value() else rows


class JobFilter(admin.SimpleListFilter):
    """Filters runs or schedules by job."""

    title = "job"
    parameter_name = "job"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        """The jobs of this project."""
        return [(name, name) for name in sorted(app.registry.job_names())]

    def queryset(self, _: HttpRequest, rows: QuerySet) -> QuerySet:
        """The rows of this job."""
        return rows.filter(job=self.value()) if self.value() else rows


class PausedFilter(admin.SimpleListFilter):
    """Filters schedules that are paused."""

    title = "paused"
    parameter_name = "paused"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        """Yes or no."""
        return [("yes", "Yes"), ("no", "No")]

    def queryset(self, _: HttpRequest, rows: QuerySet) -> QuerySet:
        """The schedules that are, or are not, paused."""
        if self.value() is None:
            return rows
        return rows.filter(paused_at__isnull=self.value() == "no")


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows rows. Only actions change them."""

    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    actions_on_bottom = True
    if hasattr(admin, "ShowFacets"):  # from Django 5 on
        show_facets = admin.ShowFacets.NEVER  # they count all rows

    def has_add_permission(self, *_: Any, **__: Any) -> bool:
        """Rows are added by dispatching, not here."""
        return False

    def has_change_permission(self, *_: Any, **__: Any) -> bool:
        """No field can be edited."""
        return False

    def has_delete_permission(self, *_: Any, **__: Any) -> bool:
        """Rows are deleted when their time of retention is over."""
        return False

    def has_view_permission(self, request: HttpRequest, _: Any = None) -> bool:
        """Whether the user may see runs or schedules."""
        return super().has_view_permission(request) or self.has_operate_permission(request)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether the user may use the actions."""
        meta = self.opts
        return bool(request.user.has_perm(f"{meta.app_label}.change_{meta.model_name}"))

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        """The rows in the database of tickwork."""
        return super().get_queryset(request).using(database_alias())

    def get_search_results(
        self, _: HttpRequest, rows: QuerySet, text: str
    ) -> tuple[QuerySet, bool]:
        """Find rows by their id, or by exact names: no search reads all rows."""
        text = text.strip()
        if not text:
            return rows, False
        wanted = Q()
        for name in self.search_fields:
            field = self.opts.get_field(name)
            if not isinstance(field, TickworkIdField) or field.is_valid(text):
                wanted |= Q(**{name: text})
        return rows.filter(wanted), False

    def _apply(
        self,
        request: HttpRequest,
        rows: Iterable[T],
        act: Callable[[T], bool],
        *,
        action: str,
        done: str,
        undone: str,
    ) -> None:
        """Apply an action to each row, and report how many it changed."""
        if request.POST.get("select_across") == "1":
            text = "Select rows on one page. To change more, use `manage.py tickwork`."
            self.message_user(request, text, messages.ERROR)
            return
        changed = unchanged = 0
        chosen = list(rows)
        _audit(request, action, chosen)
        for row in chosen:
            try:
                is_changed = act(row)
            except TickworkError as error:
                self.message_user(request, f"{row}: {error.what}", messages.ERROR)
                continue
            changed += is_changed
            unchanged += not is_changed
        if changed:
            self.message_user(request, done.format(_count(changed, self.opts)), messages.SUCCESS)
        if unchanged:
            self.message_user(
                request, undone.format(_count(unchanged, self.opts)), messages.WARNING
            )


@admin.register(RunEntry)
class RunAdmin(ReadOnlyAdmin):
    """Runs: what waits, what runs, what has finished; retry and cancel."""

    list_display = (
        "short_id", "job", "status", "queue", "attempt", "due_at", "started_at", "ended_at",
    )  # fmt: skip
    list_display_links = ("short_id", "job")
    list_filter = (StatusFilter, JobFilter)
    search_fields = ("id", "job", "schedule")
    search_help_text = "The id of a run, or the whole name of a job or a schedule."
    sortable_by = ()
    actions = ("retry", "cancel")
    fieldsets = (
        (None, {"fields": ("id", "job", "status", "queue", "tenant", "priority", "schedule")}),
        ("Times", {"fields": ("created_at", "due_at", "started_at", "ended_at")}),
        ("Work", {"fields": ("arguments", "result", "why", "attempts", "log")}),
    )
    readonly_fields = ("arguments", "result", "why", "attempts", "log")

    @admin.display(description="id")
    def short_id(self, run: RunEntry) -> str:
        """The end of the id: its beginning is the time."""
        return f"…{run.id[-8:]}"

    @admin.display()
    def arguments(self, run: RunEntry) -> str:
        """The arguments; secrets are masked."""
        return _json(_details(run).run.args)

    @admin.display()
    def result(self, run: RunEntry) -> str:
        """What the handler returned."""
        return _json(_details(run).run.result)

    @admin.display(description="why")
    def why(self, run: RunEntry) -> str:
        """Why it ended as it did, or why it has not finished."""
        causes = [cause.text for cause in _details(run).causes]
        return "\n".join([*filter(None, [run.reason]), *causes]) or "-"

    @admin.display()
    def attempts(self, run: RunEntry) -> str:
        """The attempts with their errors."""
        attempts = _details(run).attempts
        rows = ((one.attempt, one.outcome, one.error, one.traceback) for one in attempts)
        shown = format_html_join("", "<p><b>{}: {}</b> {}</p><pre>{}</pre>", rows)
        return format_html("{} of {}{}", run.attempt, run.attempts_max, shown)

    @admin.display()
    def log(self, run: RunEntry) -> str:
        """What the handler logged."""
        lines = [f"{line.level} {line.message}" for line in _details(run).log]
        return format_html("<pre>{}</pre>", "\n".join(lines)) if lines else "-"

    @admin.action(description="Retry selected runs", permissions=_PERMISSION)
    def retry(self, request: HttpRequest, rows: QuerySet) -> None:
        """Run finished runs again, as new runs."""

        def act(run: RunEntry) -> bool:
            return bool(app.runs.retry(run.id).id)

        self._apply(
            request,
            rows,
            act,
            action="run.retry",
            done="{} will run again.",
            undone="{} cannot run again.",
        )

    @admin.action(description="Cancel selected runs", permissions=_PERMISSION)
    def cancel(self, request: HttpRequest, rows: QuerySet) -> None:
        """Cancel runs that wait, and stop those that run."""
        reason = f"Canceled in the admin by {request.user.get_username()}."

        def act(run: RunEntry) -> bool:
            return app.runs.cancel(run.id, reason=reason)

        self._apply(
            request,
            rows,
            act,
            action="run.cancel",
            done="{} canceled, or being stopped.",
            undone="{} had finished.",
        )


@admin.register(ScheduleEntry)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules: when they are due; create, edit, pause, resume and run now."""

    list_display = ("name", "tenant", "job", "rule", "next_due", "last_fired_at", "is_paused")
    list_filter = (PausedFilter, JobFilter)
    search_fields = ("id", "name", "job", "tenant")
    search_help_text = "The id of a schedule, or the whole name of a schedule, a job or a tenant."
    sortable_by = ("name", "tenant", "job")
    actions = ("run_now", "pause", "resume")
    form = ScheduleForm
    fieldsets = (
        (None, {"fields": ("name", "tenant", "job", "rule", "zone", "queue", "origin")}),
        ("Times", {"fields": ("next_due", "last_fired_at")}),
        ("Pause", {"fields": ("is_paused", "paused_at", "paused_until", "pause_note")}),
    )
    readonly_fields = ("rule", "next_due", "is_paused")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the user may create schedules."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.add_{self.opts.model_name}"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may edit schedules, and this one is not defined in code."""
        is_code = obj is not None and obj.origin == ScheduleOrigin.CODE
        return self.has_operate_permission(request) and not is_code

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The fields of the form; for a schedule of code, its columns."""
        if obj is not None and not self.has_change_permission(request, obj):
            return self.fieldsets
        fields = ("name", "tenant", "job", "rule_source", "timezone", "arguments", "queue")
        return [(None, {"fields": fields}), *(self.fieldsets[1:] if obj is not None else ())]

    def get_readonly_fields(self, _: HttpRequest, obj: Any = None) -> Any:
        """The name identifies a schedule: it is given once."""
        if obj is None:
            return self.readonly_fields
        times = ("last_fired_at", "paused_at", "paused_until", "pause_note")
        return (*self.readonly_fields, *times, "name", "tenant")

    def save_model(self, request: HttpRequest, obj: ScheduleEntry, form: Any, change: Any) -> None:
        """Write the schedule as ``app.schedules`` does."""
        action = "schedule.change" if change else "schedule.create"
        _record(request, action, f"schedule/{form.instance.name}", {"fields": form.changed_data})
        written = form.write()
        rows = ScheduleEntry.objects.using(database_alias())
        obj.pk = rows.get(name=written.name, tenant=written.tenant).pk

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Show the next firings: those of a preview, or of the schedule as it is stored."""
        form, stored = context["adminform"].form, context["original"]
        context["has_schedule_form"] = "rule_source" in form.fields
        if getattr(form, "is_preview", False) and form.firings:
            context["firings"], context["errors"] = form.firings, None
        elif stored is not None and not form.is_bound:
            with suppress(TickworkError):
                context["firings"] = list_firings(stored.name, stored.tenant)
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display()
    def rule(self, schedule: ScheduleEntry) -> str:
        """When it is due, in English."""
        return schedule.rule

    @admin.display(description="next due at")
    def next_due(self, schedule: ScheduleEntry) -> Any:
        """When it is due next, unless it is paused."""
        return None if schedule.is_paused else schedule.next_due_at

    @admin.display(boolean=True, description="paused")
    def is_paused(self, schedule: ScheduleEntry) -> bool:
        """Whether it is paused now."""
        return schedule.is_paused

    @admin.action(description="Run selected schedules now", permissions=_PERMISSION)
    def run_now(self, request: HttpRequest, rows: QuerySet) -> None:
        """Add a run now. The next firing stays the same."""

        def act(schedule: ScheduleEntry) -> bool:
            return app.schedules.run_now(schedule.name, tenant=schedule.tenant).is_new

        self._apply(
            request,
            rows,
            act,
            action="schedule.run",
            done="{} will run now.",
            undone="{} has a run already.",
        )

    @admin.action(description="Pause selected schedules", permissions=_PERMISSION)
    def pause(self, request: HttpRequest, rows: QuerySet) -> None:
        """Pause schedules until they are resumed."""
        note = f"Paused in the admin by {request.user.get_username()}."

        def act(schedule: ScheduleEntry) -> bool:
            if schedule.is_paused:
                return False
            return app.schedules.pause(schedule.name, tenant=schedule.tenant, note=note).is_paused

        self._apply(
            request,
            rows,
            act,
            action="schedule.pause",
            done="{} paused.",
            undone="{} was paused already.",
        )

    @admin.action(description="Resume selected schedules", permissions=_PERMISSION)
    def resume(self, request: HttpRequest, rows: QuerySet) -> None:
        """Resume schedules at their next instant."""

        def act(schedule: ScheduleEntry) -> bool:
            if not schedule.is_paused:
                return False
            return not app.schedules.resume(schedule.name, tenant=schedule.tenant).is_paused

        self._apply(
            request,
            rows,
            act,
            action="schedule.resume",
            done="{} resumed.",
            undone="{} was not paused.",
        )


def _audit(request: HttpRequest, action: str, rows: Sequence[Any]) -> None:
    """One entry in the audit log about an action on these rows."""
    if not rows:
        return
    names = [getattr(row, "name", row.pk) for row in rows]
    subject, detail = subject_of(action.partition(".")[0], names, now=app.clock.now())
    _record(request, action, subject, detail or {"tenant": rows[0].tenant})


def _record(request: HttpRequest, action: str, subject: str, detail: dict[str, Any]) -> None:
    app.audit.record(
        action,
        subject,
        actor=request.user.get_username(),
        source=f"admin, {request.META.get('REMOTE_ADDR', '')}",
        detail={name: value for name, value in detail.items() if value},
    )


def _details(run: Any) -> Any:
    if not hasattr(run, "_tickwork_details"):
        run._tickwork_details = app.inspect.details(run.id)  # noqa: SLF001  # once for each page
    return run._tickwork_details  # noqa: SLF001


def _json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return format_html("<pre>{}</pre>", text)


def _count(number: int, meta: Any) -> str:
    return f"{number} {meta.verbose_name if number == 1 else meta.verbose_name_plural}"
