"""Version 1 of the tables, and the models of the admin, which are not managed."""

from typing import Any, ClassVar

from django.db import migrations, models

from tickwork.integrations.django.fields import InstantField, TickworkIdField
from tickwork.integrations.django.schema_operation import InstallSchema


class Migration(migrations.Migration):
    """Version 1 of the tables."""

    initial = True
    operations: ClassVar[list[Any]] = [
        InstallSchema(1),
        migrations.CreateModel(
            name="RunEntry",
            fields=[
                ("id", TickworkIdField(primary_key=True, serialize=False)),
                ("job", models.TextField()),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("pending", "pending"),
                            ("running", "running"),
                            ("failed", "failed"),
                            ("completed", "completed"),
                            ("skipped", "skipped"),
                            ("canceled", "canceled"),
                            ("failed_permanent", "failed permanent"),
                        ]
                    ),
                ),
                ("queue", models.TextField()),
                ("tenant", models.TextField()),
                ("priority", models.IntegerField()),
                ("attempt", models.IntegerField(verbose_name="attempts so far")),
                ("attempts_max", models.IntegerField(verbose_name="attempts at most")),
                ("schedule", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("due_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "run",
                "db_table": "tickwork_runs",
                "ordering": ("-id",),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="ScheduleEntry",
            fields=[
                ("id", TickworkIdField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("tenant", models.TextField()),
                ("job", models.TextField()),
                ("rule_text", models.TextField(db_column="rule")),
                ("zone", models.TextField()),
                ("queue", models.TextField(null=True)),
                ("origin", models.TextField()),
                ("next_due_at", InstantField(null=True)),
                ("last_fired_at", InstantField(null=True)),
                ("paused_at", InstantField(null=True)),
                ("paused_until", InstantField(null=True)),
                ("pause_note", models.TextField()),
            ],
            options={
                "verbose_name": "schedule",
                "db_table": "tickwork_schedule",
                "ordering": ("tenant", "name"),
                "managed": False,
            },
        ),
    ]
