"""``ctx.complete``: the handler's writes and the end of its run are committed together."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from servers import mariadb
from tickwork import RunContext, RunStatus, Snooze
from tickwork.errors import LeaseLost
from tickwork.events import AttemptFailed, Event, RunFailed, RunLost, RunSucceeded

POSTGRES = pytest.param("postgres", marks=[pytest.mark.servers("postgres")])


@pytest.fixture
def connect(url, database, app):
    app.install()

    def opened() -> Any:
        if database == "postgres":
            return closing(psycopg.connect(url))
        if database == "mariadb":
            return closing(mariadb.connect(url, autocommit=False))
        return closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0]))

    with opened() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)")
        connection.execute("DELETE FROM payments")
        connection.commit()
    return opened


@pytest.fixture
def paid(connect):
    def read():
        with connect() as connection:
            return [row[0] for row in connection.execute("SELECT amount FROM payments")]

    read.connect = connect  # type: ignore[attr-defined]
    return read


@pytest.fixture
def events_of(app):
    events: list[Event] = []
    app.events.subscribe(Event, events.append)
    return lambda *kinds: [type(event) for event in events if isinstance(event, kinds)]


def pay(connection, amount):
    connection.execute(f"INSERT INTO payments VALUES ({int(amount)})")


class TestCommitted:
    """The run is completed with the handler's writes, whatever happens afterwards."""

    def test_it_is_completed_with_its_result(self, app, connect, paid, events_of):
        @app.job
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                pay(connection, amount)
                ctx.complete(connection=connection, result={"charged": amount})
                connection.commit()

        run = charge.dispatch(5)

        assert app.run() == 1
        assert run.result() == {"charged": 5}
        assert paid() == [5]
        assert events_of(RunSucceeded, AttemptFailed, RunFailed, RunLost) == [RunSucceeded]
        assert app.run() == 0

    def test_it_stays_completed_if_the_handler_raises_afterwards(
        self, app, connect, paid, events_of, caplog
    ):
        hooks: list[object] = []

        @app.job(attempts=3, on_success=hooks.append, on_error=lambda: hooks.append("error"))
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                pay(connection, amount)
                ctx.complete(connection=connection)
                connection.commit()
            raise ValueError("too late to matter")

        run = charge.dispatch(5)
        with caplog.at_level(logging.ERROR, "tickwork"):
            app.run()

        assert run.status is RunStatus.COMPLETED
        assert paid() == [5]
        assert events_of(RunSucceeded, AttemptFailed, RunFailed, RunLost) == [RunSucceeded]
        assert len(hooks) == 1
        assert isinstance(hooks[0], RunContext)
        assert "too late to matter" in caplog.text

    def test_a_worker_completes_it_as_well(self, make_app, connect, paid, caplog):
        app = make_app(clock=None)

        @app.job
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                pay(connection, amount)
                ctx.complete(connection=connection)
                if amount != 2:
                    connection.commit()
                if amount == 3:
                    raise ValueError("too late to matter")

        runs = charge.dispatch_many({"amount": amount} for amount in (1, 2, 3))
        with caplog.at_level(logging.ERROR, "tickwork"), app.running():
            found = [run.wait(timeout=30) for run in runs]

        assert found == ["completed", "failed_permanent", "completed"]
        assert sorted(paid()) == [1, 3]
        assert "not committed" in runs[1].read().reason
        assert "too late to matter" in caplog.text

    def test_a_run_that_waited_for_its_limit_is_unblocked_at_once(self, app, connect):
        @app.job(concurrency=1)
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                connection.commit()

        runs = charge.dispatch_many({"amount": amount} for amount in range(2))
        app.run(batch=2)  # the second one finds the limit full
        assert [run.status for run in runs] == ["completed", "pending"]

        assert app._services.opened_store.pending_work().is_ready

    def test_the_job_remembers_its_success(self, app, clock, connect):
        @app.job
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                connection.commit()

        charge.dispatch()
        app.run()

        [row] = [row for row in app._services.opened_store.list_jobs() if row.name == "charge"]
        assert (row.last_success_at, row.failures) == (clock.now(), 0)

    def test_success_hooks_get_the_result(self, app, connect):
        heard = []

        @app.job(on_success=lambda ctx, output: heard.append(output))
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                ctx.complete(connection=connection, result="receipt")
                connection.commit()

        charge.dispatch()
        app.run()

        assert heard == ["receipt"]

    def test_a_connection_that_commits_by_itself(self, app, database, url, connect):
        @app.job
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                connection.isolation_level = None
                if database == "postgres":
                    connection.set_autocommit(True)
                if database == "mariadb":
                    connection.autocommit(True)
                ctx.complete(connection=connection)

        run = charge.dispatch()
        app.run()

        assert run.status is RunStatus.COMPLETED


