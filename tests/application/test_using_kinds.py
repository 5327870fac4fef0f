"""Dispatches and completions on each kind of connection, with each end of a transaction."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest

from application.connections import Borrower, Kind, Undone, connect, each_kind, maybe, orders, ship
from tickwork import RunContext, RunStatus
from tickwork.errors import NotCommitted

__all__ = ["connect", "orders", "ship"]  # fixtures
WAIT_SECONDS_MAX = 20.0


# ---------------------------------------------------------------- operations


class Verb(NamedTuple):
    """Something to do in a transaction, and the number of runs that it adds."""

    act: Callable[[Any, Any], Any]
    added: int


VERBS = {
    "dispatch": Verb(
        lambda ship, borrowed: ship.unique(by="order").using(borrowed).dispatch(order=1), 1
    ),
    "dispatch_many": Verb(
        lambda ship, borrowed: (
            ship.unique(by="order")
            .using(borrowed)
            .dispatch_many({"order": order} for order in range(5))
        ),
        5,
    ),
}
each_verb = pytest.mark.parametrize("operation", VERBS.values(), ids=VERBS)


# ---------------------------------------------------------------- endings


Act = Callable[[], Awaitable[object]]


async def committed(borrower: Borrower, act: Act) -> None:
    """Only the dispatch: the session must know that there is something to commit."""
    await act()
    await borrower.commit()


async def committed_with_an_order(borrower: Borrower, act: Act) -> None:
    await borrower.order()
    await act()
    await borrower.order()
    await borrower.commit()


async def rolled_back(borrower: Borrower, act: Act) -> None:
    await act()
    await borrower.roll_back()


async def rolled_back_to_a_savepoint(borrower: Borrower, act: Act) -> None:
    await borrower.order()
    with suppress(Undone):
        async with borrower.savepoint():
            await act()
            await borrower.order()
            raise Undone
    await borrower.commit()


async def left_open(borrower: Borrower, act: Act) -> None:
    """As after an error: there is no commit, and the connection is closed."""
    await borrower.order()
    await act()


class Ending(NamedTuple):
    """How a transaction ends, whether its writes stay, and the number of orders."""

    end: Callable[[Borrower, Act], Awaitable[None]]
    stays: bool
    orders: int


ENDINGS = {
    "committed": Ending(committed, stays=True, orders=0),
    "committed with an order": Ending(committed_with_an_order, stays=True, orders=2),
    "rolled back": Ending(rolled_back, stays=False, orders=0),
    "rolled back to a savepoint": Ending(rolled_back_to_a_savepoint, stays=False, orders=1),
    "left open": Ending(left_open, stays=False, orders=0),
}
each_ending = pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)


@each_kind()
@each_verb
@each_ending
def test_a_dispatch(*, app, url, orders, ship, passes, kind: Kind, operation: Verb, ending: Ending):
    found: list[Any] = []

    async def main() -> None:
        async with kind.open(url) as borrower:

            async def act() -> None:
                runs = await maybe(operation.act(ship, borrower.borrowed))
                found.extend(runs if isinstance(runs, list) else [runs])
                assert app.runs.recent() == []  # no other connection sees it yet

            await ending.end(borrower, act)

    asyncio.run(main())

    assert len(found) == operation.added
    assert len(app.runs.recent()) == (operation.added if ending.stays else 0)
    assert orders() == ending.orders
    assert passes(app) == (operation.added if ending.stays else 0)
    if ending.stays:
        assert [run.status for run in found] == [RunStatus.COMPLETED] * operation.added
    else:
        with pytest.raises(NotCommitted):
            found[0].read()
        # Its unique key is free.
        assert ship.unique(by="order").dispatch(order=1).is_new


@each_kind()
@each_ending
def test_the_end_of_a_run(app, url, orders, kind: Kind, ending: Ending):
    @app.job(concurrency=1)
    async def charge(ctx: RunContext) -> None:
        async with kind.open(url) as borrower:
            await ending.end(borrower, lambda: completed(ctx, borrower, kind))

    run = charge.dispatch()
    app.run()

    assert run.status == ("completed" if ending.stays else "failed_permanent")
    assert run.read().result == ('"paid"' if ending.stays else None)
    assert orders() == ending.orders
    assert app._services.opened_store.count_taken(["job:charge"]) == {"job:charge": 0}


async def completed(ctx: RunContext, borrower: Borrower, kind: Kind) -> None:
    if kind.is_async:
        await ctx.complete_async(connection=borrower.borrowed, result="paid")
    else:
        ctx.complete(connection=borrower.borrowed, result="paid")


# ---------------------------------------------------------------- called off half-way


class HalfWay:
    """Blocks methods inside a statement until the test continues them."""

    def __init__(self, database: str, connect: Callable[[], Any]) -> None:
        self._database = database
        self._connect = connect
        self._reached, self._go_on = threading.Event(), threading.Event()

    @asynccontextmanager
    async def blocking(self, table: str) -> AsyncIterator[None]:
        """On PostgreSQL another connection holds a lock; on SQLite a trigger waits."""
        with self._connect() as other:
            if self._database == "postgres" and table == "tickwork_run":
                other.execute(f"LOCK TABLE {table} IN SHARE MODE")
            elif self._database == "postgres":
                other.execute("SELECT FROM tickwork_run FOR UPDATE")
            try:
                yield
            finally:
                self._go_on.set()

    def prepare(self, connection: Any) -> Any:
        """Prepare a connection of a driver."""
        if self._database != "sqlite":
            return None
        connection.create_function("pause", 0, self._pause)
        for table in ("tickwork_run", "tickwork_history"):
            connection.execute(
                f"CREATE TEMP TRIGGER pause_{table} AFTER INSERT ON main.{table}"
                " BEGIN SELECT pause(); END"
            )
        return None

    async def reached(self) -> None:
        """Return when the method has reached the statement."""
        with ThreadPoolExecutor(1) as threads:
            await asyncio.get_running_loop().run_in_executor(threads, self._await_reached)

    def go_on(self) -> None:
        self._go_on.set()

    def _pause(self) -> int:
        self._reached.set()
        return int(self._go_on.wait(WAIT_SECONDS_MAX))

    def _await_reached(self) -> None:
        if self._database == "sqlite":
            assert self._reached.wait(WAIT_SECONDS_MAX)
            return
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        with self._connect() as connection:
            while time.monotonic() < give_up_at:
                found = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                if found.fetchone()[0]:
                    return
                connection.rollback()
                threading.Event().wait(0.005)
        raise AssertionError("No statement is blocked.")


@pytest.fixture
def half_way(database: str, connect: Callable[[], Any]) -> HalfWay:
    return HalfWay(database, connect)


async def call_off(half_way: HalfWay, act: Act) -> None:
    """Cancel a task in the middle of a statement of ours."""
    task = asyncio.ensure_future(act())
    await half_way.reached()
    task.cancel()
    await asyncio.sleep(0)
    half_way.go_on()
    with pytest.raises(asyncio.CancelledError):
        await task


is_async = each_kind(lambda kind: kind.is_async)
each_fate = pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])


@is_async
@each_verb
@each_fate
def test_a_dispatch_that_is_cancelled(
    *, app, url, orders, ship, half_way: HalfWay, kind: Kind, operation: Verb, is_committed: bool
):
    """It has no effect, and the caller can go on with the transaction."""

    async def main() -> None:
        async with kind.open(url, prepare=half_way.prepare) as borrower:
            await borrower.order()
            async with half_way.blocking("tickwork_run"):
                await call_off(half_way, lambda: operation.act(ship, borrower.borrowed))
            await ship.using(borrower.borrowed).dispatch(order=7)
            await (borrower.commit() if is_committed else borrower.roll_back())

    asyncio.run(main())

    assert [run.args for run in app.runs.recent()] == (['{"order":7}'] if is_committed else [])
    assert orders() == (1 if is_committed else 0)
    assert ship.unique(by="order").dispatch(order=1).is_new


@is_async
@each_fate
def test_a_completion_that_is_cancelled(
    *, app, url, orders, half_way: HalfWay, kind: Kind, is_committed: bool
):
    @app.job(concurrency=1)
    async def charge(ctx: RunContext) -> None:
        async with kind.open(url, prepare=half_way.prepare) as borrower:
            await borrower.order()
            async with half_way.blocking("tickwork_history"):
                await call_off(half_way, lambda: completed(ctx, borrower, kind))
            await (borrower.commit() if is_committed else borrower.roll_back())

    run = charge.dispatch()
    app.run()

    assert run.status == "completed"  # by its handler's return: nothing else has finished it
    assert run.read().result is None
    assert orders() == (1 if is_committed else 0)


@is_async
def test_a_cancelled_task(*, app, url, orders, ship, half_way: HalfWay, kind: Kind):
    """As at the shutdown of a server: the connection is closed when the task ends."""

    async def place() -> None:
        async with kind.open(url, prepare=half_way.prepare) as borrower:
            await borrower.order()
            await ship.using(borrower.borrowed).dispatch(order=1)
            await borrower.commit()

    async def main() -> None:
        async with half_way.blocking("tickwork_run"):
            await call_off(half_way, place)

    asyncio.run(main())

    assert app.runs.recent() == []
    assert orders() == 0
