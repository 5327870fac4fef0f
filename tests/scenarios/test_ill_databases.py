"""The database is ill for a while: runs that succeed meanwhile are completed when it is well.

Disks are really full where this process may mount one. Elsewhere a trigger raises the same error.
"""

import json
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scenarios.project import Project
from servers import mariadb
from servers.postgres import PostgresServer
from servers.private import free_port
from servers.small_disk import SmallDisk
from tickwork import RunStatus

RUNS = 30
FAULT_SECONDS = 6.0
GATED = """
@app.job
def gated(n: int):
    mark("begun", n=n)
    while not os.path.exists("fault"):
        time.sleep(0.02)
    mark("returned", n=n)
    # Large, so that it does not fit into the pages that the database has.
    return {"n": n, "padding": os.urandom(30_000).hex()}

@app.job(retries={"max": 3, "delay": 0.1})
def flaky(n: int):
    if current_run().attempt == 1:
        mark("flaky begun")
        while not os.path.exists("fault"):
            time.sleep(0.02)
        raise ValueError("the first attempt fails")
    return n
"""


@contextmanager
def running(sql: Callable[[str], object], before: str, after: str) -> Iterator[None]:
    """Run one statement before the block, and another after it."""
    sql(before)
    try:
        yield
    finally:
        sql(after)


class Ill:
    """A project on a database, and the fault that it gets."""

    def __init__(self, project: Project, fault: Callable[[], AbstractContextManager[None]]) -> None:
        self.project = project
        self.fault = fault


# ---------------------------------------------------------------- SQLite


