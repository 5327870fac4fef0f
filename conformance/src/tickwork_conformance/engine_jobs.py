"""Jobs of the conformance suite for engines: functions, and the same as coroutines.

Some sleep, because another process has no clock that a test could move. An engine whose handlers
run elsewhere imports this module there.
"""

import asyncio
import builtins
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tickwork._dispatch.jobs import Job
from tickwork._handlers.context import RunContext
from tickwork.app.tickwork import Tickwork


def note(n: int) -> int:
    """Return a result."""
    return 2 * n


async def note_async(n: int) -> int:
    """As note."""
    return 2 * n


def boom() -> None:
    """Fail."""
    raise ValueError("no")


async def boom_async() -> None:
    """As boom."""
    raise ValueError("no")


def raises(name: str) -> None:
    """Raise an exception of this built-in type."""
    raise getattr(builtins, name)("no")


async def raises_async(name: str) -> None:
    """As raises."""
    raise getattr(builtins, name)("no")


def too_late() -> None:
    """Exceed the timeout; it is not retried."""
    time.sleep(0.4)


async def too_late_async() -> None:
    """As too_late."""
    await asyncio.sleep(0.4)


def late() -> None:
    """Exceed the timeout."""
    time.sleep(0.4)


async def late_async() -> None:
    """As late."""
    await asyncio.sleep(0.4)


def long(seconds: float) -> str:
    """Take this long, in small steps: a process that gets SIGTERM ends between two of them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return "done"


async def long_async(seconds: float) -> str:
    """As long."""
    await asyncio.sleep(seconds)
    return "done"


def suspends(ctx: RunContext, how: str) -> str:
    """Sleep for an hour, in different ways."""
    if how == "catches_exceptions":
        with suppress(Exception):
            ctx.sleep("1h")
    elif how == "catches_everything":
        with suppress(BaseException):
            ctx.sleep("1h")
    elif how == "fails_after_it":
        try:
            ctx.sleep("1h")
        finally:
            raise ValueError("another error")
    elif how == "cleans_up":
        try:
            ctx.sleep("1h")
        finally:
            ctx.step("clean", note, 1)
    else:
        ctx.sleep("1h")
    return "it continued"


async def suspends_async(ctx: RunContext, how: str) -> str:
    """As suspends."""
    if how == "catches_exceptions":
        with suppress(Exception):
            await ctx.aio.sleep("1h")
    elif how == "catches_everything":
        with suppress(BaseException):
            await ctx.aio.sleep("1h")
    elif how == "fails_after_it":
        try:
            await ctx.aio.sleep("1h")
        finally:
            raise ValueError("another error")
    elif how == "cleans_up":
        try:
            await ctx.aio.sleep("1h")
        finally:
            await ctx.aio.step("clean", note, 1)
    else:
        await ctx.aio.sleep("1h")
    return "it continued"


def define_jobs(app: Tickwork) -> dict[str, Job[..., Any]]:
    """Define the jobs in an application, and return them by name."""
    retries = {"retry_on": OSError, "dont_retry_on": ConnectionError}
    options: dict[Callable[..., Any], dict[str, Any]] = {
        raises: {"attempts": 3, **retries},
        too_late: {"attempts": 3, "timeout": 0.1, "dont_retry_on": TimeoutError},
        late: {"timeout": 0.1},
    }
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (note, note_async),
        (boom, boom_async),
        (raises, raises_async),
        (too_late, too_late_async),
        (late, late_async),
        (long, long_async),
        (suspends, suspends_async),
    ]
    return {
        function.__name__: app.job(**options.get(pair[0], {}))(function)
        for pair in pairs
        for function in pair
    }


app = Tickwork(os.environ.get("TICKWORK_CONFORMANCE_URL", "memory://"))
define_jobs(app)
