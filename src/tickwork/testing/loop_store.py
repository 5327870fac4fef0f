"""A store on an async connection of a test. Threads call it; the test's event loop executes it."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from typing import Any, NoReturn, TypeVar

from tickwork._engines.local.event_loop import limit_time
from tickwork._stores._sql.statement import Operation
from tickwork._stores.contract import Store
from tickwork.errors import SchemaMissing, TickworkError

T = TypeVar("T")


def store_on_loop(store: Any, connection: object, loop: asyncio.AbstractEventLoop) -> Store:
    """A copy of a store that executes every operation on this connection, on this loop.

    A thread that calls a method waits for the loop, so code on the loop must not call one.
    """
    runs = store.using_async(connection)
    turn = asyncio.Lock()  # a connection executes one operation at a time

    async def execute(begin: Callable[[], Operation[T]]) -> T:
        async with turn:
            result: T = await runs._write(begin)
            return result

    def run(operation: Callable[..., Operation[T]], *args: Any, **kwargs: Any) -> T:
        reject_own_loop(loop)
        begin = partial(operation, store.query, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(execute(begin), loop).result()

    def install() -> NoReturn:
        raise SchemaMissing(store.url)

    bound_store: Store = copy(store)
    # The dialects run every operation with these two methods.
    vars(bound_store).update(
        _write=run,
        _read=run,
        install=install,
        using=store.using,
        using_async=store.using_async,
        database_time=store.database_time,
        close=lambda: None,
    )
    return bound_store


def wait_on(loop: asyncio.AbstractEventLoop) -> Callable[[Awaitable[Any], float | None], Any]:
    """Run awaitables of another thread on this loop."""

    def wait(awaitable: Awaitable[Any], seconds: float | None) -> Any:
        return asyncio.run_coroutine_threadsafe(limit_time(awaitable, seconds), loop).result()

    return wait


def reject_own_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise when the caller runs on this loop, which would wait for itself forever."""
    try:
        is_own = asyncio.get_running_loop() is loop
    except RuntimeError:
        return
    if is_own:
        raise TickworkError(
            "This call would block the event loop of the test.",
            why="The application uses an async connection, and only this loop can execute it.",
            fix="Await it: app.aio.dispatch(...), testing.aio.drain(app).",
        )
