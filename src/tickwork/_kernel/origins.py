"""Where an object can be found again by another process: its module, or the program's file."""

import sys
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """A module, or the file of the program itself, and the name that the object has there."""

    module: str
    attribute: str
    file: str = ""


def place_of(wanted: object) -> Place | None:
    """Where it lives; None when no module has it under a name."""
    for name, module in list(sys.modules.items()):
        attribute = _name_in(module, wanted)
        if attribute is None or name == "__mp_main__":
            continue
        if name != "__main__":
            return Place(name, attribute)
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            return Place(spec.name, attribute)  # python -m
        file = getattr(module, "__file__", None)
        if file is not None:
            return Place("", attribute, str(Path(file).absolute()))
    return None


def _name_in(module: object, wanted: object) -> str | None:
    names = vars(module) if hasattr(module, "__dict__") else {}
    return next((name for name, value in list(names.items()) if value is wanted), None)
