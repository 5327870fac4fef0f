"""Creates the application of a Django project from its settings."""

from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from tickwork.app import Tickwork
from tickwork.integrations.django.attempt_connections import (
    run_in_this_thread,
    use_connections,
    use_connections_async,
)
from tickwork.integrations.django.store import DjangoStore

PROCESS_PATH: Final = "tickwork.integrations.django.child_process:app"
"""Where child processes import the application from: it sets up Django first."""

OPTIONS: Final = (
    "TIMEZONE",
    "HANDLER_PATHS",
    "REDACT",
    "PAYLOAD_MAX",
    "RETIRE_AFTER",
    "DEFAULTS",
    "ENCRYPT",
)
"""The keys of the setting ``TICKWORK`` that are arguments of ``Tickwork``."""


def read_options() -> dict[str, Any]:
    """Read the setting ``TICKWORK``.

    Raises:
        ImproperlyConfigured: It has a key that does not exist.
    """
    found = dict(getattr(settings, "TICKWORK", {}))
    unknown = sorted(found.keys() - {"DATABASE", *OPTIONS})
    if unknown:
        known = ", ".join(("DATABASE", *OPTIONS))
        raise ImproperlyConfigured(f"TICKWORK has no option {unknown[0]!r}. It has {known}.")
    return found


def database_alias() -> str:
    """The alias in ``DATABASES`` of the database that has the tables."""
    return str(read_options().get("DATABASE", "default"))


def create_app() -> Tickwork:
    """Create the application: on the database of the project, and in its time zone."""
    options = read_options()
    alias = options.pop("DATABASE", "default")
    options.setdefault("TIMEZONE", settings.TIME_ZONE)
    options.setdefault("HANDLER_PATHS", _packages())
    created = Tickwork(
        f"django://{alias}",
        install=False,  # `manage.py migrate` does it
        store=DjangoStore(alias).as_store(),
        **{name.lower(): value for name, value in options.items()},
    )
    created.path = PROCESS_PATH
    created.wait_for = run_in_this_thread
    created.registry.add_middleware(use_connections, on_loop=use_connections_async)
    return created


def _packages() -> list[str]:
    """The packages of the project's apps: rows may name their functions."""
    names = {entry.partition(".")[0] for entry in settings.INSTALLED_APPS}
    return sorted(names - {"django", "tickwork"})


app: Tickwork = create_app()
