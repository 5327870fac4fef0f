"""Behind a PgBouncer in transaction mode everything works, without wake-ups by NOTIFY.

Its server connections are lent in turns, so whatever is kept in a session is gone at once. That the
store itself keeps every promise there, its own suite says: ``postgres pgbouncer``.
"""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest

from application.connections import KINDS, Borrower, Kind, maybe
from contract.builders import a_run, all_runs
from scenarios.project import Project
from servers.given import GivenServer
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from tickwork import RunContext, Tickwork
from tickwork._stores.postgres import wakeup
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import StoreUnavailable

pytestmark = pytest.mark.servers("postgres", "pgbouncer")

Databases: TypeAlias = PostgresServer | GivenServer

WAIT_SECONDS_MAX = 30
THREADS = 8


@pytest.fixture
def url(pgbouncer_server: PgBouncer, postgres_databases: Databases) -> Iterator[str]:
    """An empty database, behind the pooler."""
    database = postgres_databases.create_database()
    yield pgbouncer_server.url(database)
    postgres_databases.drop_database(database)


@pytest.fixture
def app(url: str) -> Iterator[Tickwork]:
    with Tickwork(url, install=True) as app:
        yield app


@pytest.fixture
def quick_echoes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for an answer that does not come."""
    monkeypatch.setattr(wakeup, "TEST_SECONDS", 0.1)
    monkeypatch.setattr(wakeup, "RETRY_SECONDS", 0.05)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def about_notify(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in warnings(caplog) if "do not arrive, as behind a pooler" in text]


def test_the_pooler_uses_another_connection_each_time(url):
    """Otherwise the other tests would prove nothing."""
    pid = "SELECT pg_backend_pid()"
    with (
        closing(psycopg.connect(url, prepare_threshold=None)) as one,
        closing(psycopg.connect(url, prepare_threshold=None)) as other,
    ):
        assert one.execute(pid).fetchone() != other.execute(pid).fetchone()
        other.commit()
        one.commit()
        seen = set()
        for _ in range(10):
            seen.add(one.execute(pid).fetchone())
            one.commit()

    assert len(seen) > 1


def test_a_worker_dispatches_fires_retries_and_drains(app, url, quick_echoes, caplog):
    fired, tries = [], []
    app.schedule("each second", lambda: fired.append(1)).every_second()

    @app.job(concurrency=2)
    def double(n: int) -> int:
        return 2 * n

    @app.job(retries={"max": 3, "delay": 0})
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return len(tries)

    @app.job
    def charge(ctx: RunContext) -> None:
        with closing(psycopg.connect(url)) as connection:
            ctx.complete(connection=connection, result="paid")
            connection.commit()

    with caplog.at_level(logging.INFO, "tickwork"), app.running(threads=4):
        runs = double.dispatch_many({"n": n} for n in range(100))
        later = double.delay(0.5).dispatch(n=7)
        once = [double.unique("one").delay(60).dispatch(n=0) for _ in range(2)]
        retried, charged = flaky.dispatch(), charge.dispatch()
        with app.lock("nightly"):
            assert [run.result(WAIT_SECONDS_MAX) for run in runs] == [2 * n for n in range(100)]
        assert later.result(WAIT_SECONDS_MAX) == 14
        assert retried.result(WAIT_SECONDS_MAX) == 3
        assert charged.result(WAIT_SECONDS_MAX) == "paid"
        assert once[0] == once[1]
        assert once[0].cancel()
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while not (about_notify(caplog) and fired) and time.monotonic() < give_up_at:
            threading.Event().wait(0.01)
        double.dispatch(n=1).wait(WAIT_SECONDS_MAX)

    assert fired
    assert len(about_notify(caplog)) == 1
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []
    assert app._services.opened_store._may_prepare is False  # noticed, without a warning


def test_many_threads_notice_at_once_that_statements_cannot_be_prepared(url):
    """The second thread notices it on an older connection, and retries as well."""
    store = PostgresStore(url)
    store.install()
    ready = threading.Barrier(THREADS)

    def add(_: int) -> int:
        ready.wait(WAIT_SECONDS_MAX)
        for _ in range(10):
            store.add_runs([a_run()])
        return 10

    with closing(store), ThreadPoolExecutor(THREADS) as threads:
        assert sum(threads.map(add, range(THREADS))) == len(all_runs(store))


def test_a_worker_process_logs_it_once(tmp_path, url):
    with Project(tmp_path, url) as project:
        project.write("shop", "@app.job\ndef greet(name: str):\n    return f'Hello {name}'\n")
        worker = project.work()
        assert project.dispatch("greet", name="Ann").result(WAIT_SECONDS_MAX) == "Hello Ann"
        project.until(lambda: "do not arrive, as behind a pooler" in worker.log, seconds=30)
        assert project.dispatch("greet", name="Bob").result(WAIT_SECONDS_MAX) == "Hello Bob"
        worker.terminate()
        assert worker.wait() == 0
        assert worker.log.count("do not arrive") == 1
        assert worker.log.count("Traceback") == 0


class TestListening:
    """The listener sends itself a notification to find out whether any arrive."""

    @pytest.fixture(autouse=True)
    def _quick(self, quick_echoes):
        pass

    def listened(self, url: str, times: int = 12) -> tuple[bool, wakeup.PostgresListener]:
        listener = wakeup.PostgresListener(url)
        heard = [listener.wait(0.02) for _ in range(times)]
        return any(heard), listener

    def heard(self, listener: wakeup.PostgresListener, server: Databases) -> bool:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("NOTIFY tickwork")
        return listener.wait(5)

    def test_in_session_mode_notifications_arrive(self, postgres_databases, caplog):
        with PgBouncer(postgres_databases.url(), mode="session") as pooler:
            is_listening, listener = self.listened(pooler.url(), times=1)
            assert is_listening
            assert self.heard(listener, postgres_databases)
            listener.close()
        assert warnings(caplog) == []

    @pytest.mark.parametrize(
        "settings", [{}, {"default_pool_size": "1", "server_round_robin": "0"}], ids=["many", "one"]
    )
    def test_in_transaction_mode_none_arrives(self, postgres_databases, caplog, settings):
        """Even if there is one server connection, which has executed LISTEN itself."""
        with PgBouncer(postgres_databases.url(), settings=settings) as pooler:
            is_listening, listener = self.listened(pooler.url())
            assert not is_listening
            listener.close()
        assert len(warnings(caplog)) == 1

    def test_without_a_pooler_they_arrive_and_nothing_is_logged(
        self, postgres_databases, monkeypatch, caplog
    ):
        monkeypatch.setattr(wakeup.PostgresListener, "_receives_test", lambda *_: 1 // 0)

        is_listening, listener = self.listened(postgres_databases.url(), times=1)

        assert is_listening
        assert self.heard(listener, postgres_databases)
        listener.close()
        assert warnings(caplog) == []

    def test_it_retries_and_logs_nothing_more(
        self, postgres_databases, pgbouncer_server, monkeypatch, caplog
    ):
        monkeypatch.setattr(wakeup, "PAUSE_SECONDS", 0.0)
        is_listening, listener = self.listened(pgbouncer_server.url(), times=8)
        assert not is_listening
        assert len(warnings(caplog)) == 1

        listener._conninfo = postgres_databases.url()  # as if the pooler was removed
        assert listener.wait(0.1)
        listener.close()
        assert len(warnings(caplog)) == 1


def test_the_pooler_restarts(postgres_databases, quick_echoes):
    with PgBouncer(postgres_databases.url()) as pooler:
        database = postgres_databases.create_database()
        with Tickwork(pooler.url(database), install=True) as app:
            double = app.schedule("double", lambda n: 2 * n)
            with app.running(threads=2):
                assert double.dispatch(n=1).result(WAIT_SECONDS_MAX) == 2
                pooler.restart()
                assert double.dispatch(n=2).result(WAIT_SECONDS_MAX) == 4
        postgres_databases.drop_database(database)


def test_connection_options_that_the_pooler_refuses_are_an_error(url):
    store = PostgresStore(f"{url}?options=-c%20search_path%3Djobs")

    with pytest.raises(StoreUnavailable, match="unsupported startup parameter: options"):
        store.install()


# ---------------------------------------------------------------- callers behind the pooler


def connect_options(kind: Kind) -> dict[str, Any]:
    """The options that asyncpg needs behind such a pooler."""
    if "asyncpg" not in kind.name:
        return {}
    if " over " not in kind.name:
        return {"statement_cache_size": 0}
    names = {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"__{uuid4()}__",
    }
    return {"connect_args": names}


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.database == "postgres"], ids=lambda kind: kind.name
)
def test_each_kind_of_connection(app, url, kind: Kind):
    @app.job(unique=True)
    def ship(order: int) -> int:
        return order

    async def twice(borrower: Borrower, order: int) -> list[Any]:
        await maybe(ship.using(borrower.borrowed).dispatch(order))
        return list(await maybe(ship.using(borrower.borrowed).dispatch_many([{"order": order}])))

    @app.job
    async def charge(ctx: RunContext) -> None:
        async with kind.open(url, **connect_options(kind)) as borrower:
            await twice(borrower, 1)
            await borrower.roll_back()
        async with kind.open(url, **connect_options(kind)) as borrower:
            [again] = await twice(borrower, 2)
            assert not again.is_new
            if kind.is_async:
                await ctx.complete_async(connection=borrower.borrowed)
            else:
                ctx.complete(connection=borrower.borrowed)
            await borrower.commit()

    run = charge.dispatch()
    app.run()

    assert run.status == "completed"
    assert [each.args for each in app.runs.recent() if each.job == "ship"] == ['{"order":2}']
