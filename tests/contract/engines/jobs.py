"""More jobs for every engine: functions, and the same as coroutines.

Some sleep, because a child process has no clock that a test could move.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tickwork import JobResult, RetryLater, RunContext, Secret, Snooze, Tickwork, current_run
from tickwork_conformance.engine_jobs import define_jobs

app = Tickwork("memory://")
note = define_jobs(app)["note"]


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


@app.job
async def forks_and_waits_as_a_coroutine(how: str) -> int:
    pid = os.fork()
    if pid == 0:
        forked_part(how, 0)
        return 77
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222  # nothing else runs here


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
def tells(token: Secret[str]) -> None:
    logging.getLogger("shop").warning("sent %s", token)


@app.job
def logs_in_a_fork() -> int:
    pid = os.fork()
    logging.getLogger("shop").warning("forked" if pid == 0 else "ours")
    return 77 if pid == 0 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


USER: ContextVar[str] = ContextVar("user", default="")


@app.job
async def sets_a_variable_async(name: str) -> str:
    before = USER.get()
    USER.set(name)
    await asyncio.sleep(0)
    return before + USER.get()


@app.job
async def ignores_a_cancel_async() -> str:
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        return "went on"
    return "was not canceled"


class HookNotes:
    """Hooks that note in the file of the argument ``file`` what they were called with."""

    @staticmethod
    def write(ctx: RunContext, line: str) -> None:
        with Path(str(ctx.args["file"])).open("a") as file:
            file.write(f"{line}\n")

    @classmethod
    def success(cls, ctx: RunContext, result: object) -> None:
        cls.write(ctx, f"success {result}")

    @classmethod
    def error(cls, ctx: RunContext, error: BaseException) -> None:
        cls.write(ctx, f"error {type(error).__name__}")

    @classmethod
    async def after(cls, ctx: RunContext, outcome: object) -> None:
        cls.write(ctx, f"after {type(outcome).__name__}")


def hooked(**options: Any) -> Any:
    """Define a job with all hooks."""
    return app.job(
        on_success=HookNotes.success, on_error=HookNotes.error, on_after=HookNotes.after, **options
    )


def leave(how: str) -> object:
    """Leave a handler as the name says."""
    match how:
        case "value":
            raise ValueError("no")
        case "exit":
            raise SystemExit(3)
        case "generator":
            raise GeneratorExit
        case "retry":
            raise RetryLater(1)
        case "delay":
            raise RetryLater("soon")
        case "canceled":
            raise asyncio.CancelledError
        case "reported":
            return JobResult.failure("out of paper")
        case "snooze":
            raise Snooze(60)
        case _:
            return how


@hooked()
def leaves(file: str, how: str) -> object:
    return leave(how)


@hooked()
async def leaves_async(file: str, how: str) -> object:
    return leave(how)


@hooked(timeout=0.3)
def overdue(file: str) -> None:
    time.sleep(0.8)


@hooked(timeout=0.3)
async def overdue_async(file: str) -> None:
    await asyncio.sleep(5)


@hooked(timeout=0.1)
def raises_when_late(file: str, seconds: float) -> None:
    time.sleep(seconds)
    raise ValueError("late")


@hooked()
def polls(file: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and not current().is_canceled():
        time.sleep(0.01)


@hooked()
async def polls_async(file: str) -> None:
    await asyncio.sleep(20)


@hooked()
def aborts(file: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if current().is_canceled():
            raise InterruptedError("stop")
        time.sleep(0.01)


@hooked()
async def aborts_async(file: str) -> None:
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        raise InterruptedError("stop") from None


@app.job
async def aborts_without_hooks() -> None:
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        raise InterruptedError("stop") from None


@app.job
async def blocks_the_loop(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  # as a program must not


@hooked()
def sleeps(file: str, seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@hooked()
async def sleeps_async(file: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


def sleep_in_a_hook(ctx: RunContext) -> None:
    time.sleep(1.4)


async def sleep_in_a_hook_async(ctx: RunContext) -> None:
    await asyncio.sleep(1.4)


@app.job(
    timeout=1.0,
    on_success=[HookNotes.success, sleep_in_a_hook],
    on_error=HookNotes.error,
    on_after=HookNotes.after,
)
def has_a_slow_hook(file: str) -> None: ...


@app.job(
    timeout=1.0,
    on_success=[HookNotes.success, sleep_in_a_hook_async],
    on_error=HookNotes.error,
    on_after=HookNotes.after,
)
async def has_a_slow_hook_async(file: str) -> None: ...


@app.job(on_success=[lambda ctx: ctx.then(note, n=1), lambda: os._exit(3)])
def dies_in_a_hook() -> str:
    current().then(note, n=0)
    return "done"


@hooked()
def is_killed(file: str, how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def follow_up(how: str) -> object:
    current().then(note, n=1)
    current().then(note.delay("5m"), n=2)
    if how == "dies":
        os._exit(3)
    return leave(how)


@app.job
def follows(how: str) -> object:
    return follow_up(how)


@app.job
async def follows_async(how: str) -> object:
    return follow_up(how)


@app.job(on_success=lambda ctx: ctx.then(note, n=3))
def follows_with_hooks(how: str) -> object:
    return follow_up(how)


@app.job(on_success=lambda ctx: ctx.then(note, n=3))
async def follows_with_hooks_async(how: str) -> object:
    return follow_up(how)


def current() -> RunContext:
    ctx = current_run()
    assert ctx is not None
    return ctx


def interrupt() -> None:
    raise KeyboardInterrupt


async def leave_with_status() -> None:
    sys.exit(3)


BACKGROUND: set[asyncio.Task[None]] = set()


def stop_loop(how: str) -> None:
    """Stop the event loop of the calling coroutine as the name says."""
    loop = asyncio.get_running_loop()
    match how:
        case "exits in a callback":
            loop.call_soon(sys.exit, 3)
        case "exits in a timer":
            loop.call_later(0.01, sys.exit, 3)
        case "exits in a task":
            BACKGROUND.add(asyncio.create_task(leave_with_status()))
        case "interrupts in a callback":
            loop.call_soon(interrupt)
        case "stops in a callback":
            loop.call_soon(loop.stop)
        case _:
            loop.stop()


@app.job
async def stops_the_loop_async(how: str, seconds: float) -> str:
    stop_loop(how)
    await asyncio.sleep(seconds)
    return "went on"


@hooked()
async def stops_the_loop_with_hooks_async(file: str, how: str) -> None:
    stop_loop(how)
    await asyncio.sleep(20)


@app.job
def shows_its_start() -> dict[str, object]:
    return {
        "variable": os.environ.get("TICKWORK_TEST_VARIABLE"),
        "recursion": sys.getrecursionlimit(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "has_path": "/tickwork/test/path" in sys.path,
    }
