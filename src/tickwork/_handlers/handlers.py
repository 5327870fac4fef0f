"""Turns functions, classes, instances and import paths into handlers that can be called."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, cast

from tickwork._handlers.arguments import Parameters, parameters_of
from tickwork._handlers.context import RunContext
from tickwork.errors import DefinitionError, HandlerNotAllowed, HandlerNotFound, suggest

Construct: TypeAlias = Callable[[type], Any]
"""Creates an instance of a handler class: ``app.construct = container.get``."""

METHODS: Final = ("handle", "execute")

_PACKAGE: Final = f"{__name__.partition('.')[0]}."

# These read attributes of a class. A metaclass cannot override them.
_QUALNAME: Final = type.__dict__["__qualname__"]
_MRO: Final = type.__dict__["__mro__"]
_DICT: Final = type.__dict__["__dict__"]


def construct_plainly(kind: type) -> Any:
    """Create an instance without arguments.

    Raises:
        DefinitionError: The class needs arguments.
    """
    try:
        return kind()
    except TypeError as error:
        if not _needs_arguments(kind):
            raise
        raise DefinitionError(
            f"The handler class {path_of(kind)} cannot be created without arguments.",
            why=f"{error}.",
            fix="Set what creates it: app.construct = container.get, or a function of the class.",
        ) from error


def _needs_arguments(kind: type) -> bool:
    try:
        inspect.signature(kind).bind()
    except TypeError:
        return True
    except ValueError:  # a class of C code may have no signature
        return False
    return False


@dataclass(frozen=True, slots=True)
class Handler:
    """What an attempt calls.

    ``call`` takes the arguments by name. A class gets a new instance for each attempt. With
    ``returns_success``, an attempt that returns False has failed.
    """

    call: Callable[..., Any]
    parameters: Parameters
    path: str
    is_async: bool = False
    returns_success: bool = False
    takes_run: bool = False  # the context is its only argument
    kind: type | None = None  # the class to instantiate
    method: str = ""

    @property
    def is_simple(self) -> bool:
        """Whether ``call`` can be called with the arguments alone."""
        return self.kind is None and not (self.takes_run or self.returns_success)

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


class JobHandler(Protocol):
    """A handler for job types: ``app.handler(instance)`` registers it.

    A job that was defined without code of its own, as ``app.schedule("reports.export")``, is
    handled by the registered instance that supports its name.
    """

    def supports(self, job_type: str, /) -> bool:
        """Whether this handler executes runs of a job type."""
        ...

    def handle(self, run: RunContext, /) -> Any:
        """Execute a run. The result can be a :class:`tickwork.JobResult`, or any JSON value.

        If it has several parameters, it is called with the arguments of the run instead.
        """
        ...


def handler_of(target: object, *, path: str = "") -> Handler:
    """Make a handler of a callable, or of a class or instance with ``handle`` or ``execute``.

    ``path`` is where the target was found, for messages. They never show its value: it may be a
    whole configuration.
    """
    if inspect.isclass(target):
        return _of_class(target)
    if callable(target):
        return _handler(target, path_of(target))
    for method in METHODS:
        function = getattr(target, method, None)
        if callable(function):
            return _handler(function, path_of(type(target)), returns_success=method == "execute")
    reason = f"It is {_kind_of(target)}, which cannot be called."
    raise HandlerNotFound(path or path_of(type(target)), reason)


def handler_for_types(instance: Any) -> Handler:
    """Make a handler of an instance that supports job types: ``handle(run)`` gets the context."""
    handler = _handler(instance.handle, path_of(type(instance)))
    parameter_names = (handler.parameters.context, *handler.parameters.names)
    if len([name for name in parameter_names if name]) != 1:
        return handler  # it takes the arguments of the job
    parameters = Parameters(handler.parameters.signature, (), frozenset(), takes_any=True)
    return replace(handler, parameters=parameters, takes_run=True)


def import_handler(path: str) -> object:
    """Import ``package.module:Name`` for the program itself: every path is allowed."""
    module_name, name = _split_path(path)
    target: Any = _import_module(path, module_name)
    for part in name.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise _attribute_missing(path, part, dir(target)) from None
    return target


def import_row_handler(
    path: str, prefixes: Iterable[str], *, is_job: Callable[[object], bool]
) -> object:
    """Import a handler that a row names: a job of the application, or a handler class.

    A row is data. Apart from jobs, its path may only lead to a class that a module below a prefix
    defines: not to an imported name, a module, an instance or a function. Attributes are
    read without calling code of the program (``__getattr__``, descriptors).

    Raises:
        HandlerNotAllowed: The path is not allowed in a row.
        HandlerNotFound: There is no such name.
    """
    prefixes = tuple(prefixes)
    module_name, name = _split_path(path)
    check_allowed(path, prefixes)
    try:
        module = _import_module(path, module_name)
    except SystemExit as exiting:
        reason = f"{module_name} exits when it is imported."
        raise HandlerNotFound(path, reason) from exiting
    attributes: Mapping[str, Any] = vars(module) if issubclass(type(module), ModuleType) else {}
    *outer, last = name.split(".")
    for part in outer:
        member = _attribute(path, attributes, part)
        if not _is_class(member):
            reason = f"{part!r} is {_kind_of(member)}, not a class."
            raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)
        attributes = _dict_of(member)
    target = _attribute(path, attributes, last)
    if is_job(target):
        return target
    if not _is_class(target):
        reason = f"It is {_kind_of(target)}, neither a job of the application nor a class."
        raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)
    _check_origin(path, target, prefixes)
    return target


def check_allowed(path: str, prefixes: Iterable[str]) -> None:
    """Check that a path lies below a prefix, without names that begin with an underscore."""
    prefixes = tuple(prefixes)
    module, _, name = path.partition(":")
    prefix = _prefix_of(module, prefixes)
    if prefix is None:
        raise HandlerNotAllowed(path, allowed=prefixes)
    for part in f"{module.removeprefix(prefix)}.{name}".split("."):
        if part.startswith("_"):
            reason = f"{part!r} begins with an underscore."
            raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)


def check_function(path: str, function: object, prefixes: tuple[str, ...]) -> None:
    """Check that a function is the one that its path names, and that the path lies below a prefix.

    Raises:
        HandlerNotAllowed: It is not.
    """
    if not is_path(path):
        reason = "It has no path: it is a lambda, or defined inside a function."
        raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)
    check_allowed(path, prefixes)
    if _defined_at(*_split_path(path)) is not function:
        reason = f"It is not the function that {path} names."
        raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)


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


def place_of_caller() -> str:
    """Return the file and line of the innermost caller outside of tickwork, as text."""
    file, line = line_of_caller()
    return f"{file}:{line}"


def line_of_caller() -> tuple[str, int]:
    """Return the file and line of the innermost caller outside of tickwork."""
    frame = sys._getframe(1)  # noqa: SLF001  # inspect.stack reads every source file
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _split_path(path: str) -> tuple[str, str]:
    module_name, mark, name = path.partition(":")
    if not mark or not module_name or not name:
        raise HandlerNotFound(path, "The path has no ':' between module and name.")
    if not is_path(path):
        raise HandlerNotFound(path, "A path is made of identifiers, dots and one ':'.")
    return module_name, name


def _import_module(path: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # the module exists, but one that it imports does not
        raise HandlerNotFound(path, f"There is no module {missing.name!r}.") from None


def _attribute_missing(path: str, part: str, known: Iterable[str]) -> HandlerNotFound:
    module_name, _, name = path.partition(":")
    within = "" if part == name else f" (of {name!r})"
    reason = f"{module_name} has no {part!r}{within}. {suggest(part, known)}"
    return HandlerNotFound(path, reason.rstrip())


def _attribute(path: str, attributes: Mapping[str, Any], part: str) -> Any:
    if part not in attributes:
        raise _attribute_missing(path, part, attributes)
    return attributes[part]


def _prefix_of(module: str, prefixes: Iterable[str]) -> str | None:
    below = [each for each in prefixes if module == each or module.startswith(f"{each}.")]
    return max(below, key=len, default=None)


def _check_origin(path: str, kind: type, prefixes: tuple[str, ...]) -> None:
    """Check that a module below a prefix defines the class, and its method."""
    module_name, name = _dict_of(kind).get("__module__"), _QUALNAME.__get__(kind)
    origin = f"{module_name}:{name}"
    try:
        check_allowed(origin, prefixes)
    except HandlerNotAllowed as refused:
        reason = f"The class is {origin}. {refused.why}"
        raise HandlerNotAllowed(path, allowed=prefixes, reason=reason) from None
    if _defined_at(str(module_name), name) is not kind:
        reason = f"The class is not the one that {module_name} defines as {name!r}."
        raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)
    for method in METHODS:
        if callable(getattr(kind, method, None)):
            owners = [each for each in _MRO.__get__(kind) if method in _dict_of(each)]
            owner = str(_dict_of(owners[0]).get("__module__")) if owners else "its metaclass"
            if _prefix_of(owner, prefixes) is None:
                reason = f"The class inherits {method}() from {owner}."
                raise HandlerNotAllowed(path, allowed=prefixes, reason=reason)
            return


def _defined_at(module_name: str, name: str) -> object:
    attributes: Mapping[str, Any] = vars(sys.modules.get(module_name, object))
    target: object = None
    for part in name.split("."):
        target = attributes.get(part)
        attributes = _dict_of(target) if _is_class(target) else {}
    return target


def _dict_of(kind: type) -> Mapping[str, Any]:
    attributes: Mapping[str, Any] = _DICT.__get__(kind)
    return attributes


def _is_class(target: object) -> TypeGuard[type]:
    return issubclass(type(target), type)  # isinstance() trusts __class__, which an object can fake


def _kind_of(target: object) -> str:
    if isinstance(target, ModuleType):
        return "a module"
    return (
        "a function" if inspect.isroutine(target) else f"an object of type {type(target).__name__}"
    )


def _of_class(kind: type) -> Handler:
    if inspect.isabstract(kind):
        left = ", ".join(sorted(f"{name}()" for name in getattr(kind, "__abstractmethods__", ())))
        raise HandlerNotFound(path_of(kind), f"The class does not implement {left}.")
    for method in METHODS:
        static = inspect.getattr_static(kind, method, None)
        if not callable(getattr(kind, method, None)):
            continue
        returns_success = method == "execute"
        # From Python 3.14 on, a partial in a class gets the instance. Here it never gets one.
        if isinstance(static, classmethod | staticmethod | partial):
            return _handler(getattr(kind, method), path_of(kind), returns_success=returns_success)
        unbound = getattr(kind, method)
        _check_not_generator(unbound, path_of(kind))
        parameters = parameters_of(_without_self(unbound), context_type=RunContext)
        return Handler(
            unbound,
            parameters,
            path_of(kind),
            is_async=inspect.iscoroutinefunction(unbound),
            returns_success=returns_success,
            kind=kind,
            method=method,
        )
    raise HandlerNotFound(path_of(kind), "The class has neither handle() nor execute().")


def _handler(call: Callable[..., Any], path: str, *, returns_success: bool = False) -> Handler:
    inner = call if inspect.isroutine(call) else getattr(call, "__call__", call)  # noqa: B004
    while hasattr(inner, "func"):
        inner = inner.func  # a partial of a coroutine function
    for function in (call, inner):
        _check_not_generator(function, path)
    return Handler(
        call,
        parameters_of(call, context_type=RunContext),
        path,
        is_async=inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(inner),
        returns_success=returns_success,
    )


def _check_not_generator(function: Callable[..., Any], path: str) -> None:
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        return
    raise DefinitionError(
        f"{path} cannot be a handler: it is a generator function.",
        why="A call of a generator function only creates a generator. Its body would never run.",
        fix="Remove yield: return a list, or do the work in a loop.",
    )


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    # A callable object that is a class attribute is not bound to instances.
    bind = getattr(function, "__get__", None)
    return function if bind is None else cast("Callable[..., Any]", bind(object(), object))
