"""The functions of ``tickwork.testing`` for async tests: ``await testing.aio.drain(app)``.

Each runs in another thread, so that the event loop of the test is free. Coroutine handlers run on
that loop, and can use the connections and sessions of the test.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from tickwork._kernel.instants import When
from tickwork.app.tickwork import Tickwork
from tickwork.testing import assertions
from tickwork.testing import drain as drains
from tickwork.testing import travel as travels
from tickwork.testing.assertions import DispatchedRun
from tickwork.testing.drain import LIMIT, DrainResult
from tickwork.testing.loop_store import wait_on

P = ParamSpec("P")
T = TypeVar("T")


async def drain(app: Tickwork, *, limit: int = LIMIT) -> DrainResult:
    """As :func:`tickwork.testing.drain`."""
    return await _call(app, lambda: drains.drain(app, limit=limit))


async def travel(
    app: Tickwork,
    length: timedelta | float | str = 0,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    limit: int = LIMIT,
) -> DrainResult:
    """As :func:`tickwork.testing.travel`."""
    return await _call(
        app,
        lambda: travels.travel(
            app,
            length,
            days=days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            limit=limit,
        ),
    )


async def travel_to(app: Tickwork, moment: When, *, limit: int = LIMIT) -> DrainResult:
    """As :func:`tickwork.testing.travel_to`."""
    return await _call(app, lambda: travels.travel_to(app, moment, limit=limit))


async def dispatched(app: Tickwork, job: Any = None) -> list[DispatchedRun]:
    """As :func:`tickwork.testing.dispatched`."""
    return await _call(app, lambda: assertions.dispatched(app, job))


async def assert_dispatched(
    app: Tickwork,
    job: Any,
    *,
    times: int | None = None,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    at: When | None = None,
    tenant: str | None = None,
) -> list[DispatchedRun]:
    """As :func:`tickwork.testing.assert_dispatched`."""
    __tracebackhide__ = True
    return await _call(
        app,
        lambda: assertions.assert_dispatched(
            app, job, times=times, args=args, queue=queue, at=at, tenant=tenant
        ),
    )


async def assert_not_dispatched(
    app: Tickwork,
    job: Any,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    at: When | None = None,
    tenant: str | None = None,
) -> None:
    """As :func:`tickwork.testing.assert_not_dispatched`."""
    __tracebackhide__ = True
    await _call(
        app,
        lambda: assertions.assert_not_dispatched(
            app, job, args=args, queue=queue, at=at, tenant=tenant
        ),
    )


async def assert_nothing_dispatched(app: Tickwork) -> None:
    """As :func:`tickwork.testing.assert_nothing_dispatched`."""
    __tracebackhide__ = True
    await _call(app, lambda: assertions.assert_nothing_dispatched(app))


async def _call(app: Tickwork, function: Callable[[], T]) -> T:
    __tracebackhide__ = True
    wait = wait_on(asyncio.get_running_loop())
    services = app._services

    def call() -> T:
        passes = services.passes  # built here: that may wait for the database
        if services.bridge.is_in_transaction:
            return function()  # coroutines need this thread, too: it executes them itself
        outer, passes.wait_for = passes.wait_for, wait
        try:
            return function()
        finally:
            passes.wait_for = outer

    return await services.bridge.call_in_new_thread(call)
