"""Applications for tests: in memory, swapped into memory, and isolated in a transaction."""

import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from servers import mariadb
from tickwork import RunStatus, Tickwork, testing
from tickwork.errors import (
    AlreadyStarted,
    InvalidOption,
    RunNotFound,
    StoreUnavailable,
    WrongConnection,
)
from tickwork.testing import ManualClock

NOWHERE = "postgresql://user@127.0.0.1:9/nothing?connect_timeout=1"


class TestAnAppInMemory:
    """``testing.app()`` is an application that needs no setup."""

    def test_it_works_at_once_on_a_clock_that_stands_still(self):
        with testing.app() as app:
            run = app.schedule("double", lambda number: 2 * number).dispatch(number=21)
            testing.drain(app)

            assert run.result() == 42
            assert app.clock.now() == app.clock.now() == datetime(2026, 1, 1, tzinfo=UTC)

    def test_two_of_them_share_nothing(self):
        with testing.app() as one, testing.app() as other:
            one.schedule("it", lambda: None).dispatch()

            testing.assert_nothing_dispatched(other)

    def test_the_start_time_can_be_given(self):
        clock = ManualClock()
        with testing.app(clock=clock, start="2026-03-01T09:00:00+01:00") as app:
            assert app.clock is clock
            assert clock.now() == datetime(2026, 3, 1, 8, tzinfo=UTC)

    def test_it_takes_other_settings(self):
        with testing.app(timezone="Europe/Berlin") as app:
            app.schedule("report", lambda: None).daily_at("9:00")

            [done] = testing.travel(app, days=1)

            assert done.at == datetime(2026, 1, 1, 8, tzinfo=UTC)

    def test_rows_may_name_handlers_of_the_package_that_made_it(self):
        with testing.app() as app:
            assert app.settings.handler_paths == (__name__.partition(".")[0],)

    def test_coroutines_leave_nothing_open(self):
        async def wait() -> str:
            return "done"

        with testing.app() as app:
            run = app.schedule("wait", wait).dispatch()
            testing.drain(app)

        # An event loop that is left open is a warning, and warnings are errors here.
        assert run.result() == "done"


class TestSwapping:
    """``testing.swap()`` puts an application into memory. Its database is not opened."""

    @pytest.fixture
    def shop(self):
        app = Tickwork(NOWHERE)

        @app.job(queue="emails")
        def welcome(name: str) -> str:
            return f"Welcome {name}"

        app.schedule("digest", lambda: None).daily_at("9:00")
        return app

    def test_its_jobs_work_without_its_database(self, shop):
        with testing.swap(shop) as clock:
            run = shop.dispatch("welcome", name="Ann")
            testing.assert_dispatched(shop, "welcome", queue="emails")
            assert len(testing.drain(shop)) == 1
            assert run.result() == "Welcome Ann"
            assert [each.job for each in testing.travel(shop, days=1)] == ["digest"]
            assert clock.now() == datetime(2026, 1, 2, tzinfo=UTC)

    def test_afterwards_it_uses_its_own_database_again(self, shop):
        with testing.swap(shop):
            shop.dispatch("welcome", name="Ann")

        with pytest.raises(StoreUnavailable):
            shop.dispatch("welcome", name="Bob")

    def test_also_when_the_block_fails(self, app, clock):
        job = app.schedule("it", lambda: None)

        def fail_in_the_block():
            with testing.swap(app):
                job.dispatch()
                raise ValueError("on purpose")

        with pytest.raises(ValueError, match="on purpose"):
            fail_in_the_block()

        testing.assert_nothing_dispatched(app)
        assert app.clock is clock

    def test_the_block_and_the_database_are_separate(self, app):
        job = app.schedule("it", lambda: None)
        outside = job.dispatch()

        with testing.swap(app):
            testing.assert_nothing_dispatched(app)
            inside = job.dispatch()
            assert len(testing.drain(app)) == 1

        assert outside.status is RunStatus.PENDING
        with pytest.raises(RunNotFound):
            app.get_run(inside.id).read()

    def test_the_store_and_the_services_are_the_same_afterwards(self, app):
        app.schedule("it", lambda: None).dispatch()
        store, runs = app._services.store, app.runs

        with testing.swap(app):
            assert app._services.store is not store
            assert app.runs is not runs

        assert app._services.opened_store is app._services.store is store
        assert app.runs is runs

    def test_an_application_with_a_running_worker_is_rejected(self, app):
        with app.running(), pytest.raises(AlreadyStarted), testing.swap(app):
            pass

    def test_each_block_begins_empty(self, shop):
        for _ in range(2):
            with testing.swap(shop):
                testing.assert_nothing_dispatched(shop)
                shop.dispatch("welcome", name="Ann")

    def test_schedules_are_written_again_afterwards(self, app, clock):
        app.schedule("report", lambda: None).hourly()
        with testing.swap(app):
            assert len(testing.travel(app, hours=2)) == 2

        assert len(testing.travel(app, hours=3)) == 3

    def test_previews_use_the_clock_of_the_block(self, shop):
        report = shop.schedule("report", lambda: None).hourly()

        with testing.swap(shop, start="2030-05-17T08:30:00+00:00"):
            assert report.preview(1) == [datetime(2030, 5, 17, 9, tzinfo=UTC)]

    def test_its_clock_may_be_given(self, shop):
        clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        with testing.swap(shop, clock=clock) as given:
            assert given is clock is shop.clock

    def test_handles_made_in_the_block_work_after_it(self, shop):
        with testing.swap(shop):
            run = shop.dispatch("welcome", name="Ann")
            testing.drain(shop)

        assert run.result() == "Welcome Ann"


