"""Tells async connections of a program from others."""

from inspect import iscoroutinefunction, unwrap


def is_async_connection(connection: object) -> bool:
    """Whether the methods of this connection must be awaited. No driver is loaded to find out."""
    # A pool hands out proxies, whose methods are wrapped.
    methods = [getattr(type(connection), name, None) for name in ("execute", "commit")]
    return any(iscoroutinefunction(unwrap(each)) for each in methods if callable(each))
