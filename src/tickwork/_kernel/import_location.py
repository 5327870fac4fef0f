"""Finds the module and the name of an object, so that another process can import it."""

import sys
from pathlib import Path
from typing import NamedTuple


class ImportLocation(NamedTuple):
    """A module, or the file of the program, and the name of the object in it."""

    module: str
    attribute: str
    file: str = ""


def find_import_location(wanted: object) -> ImportLocation | None:
    """None if no module has a name for this object."""
    for name, module in list(sys.modules.items()):
        attribute = _find_name(module, wanted)
        if attribute is None or name == "__mp_main__":
            continue
        if name != "__main__":
            return ImportLocation(name, attribute)
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            return ImportLocation(spec.name, attribute)  # python -m
        file = getattr(module, "__file__", None)
        if file is not None:
            return ImportLocation("", attribute, str(Path(file).absolute()))
    return None


def _find_name(module: object, wanted: object) -> str | None:
    names = vars(module) if hasattr(module, "__dict__") else {}
    return next((name for name, value in list(names.items()) if value is wanted), None)
