"""From ``-a module:attribute`` to the application."""

import os
import sys
from importlib import import_module
from typing import Final

import click

from tickwork.app import Tickwork

APP_VARIABLE: Final = "TICKWORK_APP"
ATTRIBUTE: Final = "app"


def load_app(path: str | None) -> Tickwork:
    """The application that a path names.

    Raises:
        click.UsageError: There is none; the message says what to do.
    """
    path = path or os.environ.get(APP_VARIABLE)
    if not path:
        raise click.UsageError(
            "Which application?\n"
            f"Name it: tickwork -a shop.jobs:app work, or set {APP_VARIABLE}=shop.jobs:app."
        )
    module_name, _, attribute = path.partition(":")
    if "" not in sys.path and str(os.getcwd()) not in sys.path:  # noqa: PTH109  # as sys.path has it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not module_name.startswith(missing.name):
            raise
        raise click.UsageError(
            f"There is no module {missing.name!r}, which -a {path} names.\n"
            "Run tickwork from the folder that holds it, or install the package."
        ) from None
    found = getattr(module, attribute or ATTRIBUTE, None)
    if not isinstance(found, Tickwork):
        known = sorted(name for name, value in vars(module).items() if isinstance(value, Tickwork))
        hint = f"It has {', '.join(known)}." if known else "It has no Tickwork at all."
        raise click.UsageError(
            f"{module_name} has no application {attribute or ATTRIBUTE!r}.\n{hint}"
        )
    found.path = f"{module_name}:{attribute or ATTRIBUTE}"
    return found
