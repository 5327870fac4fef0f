"""The engines that jobs can choose by name."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from tickwork._domain.names import check_name
from tickwork.errors import InvalidOption, suggest

AUTO: Final = "auto"
"""Functions run in threads, coroutines on an event loop."""

SLOT_OPTIONS: Final = ("threads", "coroutines", "children", "handovers")
"""The worker options with numbers of slots."""


class EngineRegistration(NamedTuple):
    """How a worker builds an engine.

    ``factory`` gets an ``EngineSetup`` and returns an engine. As "module:name", it is imported when
    a worker is built. ``slots_option`` is the worker option with the number of slots.
    ``needs_import`` means that other processes make the attempts, so they must be able to import
    the application. ``is_remote`` means that the runs are handed over to processes that are not
    this worker's. Such an engine is built only if a job chooses it, and so is one that
    ``is_optional``. ``check`` gets the options of the engine, and returns a description of its
    broker, or raises an error.
    """

    factory: str | Callable[[Any], Any]
    slots_option: str = "threads"
    needs_import: bool = False
    is_remote: bool = False
    check: str | Callable[[Any], str] | None = None
    is_optional: bool = False


def check_engine(name: str, known: Collection[str]) -> None:
    """Check that a job chooses a registered engine."""
    names = sorted({AUTO, *known})
    if name not in names:
        rule = f"must be one of {', '.join(names)}"
        raise InvalidOption("engine", name, rule, fix=suggest(name, names))


def add_engines(
    own: Mapping[str, EngineRegistration], options_by_engine: Mapping[str, Any] | None
) -> dict[str, EngineRegistration]:
    """Add the engines of a program, as factories or registrations, to those of tickwork.

    Raises:
        InvalidOption: A name is taken or no name, or a value is not a factory.
    """
    engines = dict(own)
    for name, value in (options_by_engine or {}).items():
        check_name("engines", name)
        if name in own or name == AUTO:
            raise InvalidOption("engines", name, "must not have the name of an engine of tickwork")
        registration = value if isinstance(value, EngineRegistration) else EngineRegistration(value)
        if registration.slots_option not in SLOT_OPTIONS:
            rule = f"must be one of {', '.join(SLOT_OPTIONS)}"
            raise InvalidOption(f"engines[{name!r}]", registration.slots_option, rule)
        if not (callable(registration.factory) or isinstance(registration.factory, str)):
            raise InvalidOption(
                f"engines[{name!r}]",
                value,
                "must be a function or a class that gets an EngineSetup and returns an engine",
                fix="Pass the class itself, or functools.partial of the class and its options.",
            )
        engines[name] = registration
    return engines


def load_function(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, which may be given as "module:name"."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
