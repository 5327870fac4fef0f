"""Jobs for every engine: functions, and the same as coroutines.

Some sleep, because a child process has no clock that a test could move.
"""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

from tickwork import RunContext, Tickwork

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


def forked_part(how: str, seconds: float) -> str:
    """What a forked process does: it leaves the handler as the name says."""
    time.sleep(seconds)
    if how == "raises":
        raise ValueError("in the forked process")
    if how == "exits":
        sys.exit("in the forked process")
    return "the forked process"


@app.job
def forks(how: str, seconds: float) -> str:
    return forked_part(how, seconds) if os.fork() == 0 else "the handler"


@app.job
async def forks_as_a_coroutine(how: str, seconds: float) -> str:
    return forked_part(how, seconds) if os.fork() == 0 else "the handler"


@app.job
def forks_and_waits(how: str) -> int:
    pid = os.fork()
    if pid == 0:
        forked_part(how, 0)
        return 77
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def note_process(ctx: RunContext) -> None:
    with Path(str(ctx.args["file"])).open("a") as file:
        file.write(f"{os.getpid()}\n")


@app.job(on_after=note_process)
def forks_with_a_hook(file: str, how: str) -> int:
    pid = os.fork()
    if pid == 0:
        forked_part(how, 0)
        return 77
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.job
def logs_in_a_fork() -> int:
    pid = os.fork()
    logging.getLogger("shop").warning("forked" if pid == 0 else "ours")
    return 77 if pid == 0 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


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
