"""PostgreSQL with a standby: as URL of an application, and as one that a COMMIT waits for."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import psycopg
import pytest

from contract.builders import NOON, a_run
from scenarios.project import Project, figure
from servers.postgres import PostgresServer
from servers.private import HOST
from servers.proxy import TcpProxy
from tickwork import Job, RunStatus, Tickwork
from tickwork._domain.identity import WorkerId
from tickwork._domain.runs.run import Claim
from tickwork._stores._sql.server_store import answer_timeout
from tickwork._stores.contract import ClaimRequest
from tickwork._stores.postgres.connection import APPLICATION_NAME
from tickwork._stores.postgres.store import PostgresStore
from tickwork.errors import OutcomeUnknown, RunNotFound, StoreBusy, StoreError, StoreReadOnly

T = TypeVar("T")
WORKER = WorkerId("019b76da-a800-7000-8000-00000000ba4e")

JOBS = """
@app.job
def note(n: int = 0):
    pass
"""


class Standby(PostgresServer):
    """A copy of another server, which follows it and accepts only reads."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(fsync=False)
        self.primary = primary

    def _seed(self) -> Path:
        return self.data_folder

    def _copy_seed(self, seed: Path) -> None:
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        source: list[str | Path] = [*options, "--dbname", self.primary.url()]
        self._run_as_owner([self.programs / "pg_basebackup", "--pgdata", seed, *source])


@pytest.fixture
def standby_project(tmp_path: Path) -> Iterator[Project]:
    with PostgresServer(fsync=False) as primary:
        database = primary.create_database()
        with Project(tmp_path, primary.url(database)) as project:
            project.write("shop", JOBS)
            project.dispatch("note")
        (tmp_path / "standby").mkdir()
        with (
            Standby(primary) as standby,
            Project(tmp_path / "standby", standby.url(database)) as project,
        ):
            project.write("shop", JOBS)
            yield project


@pytest.mark.servers("postgres")
def test_a_standby_can_be_read_and_changes_are_a_clear_error(standby_project):
    project = standby_project
    with Tickwork(project.url) as app:
        [run] = app.runs.page(limit=1).runs
        assert run.status is RunStatus.PENDING
        with pytest.raises(StoreReadOnly, match="is read-only"):
            app.remote("note").dispatch()

    commands = ["install", "dispatch note", "work --wait 1s", "collect"]
    processes = {command: project.run(*command.split()) for command in commands}
    for command, process in processes.items():
        assert process.wait(60) == 4, f"{command}: {process.log}"
        assert "is read-only" in process.log
        assert "Traceback" not in process.log


@pytest.mark.servers("postgres")
def test_after_a_failover_a_worker_finds_every_run_in_order():
    """What it remembers of the old primary may not hold on the new one, so it begins anew."""
    with PostgresServer(fsync=False) as primary:
        database = primary.create_database()
        installed = PostgresStore(primary.url(database))
        installed.install()
        installed.add_runs([a_run(priority=priority, args=str(priority)) for priority in (50, 10)])
        installed.close()
        with Standby(primary) as standby:  # a copy of what the primary has now
            hosts = f"{HOST}:{primary.port},{HOST}:{standby.port}"
            url = f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"
            store = PostgresStore(url)
            assert _claim(store, 5, "none") == []  # it looks, and remembers
            assert store.query.eras is not None
            known = store.query.eras.map
            primary.stop("immediate")
            with psycopg.connect(standby.url(), autocommit=True) as connection:
                connection.execute("SELECT pg_promote()")

            store.add_runs([a_run(priority=30, args="30")])

            assert [int(claim.args) for claim in _claim(store, 2)] == [10, 30]
            assert store.query.eras.map is not known
            assert [int(claim.args) for claim in _claim(store, 2)] == [50]
            store.close()


def _claim(store: PostgresStore, limit: int, *jobs: str) -> list[Claim]:
    wanted = ClaimRequest(limit, jobs=jobs or None)
    return store.claim(wanted, worker=WORKER, tag="", now=NOON, lease=timedelta(minutes=1))