@contextmanager
def on_sqlite(request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[Ill]:
    with SmallDisk(folder / "disk") as disk:
        path = disk.folder / "jobs.db"

        def sql(text: str) -> None:
            with closing(sqlite3.connect(path, timeout=20, isolation_level=None)) as connection:
                connection.execute(text)

        project = Project(folder, f"sqlite:///{path}?synchronous=NORMAL")
        table = "tickwork_history"
        refuse = f"CREATE TRIGGER refuse BEFORE INSERT ON {table}"
        faults = {
            "a full disk": disk.full,
            "a table that is gone": lambda: running(
                sql, f"ALTER TABLE {table} RENAME TO away", f"ALTER TABLE away RENAME TO {table}"
            ),
            "a trigger": lambda: running(
                sql,
                f"{refuse} BEGIN SELECT RAISE(ABORT, 'not now'); END",
                "DROP TRIGGER refuse",
            ),
        }
        if name == "a full disk" and not disk.is_mounted:
            pytest.skip("This process may not mount a disk.")
        with project:
            yield Ill(project, faults[name])


# ---------------------------------------------------------------- PostgreSQL


@contextmanager
def on_postgres(request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[Ill]:
    if name == "a full disk":
        with on_full_postgres(folder) as ill:
            yield ill
        return
    url: str = request.getfixturevalue("postgres_url")

    def sql(text: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text.encode())

    sql("DROP ROLE IF EXISTS tickwork_shop")
    sql("CREATE ROLE tickwork_shop")
    sql("GRANT ALL ON SCHEMA public TO tickwork_shop")
    table = "tickwork_history"
    begin = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    each = "FOR EACH ROW EXECUTE FUNCTION refuse()"
    trigger = f"CREATE TRIGGER refuse BEFORE INSERT ON {table} {each}"
    drop = f"DROP TRIGGER refuse ON {table}"

    def raising(statement: str) -> AbstractContextManager[None]:
        return running(sql, f"{begin} {statement}; END $$; {trigger}", drop)

    faults = {
        "revoked rights": lambda: running(
            sql,
            f"REVOKE INSERT ON {table} FROM tickwork_shop",
            f"GRANT INSERT ON {table} TO tickwork_shop",
        ),
        "a table that is gone": lambda: running(
            sql, f"ALTER TABLE {table} RENAME TO away", f"ALTER TABLE away RENAME TO {table}"
        ),
        "a trigger": lambda: raising("RAISE 'not now'"),
        "the error of a full disk": lambda: raising("RAISE 'no space' USING ERRCODE = '53100'"),
    }
    # It acts as a role that is no superuser.
    separator = "&" if "?" in url else "?"
    with Project(folder, f"{url}{separator}options=-c%20role%3Dtickwork_shop") as project:
        yield Ill(project, faults[name])
    sql("DROP OWNED BY tickwork_shop CASCADE")
    sql("DROP ROLE tickwork_shop")


@contextmanager
def on_full_postgres(folder: Path) -> Iterator[Ill]:
    """The tables are on a small disk, the write-ahead log is not: without it the server ends."""
    with PostgresServer(fsync=False) as server, ExitStack() as stack:
        disk = SmallDisk(server.folder / "small", owner=server.owner)
        if not disk.mount():
            pytest.skip("This process may not mount a disk.")
        stack.callback(disk.unmount)
        stack.callback(server.stop, "immediate")
        database = "on_small_disk"
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk.folder}'".encode())
            connection.execute(f"CREATE DATABASE {database} TABLESPACE small".encode())
        with Project(folder, server.url(database)) as project:
            yield Ill(project, disk.full)


# ---------------------------------------------------------------- MariaDB


@contextmanager
def on_mariadb(request: pytest.FixtureRequest, folder: Path, name: str) -> Iterator[Ill]:
    url: str = request.getfixturevalue("mariadb_url")
    database = url.rpartition("/")[2]

    def sql(text: str) -> None:
        with mariadb.connect(url) as connection:
            connection.execute(text)

    table = "tickwork_history"
    refuse = f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW SIGNAL SQLSTATE"
    faults = {
        "revoked rights": lambda: running(
            sql,
            f"REVOKE INSERT ON {database}.{table} FROM shop",
            f"GRANT INSERT ON {database}.{table} TO shop",
        ),
        "a table that is gone": lambda: running(
            sql, f"ALTER TABLE {table} RENAME TO away", f"ALTER TABLE away RENAME TO {table}"
        ),
        "a trigger": lambda: running(
            sql, f"{refuse} '45000' SET MESSAGE_TEXT = 'not now'", "DROP TRIGGER refuse"
        ),
        "the error of a full disk": lambda: running(
            sql, f"{refuse} 'HY000' SET MYSQL_ERRNO = 1114", "DROP TRIGGER refuse"
        ),
    }
    with Project(folder, url) as project:
        if name == "revoked rights":
            project.app.install()
            sql("CREATE OR REPLACE USER shop")
            with mariadb.connect(url) as connection:
                for each in mariadb.tables_of(connection):
                    # Of a table: a right of the database is read only when a client connects.
                    connection.execute(f"GRANT ALL ON {database}.{each} TO shop")
            scheme, _, place = url.partition("://")
            project.url = f"{scheme}://shop@{place.rpartition('@')[2]}"
        yield Ill(project, faults[name])
    if name == "revoked rights":
        sql("DROP USER shop")


ON = {"sqlite": on_sqlite, "postgres": on_postgres, "mariadb": on_mariadb}
FAULTS = ["a full disk", "a table that is gone", "a trigger"]
ON_SERVERS = [*FAULTS, "revoked rights", "the error of a full disk"]
ON_MARIADB = [name for name in ON_SERVERS if name != "a full disk"]
"""On a disk or in a tablespace that is full, MariaDB 10.11 often ends with an assertion."""


@pytest.fixture
def ill(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ill]:
    kind, name = request.param
    with ON[kind](request, tmp_path, name) as found:
        yield found


def faults_of(kind: str, *names: str) -> list[Any]:
    marks = [] if kind == "sqlite" else [pytest.mark.servers(kind)]
    return [pytest.param((kind, name), id=f"{kind}, {name}", marks=marks) for name in names]


def begin_fault(project: Project, stack: ExitStack, ill: Ill) -> None:
    stack.enter_context(ill.fault())
    (project.folder / "fault").touch()


@pytest.mark.parametrize(
    "ill",
    [
        *faults_of("sqlite", *FAULTS),
        *faults_of("postgres", *ON_SERVERS),
        *faults_of("mariadb", *ON_MARIADB),
    ],
    indirect=True,
)
def test_runs_that_succeed_meanwhile_are_completed(ill):
    project = ill.project
    project.write("shop", GATED)
    worker = project.work("--threads", str(RUNS + 1))
    runs = [project.dispatch("gated", n=n) for n in range(RUNS)]
    failing = project.dispatch("flaky", n=7)
    project.marked("begun", RUNS)
    project.marked("flaky begun")

    with ExitStack() as fault:
        begin_fault(project, fault, ill)
        project.marked("returned", RUNS)
        worker_waits(project, worker)

    for n, run in enumerate(runs):
        assert run.result(60)["n"] == n
        row = run.read()
        assert (row.status, row.token, row.attempt, row.reason) == (RunStatus.COMPLETED, 1, 1, "")
    assert sorted(mark["n"] for mark in project.marks("begun")) == list(range(RUNS))
    assert failing.result(60) == 7
    assert failing.read().attempt == 2
    assert worker.is_alive
    assert worker.log.count("Traceback") == 0, worker.log
    # Once for each task that waits, not for each try.
    assert worker.log.count("cannot execute a statement") < 15, worker.log


def worker_waits(project: Project, worker: Any) -> None:
    """Wait until the worker has reported the fault, and has tried again a few times."""
    project.until(lambda: "wait in memory" in worker.log, seconds=30)
    with pytest.raises(AssertionError):
        project.until(lambda: not worker.is_alive, seconds=FAULT_SECONDS)


@pytest.mark.parametrize("ill", faults_of("postgres", "revoked rights", "a trigger"), indirect=True)
def test_a_worker_that_is_stopped_meanwhile_waits_for_the_database(ill):
    project = ill.project
    project.write("shop", GATED)
    worker = project.work("--drain", "1s")
    run = project.dispatch("gated", n=1)
    project.marked("begun")

    with ExitStack() as fault:
        begin_fault(project, fault, ill)
        project.until(lambda: "wait in memory" in worker.log, seconds=30)
        worker.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(3)

    assert worker.wait(30) == 0
    assert run.read().status is RunStatus.COMPLETED
    assert len(project.marks("begun")) == 1


@pytest.mark.parametrize("ill", faults_of("postgres", "revoked rights"), indirect=True)
def test_health_checks_say_so(ill):
    project = ill.project
    project.write("shop", GATED)
    port = free_port()
    project.work("--http", f"127.0.0.1:{port}")
    address = f"http://127.0.0.1:{port}"
    project.until(lambda: probe(f"{address}/readyz") == (200, "ready\n"), seconds=30)
    run = project.dispatch("gated", n=1)
    project.marked("begun")

    with ExitStack() as fault:
        begin_fault(project, fault, ill)
        project.until(lambda: probe(f"{address}/readyz")[0] == 503, seconds=30)
        _, text = probe(f"{address}/readyz")
        assert "1 outcome not written" in text
        status, text = probe(f"{address}/healthz")  # a new process would lose the outcome
        assert (status, text.splitlines()[0]) == (200, "running")
        doctor = project.until(lambda: reported_by_doctor(project), seconds=60)
        assert "permission denied" in doctor

    assert run.result(60)["n"] == 1
    project.until(lambda: probe(f"{address}/readyz") == (200, "ready\n"), seconds=30)
    project.until(lambda: not reported_by_doctor(project), seconds=60)


def reported_by_doctor(project: Project) -> str:
    """What `doctor` says of outcomes, unless it is well."""
    process = project.run("doctor", "--json")
    process.wait()
    report = json.loads(process.log[process.log.index("{") :])
    [check] = [check for check in report["checks"] if check["name"] == "outcomes"]
    return "" if check["level"] == "ok" else check["text"]


def probe(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
