"""The engines that jobs can choose by name."""

from collections.abc import Collection
from typing import Final, NamedTuple

from tickwork.errors import InvalidOption, suggest

AUTO: Final = "auto"
"""Functions run in threads, coroutines on an event loop."""


class EngineRegistration(NamedTuple):
    """How a worker builds an engine.

    ``path`` is the class, as "module:Name": it is imported when a worker is built.
    ``slots_option`` is the worker option with the number of slots. ``needs_import`` means that
    other processes make the attempts, so they must be able to import the application.
    ``is_remote`` means that the runs are handed over to processes that are not this worker's. Such
    an engine is built only if a job chooses it. ``check`` is a function, as "module:name": it gets
    the options of the engine, and returns a description of its broker, or raises an error.
    """

    path: str
    slots_option: str
    needs_import: bool = False
    is_remote: bool = False
    check: str = ""


def check_engine(name: str, known: Collection[str]) -> None:
    """Check that a job chooses a registered engine."""
    names = sorted({AUTO, *known})
    if name not in names:
        rule = f"must be one of {', '.join(names)}"
        raise InvalidOption("engine", name, rule, fix=suggest(name, names))
