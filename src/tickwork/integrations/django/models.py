"""Read-only models for the admin. Migrations create the tables; the ORM never writes to them."""

from typing import Any

from django.db import models
from django.utils import timezone

from tickwork._domain.runs.status import RunStatus
from tickwork._domain.schedules.rules import from_text
from tickwork.errors import InvalidSchedule
from tickwork.integrations.django.fields import InstantField, TickworkIdField

STATUSES = [(status.value, status.value.replace("_", " ")) for status in RunStatus]


class RunEntry(models.Model):
    """A run, unfinished or finished. Arguments and results are read with ``app.inspect``."""

    id = TickworkIdField(primary_key=True)
    job = models.TextField()
    status = models.TextField(choices=STATUSES)
    queue = models.TextField()
    tenant = models.TextField()
    priority = models.IntegerField()
    attempt = models.IntegerField("attempts so far")
    attempts_max = models.IntegerField("attempts at most")
    schedule = models.TextField(null=True)  # noqa: DJ001  # as the column is
    reason = models.TextField()
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        """A view over the tables of unfinished and of finished runs."""

        managed = False
        db_table = "tickwork_runs"
        verbose_name = "run"
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.job} {self.id}"


class ScheduleEntry(models.Model):
    """A schedule."""

    id = TickworkIdField(primary_key=True)
    name = models.TextField()
    tenant = models.TextField()
    job = models.TextField()
    rule_text = models.TextField(db_column="rule")
    zone = models.TextField()
    queue = models.TextField(null=True)  # noqa: DJ001  # as the column is
    origin = models.TextField()
    next_due_at = InstantField(null=True)
    last_fired_at = InstantField(null=True)
    paused_at = InstantField(null=True)
    paused_until = InstantField(null=True)
    pause_note = models.TextField()

    class Meta:
        """The table of schedules."""

        managed = False
        db_table = "tickwork_schedule"
        verbose_name = "schedule"
        ordering = ("tenant", "name")

    def __str__(self) -> str:
        return f"{self.tenant}: {self.name}" if self.tenant else str(self.name)

    @property
    def rule(self) -> str:
        """When it is due, in English."""
        try:
            return from_text(self.rule_text).describe()
        except InvalidSchedule:
            return str(self.rule_text)

    @property
    def is_paused(self) -> bool:
        """Whether it is paused now."""
        until: Any = self.paused_until
        return bool(self.paused_at) and (until is None or until > timezone.now())
