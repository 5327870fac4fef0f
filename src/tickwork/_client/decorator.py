"""The decorator, on top of the builder's words: both make equal specs."""

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from tickwork._client.jobs import Job
from tickwork._define.context import RunContext
from tickwork._define.options import JobOptions, options_by_name
from tickwork._domain.names import checked_name

P = ParamSpec("P")
R = TypeVar("R")

Maker = Callable[[str, Callable[..., Any], JobOptions], Job[..., Any]]


class JobDecorator:
    """``@app.job(queue="emails")``: waits for the function."""

    def __init__(self, make: Maker, name: str, options: Mapping[str, Any]) -> None:
        self._make = make
        self._name = name
        self._options = options_by_name(options)

    @overload
    def __call__(self, handler: Callable[Concatenate[RunContext, P], R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Job[P, R]: ...

    def __call__(self, handler: Callable[..., Any], /) -> Any:
        """Make a job of this function."""
        name = self._name or getattr(handler, "__name__", "")
        return self._make(checked_name("name", name, forbidden="="), handler, self._options)
