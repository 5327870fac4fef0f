"""The form with which the admin creates and changes schedules."""

import json
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction

from tickwork._control.schedule_definition import ScheduleDefinition
from tickwork._control.schedule_view import ScheduleView
from tickwork.errors import TickworkError
from tickwork.integrations.django.application import app, database_alias
from tickwork.integrations.django.models import ScheduleEntry

FIRINGS: Final = 5
"""How many firings a preview shows."""
_OPTIONS: Final = ("job", "rule_source", "timezone", "arguments", "queue")


class ScheduleForm(forms.ModelForm):
    """Checks a schedule by writing it in a transaction that is rolled back."""

    name = forms.CharField()
    tenant = forms.CharField(required=False)
    job = forms.ChoiceField()
    rule_source = forms.CharField(
        label="Rule",
        widget=forms.Textarea(attrs={"rows": 2, "cols": 80}),
        help_text="A cron expression such as 0 9 * * MON-FRI, a symbol, a pattern, or a chain "
        "such as daily().hours(9).",
    )
    timezone = forms.CharField(required=False, help_text="Such as Europe/Berlin.")
    arguments = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 80}),
        help_text='A JSON object such as {"order_id": 7}. If it is empty, a schedule that exists '
        "keeps its arguments.",
    )
    queue = forms.CharField(
        required=False, empty_value=None, help_text="Instead of the queue of the job."
    )

    class Meta:
        """The fields that are columns. The others are read and written here."""

        model = ScheduleEntry
        fields = ("name", "tenant", "job", "queue")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.firings: list[str] = []
        self.is_new: bool = self.instance._state.adding  # noqa: SLF001  # documented
        names = {*app.registry.job_names(), *filter(None, [self.instance.job])}
        self.fields["job"].choices = [(name, name) for name in sorted(names)]
        if not self.is_new:
            self.initial["rule_source"] = read_rule_source(self.instance.rule_text)
        self.initial.setdefault("timezone", self.instance.zone or app.settings.timezone)

    def clean_arguments(self) -> dict[str, Any] | None:
        """The arguments; None if the field is empty."""
        text = self.cleaned_data["arguments"].strip()
        if not text:
            return None
        try:
            arguments = json.loads(text)
        except ValueError as error:
            raise ValidationError(f"This is not JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ValidationError("The arguments must be a JSON object.")
        return arguments

    def clean(self) -> dict[str, Any]:
        """Check the schedule as a whole, and find its next firings."""
        values: dict[str, Any] = super().clean()
        if self.errors:
            return values
        alias = database_alias()
        try:
            with transaction.atomic(using=alias):
                written = self.write()
                self.firings = list_firings(written.name, written.tenant)
                transaction.set_rollback(True, using=alias)
        except TickworkError as error:
            raise ValidationError(str(error)) from None
        if self.is_preview:
            raise ValidationError("This is a preview. Nothing was saved.")
        return values

    @property
    def is_preview(self) -> bool:
        """Whether the user asks for the next firings."""
        return "_preview" in self.data

    def write(self) -> ScheduleView:
        """Create the schedule, or write the options that were changed."""
        values = self.cleaned_data
        options = {
            {"rule_source": "rule", "arguments": "args"}.get(name, name): values[name]
            for name in _OPTIONS
            if self.is_new or name in self.changed_data
        }
        if options.get("args") is None:
            options.pop("args", None)
        if "timezone" in options:
            options["timezone"] = options["timezone"] or None
        if self.is_new:
            name, tenant = values["name"], values["tenant"]
            return app.schedules.create(ScheduleDefinition(name=name, tenant=tenant, **options))
        return app.schedules.update(self.instance.name, tenant=self.instance.tenant, **options)


def list_firings(name: str, tenant: str) -> list[str]:
    """The next firings of a schedule, in its time zone."""
    firings = app.schedules.preview(name, FIRINGS, tenant=tenant)
    return [f"{at:%a %Y-%m-%d %H:%M:%S} {at.tzinfo}" for at in firings]


def read_rule_source(stored: str) -> str:
    """The rule of a row as a person writes it: a cron expression, or else JSON.

    >>> read_rule_source('{"expr":"0 9 * * *","kind":"cron","tz":"UTC"}')
    '0 9 * * *'
    >>> read_rule_source('{"kind":"other"}')
    '{"kind":"other"}'
    """
    rule = json.loads(stored)
    is_plain = rule.keys() == {"expr", "kind", "tz"} and rule["kind"] == "cron"
    return str(rule["expr"]) if is_plain else stored
