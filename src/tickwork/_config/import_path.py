"""Imports the code that a configuration file names as ``package.module:Name``.

It is imported when the file is loaded, so that a typo is found at once, not at the first firing.
"""

import sys
from typing import Final

from tickwork._config.toml_document import Document, Path, shown
from tickwork._handlers.handlers import import_handler
from tickwork.errors import HandlerNotFound

INVALID: Final = object()
"""Returned for a path that cannot be imported. The document has the reason."""

_TOO_EARLY: Final = (
    "The module is still being imported. Load the file after all imports, for example at the "
    "end of the main module."
)


def import_at(document: Document, path: Path, value: object) -> object:
    """Import what a value of a file names; report a problem and return ``INVALID`` otherwise."""
    if not isinstance(value, str):
        key = [part for part in path if isinstance(part, str)][-1]
        document.report(
            path, f"{key} must be a path such as 'package.module:Name', got {shown(value)}."
        )
        return INVALID
    module = value.partition(":")[0]
    try:
        return import_handler(value)
    except HandlerNotFound as error:
        package, dot, name = value.rpartition(".")
        reason = f"{error.what} {error.reason}"
        if ":" not in value:
            reason += f" Did you mean '{package}:{name}'?" if dot else f" {error.fix}"
        elif _is_being_imported(module):
            reason += f" {_TOO_EARLY}"
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a module may do anything
        reason = f"{module} cannot be imported: {type(error).__name__}: {error}."
        named = getattr(error, "name", None) or ""
        if _is_being_imported(named) or "partially initialized module" in str(error):
            reason += f" {_TOO_EARLY}"
    document.report(path, reason)
    return INVALID


def _is_being_imported(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