@pytest.fixture
def connect(database, url):
    """Opens connections to the application's database."""

    @contextmanager
    def open_connection():
        if database == "sqlite":
            path = url.removeprefix("sqlite:///").partition("?")[0]
            with closing(sqlite3.connect(path)) as connection:
                yield connection
        elif database == "mariadb":
            with closing(mariadb.connect(url, autocommit=False)) as connection:
                yield connection
        else:
            with psycopg.connect(url) as connection:
                yield connection

    return open_connection


class TestIsolation:
    """``testing.isolated()``: everything happens in your transaction, and is rolled back."""

    @pytest.fixture
    def app(self, make_app):
        app = make_app()
        app.install()
        return app

    def test_after_a_rollback_nothing_has_happened(self, app, connect):
        job = app.schedule("it", lambda n: n)
        with connect() as connection:
            with testing.isolated(app, connection):
                run = job.dispatch(n=1)
                testing.assert_dispatched(app, "it", times=1)
                assert run.status is RunStatus.PENDING
            connection.rollback()

        testing.assert_nothing_dispatched(app)
        with pytest.raises(RunNotFound):
            app.get_run(run.id).read()

    def test_other_connections_do_not_see_it(self, app, make_app, connect):
        app.schedule("it", lambda: None)
        other = make_app()
        with connect() as connection:
            with testing.isolated(app, connection):
                app.dispatch("it")
                testing.assert_nothing_dispatched(other)
            connection.rollback()

    def test_runs_are_claimed_executed_and_recorded_inside(self, app, connect):
        app.schedule("it", lambda n: 2 * n)
        with connect() as connection:
            with testing.isolated(app, connection):
                run = app.dispatch("it", n=21)
                assert len(testing.drain(app)) == 1
                assert run.read().status is RunStatus.COMPLETED
            connection.rollback()

        testing.assert_nothing_dispatched(app)

    def test_travel_works_inside(self, app, connect, clock):
        app.schedule("report", lambda: None).hourly()
        with connect() as connection:
            with testing.isolated(app, connection):
                assert len(testing.travel(app, hours=3)) == 3
            connection.rollback()

        assert app.runs.recent() == []
        assert app._services.store.list_schedules() == []

    def test_immediately_works_inside(self, app, connect):
        app.schedule("it", lambda n: n)
        with connect() as connection:
            with testing.isolated(app, connection), testing.immediately(app):
                assert app.dispatch("it", n=1).read().status is RunStatus.COMPLETED
            connection.rollback()

        testing.assert_nothing_dispatched(app)

    def test_assertions_ignore_runs_from_before(self, app, connect):
        job = app.schedule("it", lambda n: None)
        job.dispatch(n=0)
        with connect() as connection:
            with testing.isolated(app, connection):
                testing.assert_nothing_dispatched(app)
                job.dispatch(n=1)
                [found] = testing.dispatched(app)
                assert found.args == {"n": 1}
            connection.rollback()

        [found] = testing.dispatched(app)
        assert found.args == {"n": 0}

    def test_writes_of_the_program_are_visible_until_the_end(self, app, connect):
        app.schedule("it", lambda: None)
        with connect() as connection:
            connection.execute("CREATE TABLE customer (name text)")
            with testing.isolated(app, connection):
                connection.execute("INSERT INTO customer VALUES ('Ann')")
                app.dispatch("it")
                testing.drain(app)
            assert list(connection.execute("SELECT name FROM customer").fetchall()) == [("Ann",)]
            connection.rollback()

    def test_dispatches_with_using_on_the_same_connection(self, app, connect):
        job = app.schedule("it", lambda: None)
        with connect() as connection:
            with testing.isolated(app, connection):
                job.using(connection).dispatch()
                testing.assert_dispatched(app, "it")
                assert len(testing.drain(app)) == 1
            connection.rollback()

        testing.assert_nothing_dispatched(app)

    def test_a_clock_may_be_given(self, make_app, connect):
        app = make_app(clock=None)
        app.install()
        app.schedule("report", lambda: None).hourly()
        with connect() as connection:
            with testing.isolated(app, connection, clock=ManualClock()) as clock:
                assert len(testing.travel(app, hours=2)) == 2
                assert clock is app.clock
            connection.rollback()

        with pytest.raises(InvalidOption):
            testing.travel(app, hours=1)

    def test_without_a_clock_it_is_the_time_of_the_database(self, make_app, connect):
        app = make_app(clock=None)
        app.install()
        app.schedule("it", lambda: None)
        with connect() as connection:
            with testing.isolated(app, connection):
                app.dispatch("it")
                assert len(testing.drain(app)) == 1
            connection.rollback()

    def test_missing_tables_are_created_in_the_transaction(self, tmp_path):
        path = tmp_path / "fresh.db"
        app = Tickwork(f"sqlite:///{path}")
        app.schedule("it", lambda: None)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE customer (name text)")
            connection.execute("INSERT INTO customer VALUES ('Ann')")
            with testing.isolated(app, connection):
                app.dispatch("it")
                assert len(testing.drain(app)) == 1
            connection.rollback()
            left = connection.execute("SELECT name FROM sqlite_master").fetchall()
        app.close()

        assert left == [("customer",)]

    def test_a_connection_of_another_kind_is_rejected(self, app):
        with pytest.raises(WrongConnection), testing.isolated(app, object()):
            pass

    def test_afterwards_it_uses_its_own_connections_again(self, app, connect):
        job = app.schedule("it", lambda: "done")
        with connect() as connection:
            with testing.isolated(app, connection):
                job.dispatch()
            connection.rollback()

        run = job.dispatch()
        testing.drain(app)

        assert run.result() == "done"
