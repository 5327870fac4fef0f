"""Jobs with middleware around them, for every engine."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tickwork import RunContext, Snooze, Tickwork

app = Tickwork("memory://")
inside: ContextVar[str] = ContextVar("inside", default="outside")


def write(ctx: RunContext, line: str) -> None:
    with Path(str(ctx.args["file"])).open("a") as file:
        file.write(f"{line}\n")


@app.middleware
def outer(ctx: RunContext) -> Generator[None, Any, None]:
    write(ctx, f"begin {ctx.job.removesuffix('_async')} {ctx.args['how']}")
    token = inside.set("inside")
    try:
        result = yield
    except BaseException as error:
        write(ctx, f"raised {type(error).__name__}")
        raise
    finally:
        inside.reset(token)
    write(ctx, f"returned {result}")


@app.middleware
async def inner(ctx: RunContext) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    try:
        yield
    except KeyError:
        raise Snooze(60) from None
    except ZeroDivisionError:
        pass
    finally:
        await asyncio.sleep(0)
        write(ctx, "inner")


@app.middleware
def broken(ctx: RunContext) -> Iterator[None]:
    if ctx.args["how"] == "refused":
        raise PermissionError("not now")
    if ctx.args["how"] == "no yield":
        return
    yield
    if ctx.args["how"] == "yields twice":
        yield


def leave(how: str) -> str:
    match how:
        case "value":
            raise ValueError("no")
        case "snoozed":
            raise KeyError("later")
        case "hidden":
            raise ZeroDivisionError
        case _:
            return inside.get()


loops: list[int] = []


@app.on_worker_start
async def connect() -> None:
    await asyncio.sleep(0)
    loops.append(id(asyncio.get_running_loop()))


@app.job
async def is_connected(file: str, how: str) -> bool:
    return loops == [id(asyncio.get_running_loop())]


def note(ctx: RunContext) -> None:
    write(ctx, "after")


@app.job(on_after=note)
def work(file: str, how: str) -> str:
    return leave(how)


@app.job(on_after=note)
async def work_async(file: str, how: str) -> str:
    await asyncio.sleep(0)
    return leave(how)


@app.job(timeout=0.3, on_after=note)
def waits(file: str, how: str) -> None:
    import time

    time.sleep(0.6)


@app.job(timeout=0.3, on_after=note)
async def waits_async(file: str, how: str) -> None:
    await asyncio.sleep(10)
