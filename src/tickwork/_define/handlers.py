"""Turns functions, classes, instances and import paths into handlers that can be called."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, TypeAlias, cast

from tickwork._define.arguments import Parameters, parameters_of
from tickwork._define.context import RunContext
from tickwork.errors import HandlerNotAllowed, HandlerNotFound, suggest

Construct: TypeAlias = Callable[[type], Any]
"""Creates an instance of a handler class: ``app.construct = container.get``."""

METHODS: Final = ("handle", "execute")


def construct_plainly(kind: type) -> Any:
    return kind()


@dataclass(frozen=True, slots=True)
class Handler:
    """What an attempt calls.

    ``call`` takes the arguments by name. A class gets a new instance for each attempt. With
    ``is_verdict``, an attempt that returns False has failed.
    """

    call: Callable[..., Any]
    parameters: Parameters
    path: str
    is_async: bool = False
    is_verdict: bool = False
    takes_run: bool = False  # the context is its only argument
    kind: type | None = None  # the class to instantiate
    method: str = ""

    @property
    def is_simple(self) -> bool:
        """Whether ``call`` can be called with the arguments alone."""
        return self.kind is None and not (self.takes_run or self.is_verdict)

    def callable_for(self, construct: Construct) -> Callable[..., Any]:
        if self.kind is None:
            return self.call
        instance = construct(self.kind)
        bound: Callable[..., Any] = getattr(instance, self.method)
        return bound


class ScheduledJob(ABC):
    """An optional base for handler classes: ``execute`` does the work.

    Returning ``False`` is a failure. Any other value, ``None`` included, is a success.
    """

    @abstractmethod
    def execute(self) -> bool | None:
        """Do the work."""


def handler_of(target: object) -> Handler:
    """Make a handler of a callable, or of a class or instance with ``handle`` or ``execute``."""
    if inspect.isclass(target):
        return _of_class(target)
    if callable(target):
        return _handler(target, path_of(target))
    for method in METHODS:
        found = getattr(target, method, None)
        if callable(found):
            return _handler(found, path_of(type(target)), is_verdict=method == "execute")
    raise HandlerNotFound(
        repr(target), f"Objects of type {type(target).__name__} are not callable."
    )


def handler_for_types(instance: Any) -> Handler:
    """Make a handler of an instance that supports job types: ``handle(run)`` gets the context."""
    found = _handler(instance.handle, path_of(type(instance)))
    given = (found.parameters.context, *found.parameters.names)
    if len([name for name in given if name]) != 1:
        return found  # it takes the arguments of the job
    parameters = Parameters(found.parameters.signature, (), frozenset(), takes_any=True)
    return replace(found, parameters=parameters, takes_run=True)


def import_handler(path: str) -> object:
    """Import ``package.module:Name``."""
    module_name, mark, name = path.partition(":")
    if not mark or not module_name or not name:
        raise HandlerNotFound(path, "The path has no ':' between module and name.")
    if not is_path(path):
        raise HandlerNotFound(path, "A path is made of identifiers, dots and one ':'.")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # the module exists, but one that it imports does not
        raise HandlerNotFound(path, f"There is no module {missing.name!r}.") from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            reason = f"{module_name} has no {part!r} (of {name!r}). {suggest(part, dir(found))}"
            raise HandlerNotFound(path, reason.rstrip()) from None
    return found


def check_allowed(path: str, prefixes: Iterable[str]) -> None:
    """Check that a row may name this handler."""
    prefixes = tuple(prefixes)
    module = path.partition(":")[0]
    if not any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes):
        raise HandlerNotAllowed(path, allowed=prefixes)


def is_path(name: str) -> bool:
    """Whether a job's name is the path of its handler: ``shop.mail:Send``.

    >>> is_path("shop.mail:Send"), is_path("mail:daily report"), is_path("mail")
    (True, False, False)
    """
    module, mark, attribute = name.partition(":")
    return bool(mark) and all(part.isidentifier() for part in f"{module}.{attribute}".split("."))


def path_of(target: Any) -> str:
    """Return the path of a target for messages: ``package.module:Name``."""
    target = inspect.unwrap(target) if callable(target) else target
    name = getattr(target, "__qualname__", None)
    if name is None:
        target = getattr(target, "func", type(target))  # a partial, or an instance
        name = getattr(target, "__qualname__", type(target).__qualname__)
    return f"{getattr(target, '__module__', '?')}:{name}"


def place_of_caller(depth: int = 2) -> str:
    """Return the file and line of the innermost caller outside of tickwork."""
    frame = sys._getframe(depth)  # noqa: SLF001  # inspect.stack reads every source file
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _of_class(kind: type) -> Handler:
    if inspect.isabstract(kind):
        left = ", ".join(sorted(f"{name}()" for name in getattr(kind, "__abstractmethods__", ())))
        raise HandlerNotFound(path_of(kind), f"The class does not implement {left}.")
    for method in METHODS:
        static = inspect.getattr_static(kind, method, None)
        if not callable(getattr(kind, method, None)):
            continue
        is_verdict = method == "execute"
        if isinstance(static, classmethod | staticmethod):
            return _handler(getattr(kind, method), path_of(kind), is_verdict=is_verdict)
        unbound = getattr(kind, method)
        parameters = parameters_of(_without_self(unbound), context_type=RunContext)
        return Handler(
            unbound,
            parameters,
            path_of(kind),
            is_async=inspect.iscoroutinefunction(unbound),
            is_verdict=is_verdict,
            kind=kind,
            method=method,
        )
    raise HandlerNotFound(path_of(kind), "The class has neither handle() nor execute().")


def _handler(call: Callable[..., Any], path: str, *, is_verdict: bool = False) -> Handler:
    inner = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    while hasattr(inner, "func"):
        inner = inner.func  # a partial of a coroutine function
    return Handler(
        call,
        parameters_of(call, context_type=RunContext),
        path,
        is_async=inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(inner),
        is_verdict=is_verdict,
    )


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    # A callable object that is a class attribute is not bound to instances.
    bind = getattr(function, "__get__", None)
    return function if bind is None else cast("Callable[..., Any]", bind(object(), object))