# ---------------------------------------------------------------- a synchronous standby

TIMEOUT = timedelta(seconds=1)
SLACK = 3.0  # seconds, for a busy machine


@dataclass
class Shop:
    """An application on a primary whose only synchronous standby can be away."""

    primary: PostgresServer
    standby: Standby
    database: str
    app: Tickwork
    note: Job[..., Any]

    @property
    def url(self) -> str:
        return self.primary.url(self.database)

    def lose_standby(self) -> None:
        self.standby.crash()

    def return_standby(self) -> None:
        self.standby.start()

    def find(self, run_id: str) -> RunStatus:
        """The status of a run; waits until it is visible."""

        def read() -> RunStatus | None:
            try:
                return self.app.get_run(run_id).status
            except RunNotFound:
                return None

        return until(read)

    def await_commit(self, name: str) -> None:
        """Wait until a COMMIT of a program waits for the standby."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            until(
                lambda: connection.execute(
                    "SELECT pid FROM pg_stat_activity"
                    " WHERE application_name = %s AND wait_event = 'SyncRep'",
                    [name],
                ).fetchone()
            )

    def end_sessions(self, name: str) -> None:
        """End the sessions of a program that wait for the standby, as an administrator does."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            until(
                lambda: connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = %s AND wait_event = 'SyncRep'",
                    [name],
                ).fetchall()
            )


