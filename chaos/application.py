"""The application under test: every kind of job and schedule, in two versions.

Handlers record in the journal when they begin and end, and under which token. They put a nonce
into everything they write, so that the checker knows which attempt wrote it.

The driver can make the wall clock wrong by the seconds in the file CHAOS_CLOCK: that of one worker,
or on SQLite that of all processes.
"""

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from chaos.databases import connect, with_placeholders
from chaos.journal import AttemptJournal, own_journal
from chaos.workload import ANCHOR, GRACE, LEASE
from tickwork import RunContext, Snooze, Tickwork
from tickwork._kernel.clock import SystemClock

URL: Final = os.environ["CHAOS_URL"]
VERSION: Final = int(os.environ.get("CHAOS_VERSION", "1"))
START: Final = datetime.fromtimestamp(ANCHOR, UTC)

journal: Final = own_journal()
_is_engine_child: Final = sys.argv[0].endswith("child.py")
_worker: Final = {"worker_pid": int(sys.argv[2])} if _is_engine_child else {}
"""In a child process of the process engine: the worker for which it makes attempts."""
attempt: Final = AttemptJournal(journal, **_worker).attempt


def _patch_clock() -> None:
    path = os.environ.get("CHAOS_CLOCK")
    if path is None:
        return
    right = SystemClock.now

    def wrong(clock: SystemClock) -> datetime:
        seconds = float(Path(path).read_text(encoding="ascii") or 0)
        return right(clock) + timedelta(seconds=seconds)

    SystemClock.now = wrong  # type: ignore[method-assign, assignment]


_patch_clock()
app: Final = Tickwork(URL, handler_paths=["chaos"])


