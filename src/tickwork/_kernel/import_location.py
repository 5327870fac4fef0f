"""Finds the module and the name of an object, so that another process can import it."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

MAIN_MODULE = "__main__"


class ImportLocation(NamedTuple):
    """A module, or the file of the program, and the name of the object in it."""

    module: str
    attribute: str = ""
    file: str = ""


def find_import_location(wanted: object, *, created_in: str = "") -> ImportLocation | None:
    """None if no module has a name for this object.

    Several modules may have one: the module that created the object comes first, and the main
    module last, because another process has another main module.
    """
    modules = sys.modules.copy()
    names = sorted(modules, key=lambda name: (name != created_in, name == MAIN_MODULE))
    for name in names:
        attribute = None if name == "__mp_main__" else _find_name(sys.modules.get(name), wanted)
        location = None if attribute is None else _locate_module(name)
        if attribute is not None and location is not None:
            return location._replace(attribute=attribute)
    return None


def name_program(module: str) -> str:
    """The module of a program: for ``python shop/jobs.py`` it is ``jobs``, as for an import."""
    location = _locate_module(module) if module in sys.modules else None
    if location is None:
        return module
    return location.module or Path(location.file).stem


@lru_cache(maxsize=10_000)
def find_defining_modules(file: str, name: str) -> tuple[ImportLocation, ...]:
    """The modules with this file and with this name, if they were imported."""
    # A copy in one step: meanwhile another thread may import a module.
    modules = [each for each, module in sys.modules.copy().items() if _file_of(module) == file]
    locations = [_locate_module(each) for each in (*modules, name) if each in sys.modules]
    return tuple(dict.fromkeys(location for location in locations if location is not None))


def _locate_module(name: str) -> ImportLocation | None:
    """Where another process finds a module that was imported."""
    if name != MAIN_MODULE:
        return ImportLocation(name)
    spec = getattr(sys.modules[name], "__spec__", None)
    if spec is not None:
        return ImportLocation(spec.name)  # python -m
    file = _file_of(sys.modules[name])
    return None if file is None else ImportLocation("", file=str(Path(file).absolute()))


def _file_of(module: object) -> str | None:
    return getattr(module, "__file__", None)


def _find_name(module: object, wanted: object) -> str | None:
    names = vars(module) if hasattr(module, "__dict__") else {}
    return next((name for name, value in names.copy().items() if value is wanted), None)
