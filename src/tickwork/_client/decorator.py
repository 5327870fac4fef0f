"""The decorator, on top of the builder's words: both make equal specs."""

# Of the overloads of a function what comes first decides, as it is meant to.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ParamSpec, TypeAlias, TypedDict, TypeVar, overload

from tickwork._client.jobs import Job
from tickwork._define.handler_types import (
    OpenClass,
    OpenFunction,
    PlainClass,
    PlainFunction,
    RunClass,
    RunFunction,
)
from tickwork._define.options import Hook, JobOptions, Length, options_by_name
from tickwork._domain.job import EngineKind, Misfire, Overlap
from tickwork._domain.names import checked_name

P = ParamSpec("P")
R = TypeVar("R")

Maker = Callable[[str, Callable[..., Any], JobOptions], Job[..., Any]]

ByName: TypeAlias = Mapping[str, Any]
"""A word's arguments: ``retries={"max": 5, "base": 2}``."""
Hooks: TypeAlias = Hook | Sequence[Hook]
Texts: TypeAlias = str | Sequence[str] | AbstractSet[str]


class JobKeywords(TypedDict, total=False):
    """The words of the builder, as options of the decorator."""

    aliases: Texts
    args: Mapping[str, Any]
    concurrency: int | ByName | Sequence[int | ByName]
    crashes: int
    engine: EngineKind | str
    expires: Length
    jitter: Length
    lease: Length
    misfire: Misfire | str | ByName
    on_after: Hooks
    on_before: Hooks
    on_error: Hooks
    on_success: Hooks
    overlap: Overlap | str
    priority: int
    queue: str
    rate: str | ByName | Sequence[str | ByName]
    retries: int | ByName
    skip: Hooks
    tags: Texts
    timeout: Length
    unique: bool | str | ByName
    when: Hooks


class JobDecorator:
    """``@app.job(queue="emails")``: waits for the function."""

    def __init__(self, make: Maker, name: str, options: Mapping[str, Any]) -> None:
        self._make = make
        self._name = name
        self._options = options_by_name(options)

    @overload
    def __call__(self, handler: OpenClass[R], /) -> Job[..., R]: ...
    @overload
    def __call__(self, handler: RunClass[P, R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, handler: PlainClass[P, R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, handler: OpenFunction[R], /) -> Job[..., R]: ...
    @overload
    def __call__(self, handler: RunFunction[P, R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, handler: PlainFunction[P, R], /) -> Job[P, R]: ...

    def __call__(self, handler: Any, /) -> Any:
        """Make a job of this function or class."""
        name = self._name or getattr(handler, "__name__", "")
        return self._make(checked_name("name", name, forbidden="="), handler, self._options)
