"""The kinds of handlers, for type checkers: which arguments a dispatch of each of them takes.

The order of the overloads in ``decorator.py`` matters. A handler whose first parameter has no
annotation would also match the types for handlers that take the context, and dispatches would lose
that parameter. The types with :class:`Unnamed` come first and match only such handlers, because no
other handler accepts an ``Unnamed``. Type checkers do not check their dispatches.
"""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from tickwork._handlers.context import RunContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Unnamed:
    """No annotation names this type, so only a parameter without annotation accepts it."""


class HandlesAnything(Protocol[R_co]):
    """``handle`` with a first argument of no particular type."""

    def handle(self, anything: Unnamed, /, *args: Any, **kwargs: Any) -> R_co: ...


class ExecutesAnything(Protocol[R_co]):
    """``execute`` with a first argument of no particular type."""

    def execute(self, anything: Unnamed, /, *args: Any, **kwargs: Any) -> R_co: ...


class HandlesRun(Protocol[P, R_co]):
    """``handle`` with the context first."""

    def handle(self, ctx: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class ExecutesRun(Protocol[P, R_co]):
    """``execute`` with the context first."""

    def execute(self, ctx: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Handles(Protocol[P, R_co]):
    """``handle`` with arguments of its own."""

    def handle(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Executes(Protocol[P, R_co]):
    """``execute`` with arguments of its own."""

    def execute(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


OpenClass: TypeAlias = type[HandlesAnything[R]] | type[ExecutesAnything[R]]
RunClass: TypeAlias = type[HandlesRun[P, R]] | type[ExecutesRun[P, R]]
PlainClass: TypeAlias = type[Handles[P, R]] | type[Executes[P, R]]
OpenFunction: TypeAlias = Callable[Concatenate[Unnamed, ...], R]
RunFunction: TypeAlias = Callable[Concatenate[RunContext, P], R]
PlainFunction: TypeAlias = Callable[P, R]
