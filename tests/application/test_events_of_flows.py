"""``ctx.wait_for``, ``app.emit``, ``run.signal`` and ``run.wake``."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from application.connections import Kind, each_kind
from servers import mariadb
from tickwork import RunContext, RunStatus
from tickwork.errors import EventTimeout, InvalidOption
from tickwork.events import EventEmitted

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Approval:
    by: str
    amount: int = 0


@pytest.fixture
def waiting(app):
    """A job that waits for a day for an event of its run."""

    @app.job
    def order(ctx: RunContext) -> str:
        try:
            approval = ctx.wait_for("approved", timeout="1d", type=Approval)
        except EventTimeout as error:
            return f"timeout: {error.event}"
        assert isinstance(approval, Approval)
        return f"approved by {approval.by}"

    return order


class TestSignals:
    """An event whose key is the id of the run."""

    def test_after_the_wait(self, app, passes, waiting):
        run = waiting.dispatch()
        passes(app)
        assert not run.status.is_final

        assert run.signal("approved", {"by": "ann"})
        assert not run.signal("approved", {"by": "bob"})
        passes(app)

        assert run.result() == "approved by ann"

    def test_before_the_wait(self, app, passes, waiting):
        run = waiting.dispatch()

        run.signal("approved", {"by": "ann"})
        passes(app)

        assert run.result() == "approved by ann"

    def test_it_does_not_come(self, app, clock, passes, waiting):
        run = waiting.dispatch()
        passes(app)
        clock.advance(DAY)
        passes(app)

        assert run.result() == "timeout: approved"

    def test_a_timeout_is_for_ever(self, app, clock, passes):
        @app.job(attempts=3)
        def order(ctx: RunContext) -> str:
            try:
                ctx.wait_for("approved", timeout="1d")
            except EventTimeout:
                ctx.sleep("1d")
                return "too late"
            return "in time"

        run = order.dispatch()
        passes(app)
        clock.advance(DAY)
        passes(app)
        run.signal("approved")
        clock.advance(DAY)
        passes(app)

        assert run.result() == "too late"

    def test_other_runs_do_not_get_it(self, app, passes, waiting):
        first, second = waiting.dispatch(), waiting.dispatch()
        passes(app)

        first.signal("approved", {"by": "ann"})
        passes(app)

        assert first.status is RunStatus.COMPLETED
        assert second.status is RunStatus.PENDING

    def test_coroutines(self, app, passes):
        @app.job
        async def order(ctx: RunContext) -> Any:
            return await ctx.aio.wait_for("approved", timeout=None)

        run = order.dispatch()
        passes(app)
        run.signal("approved", {"by": "ann"})
        passes(app)

        assert run.result() == {"by": "ann"}

    def test_data_of_another_type_fails_for_good(self, app, passes, waiting):
        run = waiting.dispatch()
        run.signal("approved", "yes")
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert "got data that does not fit the type" in run.read().reason

    def test_a_limit_is_free_while_it_waits(self, app, passes):
        @app.job(concurrency=1)
        def order(ctx: RunContext) -> Any:
            return ctx.wait_for("approved", timeout=None)

        runs = [order.dispatch() for _ in range(3)]
        passes(app)
        for run in runs:
            run.signal("approved", run.id)
        passes(app)

        assert [run.result() for run in runs] == [run.id for run in runs]

    def test_cancel(self, app, passes, waiting):
        run = waiting.dispatch()
        passes(app)

        run.cancel()
        run.signal("approved", {"by": "ann"})
        passes(app)

        assert run.status is RunStatus.CANCELED


class TestEmits:
    """Events by name and key."""

    def test_all_waiting_runs_get_it(self, app, passes):
        @app.job
        def ship(ctx: RunContext) -> Any:
            return ctx.wait_for("order.paid", key="42", timeout="7d")

        runs = [ship.dispatch() for _ in range(3)]
        passes(app)

        assert app.emit("order.paid", key="42", data={"amount": 5}).is_new
        assert not app.emit("order.paid", key="42", data={"amount": 6}).is_new
        passes(app)

        assert [run.result() for run in runs] == [{"amount": 5}] * 3

    @pytest.mark.parametrize(("event", "key"), [("", "1"), ("paid", ""), ("x" * 201, "1")])
    def test_names_are_checked(self, app, event, key):
        with pytest.raises(InvalidOption):
            app.emit(event, key=key)

    def test_a_tenant_has_its_own_events(self, app, passes):
        @app.job
        def ship(ctx: RunContext) -> Any:
            return ctx.wait_for("paid", key="1", timeout=None)

        run = app.draft.tenant("acme").dispatch(ship)
        app.emit("paid", key="1", data="of no tenant")
        passes(app)
        assert run.status is RunStatus.PENDING

        app.emit("paid", key="1", data="of acme", tenant="acme")
        passes(app)

        assert run.result() == "of acme"

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_in_a_transaction(self, app, url, database, passes, is_committed):
        @app.job
        def ship(ctx: RunContext) -> Any:
            return ctx.wait_for("paid", key="1", timeout=None)

        run = ship.dispatch()
        passes(app)
        with closing(connect(url, database)) as connection:
            app.emit("paid", key="1", data=5, using=connection)
            connection.commit() if is_committed else connection.rollback()
        passes(app)

        assert (run.status is RunStatus.COMPLETED) is is_committed


def connect(url: str, database: str) -> Any:
    if database == "postgres":
        return psycopg.connect(url)
    if database == "mariadb":
        return mariadb.connect(url, autocommit=False)
    return sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])


class TestWakes:
    def test_a_sleep_ends(self, app, passes):
        @app.job
        def order(ctx: RunContext) -> str:
            ctx.sleep("3d")
            return "awake"

        run = order.dispatch()
        passes(app)

        assert run.wake()
        passes(app)

        assert run.result() == "awake"
        assert not run.wake()


class TestCoroutines:
    """The methods of ``aio``."""

    def test_emit(self, app, passes):
        @app.job
        def ship(ctx: RunContext) -> Any:
            return ctx.wait_for("paid", key="1", timeout=None)

        run = app.draft.tenant("acme").dispatch(ship)
        passes(app)

        async def main() -> list[bool]:
            emits = [await app.aio.emit("paid", key="1", data=5, tenant="acme") for _ in range(2)]
            return [each.is_new for each in emits]

        assert asyncio.run(main()) == [True, False]
        passes(app)
        assert run.result() == 5

    def test_signal(self, app, passes, waiting):
        run = waiting.dispatch()
        passes(app)

        assert asyncio.run(run.aio.signal("approved", {"by": "ann"}))
        passes(app)

        assert run.result() == "approved by ann"

    def test_wake(self, app, passes):
        @app.job
        def order(ctx: RunContext) -> str:
            ctx.sleep("3d")
            return "awake"

        run = order.dispatch()
        passes(app)

        assert asyncio.run(run.aio.wake())
        passes(app)

        assert run.result() == "awake"

    @each_kind(lambda kind: kind.is_async)
    @pytest.mark.parametrize("is_committed", [True, False])
    def test_in_a_transaction(self, app, url, passes, kind: Kind, is_committed):
        @app.job
        def ship(ctx: RunContext) -> Any:
            return ctx.wait_for("paid", key="1", timeout=None)

        run = ship.dispatch()
        passes(app)

        async def main() -> None:
            async with kind.open(url) as borrower:
                await borrower.execute("DELETE FROM tickwork_log")
                emitted = await app.aio.emit("paid", key="1", data=5, using=borrower.borrowed)
                assert emitted.is_new
                await (borrower.commit() if is_committed else borrower.roll_back())

        asyncio.run(main())
        passes(app)

        assert (run.status is RunStatus.COMPLETED) is is_committed

    @each_kind(lambda kind: kind.is_async)
    def test_an_async_connection_needs_the_async_method(self, app, url, kind: Kind):
        async def main() -> None:
            async with kind.open(url) as borrower:
                with pytest.raises(InvalidOption, match=r"await app\.aio\.emit"):
                    app.emit("paid", key="1", using=borrower.borrowed)

        asyncio.run(main())

    def test_a_plain_connection_needs_the_plain_method(self, app, url, database):
        with (
            closing(connect(url, database)) as connection,
            pytest.raises(InvalidOption, match=r"Call app\.emit"),
        ):
            asyncio.run(app.aio.emit("paid", key="1", using=connection))


class TestEventsOfTheBus:
    """``EventEmitted``: the events that this process stored."""

    def test_emits_and_signals(self, app, clock, waiting):
        seen: list[EventEmitted] = []
        app.on(EventEmitted)(seen.append)
        run = waiting.dispatch()

        app.emit("paid", key="1", tenant="acme")
        app.emit("paid", key="1", tenant="acme")  # ignored
        run.signal("approved")

        now = clock.now()
        assert seen == [
            EventEmitted(at=now, event="paid", key="1", tenant="acme"),
            EventEmitted(at=now, event="approved", key=run.id),
        ]

    def test_not_in_the_transaction_of_a_program(self, app, url, database):
        seen: list[EventEmitted] = []
        app.on(EventEmitted)(seen.append)

        with closing(connect(url, database)) as connection:
            app.emit("paid", key="1", using=connection)
            connection.rollback()

        assert seen == []


class TestRetention:
    """Events are kept for 30 days, and waits until their run continues or ends."""

    @pytest.mark.parametrize(("days", "is_kept"), [(29, True), (32, False)])
    def test_workers_prune_events(self, app, clock, days, is_kept):
        app.emit("paid", key="1")
        clock.advance(days * DAY)

        app._services.worker_context.build_pruner().step()

        assert app.emit("paid", key="1").is_new is not is_kept

    @pytest.fixture
    def waits(self, url, database):
        """How many waits are stored."""

        def count() -> int:
            with closing(connect(url, database)) as connection, closing(connection.cursor()) as it:
                it.execute("SELECT count(*) FROM tickwork_wait")
                return int(it.fetchone()[0])

        return count

    def test_a_run_that_is_canceled(self, passes, app, waiting, waits):
        run = waiting.dispatch()
        passes(app)
        assert waits() == 1

        run.cancel()

        assert waits() == 0

    def test_a_run_that_does_not_wait_again(self, passes, app, clock, waits):
        @app.job(attempts=1)
        def order(ctx: RunContext) -> None:
            if ctx.has_resumed:
                raise ValueError("no")
            ctx.wait_for("approved", timeout="1d")

        run = order.dispatch()
        passes(app)
        clock.advance(DAY)
        passes(app)

        assert run.status.is_final
        assert waits() == 0

    def test_a_run_that_completes_in_a_transaction(
        self, *, passes, app, clock, url, database, waits
    ):
        @app.job
        def order(ctx: RunContext) -> None:
            if not ctx.has_resumed:
                ctx.wait_for("approved", timeout="1d")
            with closing(connect(url, database)) as connection:
                ctx.complete(connection=connection)
                connection.commit()

        run = order.dispatch()
        passes(app)
        clock.advance(DAY)
        passes(app)

        assert run.status is RunStatus.COMPLETED
        assert waits() == 0

    def test_a_run_whose_row_cannot_be_read(
        self, *, passes, app, clock, url, database, waiting, waits
    ):
        run = waiting.dispatch()
        passes(app)
        with closing(connect(url, database)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("UPDATE tickwork_run SET limit_keys = '[1]'")
            connection.commit()
        clock.advance(DAY)
        passes(app)

        assert run.status is RunStatus.FAILED_PERMANENT
        assert waits() == 0
