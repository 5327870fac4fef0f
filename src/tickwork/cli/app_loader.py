"""Loads the application that the command line, the environment or a file names."""

import os
import re
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import click

from tickwork._config.settings import CONFIG_FILE, app_in, read_document
from tickwork._masks.url import mask_quoted
from tickwork.app.tickwork import Tickwork
from tickwork.errors import TickworkError

APP_VARIABLE: Final = "TICKWORK_APP"
ATTRIBUTE: Final = "app"
FRAMES_MAX: Final = 3

_LITERAL: Final = re.compile(r"""(["'])(.*?)(?:(?<!\\)\1|$)""")

_OWN_FOLDER: Final = str(Path(__file__).resolve().parents[1])


class AppNotLoaded(click.UsageError):
    """The application does not exist, or its module cannot be imported."""


def load_app(path: str | None) -> Tickwork:
    """Load the application at ``path``; without one, of ``TICKWORK_APP`` or ``tickwork.toml``.

    Raises:
        AppNotLoaded: There is none. The message says what to do.
    """
    path = path or os.environ.get(APP_VARIABLE)
    if path:
        return _load_path(path)
    if Path(CONFIG_FILE).is_file():
        return _load_config()
    raise AppNotLoaded(
        "No application is named.\n"
        f"Use tickwork -a shop.jobs:app status, set {APP_VARIABLE}=shop.jobs:app, or write\n"
        f"a {CONFIG_FILE}. `tickwork init` creates a small application."
    )


def _load_config() -> Tickwork:
    """Load the application that ``tickwork.toml`` names; without one, the file defines it."""
    try:
        document = read_document(CONFIG_FILE)
        path = app_in(document)
        if path is None:
            _add_current_folder()
            app = Tickwork.from_config(CONFIG_FILE)
            app.path = ""
            return app
        app = _load_path(path)
        if "jobs" in document.content or "schedules" in document.content:
            app.load_config(CONFIG_FILE)
    except TickworkError as error:
        raise AppNotLoaded(str(error)) from error
    return app


def _load_path(path: str) -> Tickwork:
    module_name, _, attribute = path.partition(":")
    attribute = attribute or ATTRIBUTE
    module = import_program(module_name, f"-a {path}")
    target: object = module
    for part in attribute.split("."):
        target = getattr(target, part, None)
    if not isinstance(target, Tickwork):
        known = sorted(name for name, value in vars(module).items() if isinstance(value, Tickwork))
        hint = (
            f"It has {', '.join(known)}: tickwork -a {module_name}:{known[0]}"
            if known
            else "It has no Tickwork application."
        )
        raise AppNotLoaded(f"{module_name} has no application {attribute!r}.\n{hint}")
    target.path = f"{module_name}:{attribute}"
    return target


def _add_current_folder() -> None:
    """Let Python find the user's modules, as ``python -m`` does."""
    folder = os.getcwd()  # noqa: PTH109  # as sys.path has it
    if "" not in sys.path and folder not in sys.path:
        sys.path.insert(0, folder)


def import_program(name: str, origin: str) -> ModuleType:
    """Import a module of the user's program; ``origin`` says where its name is from.

    Raises:
        AppNotLoaded: It cannot be imported. The message has the reason.
    """
    _add_current_folder()
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name + ".").startswith(missing.name + "."):
            raise AppNotLoaded(
                f"There is no module {missing.name!r} (from {origin}).\n"
                "Run tickwork in the folder that contains it, or install the package."
            ) from None
        raise _import_failure(name, missing) from missing
    except ValueError as error:
        if name and not name.startswith("."):
            raise _import_failure(name, error) from error
        raise AppNotLoaded(
            f"No module is named (from {origin}).\nWrite package.module:app."
        ) from None
    except (Exception, SystemExit) as error:  # the module runs the user's own code
        raise _import_failure(name, error) from error


def _import_failure(name: str, error: BaseException) -> AppNotLoaded:
    """Describe the error with the last lines of the user's own code."""
    lines = [f"{name} cannot be imported: {_describe(error)}"]
    if isinstance(error, SyntaxError) and error.filename:
        lines += [f"  {_relative_path(error.filename)}, line {error.lineno}:"]
        lines += [f"      {_mask_literals(error.text.strip())}"] if error.text else []
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if _is_user_code(frame.filename)]
        for frame in own[-FRAMES_MAX:]:
            lines += [f"  {_relative_path(frame.filename)}, line {frame.lineno}:"]
            lines += [f"      {_mask_literals(frame.line or '')}"]
    return AppNotLoaded("\n".join(lines))


def _mask_literals(line: str) -> str:
    """Mask the URLs in a line of code."""
    return mask_quoted(line, (literal[2] for literal in _LITERAL.finditer(line)))


def _describe(error: BaseException) -> str:
    if isinstance(error, TickworkError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"it exits (SystemExit: {error.code})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return f"{type(error).__name__}: {error}"


def _is_user_code(filename: str) -> bool:
    if filename.startswith("<") or os.path.realpath(filename).startswith(_OWN_FOLDER + os.sep):
        return False
    return not filename.startswith((sys.base_prefix + "/lib/python", "importlib"))


def _relative_path(filename: str) -> str:
    try:
        return str(Path(filename).resolve().relative_to(Path.cwd()))
    except ValueError:
        return filename
