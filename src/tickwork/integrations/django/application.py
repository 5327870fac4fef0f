"""Creates the application of a Django project from its settings."""

from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS

from tickwork._program import set_program
from tickwork.app.tickwork import Tickwork
from tickwork.integrations.django.attempt_connections import (
    run_in_this_thread,
    use_connections,
    use_connections_async,
)
from tickwork.integrations.django.store import DjangoStore
from tickwork.integrations.django.transaction_bridge import TransactionBridge

PROCESS_PATH: Final = "tickwork.integrations.django.child_process:app"
"""Where child processes import the application from: it sets up Django first."""

PROGRAM: Final = "python manage.py tickwork"

OPTIONS: Final = (
    "NAME",
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
    options = dict(getattr(settings, "TICKWORK", {}))
    unknown = sorted(options.keys() - {"DATABASE", *OPTIONS})
    if unknown:
        known = ", ".join(("DATABASE", *OPTIONS))
        raise ImproperlyConfigured(f"TICKWORK has no option {unknown[0]!r}. It has {known}.")
    return options


def database_alias() -> str:
    """The alias in ``DATABASES`` of the database that has the tables."""
    return str(read_options().get("DATABASE", "default"))


def create_app() -> Tickwork:
    """Create the application: on the database of the project, and in its time zone."""
    options = read_options()
    alias = options.pop("DATABASE", "default")
    options.setdefault("NAME", str(settings.SETTINGS_MODULE).partition(".")[0])
    options.setdefault("TIMEZONE", settings.TIME_ZONE)
    options.setdefault("HANDLER_PATHS", _packages())
    store = DjangoStore(alias)
    created = Tickwork(
        f"django://{alias}",
        install=False,  # `manage.py migrate` does it
        store=store.as_store(),
        **{name.lower(): value for name, value in options.items()},
    )
    created.path = PROCESS_PATH
    _name_commands(alias)
    created.wait_for = run_in_this_thread
    created._services.bridge = TransactionBridge(store)  # noqa: SLF001  # it has no option
    created.registry.add_middleware(use_connections, on_loop=use_connections_async)
    return created


def _name_commands(alias: str) -> None:
    """Name the commands of the project in messages."""
    migrate = "python manage.py migrate" + f" --database {alias}" * (alias != DEFAULT_DB_ALIAS)
    set_program(
        PROGRAM,
        {
            "`tickwork install`, or pass install=True to Tickwork()": f"`{migrate}`",
            "Call app.install() before the transaction, or run `tickwork install`": (
                f"Run `{migrate}`"
            ),
            "`tickwork install`": f"`{migrate}`",
            "Load the module that defines it (tickwork -a your.module:app work).": (
                "Define it in jobs.py of an app of INSTALLED_APPS."
            ),
            "Start with `tickwork init` in an empty folder, then `tickwork work`.": (
                "Start a worker with `tickwork work`."
            ),
        },
    )


def _packages() -> list[str]:
    """The packages of the project's apps: rows may name their functions."""
    names = {entry.partition(".")[0] for entry in settings.INSTALLED_APPS}
    return sorted(names - {"django", "tickwork"})


app: Tickwork = create_app()