def work(ctx: RunContext, seconds: float, save: Callable[[], object] = lambda: None) -> None:
    """Work for so long or until the run is canceled; call ``save`` now and then."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.3))
        save()  # first, so that a worker that was frozen in the meantime tries to write
        if ctx.is_canceled():
            return


def _stop_loop() -> None:
    """Stop the event loop once, or so often that the worker has to be replaced."""
    request = Path(os.environ["CHAOS_LOOP"])
    try:
        how = request.read_text(encoding="ascii")
        request.unlink()  # one attempt does it
    except FileNotFoundError:
        return
    journal.write("loop stopped", how=how)
    loop = asyncio.get_running_loop()
    if how == "once":
        loop.call_soon(sys.exit, 3)
        return

    def stop_often() -> None:
        # In a thread of its own: the worker cannot know of which run this code is.
        with suppress(RuntimeError):  # until the loop is closed
            while True:
                loop.call_soon_threadsafe(sys.exit, 3)
                time.sleep(0.02)

    threading.Thread(target=stop_often, daemon=True).start()


def job(**options: Any) -> Callable[[Any], Any]:
    return app.job(**{"lease": LEASE, "crashes": 1_000, **options})


# ---------------------------------------------------------------- dispatched


@job()
def plain(uid: str, seconds: float = 0.0) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(seconds)
        return {"nonce": nonce}


@job(retries={"max": 50, "base": 0.05, "cap": 0.2})
def slow(ctx: RunContext, uid: str, seconds: float) -> Any:
    with attempt(uid=uid) as nonce:
        # Each one differs, so that the checker sees a late write of the same attempt.
        numbers = itertools.count()
        work(ctx, seconds, lambda: ctx.checkpoint({"nonce": nonce, "number": next(numbers)}))
        return {"nonce": nonce}


@job()
async def coroutine(uid: str, seconds: float) -> Any:
    with attempt(uid=uid) as nonce:
        await asyncio.sleep(seconds)
        return {"nonce": nonce}


@job(retries={"max": 50, "base": 0.05, "cap": 0.2})
async def loop_stopper(uid: str, seconds: float) -> Any:
    """Stop the event loop of its worker, if the driver requested it."""
    with attempt(uid=uid) as nonce:
        _stop_loop()
        await asyncio.sleep(seconds)
        return {"nonce": nonce}


@job(engine="process", retries={"max": 50, "base": 0.05, "cap": 0.2})
def isolated(uid: str, seconds: float) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(seconds)
        return {"nonce": nonce}


@job()
def edited(uid: str) -> Any:
    """Its rows are edited before they are claimed, as another program might."""
    with attempt(uid=uid) as nonce:
        return {"nonce": nonce}


@job(retries={"max": 4, "base": 0.1, "cap": 0.3})
def flaky(ctx: RunContext, uid: str, fail_first: int) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(0.02)
        if ctx.attempt <= fail_first:
            raise RuntimeError(f"failed as planned {nonce}")
        return {"nonce": nonce}


@job(retries={"max": 50, "base": 0.05, "cap": 0.2})
def snoozer(ctx: RunContext, uid: str, times: int) -> Any:
    with attempt(uid=uid) as nonce:
        slept = (ctx.checkpoint() or {"times": 0})["times"]
        if slept < times:
            ctx.checkpoint({"times": slept + 1, "nonce": nonce})
            raise Snooze(0.2, f"not now {nonce}")
        return {"nonce": nonce}


@job(crashes=3)
def fragile(ctx: RunContext, uid: str, seconds: float) -> Any:
    with attempt(uid=uid) as nonce:
        work(ctx, seconds)
        return {"nonce": nonce}


@job(queue="ranked")
def ranked(uid: str) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(0.4)
        return {"nonce": nonce}


@job(concurrency=2)
def narrow(uid: str) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(0.15)
        return {"nonce": nonce}


@job(queue="lane", concurrency={"slots": 3, "per": "queue"})
def lane_a(uid: str) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(0.1)
        return {"nonce": nonce}


@job(queue="lane", concurrency={"slots": 3, "per": "queue"}, retries={"max": 4, "delay": 0.1})
def lane_b(uid: str) -> Any:
    with attempt(uid=uid) as nonce:
        time.sleep(0.1)
        return {"nonce": nonce}


@job(concurrency=[4, {"slots": 1, "per": "account"}])
def account(uid: str, account: int) -> Any:
    with attempt(uid=uid, account=account) as nonce:
        time.sleep(0.1)
        return {"nonce": nonce}


@job(rate={"count": 3, "per": "second"})
def metered(uid: str) -> Any:
    with attempt(uid=uid) as nonce:
        return {"nonce": nonce}


@job(unique={"by": "key"})
def single(uid: str, key: int) -> Any:  # noqa: ARG001  # the unique key
    with attempt(uid=uid) as nonce:
        time.sleep(0.3)
        return {"nonce": nonce}


@job(unique={"by": "key", "within": 2.0})
def windowed(uid: str, key: int) -> Any:  # noqa: ARG001  # as above
    with attempt(uid=uid) as nonce:
        return {"nonce": nonce}


@job(retries={"max": 30, "base": 0.05, "cap": 0.3})
def charge(ctx: RunContext, uid: str, roll_back_first: int) -> Any:
    """Complete the run in the transaction of its own write: both, or neither."""
    with attempt(uid=uid) as nonce, closing(connect(URL)) as connection:
        cursor = connection.cursor()
        cursor.execute(
            with_placeholders("INSERT INTO chaos_effect (run, token, nonce) VALUES (?, ?, ?)", URL),
            (str(ctx.run_id), ctx.token, nonce),
        )
        try:
            ctx.complete(connection=connection, result={"nonce": nonce})
        except BaseException:
            connection.rollback()
            raise
        if ctx.attempt <= roll_back_first:
            connection.rollback()
            raise RuntimeError(f"rolled back as planned {nonce}")
        connection.commit()


# ---------------------------------------------------------------- scheduled


def _record(seconds: float = 0.0) -> Any:
    with attempt() as nonce:
        time.sleep(seconds)
        return {"nonce": nonce}


def _work_long(ctx: RunContext) -> Any:
    with attempt() as nonce:
        work(ctx, 5.0)
        return {"nonce": nonce}


def _schedule(name: str, handler: Callable[..., Any] = _record, **args: Any) -> Any:
    return app.schedule(name, handler).lease(LEASE).crashes(1_000).args(**args)


def define_schedules() -> None:
    _schedule("second").every_second().overlap("allow")
    _schedule("even", seconds=0.9).cron("*/2 * * * * *")
    _schedule("third", seconds=0.8).every(seconds=3, starting=START).overlap("queue_all")
    _schedule("caught_up").every(seconds=1, starting=START).overlap("allow").misfire(
        "all", grace=GRACE
    )
    _schedule("dropped").every_second().overlap("allow").misfire("skip", grace=GRACE)
    _schedule("queued_one", seconds=1.2).every_second().overlap("queue_one")
    _schedule("replaced", _work_long).cron("*/4 * * * * *").overlap("cancel_running")
    tempo = _schedule("tempo").overlap("allow")
    if VERSION == 1:
        tempo.every_second()
    else:
        tempo.every_two_seconds().priority(50)
        _schedule("novel").every_two_seconds().overlap("allow")


@job()
def tenants() -> Any:
    return _record()


define_schedules()
