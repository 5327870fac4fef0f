"""What a path in a file leads to.

Imported when the file is loaded, because a typo must not wait for the first firing.
"""

import sys
from typing import Final

from tickwork._define.handlers import import_handler
from tickwork._define.toml_document import Document, shown
from tickwork._define.toml_lines import Path
from tickwork.errors import HandlerNotFound

FAULTY: Final = object()
"""Stands for what a path that is wrong leads to. The document has noted why."""

_TOO_EARLY: Final = (
    "It is still being imported: load the file when all modules are, for example at the end of "
    "the main one."
)


def imported_at(document: Document, path: Path, said: object) -> object:
    """The code that a value of a file names, or ``FAULTY``."""
    if not isinstance(said, str):
        key = [part for part in path if isinstance(part, str)][-1]
        document.fault(path, f"{key} is a path, not {shown(said)}. Write 'package.module:Name'.")
        return FAULTY
    module = said.partition(":")[0]
    try:
        return import_handler(said)
    except HandlerNotFound as error:
        package, dot, name = said.rpartition(".")
        reason = f"{error.what} {error.reason}"
        if ":" not in said:
            reason += f" Did you mean '{package}:{name}'?" if dot else f" {error.fix}"
        elif _is_being_imported(module):
            reason += f" {_TOO_EARLY}"
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a module may do anything
        reason = f"{module} cannot be imported: {type(error).__name__}: {error}."
        named = getattr(error, "name", None) or ""
        if _is_being_imported(named) or "partially initialized module" in str(error):
            reason += f" {_TOO_EARLY}"
    document.fault(path, reason)
    return FAULTY


def _is_being_imported(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
