"""The kinds of handlers, for type checkers: what a dispatch of each of them takes.

The order in which a function's overloads name them decides. A handler whose first argument
may be anything would pass for one that takes the context, and lose that argument; it is
recognised by taking :class:`Nobody`, which no handler names, and its dispatch is not checked.
"""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from tickwork._define.context import RunContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Nobody:
    """What no handler takes, unless it takes anything."""


class HandlesAnything(Protocol[R_co]):
    """``handle`` with a first argument of no particular type."""

    def handle(self, anything: Nobody, /, *args: Any, **kwargs: Any) -> R_co:
        """Do the work."""
        ...


class ExecutesAnything(Protocol[R_co]):
    """``execute`` with a first argument of no particular type."""

    def execute(self, anything: Nobody, /, *args: Any, **kwargs: Any) -> R_co:
        """Do the work."""
        ...


class HandlesRun(Protocol[P, R_co]):
    """``handle`` with the context first."""

    def handle(self, ctx: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Do the work."""
        ...


class ExecutesRun(Protocol[P, R_co]):
    """``execute`` with the context first."""

    def execute(self, ctx: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Do the work."""
        ...


class Handles(Protocol[P, R_co]):
    """``handle`` with arguments of its own."""

    def handle(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Do the work."""
        ...


class Executes(Protocol[P, R_co]):
    """``execute`` with arguments of its own."""

    def execute(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Do the work."""
        ...


OpenClass: TypeAlias = type[HandlesAnything[R]] | type[ExecutesAnything[R]]
RunClass: TypeAlias = type[HandlesRun[P, R]] | type[ExecutesRun[P, R]]
PlainClass: TypeAlias = type[Handles[P, R]] | type[Executes[P, R]]
OpenFunction: TypeAlias = Callable[Concatenate[Nobody, ...], R]
RunFunction: TypeAlias = Callable[Concatenate[RunContext, P], R]
PlainFunction: TypeAlias = Callable[P, R]