class TestRolledBack:
    """After a rollback the attempt has failed, and is retried as usual."""

    def test_the_attempt_failed_and_is_retried(self, app, clock, connect, paid, events_of):
        tries = []

        @app.job(retries={"max": 2, "delay": 60})
        def charge(ctx: RunContext, amount: int) -> None:
            tries.append(ctx.attempt)
            with connect() as connection:
                pay(connection, amount)
                ctx.complete(connection=connection)
                if ctx.attempt == 1:
                    connection.rollback()
                else:
                    connection.commit()

        run = charge.dispatch(5)
        app.run()
        assert run.status == "failed"
        assert "not committed" in run.read().reason
        assert paid() == []

        clock.advance(seconds=60)
        app.run()
        assert run.status == "completed"
        assert paid() == [5]
        assert tries == [1, 2]
        assert [attempt.outcome for attempt in run.attempts()] == ["failed", "succeeded"]
        assert events_of(RunSucceeded, AttemptFailed, RunFailed, RunLost) == [
            AttemptFailed,
            RunSucceeded,
        ]

    def test_an_error_that_rolled_it_back_is_the_runs_error(self, app, connect, paid):
        errors = []

        @app.job(on_error=lambda ctx, error: errors.append(str(error)))
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                pay(connection, amount)
                ctx.complete(connection=connection)
                raise ValueError("no money")  # nothing was committed

        run = charge.dispatch(5)
        app.run()

        assert run.status is RunStatus.FAILED_PERMANENT
        assert run.read().reason == "ValueError: no money"
        assert errors == ["no money"]
        assert paid() == []

    def test_error_hooks_are_called(self, app, connect):
        heard = []

        @app.job(on_success=lambda: heard.append("yes"), on_error=lambda: heard.append("no"))
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                connection.rollback()

        charge.dispatch()
        app.run()

        assert heard == ["no"]

    def test_a_signal_of_the_handler_applies(self, app, clock, connect):
        @app.job
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                connection.rollback()
            raise Snooze(60)

        run = charge.dispatch()
        app.run()

        assert run.status is RunStatus.PENDING
        assert (run.read().due_at - clock.now()).total_seconds() == 60

    def test_the_handler_can_complete_again_in_the_same_attempt(self, app, connect, paid):
        @app.job
        def charge(ctx: RunContext, amount: int) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                connection.rollback()
                pay(connection, amount)
                ctx.complete(connection=connection)
                connection.commit()

        run = charge.dispatch(5)
        app.run()

        assert run.status is RunStatus.COMPLETED
        assert paid() == [5]

    def test_it_keeps_its_limit_slot_until_the_commit(self, app, connect):
        @app.job(concurrency=1, retries={"max": 2, "delay": 0})
        def charge(ctx: RunContext) -> None:
            with connect() as connection:
                ctx.complete(connection=connection)
                if ctx.attempt == 1:
                    connection.rollback()
                else:
                    connection.commit()

        charge.dispatch()
        app.run()

        assert app._services.opened_store.count_taken(["job:charge"]) == {"job:charge": 0}
        assert app.run() == 1
        assert app._services.opened_store.count_taken(["job:charge"]) == {"job:charge": 0}


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
class TestAsyncHandlers:
    """The same on an async connection: ``await ctx.complete_async(...)``."""

    @pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
    def test_their_transaction_decides(self, app, url, paid, is_committed):
        @app.job
        async def charge(ctx: RunContext, amount: int) -> None:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await connection.execute(f"INSERT INTO payments VALUES ({amount:d})".encode())
                await ctx.complete_async(connection=connection, result=amount)
                await (connection.commit() if is_committed else connection.rollback())

        run = charge.dispatch(5)
        app.run()

        assert run.status == ("completed" if is_committed else "failed_permanent")
        assert run.read().result == ("5" if is_committed else None)
        assert paid() == ([5] if is_committed else [])

    def test_a_timeout_after_the_commit_leaves_the_run_completed(self, app, url, connect):
        @app.job(timeout=0.3)
        async def charge(ctx: RunContext) -> None:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await ctx.complete_async(connection=connection)
                await connection.commit()
            await asyncio.sleep(10)

        run = charge.dispatch()
        app.run()

        assert run.status == "completed"


class TestLost:
    """A handler whose lease was lost cannot complete the run, and must roll back."""

    def test_lease_lost_is_raised_and_nothing_is_written(
        self, app, make_app, clock, paid, events_of
    ):
        other, connect = make_app(), paid.connect
        raised = []

        def define(of, *, is_slow):
            def charge(ctx: RunContext, amount: int) -> bool | str:
                if is_slow:
                    clock.advance(minutes=5)  # its lease ends, and another program takes it
                    other.run()
                with connect() as connection:
                    pay(connection, amount)
                    try:
                        ctx.complete(connection=connection, result=is_slow)
                    except LeaseLost as lost:
                        raised.append(lost)
                        connection.rollback()
                        raise
                    connection.commit()
                return "done"

            return of.schedule("charge", charge)

        slow = define(app, is_slow=True)
        define(other, is_slow=False)
        run = slow.dispatch(5)

        app.run()

        assert len(raised) == 1
        assert paid() == [5]  # once, by the other one
        assert run.status is RunStatus.COMPLETED
        assert run.result() is False
        assert events_of(RunSucceeded, RunLost) == [RunLost]
