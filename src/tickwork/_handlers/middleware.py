"""Middleware: generator functions that run around every attempt."""

from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isasyncgenfunction, isgeneratorfunction, signature
from typing import Any, NamedTuple, TypeAlias

from tickwork._handlers.context import RunContext
from tickwork._handlers.handlers import path_of
from tickwork.errors import DefinitionError

Middleware: TypeAlias = Callable[[RunContext], Iterator[None] | AsyncIterator[None]]
"""It yields once, and the attempt runs there. ``yield`` returns the result, or raises."""


class MiddlewarePair(NamedTuple):
    """What wraps attempts in threads, and what wraps those on the event loop of a worker."""

    in_thread: Middleware
    on_loop: Middleware


def is_async_middleware(middleware: Any) -> bool:
    return isasyncgenfunction(middleware) or isasyncgenfunction(
        getattr(middleware, "__call__", None)  # noqa: B004  # an instance with an async __call__
    )


def check_middleware(middleware: Any) -> None:
    """Check that a function can be a middleware.

    Raises:
        DefinitionError: It does not yield, or does not take exactly the context.
    """
    is_generator = isgeneratorfunction(middleware) or isgeneratorfunction(
        getattr(middleware, "__call__", None)  # noqa: B004  # as above
    )
    if not is_generator and not is_async_middleware(middleware):
        raise DefinitionError(
            f"{path_of(middleware)} cannot be a middleware: it does not yield.",
            why="A middleware is a generator function: the attempt runs at its yield.",
            fix="Write `def timing(ctx): ...; yield; ...`, or the same with `async def`.",
        )
    try:
        signature(middleware).bind(None)
    except TypeError:
        raise DefinitionError(
            f"{path_of(middleware)} cannot be a middleware: it must take one argument.",
            fix="Its argument is the context of the run: `def timing(ctx): ...`.",
        ) from None