def until(check: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + 30
    # It ends at the deadline.
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def synchronous() -> Iterator[tuple[PostgresServer, Standby]]:
    with PostgresServer(fsync=False) as primary, Standby(primary) as standby:
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            until(
                lambda: connection.execute(
                    "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                ).fetchone()
            )
        yield primary, standby


@pytest.fixture
def shop(synchronous: tuple[PostgresServer, Standby]) -> Iterator[Shop]:
    primary, standby = synchronous
    if not standby.is_running:
        standby.start()
    database = primary.create_database()
    url = primary.url(database)
    store = PostgresStore(url, statement_timeout=TIMEOUT, lock_timeout=TIMEOUT / 2)
    with Tickwork(url, store=store, install=True) as app:

        @app.job
        def note(n: int = 0) -> None:
            pass

        note.dispatch()
        yield Shop(primary, standby, database, app, note)
        if not standby.is_running:
            standby.start()


DISPATCHES: dict[str, Callable[[Shop], object]] = {
    "dispatch": lambda shop: shop.note.dispatch(),
    "many": lambda shop: shop.note.dispatch_many([{"n": n} for n in range(5)]),
    "unique": lambda shop: shop.note.unique("key").dispatch(),
    "async": lambda shop: asyncio.run(dispatch_async(shop)),
}


async def dispatch_async(shop: Shop) -> None:
    await shop.note.aio.dispatch()


@pytest.mark.servers("postgres")
class TestASynchronousStandbyThatIsAway:
    """The COMMIT of a dispatch waits for it. The error names the runs, and comes in time."""

    @pytest.mark.parametrize("kind", DISPATCHES)
    def test_the_outcome_of_a_dispatch_is_unknown_and_the_runs_are_stored(self, shop, kind):
        shop.lose_standby()
        began_at = time.monotonic()

        with pytest.raises(OutcomeUnknown) as raised:
            DISPATCHES[kind](shop)

        taken = time.monotonic() - began_at
        figure(f"{kind}: {taken:.1f} s")
        assert taken < answer_timeout(TIMEOUT).total_seconds() + SLACK
        error = raised.value
        assert error.has_timed_out
        assert "did not answer COMMIT in time: the run" in error.what
        assert error.run_ids[0] in error.what
        assert len(error.run_ids) == (5 if kind == "many" else 1)
        shop.return_standby()
        assert {shop.find(run_id) for run_id in error.run_ids} == {RunStatus.PENDING}

    def test_a_repeat_with_the_same_unique_key_adds_no_second_run(self, shop):
        shop.lose_standby()
        with pytest.raises(OutcomeUnknown) as raised:
            shop.note.unique("key").dispatch()
        with pytest.raises(StoreBusy):  # this one is known: it waited for the first one
            shop.note.unique("key").dispatch()
        shop.return_standby()
        shop.find(raised.value.run_ids[0])

        again = shop.note.unique("key").dispatch()

        assert (again.id, again.is_new) == (raised.value.run_ids[0], False)

    def test_a_session_that_an_administrator_ends_is_found_by_the_repeat(self, shop):
        shop.lose_standby()
        run = asyncio.run(
            in_background(lambda: shop.end_sessions(APPLICATION_NAME), shop.note.dispatch)
        )

        assert not isinstance(run, Exception), run
        assert run.is_new
        assert run.status is RunStatus.PENDING
        shop.return_standby()

    def test_a_connection_that_is_cut_meanwhile_is_unknown_in_time(self, shop):
        """The repeat of the insert waits for the first one, within the configured timeout."""
        with TcpProxy(HOST, shop.primary.port) as proxy:
            url = shop.primary.url(shop.database, port=proxy.port)
            store = PostgresStore(url, statement_timeout=TIMEOUT * 8, lock_timeout=TIMEOUT / 2)
            with Tickwork(url, store=store) as app:
                app.remote("note").dispatch()
                shop.lose_standby()

                def cut() -> None:
                    shop.await_commit(APPLICATION_NAME)
                    proxy.cut()
                    proxy.heal()

                began_at = time.monotonic()
                error = asyncio.run(in_background(cut, app.remote("note").dispatch))
                taken = time.monotonic() - began_at

        assert isinstance(error, OutcomeUnknown), error
        assert "was lost during COMMIT: the run" in error.what
        assert taken < TIMEOUT.total_seconds() * 8 + SLACK
        shop.return_standby()
        assert shop.find(error.run_ids[0]) is RunStatus.PENDING

    def test_a_dispatch_that_commits_on_a_connection_of_the_caller_names_its_run(self, shop):
        with psycopg.connect(shop.url, autocommit=True, application_name="caller") as connection:
            shop.lose_standby()
            error = asyncio.run(
                in_background(
                    lambda: shop.end_sessions("caller"), shop.note.using(connection).dispatch
                )
            )

        assert isinstance(error, OutcomeUnknown), error
        [run_id] = error.run_ids
        shop.return_standby()
        assert shop.find(run_id) is RunStatus.PENDING

    def test_a_dispatch_on_an_async_connection_names_its_run(self, shop):
        async def dispatch() -> None:
            connection = await asyncpg.connect(
                shop.url, server_settings={"application_name": "caller"}
            )
            shop.lose_standby()
            ending = asyncio.to_thread(shop.end_sessions, "caller")
            try:
                await asyncio.gather(shop.note.using(connection).dispatch(), ending)
            finally:
                connection.terminate()

        with pytest.raises(OutcomeUnknown) as raised:
            asyncio.run(dispatch())

        [run_id] = raised.value.run_ids
        shop.return_standby()
        assert shop.find(run_id) is RunStatus.PENDING

    def test_in_an_open_transaction_the_caller_knows_and_the_handle_has_the_id(self, shop):
        with psycopg.connect(shop.url, application_name="caller") as connection:
            shop.lose_standby()
            run = shop.note.using(connection).dispatch()  # nothing is committed: no wait
            error = asyncio.run(
                in_background(lambda: shop.end_sessions("caller"), connection.commit)
            )

        assert isinstance(error, psycopg.OperationalError)  # of the caller's own COMMIT
        shop.return_standby()
        assert shop.find(run.id) is RunStatus.PENDING


async def in_background(act: Callable[[], object], call: Callable[[], T]) -> T | Exception:
    """Do something in a thread while the call waits; return its result, or its error."""
    acting = asyncio.create_task(asyncio.to_thread(act))
    try:
        return await asyncio.to_thread(call)
    except (StoreError, psycopg.Error) as error:
        return error
    finally:
        await acting
