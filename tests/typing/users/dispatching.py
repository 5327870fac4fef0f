"""What a dispatch takes and gives, for type checkers."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import aiosqlite
import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from tickwork import JobResult, RunContext, RunStatus, Tickwork
from tickwork._control.locks import Lock
from tickwork._dispatch.jobs import OpenDraft
from tickwork._dispatch.runs import RunHandle
from tickwork._domain.runs.run import Run
from tickwork._stores.contract import Attempt, LogLine, Pruned

app = Tickwork("memory://")


@app.job
def send(to: str, subject: str = "hello", *, urgent: bool = False) -> int:
    return len(to)


@app.job
def report(ctx: RunContext, account: int) -> int:
    return account


@app.job
def order(ctx: RunContext, number: int) -> None:
    ctx.then(send, "ann")
    ctx.then(send.delay("5m").queue("slow"), to="ann", urgent=True)
    ctx.then(report, account=3)
    ctx.then("another", anything=1)
    ctx.then(send)  # expect: call-overload
    ctx.then(send, to=3)  # expect: call-overload
    ctx.then(report, ctx, 3)  # expect: call-overload


# ---------------------------------------------------------------- the handler's own arguments

assert_type(send.dispatch("ann"), RunHandle[int])
send.dispatch(to="ann")
send.dispatch("ann", "bye")
send.dispatch("ann", subject="bye", urgent=True)
send.dispatch()  # expect: call-arg
send.dispatch(7)  # expect: arg-type
send.dispatch(to=None)  # expect: arg-type
send.dispatch("ann", "bye", True)  # expect: call-arg
send.dispatch("ann", urgent="very")  # expect: arg-type
send.dispatch("ann", delay=10)  # expect: call-arg
send.dispatch("ann", to="bob")  # expect: misc
report.dispatch(7)
report.dispatch()  # expect: call-arg

assert_type(send.dispatch_many([{"to": "ann"}]), list[RunHandle[int]])
send.dispatch_many({"to": str(number)} for number in range(3))
send.dispatch_many(["ann"])  # expect: list-item

# ---------------------------------------------------------------- drafts keep the signature

draft = send.delay(10).queue("slow").priority(5).tags("a", "b").tenant("acme").target("o-1")
draft = draft.at(datetime(2030, 1, 1, tzinfo=UTC)).expires("1h").unique("key", within="1h")
draft = draft.unique(by=["to"]).args(to="ann")
draft = draft.unique(on_conflict="replace").debounce("10s", max=timedelta(minutes=2), by="to")
assert_type(draft.dispatch("ann"), RunHandle[int])
draft.dispatch("ann", urgent=True)
draft.dispatch(7)  # expect: arg-type
draft.dispatch("ann", unknown=1)  # expect: call-arg
send.delay(timedelta(seconds=5)).dispatch("ann")
send.delay("5m").at("2030-01-01T00:00:00Z").dispatch("ann")
send.delay(None)  # expect: arg-type
send.at(5)  # expect: arg-type
send.priority("high")  # expect: arg-type
report.delay(5).dispatch("seven")  # expect: arg-type

# ---------------------------------------------------------------- without a job yet

open_draft = app.args(kind="daily").queue("q")
assert_type(open_draft, OpenDraft)
assert_type(open_draft.dispatch("report", account=7), RunHandle[Any])
open_draft.dispatch(report, 7)
assert_type(app.dispatch("report", 7), RunHandle[Any])
app.dispatch(send, to="ann")
app.dispatch(7)  # expect: arg-type
assert_type(app.draft.dispatch_many("report", [{"account": 7}]), list[RunHandle[Any]])

# ---------------------------------------------------------------- methods of a run

run = send.dispatch("ann")
assert_type(run.id + "", str)
assert_type(run.is_new, bool)
assert_type(run.status, RunStatus)
assert_type(run.read(), Run)
assert_type(run.wait(timeout=30), RunStatus)
assert_type(run.result("30s"), int)
assert_type(run.cancel("not needed"), bool)
assert_type(run.retry(), RunHandle[int])
assert_type(run.delay(60), RunHandle[int])
assert_type(run.at("2030-01-01T00:00:00Z"), RunHandle[int])
assert_type(run.attempts(), list[Attempt])
assert_type(run.log(), list[LogLine])
assert_type(app.get_run("019cb0d2-0000-7000-8000-000000000001"), RunHandle[Any])
assert_type(app.due(), list[Run])
assert_type(app.execute(run.id), RunHandle[Any])
assert_type(app.run(), int)
run.wait(timeout=[])  # expect: arg-type
run.wait(5, 6)  # expect: call-arg


# ---------------------------------------------------------------- your own transaction


def with_plain_connections(one: sqlite3.Connection, other: psycopg.Connection[Any]) -> None:
    assert_type(send.using(one).dispatch("ann"), RunHandle[int])
    assert_type(send.using(other).dispatch("ann"), RunHandle[int])
    assert_type(send.delay(5).using(one).queue("q").dispatch("ann"), RunHandle[int])
    assert_type(app.draft.using(other).dispatch("send", to="ann"), RunHandle[Any])
    assert_type(app.schedule("s", send_text).using(one).dispatch("ann"), RunHandle[None])
    send.using(one).dispatch(7)  # expect: arg-type
    send.using("jobs.db")  # expect: call-overload


def with_sessions(one: Connection, two: Session, three: scoped_session[Session]) -> None:
    assert_type(send.using(one).dispatch("ann"), RunHandle[int])
    assert_type(send.using(two).dispatch("ann"), RunHandle[int])
    assert_type(send.using(three).dispatch_many([{"to": "ann"}]), list[RunHandle[int]])


async def with_async_sessions(
    one: AsyncConnection, two: AsyncSession, three: aiosqlite.Connection
) -> None:
    assert_type(await send.using(one).dispatch("ann"), RunHandle[int])
    assert_type(await send.using(two).dispatch("ann"), RunHandle[int])
    assert_type(await send.using(three).dispatch("ann"), RunHandle[int])
    send.using(two).dispatch("ann")  # expect: unused-coroutine


async def with_async_connections(one: psycopg.AsyncConnection[Any]) -> None:
    assert_type(await send.using(one).dispatch("ann"), RunHandle[int])
    assert_type(await send.delay(5).using(one).queue("q").dispatch("ann"), RunHandle[int])
    assert_type(await send.using(one).dispatch_many([{"to": "ann"}]), list[RunHandle[int]])
    assert_type(await app.draft.using(one).dispatch("send", to="ann"), RunHandle[Any])
    assert_type(await app.schedule("s", send_text).using(one).dispatch("ann"), RunHandle[None])
    await send.using(one).dispatch(7)  # expect: arg-type
    send.using(one).dispatch("ann")  # expect: unused-coroutine


def send_text(to: str) -> None: ...


# ---------------------------------------------------------------- coroutines


async def with_coroutines() -> AsyncIterator[None]:
    assert_type(await send.aio.dispatch("ann", urgent=True), RunHandle[int])
    assert_type(await send.delay(10).aio.dispatch("ann"), RunHandle[int])
    assert_type(await send.aio.dispatch_many([{"to": "ann"}]), list[RunHandle[int]])
    assert_type(await app.schedule("s", send_text).aio.dispatch("ann"), RunHandle[None])
    assert_type(await app.aio.dispatch("send", to="ann"), RunHandle[Any])
    assert_type(await app.args(to="ann").aio.dispatch("send"), RunHandle[Any])
    await send.aio.dispatch(7)  # expect: arg-type
    await send.aio.dispatch()  # expect: call-arg
    await send.delay(5).aio.dispatch("ann", unknown=1)  # expect: call-arg
    await report.aio.dispatch("seven")  # expect: arg-type
    send.aio.dispatch("ann")  # expect: unused-coroutine

    found = await app.aio.get_run("019cb0d2-0000-7000-8000-000000000001")
    assert_type(await found.aio.wait(), RunStatus)
    assert_type(await found.aio.result(timeout=5), Any)
    assert_type(await found.aio.cancel(), bool)
    assert_type(await found.aio.status(), RunStatus)
    assert_type(await app.aio.run(), int)
    assert_type(await app.aio.install(), int)
    assert_type(await app.aio.prune(), Pruned)
    async with app.aio.lock("nightly", ttl="1m") as lock:
        assert_type(lock, Lock)
        yield


with app.lock("nightly") as held:
    assert_type(held.is_lost, bool)


# ---------------------------------------------------------------- results


@dataclass
class Invoice:
    """A result."""

    total: int


@app.job
def bill(customer: int) -> Invoice:
    """Return an object."""
    return Invoice(customer)


@app.job
async def bill_later(customer: int) -> Invoice:
    """Return an object, later."""
    return Invoice(customer)


@app.job
def attempt(ctx: RunContext) -> JobResult:
    """Return a result whose output can be anything."""
    return JobResult.success(3)


class Biller:
    """A handler class."""

    def handle(self, customer: int) -> Invoice:
        """Return an object."""
        return Invoice(customer)


assert_type(bill.dispatch(1), RunHandle[Invoice])
assert_type(bill.dispatch(1).result(), Invoice)
assert_type(bill.delay(5).dispatch(1).result(), Invoice)
assert_type([each.result() for each in bill.dispatch_many([{"customer": 1}])], list[Invoice])
assert_type(bill_later.dispatch(1).result(), Invoice)
assert_type(bill_later.delay("5m").dispatch(1).result(5), Invoice)
assert_type(attempt.dispatch().result(), Any)
assert_type(app.job(Biller).dispatch(1).result(), Invoice)
assert_type(app.schedule("b", Biller).dispatch(1).result(), Invoice)
assert_type(app.schedule("bill", lambda n: n).dispatch(1).result(), Any)
assert_type(app.get_run("019cb0d2-0000-7000-8000-000000000001").result(), Any)
total: RunHandle[object] = bill.dispatch(1)
wrong: RunHandle[int] = bill.dispatch(1)  # expect: assignment


async def with_results() -> None:
    """Await results."""
    assert_type(await (await bill.aio.dispatch(1)).aio.result(), Invoice)
    assert_type(await bill_later.dispatch(1).aio.result(), Invoice)
