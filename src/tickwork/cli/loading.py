"""From ``-a module:attribute`` to the application."""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import click

from tickwork._wiring.defining import CONFIG, read_document
from tickwork.app import Tickwork
from tickwork.errors import TickworkError
from tickwork.settings import app_in

APP_VARIABLE: Final = "TICKWORK_APP"
ATTRIBUTE: Final = "app"

_OURS: Final = str(Path(__file__).resolve().parents[1])


class NoApplication(click.UsageError):
    """The application that the command line names cannot be had."""


def load_app(path: str | None) -> Tickwork:
    """The application that a path names; without one, ``TICKWORK_APP`` or ``tickwork.toml``.

    Raises:
        NoApplication: There is none; the message says what to do.
    """
    path = path or os.environ.get(APP_VARIABLE)
    if path:
        return _named(path)
    if Path(CONFIG).is_file():
        return _configured()
    raise NoApplication(
        "Which application?\n"
        f"Name it: tickwork -a shop.jobs:app status, or set {APP_VARIABLE}=shop.jobs:app, or\n"
        f"write a {CONFIG}. `tickwork init` makes a small one to begin with."
    )


def _configured() -> Tickwork:
    """The application of ``tickwork.toml``: the one it names, or the one that it is."""
    try:
        document = read_document(CONFIG)
        path = app_in(document)
        if path is None:
            app = Tickwork.from_config(CONFIG)
            app.path = ""
            return app
        app = _named(path)
        if "jobs" in document.content or "schedules" in document.content:
            app.load_config(CONFIG)
    except TickworkError as fault:
        raise NoApplication(str(fault)) from fault
    return app


def _named(path: str) -> Tickwork:
    module_name, _, attribute = path.partition(":")
    module = _imported(module_name, path)
    found: object = module
    for part in (attribute or ATTRIBUTE).split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Tickwork):
        known = sorted(name for name, value in vars(module).items() if isinstance(value, Tickwork))
        hint = (
            f"It has {', '.join(known)}: tickwork -a {module_name}:{known[0]}"
            if known
            else "It has no Tickwork at all."
        )
        raise NoApplication(f"{module_name} has no application {attribute or ATTRIBUTE!r}.\n{hint}")
    found.path = f"{module_name}:{attribute or ATTRIBUTE}"
    return found


def _imported(name: str, path: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109  # as sys.path has it
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name + ".").startswith(missing.name + "."):
            raise NoApplication(
                f"There is no module {missing.name!r}, which -a {path} names.\n"
                "Run tickwork from the folder that holds it, or install the package."
            ) from None
        raise _broken(name, missing) from missing
    except ValueError as fault:
        if name and not name.startswith("."):
            raise _broken(name, fault) from fault
        raise NoApplication(f"{path!r} names no module.\nWrite it as package.module:app.") from None
    except (Exception, SystemExit) as fault:  # the user's own code runs here
        raise _broken(name, fault) from fault


def _broken(name: str, fault: BaseException) -> NoApplication:
    """What went wrong while a module was imported, with the user's own line."""
    lines = [f"{name} cannot be imported: {_said(fault)}"]
    if isinstance(fault, SyntaxError) and fault.filename:
        lines += [f"  {_shown(fault.filename)}, line {fault.lineno}:"]
        lines += [f"      {(fault.text or '').strip()}"] if fault.text else []
    else:
        frames = traceback.extract_tb(fault.__traceback__)
        theirs = [frame for frame in frames if _is_theirs(frame.filename)]
        for frame in theirs[-3:]:
            lines += [f"  {_shown(frame.filename)}, line {frame.lineno}:", f"      {frame.line}"]
    return NoApplication("\n".join(lines))


def _said(fault: BaseException) -> str:
    if isinstance(fault, TickworkError):
        return str(fault)
    if isinstance(fault, SystemExit):
        return f"it ends the program (SystemExit: {fault.code})"
    if isinstance(fault, SyntaxError):
        return f"{type(fault).__name__}: {fault.msg}"
    return f"{type(fault).__name__}: {fault}"


def _is_theirs(filename: str) -> bool:
    if filename.startswith("<") or os.path.realpath(filename).startswith(_OURS + os.sep):
        return False
    return not filename.startswith((sys.base_prefix + "/lib/python", "importlib"))


def _shown(filename: str) -> str:
    """A path as the reader would write it."""
    try:
        return str(Path(filename).resolve().relative_to(Path.cwd()))
    except ValueError:
        return filename
