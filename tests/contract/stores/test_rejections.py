"""Which errors concern a row, and what becomes of the others of its batch: on real databases."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import psycopg
import pytest

from contract.builders import NOON, a_run, add, ids, settled, the_run, tick
from contract.builders import added as add_schedule
from contract.stores.conftest import ON_DISK, STORES
from servers import mariadb
from tickwork._domain.runs.outcome import Failed, Succeeded
from tickwork._domain.runs.status import RunStatus
from tickwork._stores.contract import Store
from tickwork._stores.mysql.store import MysqlStore
from tickwork._stores.postgres.store import PostgresStore
from tickwork._stores.sqlite.store import SqliteStore
from tickwork.errors import (
    RowRejected,
    SchemaDamaged,
    StatementFailed,
    StoreError,
    ValueRejected,
)
from tickwork.testing import ManualClock

OTHER_USER = 65_534


@pytest.fixture(params=ON_DISK)
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    with STORES[request.param](request, clock) as opened:
        yield opened


def run_sql(store: Store, text: str) -> None:
    """Run a statement as another program."""
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute(text)
    elif isinstance(store, MysqlStore):
        with mariadb.connect(store.url) as connection:
            connection.execute(text)
    else:
        assert isinstance(store, PostgresStore)
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute(text.encode())


REFUSED, FULL, VALUE = "refused", "full", "value"
RAISING = {
    SqliteStore: {
        REFUSED: "SELECT RAISE(ABORT, 'not today')",
        VALUE: "INSERT INTO tickwork_lock (name) VALUES (NULL)",
    },
    PostgresStore: {
        REFUSED: "'not today'",
        FULL: "'no space' USING ERRCODE = '53100'",
        VALUE: "'a constraint' USING ERRCODE = '23514'",
    },
    MysqlStore: {
        REFUSED: "'45000'",
        FULL: "'HY000' SET MYSQL_ERRNO = 1114",
        VALUE: "'23000' SET MYSQL_ERRNO = 4025",
    },
}


@contextmanager
def raising(
    store: Store, error: str, *, on: str, when: str = "true", before: str = "INSERT"
) -> Iterator[None]:
    """A trigger that raises an error for some rows of a table."""
    heading = f"CREATE TRIGGER refuse BEFORE {before} ON tickwork_{on} FOR EACH ROW"
    error = RAISING[type(store)].get(error, error)
    dropping = "DROP TRIGGER refuse"
    if isinstance(store, SqliteStore):
        run_sql(store, f"{heading} WHEN {when} BEGIN {error}; END")
    elif isinstance(store, MysqlStore):
        run_sql(store, f"{heading} IF {when} THEN SIGNAL SQLSTATE {error}; END IF")
    else:
        begin = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
        body = f"BEGIN IF {when} THEN RAISE {error}; END IF; RETURN NEW; END"
        run_sql(store, f"{begin} {body} $$; {heading} EXECUTE FUNCTION refuse()")
        dropping += f" ON tickwork_{on}"
    try:
        yield
    finally:
        run_sql(store, dropping)


def on(kind: str, *cases: tuple[str, type[StoreError]]) -> list[Any]:
    marks = [] if kind == "sqlite" else [pytest.mark.servers(kind)]
    return [pytest.param(kind, *case, id=f"{kind} {case[0]}", marks=marks) for case in cases]


class TestClasses:
    """Each error is of one class, by the table of its dialect."""

    @pytest.mark.parametrize(
        ("store", "error", "kind"),
        [
            *on("sqlite", (REFUSED, RowRejected)),
            *on(
                "postgres",
                (REFUSED, RowRejected),
                (FULL, StatementFailed),
                ("'x' USING ERRCODE = '42501'", StatementFailed),
                ("'x' USING ERRCODE = 'XX000'", StatementFailed),
                ("'x' USING ERRCODE = '22003'", ValueRejected),
                ("'x' USING ERRCODE = '22P05'", ValueRejected),
                ("'x' USING ERRCODE = '23514'", ValueRejected),
                ("'x' USING ERRCODE = '54000'", ValueRejected),
            ),
            *on(
                "mariadb",
                (REFUSED, RowRejected),
                (FULL, StatementFailed),
                ("'42000' SET MYSQL_ERRNO = 1142", StatementFailed),
                ("'22003' SET MYSQL_ERRNO = 1264", ValueRejected),
                ("'HY000' SET MYSQL_ERRNO = 1366", ValueRejected),
            ),
        ],
        indirect=["store"],
    )
    def test_an_error_of_a_statement(self, store, worker, error, kind):
        add(store, new := a_run())
        claim = worker.claim_one()

        with raising(store, error, on="history"), pytest.raises(StoreError) as caught:
            # It is not short: the store does not end the run in another way.
            store.record([settled(claim, Succeeded('{"n": 1}'))])

        assert type(caught.value) is kind
        assert the_run(store, new).status is RunStatus.RUNNING

    @pytest.mark.parametrize("store", ["sqlite"], indirect=True)  # the others get it as JSON
    def test_a_text_that_no_encoding_has(self, store, worker):
        add(store, a_run())

        with pytest.raises(ValueRejected):
            store.record([settled(worker.claim_one(), Succeeded('"\ud800"'))])

    def test_a_table_that_is_gone(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        run_sql(store, "ALTER TABLE tickwork_history RENAME TO away")
        try:
            with pytest.raises(SchemaDamaged):
                store.record([settled(claim)])
        finally:
            run_sql(store, "ALTER TABLE away RENAME TO tickwork_history")

        assert store.record([settled(claim)]) == []

    @pytest.mark.parametrize("store", ["sqlite"], indirect=True)
    def test_a_file_that_may_not_grow(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()
        connection = store._writer._connection
        [[pages]] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages}")

        with pytest.raises(StatementFailed, match="SQLITE_FULL"):
            store.record([settled(claim, Succeeded(f'"{"x" * 100_000}"'))])

        connection.execute("PRAGMA max_page_count = 1000000")
        assert store.record([settled(claim, Succeeded(f'"{"x" * 100_000}"'))]) == []

    @pytest.mark.parametrize("store", ["sqlite"], indirect=True)
    def test_a_file_that_is_read_only(self, store, worker):
        add(store, a_run())
        claim = worker.claim_one()

        with read_only(Path(store.path), store.close), pytest.raises(StatementFailed):
            store.record([settled(claim)])

        assert store.record([settled(claim)]) == []


@contextmanager
def read_only(path: Path, close: Callable[[], None]) -> Iterator[None]:
    """Take the right to write the file. A superuser has it always: act as another user."""
    close()
    path.chmod(0o444)
    # The folder, for the log of the file, and those above it that only the owner may enter.
    closed = takewhile(lambda folder: not folder.stat().st_mode & 0o001, path.parents)
    mode_by_folder = {folder: folder.stat().st_mode for folder in closed}
    is_superuser = os.geteuid() == 0
    try:
        for folder, mode in mode_by_folder.items():
            folder.chmod(mode | 0o077)
        if is_superuser:
            os.seteuid(OTHER_USER)
        yield
    finally:
        close()
        if is_superuser:
            os.seteuid(0)
        path.chmod(0o644)
        for folder, mode in mode_by_folder.items():
            folder.chmod(mode)


class TestRunsThatCannotBeUsed:
    """A run fails only because of its own row: not because the database is ill."""

    def test_a_claim_leaves_a_run_that_a_trigger_refuses(self, store, worker):
        add(store, bad := a_run(priority=1), *(good := [a_run() for _ in range(4)]))

        with raising(store, REFUSED, on="run", before="UPDATE", when=f"NEW.id = '{bad.id}'"):
            assert ids(worker.claim()) == ids(good)
            assert the_run(store, bad).status is RunStatus.PENDING

        assert ids(worker.claim()) == [bad.id]

    def test_a_claim_of_refused_runs_only(self, store, worker):
        add(store, bad := a_run())

        with (
            raising(store, REFUSED, on="run", before="UPDATE"),
            pytest.raises(RowRejected, match="A trigger of the database rejected a row"),
        ):
            worker.claim()

        assert the_run(store, bad).status is RunStatus.PENDING

    @pytest.mark.parametrize("store", [*ON_DISK[1:]], indirect=True)
    def test_a_claim_while_the_disk_is_full_for_some(self, store, worker):
        add(store, bad := a_run(), *(good := [a_run() for _ in range(4)]))

        with (
            raising(store, FULL, on="run", before="UPDATE", when=f"NEW.id = '{bad.id}'"),
            pytest.raises(StatementFailed),
        ):
            worker.claim()

        assert ids(worker.claim()) == ids([bad, *good])

    @pytest.mark.parametrize("store", [*ON_DISK[1:]], indirect=True)
    def test_the_reaper_while_the_disk_is_full(self, store, clock, worker):
        add(store, *(runs := [a_run() for _ in range(3)]))
        worker.claim()
        clock.advance(minutes=10)

        with raising(store, FULL, on="run", before="UPDATE"), suppress(StatementFailed):
            worker.reap()
        worker.reap()

        assert {the_run(store, run).status for run in runs} == {RunStatus.PENDING}


class TestOutcomesThatCannotBeWritten:
    """The row itself violates a constraint: what its handler did is recorded all the same."""

    @pytest.mark.parametrize(
        ("outcome", "status"),
        [
            (Succeeded(), RunStatus.COMPLETED),
            (Failed("no", retry=False), RunStatus.FAILED_PERMANENT),
        ],
    )
    def test_it_ends_as_what_it_is(self, store, clock, worker, outcome, status):
        add(store, new := a_run(attempts_max=2))
        claim = worker.claim_one()
        worker.record(claim, Failed("no"))
        clock.advance(minutes=1)
        store.stage(now=clock.now(), limit=10)
        claim = worker.claim_one()

        with raising(store, VALUE, on="attempt"):
            assert store.record([settled(claim, outcome, now=clock.now())]) == []

        assert the_run(store, new).status is status


class TestSchedules:
    """A schedule whose run is refused does not stop the others, and is not broken for good."""

    def add_three(self, store: Store) -> None:
        for name in ("digest", "report", "sweep"):
            add_schedule(store, name, next_due_at=NOON)

    def test_the_others_fire(self, store, clock):
        self.add_three(store)

        with raising(store, REFUSED, on="run", when="NEW.schedule = 'report'"):
            plan = tick(store, clock)
            assert sorted(run.schedule or "" for run in plan.runs) == ["digest", "sweep"]
            assert len(plan.unfired) == 1

        assert [run.schedule for run in tick(store, clock).runs] == ["report"]

    @pytest.mark.parametrize("store", [*ON_DISK[1:]], indirect=True)
    def test_none_is_broken_while_the_disk_is_full(self, store, clock):
        self.add_three(store)

        with raising(store, FULL, on="run"), pytest.raises(StatementFailed):
            tick(store, clock)

        assert len(tick(store, clock).runs) == 3
        assert [row.fault for row in store.list_schedules()] == ["", "", ""]
