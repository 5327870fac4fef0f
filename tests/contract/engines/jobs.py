"""Jobs for every engine: functions, and the same as coroutines.

Some sleep, because a child process has no clock that a test could move.
"""

import asyncio
import os
import time

from tickwork import Tickwork

app = Tickwork("memory://")


@app.job
def note(n: int) -> int:
    return 2 * n


@app.job
def boom() -> None:
    raise ValueError("no")


@app.job
def long(seconds: float) -> str:
    # In small steps, so that a process that gets SIGTERM ends between two of them.
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return "done"


@app.job(timeout=0.1)
def late() -> None:
    time.sleep(0.4)


@app.job(timeout=0.1)
def ignores_its_timeout() -> None:
    time.sleep(2)


@app.job
def dies() -> None:
    os._exit(7)


@app.job
async def note_too(n: int) -> int:
    return 2 * n


@app.job
async def boom_too() -> None:
    raise ValueError("no")


@app.job
async def long_too(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@app.job(timeout=0.1)
async def late_too() -> None:
    await asyncio.sleep(0.4)
