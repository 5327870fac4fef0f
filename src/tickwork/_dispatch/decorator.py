"""``@app.job``: makes a job of a function. Decorator and builder make equal specs."""

# The first overload that matches wins, on purpose.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from tickwork._define.options import JobOptions, options_by_name
from tickwork._dispatch.jobs import Job
from tickwork._domain.names import check_name
from tickwork._handlers.handler_types import (
    OpenClass,
    OpenFunction,
    PlainClass,
    PlainFunction,
    RunClass,
    RunFunction,
)
from tickwork._handlers.handlers import place_of_caller
from tickwork.errors import DefinitionError, InvalidOption

P = ParamSpec("P")
R = TypeVar("R")

MakeJob = Callable[[str, Callable[..., Any], JobOptions], Job[..., Any]]


class JobDecorator:
    """What ``@app.job(queue="emails")`` returns: it is called with the function."""

    def __init__(
        self, make: MakeJob, name: str, options: Mapping[str, Any], defaults: JobOptions
    ) -> None:
        self._make = make
        self._name = name
        try:
            self._options = options_by_name(options, defaults)
        except DefinitionError as error:
            error.name_job(name, place_of_caller())
            raise

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
        if name == "<lambda>":
            raise InvalidOption(
                "name",
                name,
                "must be a name: a lambda has none",
                fix="Name the job: app.job(name='report')(lambda: ...).",
            )
        return self._make(check_name("name", name, forbidden="="), handler, self._options)
