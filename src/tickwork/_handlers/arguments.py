"""The parameters of a handler, and the check of a dispatch against them."""

import inspect
import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tickwork._masks.text import MASK
from tickwork._payload.class_codecs import class_hints
from tickwork.errors import ArgumentError, DefinitionError, suggest

T = TypeVar("T")


class _SecretMark:
    def __repr__(self) -> str:
        return "Secret"


SECRET: Final = _SecretMark()

# For type checkers ``Secret[str]`` is ``str``: it is passed as any other argument.
Secret: TypeAlias = Annotated[T, SECRET]
"""An argument that is masked wherever it is shown: ``def charge(card: Secret[str])``."""


class _Hidden:
    def __repr__(self) -> str:
        return MASK


HIDDEN: Final = _Hidden()
"""Shown instead of the default of a secret parameter."""

_NAMES: Final = re.compile(r"\w+")
_FIELDS: Final = (
    *("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__pydantic_fields__"),
    *("_fields", "__required_keys__"),
)
"""Attributes of classes whose values are stored by field."""
_OUTER: Final = frozenset({Union, UnionType, Annotated})

_NOT_BY_NAME: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of positional arguments",
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a handler: arguments are stored by their names.

    ``context`` names the parameter that gets the :class:`RunContext`; it is not an argument.
    """

    signature: inspect.Signature
    names: tuple[str, ...]  # those that can be passed by position come first
    required: frozenset[str]
    takes_any: bool = False
    context: str | None = None
    secrets: frozenset[str] = frozenset()
    by_position: int = 0  # how many of the names can be passed by position
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    known: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(self.names))

    def bind(self, job: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. Missing ones may still come from the definition."""
        if len(args) > self.by_position:
            raise self._argument_error(job, f"{len(args)} positional arguments are too many.")
        arguments = dict(zip(self.names, args, strict=False))
        twice = arguments.keys() & kwargs.keys()
        if twice:
            raise self._argument_error(job, f"{min(twice)!r} is given twice.")
        arguments.update(kwargs)
        return arguments

    def check(self, job: str, arguments: Mapping[str, Any], *, schedule: str = "") -> None:
        if arguments.keys() == self.required:
            return
        if not (self.takes_any or self.known.issuperset(arguments)):
            unknown = arguments.keys() - self.known
            raise self._argument_error(
                job, f"it takes no argument {min(unknown)!r}.", schedule=schedule
            )
        if not self.required <= arguments.keys():
            missing = self.required - arguments.keys()
            names = ", ".join(repr(name) for name in self.names if name in missing)
            raise self._argument_error(
                job,
                f"{names} {'is' if len(missing) == 1 else 'are'} missing.",
                schedule=schedule,
                fix=self._suggest_context(missing),
            )

    def _suggest_context(self, missing: Collection[str]) -> str:
        for name in CONTEXT_NAMES:
            if name in missing and self.context is None and not self._is_annotated(name):
                return f"To get the context of the run, annotate the parameter: {name}: RunContext."
        return ""

    def _is_annotated(self, name: str) -> bool:
        parameter = self.signature.parameters.get(name)
        return parameter is not None and parameter.annotation is not parameter.empty

    def _argument_error(
        self, job: str, reason: str, *, schedule: str = "", fix: str = ""
    ) -> ArgumentError:
        return ArgumentError(job, reason, signature=self.text, schedule=schedule, fix=fix)

    @property
    def text(self) -> str:
        """The signature without the injected context."""
        shown = [
            self._shown(parameter)
            for name, parameter in self.signature.parameters.items()
            if name != self.context
        ]
        return str(inspect.Signature(shown))

    def _shown(self, parameter: inspect.Parameter) -> inspect.Parameter:
        is_hidden = parameter.name in self.secrets and parameter.default is not parameter.empty
        default = HIDDEN if is_hidden else parameter.default
        return parameter.replace(annotation=_bare(parameter.annotation), default=default)


def parameters_of(function: Callable[..., Any], *, context_type: type | None = None) -> Parameters:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # The text of the error has the repr of the object, which may be a secret.
        name = getattr(function, "__qualname__", f"an object of type {type(function).__name__}")
        raise DefinitionError(
            f"The signature of {name} cannot be read.",
            fix="Wrap it in a function of your own.",
        ) from None
    hints = hints_of(function)
    names: list[str] = []
    required: set[str] = set()
    secrets: set[str] = set()
    defaults: dict[str, Any] = {}
    takes_any, context, by_position = False, None, 0
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, parameter.annotation)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            takes_any = True
            continue
        if parameter.kind in _NOT_BY_NAME:
            raise DefinitionError(
                f"{_name_of(function)} cannot be a handler: "
                f"{name!r} {_NOT_BY_NAME[parameter.kind]}.",
                why="Arguments are stored by name, and passed as keywords.",
                fix="Make it a keyword parameter, or take a list.",
            )
        if context_type is not None and context is None and _is_of(hint, context_type):
            context = name
            continue
        names.append(name)
        by_position += parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if parameter.default is inspect.Parameter.empty:
            required.add(name)
        else:
            defaults[name] = parameter.default
        if is_secret(hint):
            secrets.add(name)
    return Parameters(
        signature,
        tuple(names),
        frozenset(required),
        takes_any,
        context,
        frozenset(secrets),
        by_position,
        defaults,
    )


_ANY_NUMBER: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
CONTEXT_NAMES: Final = ("ctx", "context")
"""Parameters of a filter that get the :class:`RunContext`, unless the handler has them."""


