"""The Django app: it finds the jobs of all apps when Django starts."""

import threading
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import autodiscover_modules

KEPT_TABLES = frozenset({"tickwork_meta", "tickwork_gate", "tickwork_change_counter"})
"""Tables with rows that an installation creates."""
THREAD_END_SECONDS = 2.0
"""How long the threads of a worker that was stopped take to end, at most."""


class TickworkConfig(AppConfig):
    """The app ``tickwork``: tables, admin pages, and the command ``manage.py tickwork``."""

    name = "tickwork.integrations.django"
    label = "tickwork"
    verbose_name = "Tickwork"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import ``jobs.py`` of every app, and ``tasks.py`` if it is a backend for tasks."""
        register(check_database)
        connection_created.connect(_release_database, dispatch_uid="tickwork")
        post_migrate.connect(_clear_tables, sender=self, dispatch_uid="tickwork")
        autodiscover_modules("jobs")
        if any(each.get("BACKEND", "").startswith(f"{self.name}.") for each in _task_backends()):
            import_module(f"{self.name}.tasks")
            autodiscover_modules("tasks")  # each task defines a job


def _task_backends() -> list[dict[str, Any]]:
    return list(getattr(settings, "TASKS", {}).values())


def check_database(**_: Any) -> list[CheckMessage]:
    """A system check: the setting ``TICKWORK`` names a database that tickwork supports."""
    from tickwork.integrations.django.application import database_alias  # noqa: PLC0415
    from tickwork.integrations.django.database_url import check_vendor  # noqa: PLC0415

    try:
        alias = database_alias()
        check_vendor(connections[alias].vendor, alias)
    except ConnectionDoesNotExist:
        text = f"TICKWORK names the database {alias!r}, which is not in DATABASES."
        return [Error(text, id="tickwork.E001")]
    except ImproperlyConfigured as error:
        return [Error(str(error), id="tickwork.E001")]
    return []


def _release_database(connection: Any, **_: Any) -> None:
    """Close our own connections when Django creates or drops a database for tests.

    For that it connects to the server without a database. A database that is in use cannot be
    dropped.
    """
    if connection.alias != NO_DB_ALIAS:
        return
    from tickwork.integrations.django.application import app  # noqa: PLC0415

    app.close()
    for thread in threading.enumerate():
        if thread.name.startswith("tickwork-attempts"):
            thread.join(THREAD_END_SECONDS)  # it closes its connections at its end


def _clear_tables(using: str, **details: Any) -> None:
    """Delete all rows after ``manage.py flush``, as Django does for the tables of models.

    A ``TransactionTestCase`` flushes after each test. Only a migration has a plan.
    """
    from tickwork.integrations.django.application import app, database_alias  # noqa: PLC0415

    if "plan" in details or using != database_alias():
        return
    with connections[using].cursor() as cursor:
        tables = connections[using].introspection.get_table_list(cursor)
        own = {table.name for table in tables if table.type == "t"} - KEPT_TABLES
        for name in own:
            if name.startswith("tickwork_"):
                cursor.execute(f"DELETE FROM {name}")  # noqa: S608  # our own tables
    app.close()  # it remembers what it has written