def check_filter(job: str, function: Callable[..., Any], parameters: Parameters) -> None:
    """Check that a filter requires only arguments that its job has."""
    known = {*parameters.names, *CONTEXT_NAMES}
    for parameter in _parameters(function):
        if parameter.default is not parameter.empty or parameter.kind in _ANY_NUMBER:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            reason, fix = "is positional-only", "Make it a keyword parameter."
        elif not (parameters.takes_any or parameter.name in known):
            reason, fix = "is not an argument of the job", suggest(parameter.name, known)
        else:
            continue
        raise DefinitionError(
            f"{_name_of(function)} cannot be a filter of the job {job!r}: "
            f"its parameter {parameter.name!r} {reason}.",
            why=f"The handler takes {parameters.text}. A filter can also take ctx.",
            fix=fix,
        )


def parameter_names(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the parameter names of a filter; None if it takes any keyword argument."""
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


class HookCall(NamedTuple):
    """The facts that a hook gets: by position, and by the name of a parameter."""

    positional: tuple[str, ...]
    by_name: Mapping[str, str]


HOOK_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "on_before": ("ctx",),
    "on_success": ("ctx", "result", "outcome"),
    "on_error": ("ctx", "error", "outcome"),
    "on_after": ("ctx", "outcome", "result", "error"),
}
"""What each hook can get. Parameters without such a name get the first facts that are left."""

_BY_POSITION: Final = 2  # those that a hook may take under names of its own
_FACT_NAMES: Final = {"context": "ctx", "exception": "error"}


def plan_hook(kind: str, hook: Any) -> HookCall:
    """Choose the arguments of a hook by the names of its parameters.

    A hook may take fewer facts than it could get: ``on_after()``, ``on_after(outcome)``.

    Raises:
        TypeError: It requires an argument that it cannot get.
    """
    plan = _cached_hook_plan
    return plan(kind, hook) if isinstance(hook, Hashable) else plan.__wrapped__(kind, hook)


@lru_cache(maxsize=2048)
def _cached_hook_plan(kind: str, hook: Callable[..., Any]) -> HookCall:
    hook_facts, parameters = HOOK_FACTS[kind], _parameters(hook)
    fact_by_parameter: dict[str, str] = {}
    for name in (parameter.name for parameter in parameters if parameter.kind not in _ANY_NUMBER):
        if (fact := _FACT_NAMES.get(name, name)) in hook_facts:
            fact_by_parameter[name] = fact
    left = [fact for fact in hook_facts[:_BY_POSITION] if fact not in fact_by_parameter.values()]
    positional: list[str] = []
    by_name: dict[str, str] = {}
    has_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += left
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            by_name.update({fact: fact for fact in hook_facts if fact not in by_name})
            continue
        fact_name = fact_by_parameter.get(parameter.name)
        if fact_name is None and parameter.default is not parameter.empty:
            continue
        if fact_name is None and left and parameter.kind is not parameter.KEYWORD_ONLY:
            fact_name = left.pop(0)
        if fact_name is None:
            raise TypeError(
                f"its parameter {parameter.name!r} has no value: it gets {', '.join(hook_facts)}"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY or (
            has_any and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ):
            positional.append(fact_name)
        else:
            by_name[parameter.name] = fact_name
    return HookCall(tuple(positional), by_name)


def check_hook(job: str, kind: str, hook: Callable[..., Any]) -> None:
    """Check that a hook requires only what it can get."""
    try:
        plan_hook(kind, hook)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"{_name_of(hook)} cannot be a hook {kind} of the job {job!r}: {error}.",
            fix="Name its parameters after what they get, or give them defaults.",
        ) from None


def _parameters(function: Any) -> tuple[inspect.Parameter, ...]:
    # Some callables, such as instances of a dataclass, cannot be hashed, so they are not cached.
    read = _cached_parameters
    return read(function) if isinstance(function, Hashable) else read.__wrapped__(function)


@lru_cache(maxsize=2048)
def _cached_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Evaluate annotations. One that cannot be evaluated is left out."""
    bare: Any = function
    while isinstance(bare, partial):
        bare = bare.func
    bare = inspect.unwrap(bare)
    bare = getattr(bare, "__func__", bare)
    if not inspect.isfunction(bare):
        bare = type(bare).__call__
    try:
        return get_type_hints(bare, include_extras=True)
    except Exception:  # noqa: BLE001  # an annotation may name what exists for type checkers only
        each = getattr(bare, "__annotations__", {})
        return {name: hint for name in each if (hint := _hint(bare, name)) is not None}


def _hint(function: Any, name: str) -> object:
    only = SimpleNamespace(__annotations__={name: function.__annotations__[name]})
    try:
        return get_type_hints(only, globalns=function.__globals__, include_extras=True)[name]
    except Exception:  # noqa: BLE001  # this is the one
        return None


def _is_of(hint: object, wanted: type) -> bool:
    if isinstance(hint, str):
        # It could not be evaluated, but may still be recognized: ``"RunContext | None"``.
        return wanted.__name__ in _NAMES.findall(hint)
    return hint is wanted or (get_origin(hint) in _OUTER and wanted in get_args(hint))


def is_secret(hint: object, seen: set[type] | None = None) -> bool:
    """Whether the annotation is ``Secret``, or an item type or a field of a class in it is."""
    if isinstance(hint, str):
        return "Secret" in _NAMES.findall(hint)
    seen = set() if seen is None else seen
    parts = get_args(hint)
    if isinstance(hint, type) and hint not in seen and any(hasattr(hint, it) for it in _FIELDS):
        seen.add(hint)
        parts = (*parts, *class_hints(hint).values())
    return hint is SECRET or any(is_secret(part, seen) for part in parts)


def _bare(annotation: object) -> object:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
